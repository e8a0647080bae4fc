"""Claims about related systems: orders, bounds, agreement with an independent implementation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from latentbandits.experiments.experiment import BySetting, Checkable, Order
from latentbandits.report.report import Claim
from latentbandits.simulation import Results
from latentbandits_related.reproduce.clustering import PHASED
from latentbandits_related.reproduce.factorisation import KNOWN
from latentbandits_related.reproduce.table import Column, Reference

MANY_RUNS = 100
FEW_RUNS = 0.15  # tolerance of rows with fewer than MANY_RUNS runs, as a share of the reference
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class AtMost:
    """A claim that the mean regret of `policy` in `setting` is at most `bound`."""

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
        AtMost("ii.2", "it finds them with short visits too", "1000 users", PHASED, 3000),
        Order("ii.3", "the phased mixture beats policies without known clusters", "200 users",
              "regret", (PHASED,), ("LinUCB per user", "CLUB, complete, alpha2 1",
                                    "SCLUB, a_theta 1", "HierUCB", "DynUCB, k=20")),
        Order("ii.4", "CLUB pays for its start as one cluster", "200 users", "regret",
              ("LinUCB per user",), ("CLUB, complete, alpha2 1", "CLUB, sparse, alpha2 1")),
        Order("ii.5", "twice as many clusters as there are: DynUCB is good", "200 users", "regret",
              ("DynUCB, k=20",), ("LinUCB per user", "SCLUB, a_theta 1")),
        Order("ii.6", "a common mean helps a little", "200 users", "regret",
              ("HierTS",), ("LinTS per user",)),
        Order("ii.7", "few rounds per user: distances of estimates do not help", "1000 users",
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
        Order("iv.3", "known item factors beat learned ones", "c=0.5", "regret",
              (KNOWN,), ("ParticleMF",)),
        Order("iv.4", "the corrected weights beat the printed ones", "c=0.1", "regret",
              ("ParticleMF",), ("ParticleMF, weights as printed",)),
    ),
    "v": (
        Order("v.1", "the minimum of two bounds beats the switch", "N=200", "regret",
              ("ProBALL, min, x .3",), ("ProBALL, switch, x .3", "LinUCB, x .3")),
        Order("v.2", "a learned prior beats a bonus", "N=200", "regret",
              ("mean + 1 sd, EB prior",), ("ProBALL, min, x .3", "LinUCB, x .3")),
        Order("v.3", "it does so with more offline users too", "N=2000", "regret",
              ("mean + 1 sd, EB prior",), ("ProBALL, min, x .3", "LinTS, EB prior")),
    ),
}  # fmt: skip


def played(claim: Checkable, results: BySetting) -> bool:
    """Return whether the problem of a claim was played with all of the claim's policies."""
    setting: str = claim.setting  # type: ignore[attr-defined]
    return setting in results and set(claim.policies) <= set(results[setting])


def agreements(table: str, columns: list[Column], results: BySetting) -> list[Claim]:
    """Return claims on values and on their order for every problem with reference values."""
    claims = []
    for column in columns:
        if _references(column, results[column.name]):
            claims.append(agreement(table, column, results[column.name]))
            claims.append(same_order(table, column, results[column.name]))
    return claims


def _references(column: Column, results: Results) -> dict[str, Reference]:
    """Return the reference values of the rows that were played."""
    return {
        name: row.reference
        for name, row in column.rows.items()
        if row.reference is not None and name in results
    }


def agreement(table: str, column: Column, results: Results) -> Claim:
    """Return the claim that every row agrees with its reference value.

    Rows of at least 100 runs must be within 3 combined standard errors. Others must be within 15%,
    or within 3 combined standard errors if those are larger.
    """
    references = _references(column, results)
    away = {name: abs(results[name].regret.mean - row.mean) for name, row in references.items()}
    shares = {
        name: away[name] / _least_difference(results[name].regret.stderr, row, row.runs)
        for name, row in references.items()
    }
    name = max(shares, key=lambda name: shares[name])
    row = references[name]
    measured = f"largest: {name} {results[name].regret}, there {row.mean:g} ±{row.stderr:g}"
    if row.runs >= MANY_RUNS:
        allowed = "3 combined errors"
    else:
        allowed = "15% or 3 combined errors"
        near = sum(away[name] <= FEW_RUNS * references[name].mean for name in away)
        measured = f"{near} within 15%; {measured}"
    return Claim(
        f"{table}, {column.name}",
        "agrees with an independent implementation",
        f"{len(away)} rows within {allowed}",
        measured,
        max(shares.values()) <= 1,
    )


def same_order(table: str, column: Column, results: Results) -> Claim:
    """Return the claim that rows are in the order of the reference, for all significant pairs.

    Two rows differ significantly if the difference is more than 3 combined standard errors, and
    more than 15% if one of them has fewer than 100 runs.
    """
    references = _references(column, results)
    pairs = [
        (low, high)
        for low, one in references.items()
        for high, other in references.items()
        if one.mean < other.mean
        and other.mean - one.mean > _least_difference(one.stderr, other, min(one.runs, other.runs))
    ]
    wrong = [
        f"{low} {results[low].regret} above {high} {results[high].regret}"
        for low, high in pairs
        if results[low].regret.mean >= results[high].regret.mean
    ]
    return Claim(
        f"{table}, {column.name}, order",
        "policies come in the order of that implementation",
        f"{len(pairs)} pairs that it tells apart",
        wrong[0] if wrong else "all in that order",
        not wrong,
    )


def _least_difference(stderr: float, other: Reference, runs: int) -> float:
    """Return the difference from `other` beyond which a mean of this error is another one."""
    errors = STANDARD_ERRORS * math.hypot(stderr, other.stderr)
    return errors if runs >= MANY_RUNS else max(errors, FEW_RUNS * other.mean)
