"""Runs in chunks on the session axis: the same problems, contexts and noise for every policy."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, Unpack, cast

import numpy as np
from scipy import special

from latentbandits.environments.protocol import Environment, Round
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_count
from latentbandits.models.clicks import AnyClickModel, ClickModel, as_click_model
from latentbandits.policies import decision
from latentbandits.policies.lists import decide_list, update_list
from latentbandits.policies.protocol import AnyPolicy, adopt, begin, is_policy
from latentbandits.policies.registry import Entry, Inputs, PolicySpec, find, parse
from latentbandits.report.notebook import Shown, columns_of, plural
from latentbandits.report.report import Estimate, Table, policy_table

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

PolicyMaker: TypeAlias = Callable[[Any], AnyPolicy]
"""A callable that builds a policy for the model of a chunk of runs: often the policy's class."""

CHUNK = 500
"""Runs per chunk: it settles the random streams, so it is part of a result's identity."""

_MOST_KEPT = 2**24  # largest number of a chunk's rewards that are kept for `by_pull` (128 MB)

_UNDER_WAY = 8  # chunks submitted to an executor at a time


class ShowingOptions(TypedDict, total=False):
    """The fields of `Showing`, as keywords."""

    replacement: bool
    length: int | None
    click_model: AnyClickModel


@dataclass(frozen=True)
class Showing:
    """The way a round shows actions: one or a list of them, with or without replacement.

    The fields are keywords of `simulate` and `tune`, which describe them.
    """

    replacement: bool = True
    length: int | None = None
    click_model: AnyClickModel = "each"

    def __post_init__(self) -> None:
        clicks = self.clicks  # an unknown click model is refused here
        if self.length is not None:
            clicks.check_length(positive_count("length", self.length))
            if not self.replacement:
                raise ValueError(
                    "lists are shown with replacement: leave length or replacement out"
                )

    @property
    def clicks(self) -> ClickModel:
        return as_click_model(self.click_model)


@dataclass(frozen=True)
class _Job:
    """The input of a worker process, on which alone its results depend."""

    policies: Mapping[str, AnyPolicy | PolicyMaker]
    environment: Environment
    horizon: int
    by_pull: bool
    showing: Showing
    seed: int
    chunk: int
    n_runs: int

    def stream(self, name: str) -> np.random.Generator:
        """Return the random stream of this name: adding a policy changes no other policy's."""
        return np.random.default_rng([self.seed, self.chunk, zlib.crc32(name.encode())])


