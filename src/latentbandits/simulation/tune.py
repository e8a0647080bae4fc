"""Choose a policy for a model: play candidates on users drawn from the model's own prior.

Under that prior the Bayes regret of any policy can be simulated. Successive halving (Karnin, Koren
& Somekh 2013): all candidates play the same few users, the better half plays more users, and so on.
All candidates of a stage see the same users, contexts and noise, so that differences are paired;
of fixed arms, the k-th reward of an action is the same for all of them (`simulate`, `by_pull`).

The prior can mean that users of a state differ, or that the means are estimates with errors. Where
they are estimates, the true means vary less (`GaussianArms.regressed`), and exploration
pays less. A model of Gaussian arms does not tell which holds, so half of its users are drawn in
each way.

Greedy and the quantiles differ in one thing: how much they explore. Their regrets are often alike
over a range of quantiles. Of all candidates within `FLAT` of the best, the least exploring one
wins, because exploration pays less for users who leave before the horizon.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs import planning
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.environments.protocol import Environment, Instances, Round
from latentbandits.models.checks import FloatArray, positive_count
from latentbandits.models.protocol import KnownModel, with_defaults
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import Inputs, build, parse
from latentbandits.report.report import Estimate, Progress, Silent
from latentbandits.simulation.simulate import ShowingOptions, makers, simulate

QUANTILES = (0.6, 0.7, 0.8, 0.9, 0.95, 0.97)
REPLAYED = {
    "arms": (
        "mmGreedy", "mIDS", "mmBayesUCB(quantile=0.6)", "mmBayesUCB(quantile=0.7)",
        "mmBayesUCB(quantile=0.9)", "mmTS", "mTS", "mUCB",
    ),
    "context": (
        "mmGreedy", "mmBayesUCB(quantile=0.7)", "mmBayesUCB(quantile=0.9)", "mmTS", "mTS",
    ),
    "particles": ("mmGreedy", "mTS"),
}  # fmt: skip
"""Candidates that a fit replays on held-out users, by the kind of model. mmIDS is left out: its
decisions cost twenty times as much as those of mIDS, and mmBayesUCB earns as much."""

ESTIMATES = 0.5
"""Share of the users of Gaussian arms for whom the model's means are estimates with errors."""

FLAT = 0.04
"""Share of the least regret by which a policy that explores less may be behind, and win."""
_FIRST_ROUNDS = 40_000  # rounds that every candidate plays in the first stage: users x horizon
_FEWEST, _MOST = 40, 400  # users of the first stage
_GROWTH = (1, 2, 4)  # users of each stage relative to the first; later stages as the last
_FAR = 3.0  # a candidate this many paired standard errors behind the best is dropped
_SMALL = 100  # planning policies are candidates up to this many beliefs per decision


@dataclass(frozen=True)
class TunedPolicy:
    """One row of a tuning's table; regret is cumulative over the horizon, per user."""

    policy: str
    regret: Estimate
    behind: Estimate  # its regret less the winner's, paired over the users that both played
    users: int
    stages: int  # how many stages it played


