"""Statistics of runs, computed without keeping every trajectory.

Curves are sums over runs. The worst-decile curve needs the trajectories of the runs that end in
the lowest tenth, so those, and no others, are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.checks import FloatArray
from latentbandits.simulation.results import WORST_SHARE, PolicyResult, Windows


@dataclass(frozen=True, eq=False)
class PolicyChunk:
    """The statistics of one policy in one chunk of runs; rewards are true means."""

    curve_sum: FloatArray  # (horizon,)
    curve_squares: FloatArray  # (horizon,)
    best_sum: FloatArray  # (horizon,), of the best action's mean reward
    reward: FloatArray  # (n_runs,), mean per round
    regret: FloatArray  # (n_runs,), cumulative
    first: FloatArray  # (n_runs,), mean reward of the first window
    last: FloatArray  # (n_runs,), mean reward of the last window
    trajectories: NDArray[np.float32]  # (n_runs, horizon)


@dataclass(frozen=True, eq=False)
class ChunkResult:
    """The results of a chunk of `n_runs` runs, by the name of the policy."""

    n_runs: int
    policies: dict[str, PolicyChunk]


class Recorder:
    """Records the rounds of one chunk."""

    def __init__(self, policies: list[str], n_runs: int, horizon: int, windows: Windows) -> None:
        self._windows = windows
        self._best = np.zeros(n_runs)
        self._best_rounds: list[float] = []
        self._rewards = {name: np.empty((n_runs, horizon), np.float32) for name in policies}
        self._totals = {name: np.zeros(n_runs) for name in policies}

    def best(self, best: FloatArray) -> None:
        """Record what the best action of this round, or the best list, is worth: `(n_runs,)`."""
        self._best += best
        self._best_rounds.append(float(best.sum()))

    def reward(self, t: int, policy: str, earned: FloatArray) -> None:
        """Record what the policy's action of round t, or its list, is worth: `(n_runs,)`."""
        self._rewards[policy][:, t] = earned
        self._totals[policy] += earned

    def finish(self) -> ChunkResult:
        return ChunkResult(len(self._best), {name: self._summarise(name) for name in self._rewards})

    def _summarise(self, name: str) -> PolicyChunk:
        rewards, total = self._rewards[name], self._totals[name]
        wide = rewards.astype(np.float64)
        return PolicyChunk(
            curve_sum=wide.sum(axis=0),
            curve_squares=(wide * wide).sum(axis=0),
            best_sum=np.array(self._best_rounds),
            reward=total / rewards.shape[1],
            regret=self._best - total,
            first=wide[:, : self._windows.first].mean(axis=1),
            last=wide[:, -self._windows.last :].mean(axis=1),
            trajectories=rewards,
        )


class Totals:
    """The running statistics of one policy; their memory is about a tenth of the trajectories."""

    def __init__(self, n_runs: int, horizon: int, windows: Windows) -> None:
        self._n_runs = n_runs
        self._windows = windows
        self._n_worst = math.ceil(WORST_SHARE * n_runs)
        self._sum = np.zeros(horizon)
        self._squares = np.zeros(horizon)
        self._best = np.zeros(horizon)
        self._runs: dict[str, list[FloatArray]] = {
            n: [] for n in ("reward", "regret", "first", "last")
        }
        self._worst_rewards = np.empty(0)
        self._worst_rows = np.empty((0, horizon), np.float32)

    def add(self, part: PolicyChunk) -> None:
        self._sum += part.curve_sum
        self._squares += part.curve_squares
        self._best += part.best_sum
        for name, values in self._runs.items():
            values.append(getattr(part, name))
        self._worst_rewards = np.concatenate([self._worst_rewards, part.reward])
        self._worst_rows = np.concatenate([self._worst_rows, part.trajectories])
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
        runs = {key: np.concatenate(values) for key, values in self._runs.items()}
        return PolicyResult(
            policy=name,
            curve=mean,
            curve_stderr=np.sqrt(variance / n),
            worst_curve=self._worst_rows.mean(axis=0, dtype=np.float64),
            worst_curve_stderr=self._worst_rows.std(axis=0, dtype=np.float64)
            / math.sqrt(max(len(self._worst_rows) - 1, 1)),
            regrets=runs["regret"],
            rewards=runs["reward"],
            first_rewards=runs["first"],
            last_rewards=runs["last"],
            windows=self._windows,
            best_curve=self._best / n,
        )