def simulate(
    policies: Mapping[str, AnyPolicy | PolicyMaker],
    environment: Environment,
    *,
    n_runs: int,
    horizon: int,
    seed: int = 0,
    first_rounds: int = 50,
    last_rounds: int = 100,
    by_pull: bool = False,
    executor: Executor | None = None,
    progress: Callable[[int], None] | None = None,
    **showing: Unpack[ShowingOptions],
) -> Results:
    """Play every policy in the same `n_runs` problems for `horizon` rounds.

    Args:
        policies: by name, each a policy or a callable that takes the model of the runs (`mTS`,
            or `functools.partial(mUCB, horizon=500)`), so that every run can have its own model.
        environment: draws the problems and their rounds.
        n_runs: number of independent problems.
        horizon: rounds of a run.
        seed: random seed; results depend on it and on `n_runs`, not on the executor.
        first_rounds: rounds of the window at the start, at most half the horizon.
        last_rounds: rounds of the window at the end, at most half the horizon.
        by_pull: where an action's rewards are independent draws of one distribution
            (`Instances.repeats`), the k-th time that a policy plays an action it receives the
            action's reward of round k. Two policies that play an action equally often then see
            the same rewards of the action. The difference between policies varies less, and its
            mean stays the same.
        executor: runs chunks of 500 runs in parallel: any `concurrent.futures.Executor`, such as a
            ProcessPoolExecutor or a `SparkExecutor` (`simulation/spark_executor.py`); None runs
            them here. Results are the same to the last bit.
        progress: called with the number of runs that have just finished.
        **showing: `replacement`, `length` and `click_model`. With `replacement` (the default) a
            policy can choose an action again in the same run. Otherwise regret is measured against
            the best action in round 1, the second best in round 2 and so on, and all rounds of a
            run must have the same actions. `length` is the number of actions in the list that a
            policy shows in every round; None, the default: single actions. Rewards of lists are
            their true values, and regret is against the best list. `click_model` says how users
            look at a list: "each", "cascade" or a `ClickModel`.

    >>> from latentbandits import UCB1, mTS
    >>> from latentbandits.environments import Synthetic
    >>> policies = {"mTS": mTS, "UCB1": UCB1(n_actions=10)}
    >>> results = simulate(policies, Synthetic(model_noise=0.05), n_runs=100, horizon=50)
    >>> results["mTS"].regret.mean < results["UCB1"].regret.mean
    True
    """
    if not policies:
        raise ValueError("give at least one policy to simulate")
    positive_count("n_runs", n_runs)
    positive_count("horizon", horizon)
    windows = Windows.within(
        positive_count("first_rounds", first_rounds),
        positive_count("last_rounds", last_rounds),
        horizon,
    )
    shown = Showing(**showing)
    if by_pull and shown.length is not None:
        raise ValueError("by_pull is for single actions, not for lists: leave one of them out")
    given = dict(policies), environment, horizon, by_pull, shown, seed
    jobs = [
        _Job(*given, chunk, min(CHUNK, n_runs - start))
        for chunk, start in enumerate(range(0, n_runs, CHUNK))
    ]
    totals = {name: RunTotals(n_runs, horizon, windows) for name in policies}
    for chunk in _run(jobs, executor):
        for name, total in totals.items():
            total.add(chunk, name)
        if progress is not None:
            progress(chunk.n_runs)
    return Results({name: total.finish(name) for name, total in totals.items()})


def _run(jobs: list[_Job], executor: Executor | None) -> Iterator[ChunkResult]:
    """Yield chunk results in order, with few under way at once, so that memory stays bounded."""
    if executor is None:
        yield from map(_play, jobs)
        return
    under_way: deque[Future[ChunkResult]] = deque()
    try:
        for job in jobs:
            under_way.append(executor.submit(_play, job))
            if len(under_way) >= _UNDER_WAY:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


def _play(job: _Job) -> ChunkResult:
    instances = job.environment.start(job.n_runs, job.horizon, job.stream("instances"))
    length, clicks = job.showing.length, job.showing.clicks
    rounds, looks = job.stream("rounds"), job.stream("looks")
    users = getattr(instances, "user_features", None) or [None] * job.n_runs
    made = {name: _make(policy, instances.model) for name, policy in job.policies.items()}
    players = [
        _Player(name, policy, begin(policy, users), job.stream(f"policy {name}"))
        for name, policy in made.items()
    ]
    result = ChunkResult(job.policies, job.n_runs, job.horizon)
    kept: FloatArray | None = None
    for t in range(job.horizon):
        outcome = instances.round(t, rounds)
        if t == 0 and job.by_pull and getattr(instances, "repeats", False):
            size = (job.horizon, *outcome.rewards.shape)
            kept = np.empty(size) if math.prod(size) <= _MOST_KEPT else None
        if kept is not None:
            kept[t] = outcome.rewards
        means = decision.restrict(outcome.means, outcome.eligible)
        if not job.showing.replacement:
            _check_left(t, means)
            result.best(t, np.sort(means, axis=1)[:, -1 - t])
            for player in players:
                result.reward(t, player.name, player.play(outcome, kept, once=True))
        elif length is None:
            result.best(t, means.max(axis=1))
            for player in players:
                result.reward(t, player.name, player.play(outcome, kept))
        else:
            uniform = looks.random((job.n_runs, length))
            for player in players:
                result.reward(t, player.name, player.show(outcome, clicks, uniform))
            result.best(t, clicks.best_value(means, length))
    return result


def _check_left(t: int, means: FloatArray) -> None:
    """Refuse a round for which a run has no action left; unavailable actions have mean -inf."""
    fewest = int(np.isfinite(means).sum(axis=1).min())
    if t >= fewest:
        raise ValueError(
            f"without replacement a run ends after {fewest} rounds, one for each action: choose a "
            "shorter horizon"
        )


