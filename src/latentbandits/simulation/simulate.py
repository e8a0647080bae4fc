"""Runs in chunks on the session axis: the same problems, contexts and noise for every policy."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from latentbandits.environments.protocol import Environment, Round
from latentbandits.models.attributes.columns import Row
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_count
from latentbandits.models.clicks import AnyClickModel, ClickModel, as_click_model
from latentbandits.policies import decision
from latentbandits.policies.lists import decide_list, update_list
from latentbandits.policies.protocol import AnyPolicy, adopt, begin, is_policy
from latentbandits.policies.registry import Entry, Inputs, PolicySpec, find, parse
from latentbandits.simulation.accumulate import ChunkResult, Recorder, Totals
from latentbandits.simulation.results import Results, Windows

PolicyMaker: TypeAlias = Callable[[Any], AnyPolicy]
"""A callable that builds a policy for the model of a chunk of runs: often the policy's class."""

CHUNK = 500
"""Runs per chunk: it settles the random streams, so it is part of a result's identity."""

_MOST_KEPT = 2**24  # largest number of a chunk's rewards that are kept for `by_pull` (128 MB)

_UNDER_WAY = 8  # chunks submitted to an executor at a time


@dataclass(frozen=True)
class _Job:
    """The input of a worker process; its results depend on nothing else."""

    policies: Mapping[str, AnyPolicy | PolicyMaker]
    environment: Environment
    horizon: int
    windows: Windows
    seed: int
    chunk: int
    n_runs: int
    by_pull: bool
    replacement: bool
    length: int | None  # of lists; None: single actions
    clicks: ClickModel

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
    replacement: bool = True,
    length: int | None = None,
    click_model: AnyClickModel = "each",
    executor: Executor | None = None,
    progress: Callable[[int], None] | None = None,
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
        replacement: whether a policy can choose an action again in the same run. Otherwise regret
            is measured against the best action in round 1, the second best in round 2 and so on,
            and all rounds of a run must have the same actions.
        length: of the list of actions that a policy shows in every round; None: single actions.
            Rewards are then the true values of lists, and regret that against the best list.
        click_model: "each", "cascade" or a `ClickModel`: how users look at a list.
        executor: runs chunks of 500 runs in parallel: any `concurrent.futures.Executor`, such as a
            ProcessPoolExecutor or a `SparkExecutor` (`simulation/spark_executor.py`); None runs
            them here. Results are the same to the last bit.
        progress: called with the number of runs that have just finished.

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
    clicks = as_click_model(click_model)
    if length is not None:
        positive_count("length", length)
        clicks.check_length(length)
        if by_pull:
            raise ValueError("by_pull is for single actions, not for lists: leave one of them out")
        if not replacement:
            raise ValueError("lists are shown with replacement: leave length or replacement out")
    jobs = [
        _Job(
            dict(policies),
            environment,
            horizon,
            windows,
            seed,
            chunk,
            min(CHUNK, n_runs - start),
            by_pull,
            replacement,
            length,
            clicks,
        )
        for chunk, start in enumerate(range(0, n_runs, CHUNK))
    ]
    totals = {name: Totals(n_runs, horizon, windows) for name in policies}
    for chunk in _run(jobs, executor):
        for name, part in chunk.policies.items():
            totals[name].add(part)
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
    rounds, looks = job.stream("rounds"), job.stream("looks")
    users = getattr(instances, "user_features", None) or [None] * job.n_runs
    players = [
        _Player(name, _make(policy, instances.model), users, job.stream(f"policy {name}"))
        for name, policy in job.policies.items()
    ]
    recorder = Recorder([p.name for p in players], job.n_runs, job.horizon, job.windows)
    kept: FloatArray | None = None
    for t in range(job.horizon):
        outcome = instances.round(t, rounds)
        if t == 0 and job.by_pull and getattr(instances, "repeats", False):
            size = (job.horizon, *outcome.rewards.shape)
            kept = np.empty(size) if math.prod(size) <= _MOST_KEPT else None
        if kept is not None:
            kept[t] = outcome.rewards
        means = decision.restrict(outcome.means, outcome.eligible)
        if not job.replacement:
            _check_left(t, means)
            recorder.best(np.sort(means, axis=1)[:, -1 - t])
            for player in players:
                recorder.reward(t, player.name, player.play(outcome, kept, once=True))
        elif job.length is None:
            recorder.best(means.max(axis=1))
            for player in players:
                recorder.reward(t, player.name, player.play(outcome, kept))
        else:
            uniform = looks.random((job.n_runs, job.length))
            for player in players:
                recorder.reward(t, player.name, player.show(outcome, job.clicks, uniform))
            recorder.best(job.clicks.best_value(means, job.length))
    return recorder.finish()


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


class _Player:
    """A policy with the beliefs and random stream of its chunk."""

    def __init__(
        self,
        name: str,
        policy: AnyPolicy,
        users: Sequence[Row | None],
        rng: np.random.Generator,
    ) -> None:
        self.name = name
        self._policy = policy
        self._belief = begin(policy, users)
        self._rng = rng
        self._runs = np.arange(len(users))
        self._pulls: IntArray | None = None  # (n_runs, n_actions)
        self._unused: BoolArray | None = None  # (n_runs, n_actions), without replacement

    def play(self, outcome: Round, kept: FloatArray | None, *, once: bool = False) -> FloatArray:
        """Play one round and return the mean rewards of the actions, `(n_runs,)`.

        `kept` has the rewards of all rounds so far if they go by pull. With `once`, actions that
        the run has played are not eligible.
        """
        eligible = outcome.eligible
        if once:
            if self._unused is None:
                self._unused = np.ones(outcome.means.shape, np.bool_)
            eligible = self._unused if eligible is None else eligible & self._unused
        made = self._policy.decide(
            self._belief, outcome.context, self._rng, eligible=eligible, propensity=False
        )
        place = (self._runs, made.action)
        if self._unused is not None:
            self._unused = self._unused.copy()  # the decision holds the mask that it was made with
            self._unused[place] = False
        if kept is None:
            reward = outcome.rewards[place]
        else:
            if self._pulls is None:
                self._pulls = np.zeros(kept.shape[1:], np.int64)
            reward = kept[(self._pulls[place], *place)]
            self._pulls[place] += 1
        self._belief = self._policy.update(self._belief, outcome.context, made, reward)
        return outcome.means[place]

    def show(self, outcome: Round, clicks: ClickModel, uniform: FloatArray) -> FloatArray:
        """Show a list to every run and return the true values of the lists, `(n_runs,)`.

        `uniform` (n_runs, length) settles who looks at which position, for all policies alike.
        """
        shown = decide_list(
            self._policy,
            self._belief,
            outcome.context,
            self._rng,
            uniform.shape[1],
            clicks,
            eligible=outcome.eligible,
            propensity=False,
        )
        place = (self._runs[:, None], shown.actions)
        observed = clicks.react(outcome.rewards[place], uniform)
        self._belief = update_list(
            self._policy, self._belief, outcome.context, shown, observed, clicks
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
