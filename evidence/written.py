"""Written models on real users that no fit has seen: `python -m evidence written --data FOLDER`.

Each data set is split by users. `fit` with its defaults learns from one part and writes a folder;
`judge_saved` loads the folder and replays its recommended policy on the other part.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.bench.experiment import ERRORS, not_below
from evidence.bench.problem import Source
from evidence.bench.problems import coat, llm_routing, tables
from evidence.bench.problems.llm_routing import Tenants
from latentbandits.experiments import experiment as frame
from latentbandits.learning import Log, fit, judge_saved, save_fit, user_hash
from latentbandits.options import Option, choose, positive
from latentbandits.report.report import Claim, Estimate, Report, Table, estimate_in

NORMAL_95 = 1.96
SET_ASIDE = 0.3
USERS = 3_000
_SPLIT = 1_000  # added to the seed of the split, which differs from that of the fit


DATA: Mapping[str, Source | Tenants] = {
    "sushi": tables.SUSHI,
    "coat": coat.CHOSEN,
    "jester": tables.JESTER,
    "llm-routing": llm_routing.TENANTS,
    "ml-latest-small": tables.ML_LATEST,
    "assistments": tables.ASSISTMENTS,
    "ml-1m": tables.ML_1M,
}
"""Data sets with users, by name."""


class Written(NamedTuple):
    """A written model, what its fit claims, and what was measured on users it has not seen."""

    name: str
    policy: str
    verdict: str
    claimed: Estimate | None  # gain a round over popularity in `rounds`; None if none is claimed
    rounds: int
    measured: dict[int, tuple[Estimate, int]]  # the gain in rounds 1 to h, and the users
    leads: tuple[Estimate, Estimate] | None  # what the verdict is about, later rounds too: claimed
    # and measured; None if popularity is recommended
    seconds: float


def judge_written(log: Log, name: str, seed: int, **options: Any) -> Written:
    """Fit to a part of the users, write the folder, and replay it on the others."""
    aside = user_hash.held_out(log.keys, round(SET_ASIDE * log.n_users), seed + _SPLIT)
    train, users = (log.of_users(np.flatnonzero(part)) for part in (~aside, aside))
    result = fit(train, seed=seed, **options)
    judged = result.report["judgement"]
    with tempfile.TemporaryDirectory() as folder:
        save_fit(result, Path(folder, "model"))
        judgement = judge_saved(Path(folder, "model"), train, users, seed=seed)
    if judgement is None:
        raise ValueError(f"{name}: no user has enough rows to be replayed")
    policy = judged["recommended_policy"]
    replay = judgement.replay
    measured = {h: (replay.difference(policy, "popularity", h), replay.n_users(h))
                for h in replay.horizons}  # fmt: skip
    claimed = next(
        (estimate_in(row, "over_popularity")
         for row in judged["replay"]
         if row["policy"] == policy != "popularity" and row["rounds"] == judged["horizon"]),
        None,
    )  # fmt: skip
    leads = None
    if policy != "popularity":
        lead = judged["lead"]
        error = (lead["high"] - lead["low"]) / (2 * NORMAL_95)
        leads = Estimate(lead["mean"], error), judgement.lead.estimate
    return Written(name, policy, judged["verdict"], claimed, judged["horizon"], measured, leads,
                   result.report["seconds"])  # fmt: skip


def claims(one: Written) -> list[Claim]:
    """Return the claims: never clearly below popularity, and the promised gain was measured."""
    found = [
        not_below(f"{one.name} 1-{h}",
                  f"{one.policy} is not clearly below popularity on {n_users} users", lead)
        for h, (lead, n_users) in one.measured.items()
    ]  # fmt: skip
    if one.claimed is not None and one.rounds in one.measured:
        what = f"the gain of {one.policy} in its table was measured"
        found.append(_same(f"{one.name} claim", what, one.claimed, one.measured[one.rounds][0]))
    if one.leads is not None:
        what = f"the lead in its sentence ({one.verdict}), later rounds too, was measured"
        found.append(_same(f"{one.name} lead", what, *one.leads))
    return found


def _same(identifier: str, what: str, claimed: Estimate, measured: Estimate) -> Claim:
    difference = measured.mean - claimed.mean
    error = ERRORS * float(np.hypot(claimed.stderr, measured.stderr))
    predicted = f"{measured:+} within {error:.2g} of {claimed:+}"
    return Claim(identifier, what, predicted, f"{difference:+.3g}", abs(difference) <= error)


def _measure(name: str, folder: Path, seed: int, most_users: int) -> Written:
    log = DATA[name].read(folder, seed)
    if log.n_users > most_users:
        log = log.of_users(user_hash.sample(log.keys, most_users, seed))
    return judge_written(log, name, seed)


class WrittenExperiment(frame.Experiment):
    """Written models against popularity on real users that no fit has seen."""

    name = "written"
    help = "models that fit writes, against popularity on other real users"
    options = (
        Option("data", "folder with the data sets", metavar="FOLDER"),
        Option("users", "at most this many of each data set", USERS, positive),
        Option("only", "only these; by default all", several=True, metavar="NAME"),
    )

    def check(self, arguments: argparse.Namespace) -> None:
        names = choose("data set", arguments.only, DATA)
        if arguments.data is None:
            raise ValueError("--data needs the folder with the data sets")
        for name in names:
            if not Path(arguments.data, DATA[name].file).is_file():
                raise ValueError(f"{arguments.data} has no {DATA[name].file}: leave {name} out")

    def measure(self, work: frame.Work) -> Report:
        options = work.options
        names = choose("data set", options.only, DATA)
        jobs = [(name, Path(options.data), options.seed, options.users) for name in names]
        found = work.map("written", _measure, jobs)
        return Report(
            settings={"data_sets": names},
            claims=[claim for one in found for claim in claims(one)],
            tables=[_table(found)],
        )


def _table(found: list[Written]) -> Table:
    rows: list[tuple[str, ...]] = []
    for one in found:
        claimed = "" if one.claimed is None else f"{one.claimed:+} (1-{one.rounds})"
        measured = ", ".join(
            f"1-{h}: {lead:+} ({n_users})" for h, (lead, n_users) in one.measured.items()
        )
        leads = "" if one.leads is None else " and ".join(f"{lead:+}" for lead in one.leads)
        seconds = f"{one.seconds:.0f} s"
        rows.append((one.name, one.verdict, one.policy, claimed, measured, leads, seconds))
    columns = ("data", "verdict", "policy", "claimed", "measured (users)",
               "later rounds too: claimed and measured", "fit")  # fmt: skip
    return Table("Gain a round over popularity, of written models", columns, rows)