def _make(policy: AnyPolicy | PolicyMaker, model: Any) -> AnyPolicy:
    if not is_policy(policy):
        policy = cast(PolicyMaker, policy)(model)
    return adopt(cast(AnyPolicy, policy), "simulate")


@dataclass(eq=False)
class _Player:
    """A policy with the beliefs and random stream of its chunk."""

    name: str
    policy: AnyPolicy
    belief: Any
    rng: np.random.Generator
    pulls: IntArray | None = None  # (n_runs, n_actions)
    unused: BoolArray | None = None  # (n_runs, n_actions), without replacement

    def play(self, outcome: Round, kept: FloatArray | None, *, once: bool = False) -> FloatArray:
        """Play one round and return the mean rewards of the actions, `(n_runs,)`.

        `kept` has the rewards of all rounds so far if they go by pull. With `once`, actions that
        the run has played are not eligible.
        """
        eligible = outcome.eligible
        if once:
            if self.unused is None:
                self.unused = np.ones(outcome.means.shape, np.bool_)
            eligible = self.unused if eligible is None else eligible & self.unused
        made = self.policy.decide(
            self.belief, outcome.context, self.rng, eligible=eligible, propensity=False
        )
        place = (np.arange(len(made.action)), made.action)
        if self.unused is not None:
            self.unused = self.unused.copy()  # the decision holds the mask that it was made with
            self.unused[place] = False
        if kept is None:
            reward = outcome.rewards[place]
        else:
            if self.pulls is None:
                self.pulls = np.zeros(kept.shape[1:], np.int64)
            reward = kept[(self.pulls[place], *place)]
            self.pulls[place] += 1
        self.belief = self.policy.update(self.belief, outcome.context, made, reward)
        return outcome.means[place]

    def show(self, outcome: Round, clicks: ClickModel, uniform: FloatArray) -> FloatArray:
        """Show a list to every run and return the true values of the lists, `(n_runs,)`.

        `uniform` (n_runs, length) settles who looks at which position, for all policies alike.
        """
        shown = decide_list(
            self.policy,
            self.belief,
            outcome.context,
            self.rng,
            uniform.shape[1],
            clicks,
            eligible=outcome.eligible,
            propensity=False,
        )
        place = (np.arange(len(uniform))[:, None], shown.actions)
        observed = clicks.react(outcome.rewards[place], uniform)
        self.belief = update_list(
            self.policy, self.belief, outcome.context, shown, observed, clicks
        )
        return clicks.value(outcome.means[place])


# From a policy's text to a callable that builds it for the model of each chunk of runs.


def maker(policy: str | PolicySpec, **facts: Any) -> PolicyMaker:
    """Return a callable for `simulate`: it takes a model and builds `policy` on it.

    Args:
        policy: a name of the registry, with options if wanted.
        facts: further fields of `Inputs`, such as `horizon` and `reward_range`.

    >>> from latentbandits import GaussianArms
    >>> maker("mUCB", horizon=500)(GaussianArms([[0.9, 0.1]], noise=0.5)).horizon
    500
    """
    spec = parse(policy)
    return partial(_build, find(spec.name), dict(spec.options), facts)


def makers(policies: Mapping[str, str | PolicySpec], **facts: Any) -> dict[str, PolicyMaker]:
    """Return a maker for each policy, by its label."""
    return {label: maker(policy, **facts) for label, policy in policies.items()}


def _build(
    entry: Entry, options: Mapping[str, Any], facts: Mapping[str, Any], model: Any
) -> AnyPolicy:
    return entry.make(Inputs(model, **facts), options)


# Results: typed values, every number with its standard error.

WORST_SHARE = 0.1
"""The worst decile: the share of runs that earned least."""

MIN_WORST_RUNS = 50
"""Fewer runs than this have too few in the worst decile to estimate it."""

Metric = Literal[
    "regret", "reward", "worst_decile_reward", "first_rounds_reward", "last_rounds_reward"
]


