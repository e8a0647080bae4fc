"""What a simulation found: a typed value, with errors on every number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.report.estimate import Estimate

if TYPE_CHECKING:
    import polars

Metric = Literal[
    "regret", "reward", "worst_decile_reward", "first_rounds_reward", "last_rounds_reward"
]


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """One policy over all runs. Rewards are true mean rewards per round, regret is cumulative."""

    policy: str
    curve: FloatArray  # (horizon,), mean over runs of the reward of each round
    curve_stderr: FloatArray
    worst_curve: FloatArray  # (horizon,), the same over the runs that end in the lowest tenth
    worst_curve_stderr: FloatArray
    regrets: FloatArray  # (n_runs,)
    rewards: FloatArray  # (n_runs,)
    first_rewards: FloatArray  # (n_runs,), over the first 50 rounds
    last_rewards: FloatArray  # (n_runs,), over the last 100 rounds
    n_groups: int = 1  # runs come in this many equal groups, in order, that share something

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
        """Mean reward of the tenth of runs that earned least."""
        return self.estimate("worst_decile_reward")

    def estimate(self, metric: Metric) -> Estimate:
        return Estimate.of(self.per_run(metric), self.n_groups)

    def per_run(self, metric: Metric) -> FloatArray:
        """One number per run whose mean over runs is the metric."""
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
        """One flat row: what results.json holds of a policy."""
        row: dict[str, float | str] = {"policy": self.policy}
        for name in ("regret", "reward", "worst_decile_reward", "first_rounds_reward",
                     "last_rounds_reward"):  # fmt: skip
            estimate: Estimate = getattr(self, name)
            row |= {name: estimate.mean, f"{name}_stderr": estimate.stderr}
        return row


def lower_tail_terms(values: FloatArray, share: float = 0.1) -> FloatArray:
    """One term per value, whose mean is the mean of the lowest `share` of the values.

    With q the share-quantile, E[R | R <= q] = E[q - (q - R)+ / share]: an ordinary mean, so its
    error, which counts that the tail is itself chosen by its rewards, and that of a paired
    difference come like any other.

    >>> float(lower_tail_terms(np.arange(20.0)).mean())
    0.5
    """
    n_tail = math.ceil(share * len(values))
    quantile = np.partition(values, n_tail - 1)[n_tail - 1]
    terms: FloatArray = quantile - np.maximum(quantile - values, 0.0) * (len(values) / n_tail)
    return terms


@dataclass(frozen=True, eq=False)
class Results(Mapping[str, PolicyResult]):
    """Policies by name, all on the same runs."""

    policies: dict[str, PolicyResult]

    def __getitem__(self, policy: str) -> PolicyResult:
        return self.policies[policy]

    def __iter__(self) -> Iterator[str]:
        return iter(self.policies)

    def __len__(self) -> int:
        return len(self.policies)

    def difference(self, policy: str, other: str, metric: Metric = "regret") -> Estimate:
        """`policy` minus `other`, paired run by run: the problems and noise they share cancel."""
        mine, others = self[policy], self[other]
        return Estimate.of(mine.per_run(metric) - others.per_run(metric), mine.n_groups)

    def curves(self) -> polars.DataFrame:
        """One row per policy and round: mean, stderr, worst_decile_mean."""
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
        """One row per policy: every metric and its standard error."""
        import polars

        return polars.DataFrame([result.row() for result in self.values()])


def pool(groups: Sequence[Results]) -> Results:
    """Results of equally many runs each, as one: errors are then over groups and runs."""
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
        n_groups=len(parts),
    )