@dataclass(frozen=True, eq=False)
class Tuning:
    """The result of `tune`: the winner's text, all candidates, and the cost."""

    winner: str
    table: tuple[TunedPolicy, ...]  # best first
    horizon: int
    rounds: int  # decisions that were simulated
    seconds: float  # of processor time

    @property
    def margin(self) -> Estimate:
        """The regret of the best other candidate less the winner's, paired; 0 if it is alone.

        It is negative if the winner was preferred because it explores less.
        """
        return self.table[1].behind if len(self.table) > 1 else Estimate(0.0, 0.0)

    @property
    def summary(self) -> str:
        """The winner, its margin and the cost, in a sentence."""
        margin = self.margin
        if len(self.table) == 1:
            sentence = f"{self.winner} is the only candidate"
        elif margin.mean >= 0:
            sentence = (
                f"{self.winner} is best over {self.horizon} rounds, ahead of the next by {margin}"
            )
        else:
            sentence = (
                f"{self.winner} explores least of the policies within {FLAT:.0%} of the best over "
                f"{self.horizon} rounds, {self.table[1].policy} (behind by "
                f"{Estimate(-margin.mean, margin.stderr)})"
            )
        spent = f"{self.rounds:,} decisions simulated in {self.seconds:.1f} processor seconds"
        return f"{sentence}; {spent}"

    def as_dict(self) -> dict[str, Any]:
        """Return the tuning as plain values, for results.json."""
        return {
            "winner": self.winner,
            **self.margin.row("margin"),
            "decisions": self.rounds,
            "seconds": round(self.seconds, 2),
            "table": [
                {
                    "policy": row.policy,
                    **row.regret.row("regret"),
                    **row.behind.row("behind"),
                    "users": row.users,
                }
                for row in self.table
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"{row.policy:32} regret {row.regret!s:>16}  behind {row.behind!s:>16}"
            f"  users {row.users}"
            for row in self.table
        ]
        return "\n".join([*lines, self.summary])


def default_candidates(model: Any, horizon: int | None, n_actions: int | None = None) -> list[str]:
    """Return the policies that `tune` compares, as texts of the registry.

    Greedy, quantiles, information-directed and Thompson sampling; if the horizon is known,
    lookahead of one step and of two where a decision looks at few beliefs. For a certain model the
    m-policies.

    >>> from latentbandits import GaussianArms
    >>> default_candidates(GaussianArms([[0.9, 0.1]], noise=0.5, spread=0.1), horizon=50)[:2]
    ['mmGreedy', 'mmBayesUCB(quantile=0.6)']
    """
    m = "m" if with_defaults(model).is_certain else "mm"
    names = ["mmGreedy", *(f"{m}BayesUCB(quantile={q})" for q in QUANTILES), f"{m}IDS", f"{m}TS"]
    if horizon is None:
        return names
    width = (n_actions or model.n_actions or math.inf) * planning.count_outcomes(model)
    if width <= _SMALL:
        names.append(f"mLookahead(steps=1, horizon={horizon})")
    if width**2 <= _SMALL:
        names.append(f"mLookahead(horizon={horizon})")
    return names


def replayed_candidates(inputs: Inputs) -> dict[str, AnyPolicy]:
    """Return the candidates of a fit that can be built on the model."""
    kind = "arms" if inputs.n_actions is not None else "context"
    if with_defaults(inputs.model).is_sampled:
        kind = "particles"
    policies: dict[str, AnyPolicy] = {}
    for text in REPLAYED[kind]:
        try:
            policies[text] = build(text, inputs)
        except ValueError:
            continue  # it needs a model of another kind
    return policies


def tune(
    model: KnownModel,
    horizon: int,
    contexts: ArrayLike | None = None,
    candidates: Sequence[str] | None = None,
    *,
    seed: int = 0,
    offered: int = 20,
    effort: float = 1.0,
    seconds: float | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **showing: Unpack[ShowingOptions],
) -> Tuning:
    """Return the candidate of the least regret on users drawn from the model's prior.

    Args:
        model: any model that all sessions share.
        horizon: number of rounds that a user stays.
        contexts: for models with features: a catalogue `(n_items, n_features)`, of which each
            round offers `offered` items, or contexts `(n_contexts, n_actions, n_features)`.
        candidates: texts of the policy registry; None: `default_candidates`.
        seed: random seed.
        offered: items of a catalogue that a round offers.
        effort: factor on the number of users; the cost is proportional to it.
        seconds: processor seconds after which no further round is played, without an executor.
            The best of the stages that were finished wins; TimeoutError if there is none.
        executor: runs chunks of users in other processes.
        progress: shows the number of users played.
        **showing: `replacement`, `length` and `click_model`, as in `simulate`.

    >>> from latentbandits import GaussianArms
    >>> model = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1)
    >>> tuning = tune(model, 20, candidates=["mmGreedy", "uniform"], effort=0.1)
    >>> tuning.winner, tuning.margin.mean > 0
    ('mmGreedy', True)
    """
    positive_count("horizon", horizon)
    users = UsersOfModel(model, contexts, offered, estimates=ESTIMATES)
    pool: Any = users.contexts
    n_actions = model.n_actions
    if pool is not None and n_actions is None:
        n_actions = offered if pool.ndim == 2 else pool.shape[1]
    texts = default_candidates(model, horizon, n_actions) if candidates is None else candidates
    inputs = Inputs(model=model, horizon=horizon)
    for text in dict.fromkeys(texts):
        build(text, inputs)  # raises before any simulation if the policy cannot be built
    return tune_in(users, horizon, texts, seed=seed, effort=effort, seconds=seconds,
                   executor=executor, progress=progress, **showing)  # fmt: skip


def tune_in(
    environment: Environment,
    horizon: int,
    candidates: Sequence[str],
    *,
    seed: int = 0,
    effort: float = 1.0,
    seconds: float | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **showing: Unpack[ShowingOptions],
) -> Tuning:
    """Return the candidate of the least regret in an environment; arguments as in `tune`."""
    texts = list(dict.fromkeys(str(parse(text)) for text in candidates))
    if not texts:
        raise ValueError("give at least one candidate policy")
    if not effort > 0:
        raise ValueError(f"effort must be above zero; got {effort}")
    started = time.process_time()
    if seconds is not None:
        environment = _Until(environment, started + seconds)
    regrets: dict[str, list[FloatArray]] = {text: [] for text in texts}
    alive, rounds = list(texts), 0
    first = max(8, round(effort * min(max(_FIRST_ROUNDS / horizon, _FEWEST), _MOST)))
    n_stages = max(len(_GROWTH), math.ceil(math.log2(len(texts))))
    sizes = [first * _GROWTH[min(stage, len(_GROWTH) - 1)] for stage in range(n_stages)]
    bar = Silent() if progress is None else progress
    bar.start("choosing a policy on simulated users", sum(sizes))  # one bar for all stages
    for stage, n_users in enumerate(sizes):
        if stage > 0 and len(alive) == 1:
            bar.advance(sum(sizes[stage:]))
            break
        try:
            results = simulate(
                makers({text: text for text in alive}, horizon=horizon),
                environment,
                n_runs=n_users,
                horizon=horizon,
                seed=_stage_seed(seed, stage),
                by_pull=showing.get("length") is None,
                executor=executor,
                progress=bar.advance,
                **showing,
            )
        except TimeoutError:
            if stage == 0:
                raise
            break
        rounds += len(alive) * n_users * horizon
        for text in alive:
            regrets[text].append(results[text].regrets)
        regret = {text: np.concatenate(regrets[text]) for text in alive}
        winner = least_exploring({text: float(one.mean()) for text, one in regret.items()})
        alive = list(dict.fromkeys([*_survivors(regret), winner]))
    rows = [_row(text, regrets, winner) for text in texts]
    rows.sort(key=lambda row: (row.policy != winner, -row.stages, row.behind.mean))
    return Tuning(winner, tuple(rows), horizon, rounds, time.process_time() - started)


def least_exploring(means: Mapping[str, float]) -> str:
    """Return the best candidate, or one that explores less and is at most `FLAT` behind.

    Args:
        means: the mean regret of each policy.

    >>> least_exploring({"mmGreedy": 10.3, "mmBayesUCB(quantile=0.7)": 10.0, "mTS": 12.0})
    'mmGreedy'
    """
    best = min(means, key=lambda text: means[text])
    quantile = _quantile(best)
    if quantile is None:
        return best
    near = [
        (explored, text)
        for text, mean in means.items()
        if (explored := _quantile(text)) is not None
        and explored <= quantile
        and mean <= (1 + FLAT) * means[best]
    ]
    return min(near)[1]


def _quantile(text: str) -> float | None:
    """Return the quantile that a policy plays, 1/2 for greedy; None for other policies."""
    spec = parse(text)
    if spec.name == "mmGreedy":
        return 0.5
    if spec.name in ("mBayesUCB", "mmBayesUCB"):
        return float(spec.options.get("quantile", 0.9))
    return None


@dataclass(frozen=True, eq=False)
class _Until:
    """An environment that raises TimeoutError once the processor time has passed `end`."""

    environment: Environment
    end: float

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> Instances:
        instances: Any = _InstancesUntil(self.environment.start(n_runs, horizon, rng), self.end)
        return cast(Instances, instances)


@dataclass(frozen=True, eq=False)
class _InstancesUntil:
    instances: Instances
    end: float

    def __getattr__(self, name: str) -> Any:
        return getattr(self.instances, name)

    def round(self, t: int, rng: np.random.Generator) -> Round:
        if time.process_time() > self.end:
            raise TimeoutError("tune: no processor time is left")
        return self.instances.round(t, rng)


def _stage_seed(seed: int, stage: int) -> int:
    """Return a seed for each stage, so that every stage has different users."""
    return int(np.random.SeedSequence([seed, stage]).generate_state(1)[0])


def _survivors(regrets: dict[str, FloatArray]) -> list[str]:
    """Return the better half, best first, without candidates that are clearly behind the best."""
    ranked = sorted(regrets, key=lambda text: float(regrets[text].mean()))
    kept = ranked[: max(2, math.ceil(len(ranked) / 2))]
    best = regrets[kept[0]]
    behind = {text: Estimate.from_values(regrets[text] - best) for text in kept[1:]}
    return [kept[0], *(t for t in kept[1:] if behind[t].mean <= _FAR * behind[t].stderr)]


def _row(text: str, regrets: dict[str, list[FloatArray]], winner: str) -> TunedPolicy:
    mine, stages = np.concatenate(regrets[text]), len(regrets[text])
    best = np.concatenate(regrets[winner][:stages])
    return TunedPolicy(
        text, Estimate.from_values(mine), Estimate.from_values(mine - best), len(mine), stages
    )