class Windows(NamedTuple):
    """The numbers of rounds at the start and at the end of a run that are reported apart."""

    first: int
    last: int

    @classmethod
    def within(cls, first: int, last: int, horizon: int) -> Windows:
        """Return windows of at most half the horizon each, so that they never overlap.

        >>> Windows.within(50, 100, horizon=60)
        Windows(first=30, last=30)
        """
        half = max(horizon // 2, 1)
        return cls(min(first, half), min(last, half))


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """One policy over all runs. Rewards are true mean rewards per round, regret is cumulative."""

    policy: str
    curve: FloatArray  # (horizon,), mean over runs of the reward of each round
    curve_stderr: FloatArray
    worst_curve: FloatArray  # (horizon,), the same over the tenth of runs with the lowest rewards
    worst_curve_stderr: FloatArray
    regrets: FloatArray  # (n_runs,)
    rewards: FloatArray  # (n_runs,)
    first_rewards: FloatArray  # (n_runs,), over the first window
    last_rewards: FloatArray  # (n_runs,), over the last window
    windows: Windows
    best_curve: FloatArray  # (horizon,), mean over runs of the best action's reward
    n_groups: int = 1  # number of equal, consecutive groups of dependent runs

    @property
    def regret_curve(self) -> FloatArray:
        """Mean over runs of the cumulative regret after each round, `(horizon,)`."""
        return np.cumsum(self.best_curve - self.curve)

    @property
    def regret(self) -> Estimate:
        return self.estimate("regret")

    @property
    def reward(self) -> Estimate:
        return self.estimate("reward")

    @property
    def first_rounds_reward(self) -> Estimate:
        return self.estimate("first_rounds_reward")

    @property
    def last_rounds_reward(self) -> Estimate:
        return self.estimate("last_rounds_reward")

    @property
    def worst_decile_reward(self) -> Estimate:
        """Mean reward of the tenth of runs that earned least; NaN below MIN_WORST_RUNS runs."""
        return self.estimate("worst_decile_reward")

    def estimate(self, metric: Metric) -> Estimate:
        return Estimate.from_values(self.per_run(metric), self.n_groups)

    def per_run(self, metric: Metric) -> FloatArray:
        """Return one number per run; their mean over runs is the metric."""
        if metric == "worst_decile_reward":
            groups = np.split(self.rewards, self.n_groups)
            return np.concatenate([lower_tail_terms(group) for group in groups])
        return {
            "regret": self.regrets,
            "reward": self.rewards,
            "first_rounds_reward": self.first_rewards,
            "last_rounds_reward": self.last_rewards,
        }[metric]

    def row(self) -> dict[str, float | str]:
        """Return one flat row for results.json."""
        row: dict[str, float | str] = {"policy": self.policy}
        for name in ("regret", "reward", "worst_decile_reward", "first_rounds_reward",
                     "last_rounds_reward"):  # fmt: skip
            estimate: Estimate = getattr(self, name)
            row |= estimate.row(name)
        return row | {"first_rounds": self.windows.first, "last_rounds": self.windows.last}


def lower_tail_terms(values: FloatArray, share: float = WORST_SHARE) -> FloatArray:
    """Return one term per value; their mean is the mean of the lowest `share` of the values.

    The terms are the jackknife's pseudo-values (Efron & Stein 1981), moved so that their mean is
    the plain tail mean. So the standard error of the mean allows for the tail being chosen by its
    values, and paired differences have errors too. Deviations are widened by Student's t with share
    n - 2 degrees of freedom over the normal quantile, because few values are in the tail: normal
    90% intervals then hold at least 85% from 50 values on (tests/statistical/
    test_worst_decile.py). Below MIN_WORST_RUNS values there is no usable error, and every term is
    NaN.

    Args:
        values: `(n,)`.
        share: the share of values that the tail holds; a fraction of a value counts as such.

    >>> round(float(lower_tail_terms(np.arange(100.0)).mean()), 9)
    4.5
    """
    n = len(values)
    if n < MIN_WORST_RUNS:
        return np.full(n, np.nan)
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    below = np.concatenate([[0.0], np.cumsum(ranked)])  # sums of the i lowest values
    tail = share * (n - 1)  # values in the tail when one is left out
    whole = int(tail + 1e-9)
    part = tail - whole
    without = np.empty(n)  # the tail mean when the value of this rank is left out
    without[:whole] = below[whole + 1] - ranked[:whole] + part * ranked[whole + 1]
    without[whole] = below[whole] + part * ranked[whole + 1]
    without[whole + 1 :] = below[whole] + part * ranked[whole]
    pseudo = -(n - 1) * without / tail
    t_ratio = special.stdtrit(share * n - 2, 0.95) / special.ndtri(0.95)
    terms = np.empty(n)
    terms[order] = _tail_mean(below, ranked, share * n) + t_ratio * (pseudo - pseudo.mean())
    return terms


def _tail_mean(below: FloatArray, ranked: FloatArray, tail: float) -> float:
    """Return the mean of the lowest `tail` ranked values; `below` are their cumulative sums."""
    whole = int(tail + 1e-9)
    return float(below[whole] + (tail - whole) * ranked[whole]) / tail


@dataclass(frozen=True, eq=False, repr=False)
class Results(Shown, Mapping[str, PolicyResult]):
    """The results of several policies, all on the same runs.

    Args:
        policies: the results of each policy, by its name.
    """

    policies: dict[str, PolicyResult]

    def __getitem__(self, policy: str) -> PolicyResult:
        return self.policies[policy]

    def __iter__(self) -> Iterator[str]:
        return iter(self.policies)

    def __len__(self) -> int:
        return len(self.policies)

    def difference(self, policy: str, other: str, metric: Metric = "regret") -> Estimate:
        """Estimate `policy` minus `other`, paired by run, so that common noise cancels."""
        mine, others = self[policy], self[other]
        return Estimate.from_values(mine.per_run(metric) - others.per_run(metric), mine.n_groups)

    def curves(self) -> polars.DataFrame:
        """Return one row per policy and round: mean, stderr, worst_decile_mean."""
        import polars

        return polars.concat(
            polars.DataFrame(
                {
                    "policy": [result.policy] * len(result.curve),
                    "round": np.arange(1, len(result.curve) + 1),
                    "mean": result.curve,
                    "stderr": result.curve_stderr,
                    "worst_decile_mean": result.worst_curve,
                }
            )
            for result in self.values()
        )

    def frame(self) -> polars.DataFrame:
        """Return one row per policy: every metric and its standard error."""
        return self.to_polars()

    def _headline(self) -> str:
        if not self.policies:
            return "Results(no policies)"
        best = min(self.values(), key=lambda result: result.regret.mean)
        sizes = (
            f"{plural(len(best.regrets), 'run')} of {plural(len(best.curve), 'round')}: "
            f"{best.policy} has the least regret, {best.regret}"
        )
        return f"Results({', '.join(self)}; {sizes})"

    def _shown_tables(self) -> list[Table]:
        return [policy_table("Policies on the same runs", [one.row() for one in self.values()])]

    def _columns(self) -> dict[str, list[Any]]:
        return columns_of(result.row() for result in self.values())

    def _draw(self) -> Figure | None:
        from latentbandits.simulation.plots import draw_results

        return draw_results(self, "", "mean reward of a round") if self.policies else None


def pool(groups: Sequence[Results]) -> Results:
    """Pool groups of equally many runs into one result, with errors over groups and runs."""
    return Results({name: _pool([group[name] for group in groups]) for name in groups[0]})


def _pool(parts: Sequence[PolicyResult]) -> PolicyResult:
    def together(field: str) -> FloatArray:
        return np.concatenate([getattr(part, field) for part in parts])

    def mean_and_stderr(field: str) -> tuple[FloatArray, FloatArray]:
        means = np.stack([getattr(part, field) for part in parts])
        within = np.stack([getattr(part, f"{field}_stderr") for part in parts])
        variance = (within**2).mean(axis=0)
        if len(parts) > 1:
            variance = np.maximum(variance, means.var(axis=0, ddof=1))
        return means.mean(axis=0), np.sqrt(variance / len(parts))

    return PolicyResult(
        parts[0].policy,
        *mean_and_stderr("curve"),
        *mean_and_stderr("worst_curve"),
        regrets=together("regrets"),
        rewards=together("rewards"),
        first_rewards=together("first_rewards"),
        last_rewards=together("last_rewards"),
        windows=parts[0].windows,
        best_curve=np.mean([part.best_curve for part in parts], axis=0),
        n_groups=len(parts),
    )


# Statistics of runs, computed without keeping every trajectory.
#
# Curves are sums over runs. The worst-decile curve needs the trajectories of the runs that end in
# the lowest tenth, so those, and no others, are kept.


class ChunkResult:
    """True mean rewards in a chunk of runs: of the policies' actions, and of the best ones."""

    def __init__(self, policies: Iterable[str], n_runs: int, horizon: int) -> None:
        names = list(policies)
        self.n_runs = n_runs
        self.best_totals = np.zeros(n_runs)
        self.best_sums = np.empty(horizon)
        self.totals = {name: np.zeros(n_runs) for name in names}
        self.trajectories = {name: np.empty((n_runs, horizon), np.float32) for name in names}

    def best(self, t: int, best: FloatArray) -> None:
        """Record the value of the best action, or the best list, of round t: `(n_runs,)`."""
        self.best_totals += best
        self.best_sums[t] = best.sum()

    def reward(self, t: int, policy: str, earned: FloatArray) -> None:
        """Record the value of the policy's action, or list, in round t: `(n_runs,)`."""
        self.totals[policy] += earned
        self.trajectories[policy][:, t] = earned


class RunTotals:
    """The running statistics of one policy; their memory is about a tenth of the trajectories."""

    def __init__(self, n_runs: int, horizon: int, windows: Windows) -> None:
        self._n_runs = n_runs
        self._windows = windows
        self._n_worst = math.ceil(WORST_SHARE * n_runs)
        self._sum = np.zeros(horizon)
        self._squares = np.zeros(horizon)
        self._best = np.zeros(horizon)
        self._runs: defaultdict[str, list[FloatArray]] = defaultdict(list)
        self._worst_rewards = np.empty(0)
        self._worst_rows = np.empty((0, horizon), np.float32)

    def add(self, chunk: ChunkResult, policy: str) -> None:
        total, trajectories = chunk.totals[policy], chunk.trajectories[policy]
        wide = trajectories.astype(np.float64)
        rewards = total / wide.shape[1]
        self._sum += wide.sum(axis=0)
        self._squares += (wide * wide).sum(axis=0)
        self._best += chunk.best_sums
        self._runs["regrets"].append(chunk.best_totals - total)
        self._runs["rewards"].append(rewards)
        self._runs["first_rewards"].append(wide[:, : self._windows.first].mean(axis=1))
        self._runs["last_rewards"].append(wide[:, -self._windows.last :].mean(axis=1))
        self._worst_rewards = np.concatenate([self._worst_rewards, rewards])
        self._worst_rows = np.concatenate([self._worst_rows, trajectories])
        if len(self._worst_rewards) > 2 * self._n_worst:
            self._prune()

    def _prune(self) -> None:
        keep = np.argsort(self._worst_rewards, kind="stable")[: self._n_worst]
        self._worst_rewards, self._worst_rows = self._worst_rewards[keep], self._worst_rows[keep]

    def finish(self, name: str) -> PolicyResult:
        self._prune()
        n = self._n_runs
        mean = self._sum / n
        variance = np.maximum(self._squares / n - mean**2, 0.0) * n / max(n - 1, 1)
        runs: dict[str, Any] = {key: np.concatenate(values) for key, values in self._runs.items()}
        return PolicyResult(
            policy=name,
            curve=mean,
            curve_stderr=np.sqrt(variance / n),
            worst_curve=self._worst_rows.mean(axis=0, dtype=np.float64),
            worst_curve_stderr=self._worst_rows.std(axis=0, dtype=np.float64)
            / math.sqrt(max(len(self._worst_rows) - 1, 1)),
            windows=self._windows,
            best_curve=self._best / n,
            **runs,
        )
