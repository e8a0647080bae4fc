"""Measurements of the closed loop: regret by phase, and the gate's decisions on candidates."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentbandits.client import Client
from latentbandits.experiments.loop.cases import EXPLORE, POLICY, Case, cases
from latentbandits.experiments.loop.visits import play, served, visit
from latentbandits.learning.fitting import fit
from latentbandits.loop.comparison import Side
from latentbandits.loop.gate import judge
from latentbandits.loop.records import Run
from latentbandits.loop.relearn import Relearner, Settings
from latentbandits.loop.sources import ServiceSource
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.policies import Exploring, mTS
from latentbandits.report.estimate import Estimate
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table

GATE_ROUNDS = 4  # rounds of a session in process
BROKEN_VISITS = 50  # visits between two broken candidates over HTTP, so that the log grows


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of one case."""

    case: Case
    phases: list[Estimate]
    reference: Estimate
    runs: list[Run]
    kept_out: int  # rejected broken candidates over HTTP
    broken: list[dict[str, float]]
    better: list[dict[str, float]]


def measure(name: str, arguments: argparse.Namespace, progress: Progress) -> Report:
    """Run the phases on a real service, then judge broken and better candidates."""
    from latentbandits.experiments.loop.figure import draw

    started = time.perf_counter()
    measurements = [_measured(case, arguments, progress) for case in cases(arguments)]
    return Report(
        experiment=name,
        settings=dict(
            users=list(arguments.users),
            phases=arguments.phases,
            sessions=[arguments.sessions or one.case.sessions for one in measurements],
            tries=arguments.tries,
            http_tries=arguments.http_tries,
            seed=arguments.seed,
            runs={one.case.name: [_record(run) for run in one.runs] for one in measurements},
        ),
        seconds=time.perf_counter() - started,
        policies=[row for one in measurements for row in _rows(one)],
        claims=[claim for one in measurements for claim in _claims(one, arguments)],
        tables=[_table(one) for one in measurements],
    ).drawn_by(draw)


def _record(run: Run) -> dict[str, Any]:
    """Return a run's record without paths, whose folder is removed afterwards."""
    record = {key: value for key, value in asdict(run).items() if not key.endswith("_path")}
    return record | {"options": {**record["options"], "with_logs": []}}


def _measured(case: Case, arguments: argparse.Namespace, progress: Progress) -> Measured:
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="latentbandits-loop-") as scratch:
        regrets, runs, kept_out = _serve_and_relearn(case, arguments, Path(scratch), rng, progress)
    users = case.users
    best = Exploring(mTS(case.reference), case.explore)  # explores as the service does
    reference = play(best, users, 20_000, users.n_rounds, rng)[1]
    progress.start(f"{case.name}, candidates at the gate", 2 * arguments.tries)

    def gate(make: Any, n_sessions: int) -> list[dict[str, float]]:
        return _gate(case, make, n_sessions, arguments, progress)

    return Measured(
        case,
        [Estimate.from_values(regret) for regret in regrets],
        Estimate.from_values(reference),
        runs,
        kept_out,
        gate(lambda rng: (case.rough_model(rng), case.broken_model(rng)), case.broken_sessions),
        gate(lambda rng: (case.shuffled_model(rng), case.reference), case.better_sessions),
    )


