"""Claims about the cost of a wrong model, and about the catch-all state."""

from __future__ import annotations

from dataclasses import dataclass

from latentbandits.experiments.claims import BySetting, Checkable, Degrades, Order
from latentbandits.experiments.misspecification.settings import CATCH_ALL, MODEL_NOISES, name
from latentbandits.report.report import Claim


@dataclass(frozen=True)
class NoWorse:
    """A claim that the worst decile of `policy` earns no less than that of `other` in `setting`.

    The claim fails only if the difference is below zero by two paired standard errors.
    """

    id: str
    claim: str
    setting: str
    policy: str
    other: str

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.other

    def check(self, results: BySetting) -> Claim:
        lead = results[self.setting].difference(self.policy, self.other, "worst_decile_reward")
        predicted = f"reward of the worst 10% {self.policy} >= {self.other}, {self.setting}"
        holds = True if lead.mean >= 0 else (None if lead.mean > -2 * lead.stderr else False)
        return Claim(self.id, self.claim, predicted, f"lead {lead}", holds)


CLAIMS: tuple[Checkable, ...] = (
    Degrades("W1", "a known model that is wrong costs regret",
             name(0.05, 0), name(0.5, 0), ("mTS", "mIDS", "mUCB")),
    Order("W2", "policies with the uncertainty of the model beat policies without it",
          name(0.3, 0), "regret", ("mmTS", "mmIDS"), ("mTS", "mIDS", "mUCB", "mmUCB")),
    Degrades("W3", "a missing state costs every posterior that trusts the model",
             name(0.05, 0), name(0.05, 1), ("mTS", "mIDS", "mmTS", "mmIDS")),
    *(
        NoWorse(f"W4 {sigma0:g}", "a catch-all state recovers the cost of a missing state",
                name(sigma0, 1), CATCH_ALL, "TS")
        for sigma0 in MODEL_NOISES
    ),
    *(
        Order(f"W5 {sigma0:g}", "with a missing state, the catch-all beats trusting the model",
              name(sigma0, 1), "worst_decile_reward", (CATCH_ALL,), ("mTS", "mmTS"))
        for sigma0 in (0.05, 0.1)
    ),
)  # fmt: skip
