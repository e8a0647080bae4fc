"""Claims on the related systems: orders, failures, agreement with an independent implementation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from latentbandits.experiments.claims import BySetting, Checkable, Order
from latentbandits.experiments.related.clustering import PHASED
from latentbandits.experiments.related.factorisation import KNOWN
from latentbandits.experiments.related.table import Column
from latentbandits.report.report import Claim
from latentbandits.simulation import Results

FEW_RUNS = 0.15  # rows of fewer than 100 runs must be within this share of the reference
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class AtMost:
    """In `setting`, the mean regret of `policy` is at most `bound`."""

    id: str
    claim: str
    setting: str
    policy: str
    bound: float

    @property
    def policies(self) -> tuple[str, ...]:
        return (self.policy,)

    def check(self, results: BySetting) -> Claim:
        regret = results[self.setting][self.policy].regret
        predicted = f"regret {self.policy} <= {self.bound:g}, {self.setting}"
        return Claim(self.id, self.claim, predicted, str(regret), regret.mean <= self.bound)


CLAIMS: Mapping[str, tuple[Checkable, ...]] = {
    "i": (
        Order("i.1", "a right model: the posterior beats sets of allowed states", "sigma0=0",
              "regret", ("mTS",), ("TSC", "UCBC", "UCBS", "SingleKUCB", "mUCB", "TS")),
        Order("i.2", "a wrong model: comparing rewards beats trusting means", "sigma0=0.2",
              "regret", ("TSC, alpha 1", "mmTS, spread .2"), ("mTS", "SingleKUCB", "UCBS")),
        Order("i.3", "no state allowed: the least violated beats any action", "sigma0=0.2",
              "regret", ("SingleKUCB",), ("UCBS",)),
        Order("i.4", "policy reuse: expected improvement beats its probability", "sigma0=0",
              "regret", ("PolicyReuse, EI",), ("PolicyReuse, PI", "PolicyReuse, greedy")),
        Order("i.5", "sessions with their own scale: the order alone is best",
              "own scale, sigma0=0.05", "regret", ("LatentOrderTS",),
              ("mTS", "mmTS, spread .2", "TSC", "TS", "mUCB")),
    ),
    "ii": (
        AtMost("ii.1", "the phased mixture finds the clusters", "200 users", PHASED, 1150),
        AtMost("ii.2", "and with short visits by many users", "1000 users", PHASED, 3000),
        Order("ii.3", "the phased mixture beats all that are not told the clusters", "200 users",
              "regret", (PHASED,), ("LinUCB per user", "CLUB, complete, alpha2 1",
                                    "SCLUB, a_theta 1", "HierUCB", "DynUCB, k=20")),
        Order("ii.4", "CLUB pays for its start as one cluster", "200 users", "regret",
              ("LinUCB per user",), ("CLUB, complete, alpha2 1", "CLUB, sparse, alpha2 1")),
        Order("ii.5", "twice as many clusters as there are: DynUCB is good", "200 users", "regret",
              ("DynUCB, k=20",), ("LinUCB per user", "SCLUB, a_theta 1")),
        Order("ii.6", "a common mean helps a little", "200 users", "regret",
              ("HierTS",), ("LinTS per user",)),
        Order("ii.7", "few rounds per user: distances of estimates find nothing", "1000 users",
              "regret", (PHASED,), ("DynUCB, k=20", "LinUCB per user", "HierUCB")),
    ),
    "iii": (
        Order("iii.1", "Thompson sampling on pairs beats elimination", "16 x 16, n=60000", "regret",
              ("TS on pairs", "UCB1 on pairs"), ("Rank1Elim", "Rank1ElimKL")),
        Order("iii.2", "at half a million rounds UCB1 on pairs still leads", "32 x 32, n=500000",
              "regret", ("UCB1 on pairs",), ("Rank1Elim", "Rank1ElimKL")),
    ),
    "iv": (
        Order("iv.1", "factors beat cells", "c=0.5", "regret",
              ("ParticleMF",), ("TS per cell", "UCB per cell", "NMFBandit")),
        Order("iv.2", "near clusters: factors beat popularity", "c=0.1", "regret",
              ("ParticleMF",), ("TS, one for all", "TS per cell", "NMFBandit")),
        Order("iv.3", "knowing the item factors is the bound", "c=0.5", "regret",
              (KNOWN,), ("ParticleMF",)),
        Order("iv.4", "the corrected weights beat the printed ones", "c=0.1", "regret",
              ("ParticleMF",), ("ParticleMF, weights as printed",)),
    ),
    "v": (
        Order("v.1", "the minimum of two bounds beats the switch", "N=200", "regret",
              ("ProBALL, min, x .3",), ("ProBALL, switch, x .3", "LinUCB, x .3")),
        Order("v.2", "a learned prior beats a bonus", "N=200", "regret",
              ("mean + 1 sd, EB prior",), ("ProBALL, min, x .3", "LinUCB, x .3")),
        Order("v.3", "and with more offline users", "N=2000", "regret",
              ("mean + 1 sd, EB prior",), ("ProBALL, min, x .3", "LinTS, EB prior")),
    ),
}  # fmt: skip


def played(claim: Checkable, results: BySetting) -> bool:
    """Return whether the problem of a claim was played with all of the claim's policies."""
    setting: str = claim.setting  # type: ignore[attr-defined]
    return setting in results and set(claim.policies) <= set(results[setting])


def agreements(table: str, columns: list[Column], results: BySetting) -> list[Claim]:
    """Return one claim for every problem that has rows with reference values."""
    return [
        agreement(table, column, results[column.name])
        for column in columns
        if any(row.reference is not None for row in column.rows.values())
    ]


def agreement(table: str, column: Column, results: Results) -> Claim:
    """Claim that every row agrees with its reference value.

    Rows of at least 100 runs: within 3 combined standard errors. Others: within 15%, or within 3
    combined standard errors where those are larger.
    """
    wide = [
        (abs(results[name].regret.mean - row.reference.mean) / _margin(results, name, column), name)
        for name, row in column.rows.items()
        if row.reference is not None and name in results
    ]
    worst, name = max(wide)
    row = column.rows[name].reference
    assert row is not None
    measured = f"largest: {name} {results[name].regret}, there {row.mean:g} ±{row.stderr:g}"
    few = "3 combined errors" if row.runs >= 100 else "15% or 3 combined errors"
    return Claim(
        f"{table}, {column.name}",
        "agrees with an independent implementation",
        f"{len(wide)} rows within {few}",
        measured,
        worst <= 1,
    )


def _margin(results: Results, name: str, column: Column) -> float:
    row, regret = column.rows[name].reference, results[name].regret
    assert row is not None
    errors = STANDARD_ERRORS * math.hypot(regret.stderr, row.stderr)
    return errors if row.runs >= 100 else max(errors, FEW_RUNS * row.mean)
