"""`reproduce side`: the learned share of the value of users' and items' attributes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import TypeVar

import numpy as np

from latentbandits.experiments.side.gates import COLUMNS, USELESS, GateJob, RoundOne, play_gate
from latentbandits.experiments.side.new_items import ItemsJob, NewItems, play_items
from latentbandits.options import positive
from latentbandits.report.estimate import Estimate
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table

SEEDS, USERS = 20, 4_000
ROWS = (15, 4)

J = TypeVar("J")
R = TypeVar("R")


class SideExperiment:
    """Attributes of users and items with known effects."""

    name = "side"
    help = "attributes of users and items with known effects: how much of their worth is learned"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--seeds", type=positive, default=SEEDS, help=f"generated problems (default {SEEDS})")
        add("--users", type=positive, default=USERS,
            help=f"users of each generated log (default {USERS:,})")  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        """Accept all options; nothing needs a check."""

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        started = time.perf_counter()
        seeds = range(arguments.seed, arguments.seed + arguments.seeds)
        jobs = [(rows, COLUMNS) for rows in ROWS] + [(ROWS[0], USELESS)]
        gates = [GateJob(arguments.users, rows, names, i) for rows, names in jobs for i in seeds]
        items = [ItemsJob(informative, i) for informative in (True, False) for i in seeds]
        progress.start("side", len(gates) + len(items))
        played = list(_run(play_gate, gates, executor, progress))
        offered = list(_run(play_items, items, executor, progress))
        n = len(seeds)
        by_rows = {rows: played[i * n : (i + 1) * n] for i, rows in enumerate(ROWS)}
        useless = played[len(ROWS) * n :]
        claims = [_recovered(rows, rounds) for rows, rounds in by_rows.items()]
        claims += [_no_cost(useless), _reached(offered[:n]), _nothing(offered[n:])]
        return Report(
            experiment=self.name,
            settings={"seeds": n, "users": arguments.users, "seed": arguments.seed},
            seconds=time.perf_counter() - started,
            policies=[],
            claims=claims,
            tables=[
                _gate_table(by_rows | {0: useless}),
                _item_table({"informative": offered[:n], "not informative": offered[n:]}),
            ],
        )


def _run(
    work: Callable[[J], R], jobs: Sequence[J], executor: Executor | None, progress: Progress
) -> Iterator[R]:
    for result in map(work, jobs) if executor is None else executor.map(work, jobs):
        progress.advance(1)
        yield result


def share_of_gain(rounds: Sequence[RoundOne]) -> float:
    """Return the summed gain of the gates divided by the summed achievable gain."""
    without, gated, best, _ = np.array(rounds).T
    return float((gated - without).sum() / (best - without).sum())


def _recovered(rows: int, rounds: Sequence[RoundOne]) -> Claim:
    share = share_of_gain(rounds)
    worst = min(share_of_gain([one]) for one in rounds)
    return Claim(
        f"gate-{rows}", f"a gate learned from {rows} rows a user has most of the achievable gain",
        "at least 90% of the achievable gain in round 1",
        f"{share:.1%} (worst problem {worst:.0%})", share >= 0.9,
    )  # fmt: skip


def _no_cost(rounds: Sequence[RoundOne]) -> Claim:
    lead = Estimate.from_values(np.array([one.gated - one.untold for one in rounds]))
    return Claim(
        "gate-useless", "an uninformative attribute costs nothing",
        "reward of round 1 with it at most one standard error below that of a model without it",
        f"{lead:+}", lead.mean >= -lead.stderr,
    )  # fmt: skip


def _reached(plays: Sequence[NewItems]) -> Claim:
    learned, predicted, average = (
        float(np.mean([np.mean(getattr(one, name)) for one in plays]))
        for name in ("learned", "predicted", "average")
    )
    gain = (predicted - average) / (learned - average)
    return Claim(
        "items", "new items with informative attributes earn almost what learned vectors earn",
        "at least 80% of the reward of learned vectors in rounds 1-20",
        f"{predicted / learned:.1%} ({gain:.0%} of what is gained over average vectors)",
        predicted >= 0.8 * learned,
    )  # fmt: skip


def _nothing(plays: Sequence[NewItems]) -> Claim:
    lead = Estimate.from_values(
        np.concatenate([one.predicted - one.average for one in plays]), n_groups=len(plays)
    )
    return Claim(
        "items-useless", "uninformative attributes of items cost nothing",
        "reward with predicted vectors at most one standard error below that with average "
        "vectors", f"{lead:+}", lead.mean >= -lead.stderr,
    )  # fmt: skip


def _gate_table(by_rows: dict[int, list[RoundOne]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for n_rows, rounds in by_rows.items():
        without, gated, best, untold = np.mean(np.array(rounds), axis=0)
        name = f"{n_rows} rows a user" if n_rows else f"{ROWS[0]} rows a user, a useless attribute"
        share = f"{share_of_gain(rounds):.1%}" if n_rows else ""
        means = (f"{mean:.3f}" for mean in (without, untold, gated, best))
        rows.append((name, *means, share))
    title = "Mean reward of new users in round 1"
    columns = (
        "log", "best average action", "without attributes", "with the gate", "achievable",
        "share of the gain",
    )  # fmt: skip
    return Table(title, columns, rows)


def _item_table(by_name: dict[str, list[NewItems]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, plays in by_name.items():
        means = [
            Estimate.from_values(np.array([getattr(one, what).mean() for one in plays]))
            for what in ("learned", "predicted", "average")
        ]
        explained = float(np.mean([one.explained for one in plays]))
        rows.append((name, *map(str, means), f"{explained:.0%}"))
    title = "Mean reward of rounds 1-20 on new items, ten offered a round"
    columns = ("attributes", "learned vectors", "predicted", "average item", "explained")
    return Table(title, columns, rows)
