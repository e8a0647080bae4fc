"""Claims of the paper about its MovieLens experiment (Section 5.2), and further ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentbandits.experiments.claims import Alike, BySetting, Checkable, Order
from latentbandits.experiments.movielens.settings import SETTING
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.report.estimate import Estimate
from latentbandits.report.report import Claim
from latentbandits.simulation.results import PolicyResult

WORST_SHARE = 0.1
_RESAMPLES = 500


@dataclass(frozen=True)
class EndsFarAbove:
    """A claim that `policy` ends above `other` by `lead` for the bottom 10% of users.

    The bottom 10% of a policy are the users who earned least with it over the horizon, as in the
    figure. Their final reward is the mean over the last 100 rounds. The error of the difference is
    by bootstrap over users.
    """

    id: str
    claim: str
    policy: str
    other: str
    lead: float

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.other

    def check(self, results: BySetting) -> Claim:
        mine, others = results[SETTING][self.policy], results[SETTING][self.other]
        rng = np.random.default_rng(0)
        n = len(mine.rewards)
        draws = [
            _end_of_worst(mine, sample) - _end_of_worst(others, sample)
            for sample in rng.integers(n, size=(_RESAMPLES, n))
        ]
        everyone = np.arange(n)
        mean = _end_of_worst(mine, everyone) - _end_of_worst(others, everyone)
        difference = Estimate(mean, float(np.std(draws, ddof=1)))
        predicted = (
            f"last 100 rounds of the bottom 10% of users, {self.policy} - {self.other} "
            f"> {self.lead:g}"
        )
        margin = 2 * difference.stderr
        holds = True if mean - margin > self.lead else False if mean + margin < self.lead else None
        return Claim(self.id, self.claim, predicted, f"{difference}", holds)


def _end_of_worst(result: PolicyResult, runs: IntArray) -> float:
    rewards: FloatArray = result.rewards[runs]
    worst = np.argsort(rewards, kind="stable")[: math.ceil(WORST_SHARE * len(rewards))]
    return float(result.last_rewards[runs][worst].mean())


CLAIMS: tuple[Checkable, ...] = (
    Order("M1", "mUCB and mTS personalise more quickly than LinUCB and LinTS",
          SETTING, "first_rounds_reward", ("mUCB", "mTS"), ("LinUCB", "LinTS")),
    Order("M2", "mUCB and mTS converge to better policies than EXP4",
          SETTING, "last_rounds_reward", ("mUCB", "mTS"), ("EXP4",)),
    Order("M3", "mmTS handles model uncertainty: it ends above mUCB and mTS",
          SETTING, "last_rounds_reward", ("mmTS",), ("mUCB", "mTS")),
    Order("M4", "mmTS converges to the best reward of the paper's six",
          SETTING, "last_rounds_reward", ("mmTS",), ("LinUCB", "LinTS", "EXP4", "mUCB", "mTS")),
    # The worst and the best policy differ by only 0.3 stars for the average user.
    EndsFarAbove("M5", "mmTS dramatically outperforms mTS in the worst case",
                 "mmTS", "mTS", lead=0.2),
    # As in the synthetic experiment, 0.02 of the range of rewards, here 1 to 5.
    Alike("M6", "mmUCB is similar to mUCB", "mmUCB", "mUCB", tolerance=0.08),
    Order("B1", "beyond the paper: mmIDS earns at least as much as mmTS over the horizon",
          SETTING, "reward", ("mmIDS",), ("mmTS",)),
    Order("B2", "beyond the paper: mmIDS personalises more quickly than mmTS",
          SETTING, "first_rounds_reward", ("mmIDS",), ("mmTS",)),
)  # fmt: skip