def _serve_and_relearn(
    case: Case,
    arguments: argparse.Namespace,
    folder: Path,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[list[FloatArray], list[Run], int]:
    """Return each phase's regrets, the records, and the number of rejected broken fits."""
    models, older = folder / "models", folder / "older.parquet"
    case.save_first(models / "first", older, rng)
    options = ("--policy", POLICY, "--explore", str(case.explore), "--models", str(models))
    steps = arguments.phases + arguments.http_tries
    progress.start(f"{case.name}, phases of visits over HTTP", steps)
    visitors = case.users.visitors(rng)
    regrets, runs, kept_out = [], [], 0
    with (
        served(models / "first", folder, *options) as url,
        Client(url, timeout=30.0) as client,
    ):
        settings = Settings(
            work=folder / "work",
            models=models,
            policy=POLICY,
            with_logs=(str(older),),
            held_out=case.held_out,
            fit_options=case.fit_options,
        )

        def come(prefix: str, n_sessions: int) -> FloatArray:
            return visit(client, prefix, case.users, visitors, n_sessions, rng)

        for phase in range(arguments.phases):
            regrets.append(come(f"p{phase}", arguments.sessions or case.sessions))
            runs.append(Relearner(settings, client, ServiceSource(client)).run())
            progress.advance(1)
        active = client.models().active
        for i in range(arguments.http_tries):
            come(f"b{i}", BROKEN_VISITS)
            broken = _broken_learner(i, case)
            run = Relearner(settings, client, ServiceSource(client), broken).run()
            kept_out += run.decision == "keep" and client.models().active == active
            progress.advance(1)
    return regrets, runs, kept_out


def _broken_learner(i: int, case: Case) -> Any:
    """Return a learner of corrupted data: actions shuffled, or rewards with the wrong sign."""

    def broken(paths: Any, settings: Settings, progress: Any) -> Any:
        import polars as pl

        frame = pl.read_parquet(paths[-1]).drop_nulls("reward")  # the service's log
        if i % 2:
            frame = frame.with_columns(-pl.col("reward"))
        else:
            n = case.users.n_actions
            wrong = {str(a): str((a + 1 + i) % n) for a in range(n)}
            frame = frame.with_columns(pl.col("action").replace(wrong))
        return fit(frame, bootstrap=0, seed=settings.seed, **case.fit_options)

    return broken


def _gate(
    case: Case,
    make: Callable[[np.random.Generator], tuple[GaussianArms, GaussianArms]],
    n_sessions: int,
    arguments: argparse.Namespace,
    progress: Progress,
) -> list[dict[str, float]]:
    """Judge candidates on fresh logs; return each verdict with the true difference."""
    rows = []
    for i in range(arguments.tries):
        rng = np.random.default_rng([arguments.seed, 3, i])
        current, candidate = make(rng)
        exploring = Exploring(mTS(current), EXPLORE)
        log, _ = play(exploring, case.users, n_sessions, GATE_ROUNDS, rng)
        verdict = judge(
            Side(mTS(current), current, log), Side(mTS(candidate), candidate, log), seed=i
        )
        truth = [
            play(
                mTS(model),
                case.users,
                2000,
                verdict.horizon,
                np.random.default_rng([arguments.seed, 4, i]),
            )[1]
            for model in (current, candidate)
        ]
        gain = float(truth[0].mean() - truth[1].mean())
        half_width = (verdict.high - verdict.low) / 2
        rows.append({"activated": verdict.activate, "gain": gain, "half_width": half_width})
        progress.advance(1)
    return rows


def _rows(one: Measured) -> list[dict[str, Any]]:
    names = [(POLICY, f"{one.case.name}, phase {i + 1}") for i in range(len(one.phases))]
    names.append((one.case.reference_name, f"{one.case.name}, reference"))
    return [
        {"policy": policy, "setting": setting, "regret": each.mean, "regret_stderr": each.stderr}
        for (policy, setting), each in zip(names, (*one.phases, one.reference), strict=True)
    ]


def _claims(one: Measured, arguments: argparse.Namespace) -> list[Claim]:
    first, last, aim = one.phases[0], one.phases[-1], one.reference
    gap = (first.mean - last.mean) / np.hypot(first.stderr, last.stderr)
    closed = (first.mean - last.mean) / (first.mean - aim.mean)
    clear = [row for row in one.better if row["gain"] >= 2 * row["half_width"]]
    through = sum(bool(row["activated"]) for row in clear)
    wrongly = sum(bool(row["activated"]) for row in one.broken)
    enough = arguments.phases > 1 and (arguments.sessions or one.case.sessions) >= 500
    users, letter, n_http = one.case.name, one.case.letter, arguments.http_tries
    return [
        Claim(f"{letter}1", f"{users} users: regret per session falls as the loop learns",
              "by more than 2 errors", f"{first} to {last}", bool(gap > 2) if enough else None),
        Claim(f"{letter}2", f"regret falls towards that of {one.case.reference_name}",
              "at least half of the gap", f"{100 * closed:.0f}% of the gap to {aim}",
              bool(closed > 0.5) if enough else None),
        Claim(f"{letter}3", "a broken candidate is never activated",
              f"0 of {len(one.broken)} in process", f"{wrongly} of {len(one.broken)}",
              wrongly == 0),
        Claim(f"{letter}4", "a broken candidate is never activated over HTTP",
              f"{n_http} of {n_http} kept out", f"{one.kept_out} of {n_http}",
              one.kept_out == n_http),
        Claim(f"{letter}5", "a candidate that gains at least twice the half-width is activated",
              "at least 90%", f"{through} of {len(clear)}",
              bool(through >= 0.9 * len(clear)) if len(clear) >= 20 else None),
    ]  # fmt: skip


def _table(one: Measured) -> Table:
    rows: list[tuple[str, ...]] = [
        (f"{i + 1}", str(phase), run.decision, run.why)
        for i, (phase, run) in enumerate(zip(one.phases, one.runs, strict=True))
    ]
    rows.append((one.case.reference_name, str(one.reference), "", ""))
    columns = ("phase", "regret per session", "then relearn decides", "why")
    rounds = one.case.users.n_rounds
    title = f"{POLICY} on a real service, {one.case.name} users, {rounds} rounds a session"
    return Table(title, columns, rows)
