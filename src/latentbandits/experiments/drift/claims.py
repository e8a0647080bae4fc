"""Claims about policies that model a switching state: their gain with switches and cost without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from latentbandits.experiments.claims import BySetting, Checkable, Order
from latentbandits.experiments.drift.settings import (
    KINDS,
    KNOWING,
    LONG_PROBABILITY,
    PROBABILITIES,
    name,
)
from latentbandits.report.estimate import Estimate
from latentbandits.report.report import Claim, Table, all_positive

FILTERS = ("Markov mTS", "Markov mmTS", "Markov mTS, cautious")
STILL = ("mTS", "mmTS", "mUCB", "mmUCB", "TS", "UCB1")
NO_WINDOW = "window UCB1"  # with few switches the window is as long as the run: no claim
MOST_LOST = 0.1
MOST_GAINED = 0.05

SWITCHING = tuple(name(kind, p) for kind in KINDS for p in PROBABILITIES if p > 0)
OFTEN = tuple(name(kind, p) for kind in KINDS for p in PROBABILITIES if p > 0.01)
LONG = tuple(name(kind, LONG_PROBABILITY) for kind in KINDS)


def lead(results: BySetting, setting: str, policy: str) -> Estimate:
    """Return the regret of the counterpart minus that of `policy`, paired over the same runs."""
    difference = results[setting].difference(KNOWING[policy], policy, "regret")
    return Estimate(difference.mean, difference.stderr)


def lead_table(title: str, results: BySetting) -> Table:
    """Tabulate the lead of each policy over its counterpart; a negative lead is a loss."""
    body = [
        (
            f"{policy} over {twin}",
            *(
                str(lead(results, setting, policy)) if {policy, twin} <= set(result) else ""
                for setting, result in results.items()
            ),
        )
        for policy, twin in KNOWING.items()
        if any({policy, twin} <= set(result) for result in results.values())
    ]
    return Table(title, ("lead", *results), body)


@dataclass(frozen=True)
class _AgainstTwin:
    """A claim about the lead of `policy` over its counterpart in each of `settings`."""

    id: str
    claim: str
    policy: str
    settings: tuple[str, ...]

    @property
    def twin(self) -> str:
        return KNOWING[self.policy]

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.twin

    def _leads(self, results: BySetting) -> dict[str, Estimate]:
        return {setting: lead(results, setting, self.policy) for setting in self.settings}


class Pays(_AgainstTwin):
    """A claim that `policy` has less regret than its counterpart in each of `settings`."""

    def check(self, results: BySetting) -> Claim:
        leads = self._leads(results)
        predicted = f"regret {self.policy} < {self.twin}"
        holds = all_positive(leads.values())
        return Claim(self.id, self.claim, predicted, f"lead {_listed(leads)}", holds)


class DoesNotPay(_AgainstTwin):
    """A claim that `policy` lowers its counterpart's regret by less than MOST_GAINED of it."""

    def check(self, results: BySetting) -> Claim:
        leads = self._leads(results)
        short_of_gain = [
            Estimate(MOST_GAINED * results[setting][self.twin].regret.mean - lead.mean, lead.stderr)
            for setting, lead in leads.items()
        ]
        predicted = f"regret {self.policy} > {1 - MOST_GAINED:g} x {self.twin}"
        holds = all_positive(short_of_gain)
        return Claim(self.id, self.claim, predicted, f"lead {_listed(leads)}", holds)


class LosesLittle(_AgainstTwin):
    """A claim that without switches `policy` keeps 1 - MOST_LOST of its counterpart's reward."""

    def check(self, results: BySetting) -> Claim:
        (setting,) = self.settings
        ours, theirs = results[setting][self.policy], results[setting][self.twin]
        lost = 1 - ours.reward.mean / theirs.reward.mean
        return Claim(
            self.id,
            self.claim,
            f"reward {self.policy} loses at most {MOST_LOST:.0%} of {self.twin}'s, {setting}",
            f"{lost:.1%} (regret {ours.regret} against {theirs.regret})",
            lost <= MOST_LOST,
        )


def _listed(leads: Mapping[str, Estimate]) -> str:
    return ", ".join(f"{lead} at {setting}" for setting, lead in leads.items())


CLAIMS: tuple[Checkable, ...] = (
    *(
        Order(
            f"D {setting}",
            "with switching, the filters beat every policy that takes the state as fixed",
            setting,
            "regret",
            FILTERS,
            STILL,
        )
        for setting in SWITCHING
    ),
    *(
        Pays(
            f"D {policy}",
            "given the latent model, discounting pays in runs of ten switches or more",
            policy,
            OFTEN,
        )
        for policy in ("discounted mUCB", "discounted mmUCB")
    ),
    *(
        DoesNotPay(
            f"D not {policy}",
            "windows, and UCB1 with ten actions, learn too slowly between switches",
            policy,
            OFTEN if policy == NO_WINDOW else SWITCHING,
        )
        for policy in ("window mUCB", "window mmUCB", "window UCB1", "discounted UCB1")
    ),
    *(
        LosesLittle(
            f"D 0 {policy}",
            "without switches, a model of switches costs little",
            policy,
            (name("markov", 0.0),),
        )
        for policy in KNOWING
        if policy != NO_WINDOW
    ),
)

LONG_CLAIMS: tuple[Checkable, ...] = tuple(
    Pays(
        f"D long {policy}",
        "with few actions and rare switches, a model of switches lowers regret",
        policy,
        LONG,
    )
    for policy in KNOWING
    if policy != "Markov mmTS"
)
