"""What knowing that the state moves is worth where it does, and costs where it does not."""

from __future__ import annotations

from dataclasses import dataclass

from latentbandits.experiments.claims import BySetting, Checkable, Order
from latentbandits.experiments.drift.settings import KINDS, KNOWING, PROBABILITIES, name
from latentbandits.experiments.experiment import Claim

FILTERS = ("Markov mTS", "Markov mmTS", "Markov mTS, cautious")
STILL = ("mTS", "mmTS", "mUCB", "mmUCB", "TS", "UCB1")
MOST_LOST = 0.1


@dataclass(frozen=True)
class LosesLittle:
    """Where nothing switches, `policy` earns at least 1 - MOST_LOST of what its twin does."""

    id: str
    policy: str
    twin: str
    setting: str

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.twin

    def check(self, results: BySetting) -> Claim:
        result = results[self.setting]
        ours, theirs = result[self.policy], result[self.twin]
        lost = 1 - ours.reward.mean / theirs.reward.mean
        return Claim(
            self.id,
            "where the state stands still, expecting it to move costs little",
            f"reward {self.policy} loses at most {MOST_LOST:.0%} of {self.twin}'s, {self.setting}",
            f"{lost:.1%} (regret {ours.regret} against {theirs.regret})",
            lost <= MOST_LOST,
        )


CLAIMS: tuple[Checkable, ...] = (
    *(
        Order(
            f"D {kind} {probability:g}",
            "with switching, the filters beat every policy that takes the state as fixed",
            name(kind, probability),
            "regret",
            FILTERS,
            STILL,
        )
        for kind in KINDS
        for probability in PROBABILITIES
        if probability > 0
    ),
    *(
        Order(
            f"D {kind} {probability:g} {knowing}",
            "with frequent switching, forgetting beats remembering all, given the latent model",
            name(kind, probability),
            "regret",
            (knowing,),
            (twin,),
        )
        for kind in KINDS
        for probability in PROBABILITIES
        if probability > 0.01
        for knowing, twin in KNOWING.items()
        if twin == "mUCB"
    ),
    *(
        LosesLittle(f"D 0 {knowing}", knowing, twin, name("markov", 0.0))
        for knowing, twin in KNOWING.items()
    ),
)
