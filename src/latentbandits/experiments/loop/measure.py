"""Measure the closed loop: regret by phase, and candidates at the gate."""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.client import Client
from latentbandits.experiments.loop import problem
from latentbandits.learning.fitting import fit
from latentbandits.learning.save import save_fit
from latentbandits.loop.gate import Side, judge
from latentbandits.loop.records import Run
from latentbandits.loop.relearn import Relearner, Settings
from latentbandits.loop.sources import ServiceSource
from latentbandits.models import GaussianArms
from latentbandits.policies import Exploring, mTS
from latentbandits.report.estimate import Estimate
from latentbandits.report.progress import ProgressBar
from latentbandits.report.report import Claim, Report, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDS = 8
OFFLINE_USERS = 15
EXPLORE = 0.1
POLICY = "mmTS"


def measure(name: str, arguments: argparse.Namespace, progress: ProgressBar) -> Report:
    """Run the phases beside a real service, then judge broken and better candidates."""
    started = time.perf_counter()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="latentbandits-loop-") as scratch:
        regrets, runs, refused = _serve_and_relearn(arguments, Path(scratch), rng, progress)
    oracle = problem.play(mTS(problem.TRUTH), 20_000, ROUNDS, rng)[1]
    progress.start("loop, candidates at the gate", 2 * arguments.tries)
    broken = _gate(arguments.tries, _broken, 2_500, arguments.seed, progress)
    better = _gate(arguments.tries, _better, 20_000, arguments.seed, progress)
    phases = [Estimate.of(regret) for regret in regrets]
    truth = Estimate.of(oracle)
    rows = [
        {
            "policy": POLICY,
            "setting": f"phase {i + 1}",
            "regret": phase.mean,
            "regret_stderr": phase.stderr,
        }
        for i, phase in enumerate(phases)
    ]
    rows.append({"policy": "mTS, true model", "setting": "oracle", "regret": truth.mean,
                 "regret_stderr": truth.stderr})  # fmt: skip
    return Report(
        experiment=name,
        settings=dict(
            phases=arguments.phases,
            sessions=arguments.sessions,
            tries=arguments.tries,
            http_tries=arguments.http_tries,
            seed=arguments.seed,
            runs=[asdict(run) for run in runs],
        ),
        seconds=time.perf_counter() - started,
        policies=rows,
        claims=_claims(phases, truth, broken, better, refused, arguments),
        tables=[_table(phases, truth, runs)],
        figures={"loop": _draw(phases, truth, runs)},
    )


def _serve_and_relearn(
    arguments: argparse.Namespace,
    folder: Path,
    rng: np.random.Generator,
    progress: ProgressBar,
) -> tuple[list[Any], list[Run], int]:
    """Return each phase's regrets, the records, and how often a broken fit was activated."""
    models = folder / "models"
    table = problem.offline_table(OFFLINE_USERS, ROUNDS, rng)
    save_fit(fit(table, bootstrap=0, states=3, kind="arms", rewards="gaussian"), models / "first")
    options = ("--policy", POLICY, "--explore", str(EXPLORE), "--models", str(models))
    regrets, runs = [], []
    progress.start("loop, phases of visits over HTTP", arguments.phases + arguments.http_tries)
    with (
        problem.served(models / "first", folder, *options) as url,
        Client(url, timeout=30.0) as client,
    ):
        settings = Settings(
            work=folder / "work",
            models=models,
            policy=POLICY,
            held_out=0.4,
            fit_options={"rewards": "gaussian"},
        )
        for phase in range(arguments.phases):
            regrets.append(problem.visit(client, f"p{phase}", arguments.sessions, ROUNDS, rng))
            runs.append(Relearner(settings, client, ServiceSource(client)).run())
            progress.advance(1)
        active = client.models().active
        refused = 0
        for i in range(arguments.http_tries):
            problem.visit(client, f"b{i}", 50, ROUNDS, rng)  # the log must have grown
            broken = _broken_learner(i)
            run = Relearner(settings, client, ServiceSource(client), broken).run()
            refused += run.decision == "keep" and client.models().active == active
            progress.advance(1)
    return regrets, runs, refused


def _broken_learner(i: int) -> Any:
    """Return a learner whose data are wrong: actions shuffled, or rewards with the wrong sign."""

    def broken(paths: Any, settings: Settings, progress: Any) -> Any:
        import polars as pl

        frame = pl.concat([pl.read_parquet(path) for path in paths]).drop_nulls("reward")
        if i % 2:
            frame = frame.with_columns(-pl.col("reward"))
        else:
            wrong = {str(a): str((a + 1 + i % 3) % 4) for a in range(4)}
            frame = frame.with_columns(pl.col("action").replace(wrong))
        return fit(frame, bootstrap=0, rewards="gaussian", seed=settings.seed)

    return broken


def _broken(rng: np.random.Generator) -> tuple[GaussianArms, GaussianArms, float]:
    """Return a rough current model; a candidate with shuffled actions or inverted rewards."""
    current = _rough(rng, 0.15)
    if rng.random() < 0.5:
        return current, GaussianArms(1 - problem.MEANS, problem.NOISE), EXPLORE
    shift = int(rng.integers(1, problem.MEANS.shape[1]))
    return current, GaussianArms(np.roll(problem.MEANS, shift, axis=1), problem.NOISE), EXPLORE


def _better(rng: np.random.Generator) -> tuple[GaussianArms, GaussianArms, float]:
    """Return a current model that is wrong about every action; the candidate is the truth."""
    shift = int(rng.integers(1, problem.MEANS.shape[1]))
    wrong = GaussianArms(np.roll(problem.MEANS, shift, axis=1), problem.NOISE)
    return wrong, problem.TRUTH, EXPLORE


def _rough(rng: np.random.Generator, error: float) -> GaussianArms:
    noise = error * rng.standard_normal(problem.MEANS.shape)
    return GaussianArms(problem.MEANS + noise, problem.NOISE)


def _gate(
    tries: int, make: Any, n_sessions: int, seed: int, progress: ProgressBar
) -> list[dict[str, float]]:
    """Judge candidates on fresh logs; return each verdict with the true difference."""
    found = []
    for i in range(tries):
        rng = np.random.default_rng([seed, 3, i])
        current, candidate, explore = make(rng)
        log, _ = problem.play(Exploring(mTS(current), explore), n_sessions, 4, rng)
        verdict = judge(
            Side(mTS(current), current, log), Side(mTS(candidate), candidate, log), seed=i
        )
        truth = [
            problem.play(mTS(model), 4000, verdict.horizon, np.random.default_rng([seed, 4, i]))[1]
            for model in (current, candidate)
        ]
        gain = float(truth[0].mean() - truth[1].mean())
        half_width = (verdict.high - verdict.low) / 2
        found.append({"activated": verdict.activate, "gain": gain, "half_width": half_width})
        progress.advance(1)
    return found


def _claims(
    phases: list[Estimate],
    truth: Estimate,
    broken: list[dict[str, float]],
    better: list[dict[str, float]],
    refused: int,
    arguments: argparse.Namespace,
) -> list[Claim]:
    first, last = phases[0], phases[-1]
    gap = (first.mean - last.mean) / np.hypot(first.stderr, last.stderr)
    closed = (first.mean - last.mean) / (first.mean - truth.mean)
    clear = [row for row in better if row["gain"] >= 2 * row["half_width"]]
    through = sum(bool(row["activated"]) for row in clear)
    wrongly = sum(bool(row["activated"]) for row in broken)
    enough = arguments.phases > 1 and arguments.sessions >= 500
    return [
        Claim("L1", "regret per session falls as the loop learns", "by more than 2 errors",
              f"{first} to {last}", bool(gap > 2) if enough else None),
        Claim("L2", "it falls towards that of the true model", "at least half of the gap",
              f"{100 * closed:.0f}% of the gap to {truth}", bool(closed > 0.5) if enough else None),
        Claim("L3", "a broken candidate is never activated", f"0 of {len(broken)} in process",
              f"{wrongly} of {len(broken)}", wrongly == 0),
        Claim("L4", "nor over HTTP", f"{arguments.http_tries} of {arguments.http_tries} kept out",
              f"{refused} of {arguments.http_tries}", refused == arguments.http_tries),
        Claim("L5", "a clearly better one is (gain of twice the half-width or more)",
              "at least 90%", f"{through} of {len(clear)}",
              bool(through >= 0.9 * len(clear)) if len(clear) >= 20 else None),
    ]  # fmt: skip


def _table(phases: list[Estimate], truth: Estimate, runs: list[Run]) -> Table:
    rows: list[tuple[str, ...]] = [
        (f"{i + 1}", str(phase), run.decision, run.why)
        for i, (phase, run) in enumerate(zip(phases, runs, strict=True))
    ]
    rows.append(("true model", str(truth), "", ""))
    columns = ("phase", "regret per session", "then relearn decides", "why")
    return Table(f"{POLICY} on a real service, {ROUNDS} rounds a session", columns, rows)


def _draw(phases: list[Estimate], truth: Estimate, runs: list[Run]) -> Figure:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7, 4), layout="constrained")
    axes = drawn.subplots()
    numbers = np.arange(1, len(phases) + 1)
    axes.errorbar(
        numbers,
        [phase.mean for phase in phases],
        yerr=[2 * phase.stderr for phase in phases],
        fmt="o-",
        color="#d55e00",
        capsize=3,
    )
    for number, run in zip(numbers, runs, strict=True):
        if run.decision == "activate":
            axes.axvline(number + 0.5, color="#009e73", lw=1, ls="--")
    axes.axhline(truth.mean, color="#0072b2", lw=1)
    axes.annotate("true model", (numbers[-1], truth.mean), xytext=(0, 4), ha="right",
                  textcoords="offset points", color="#0072b2", fontsize=9)  # fmt: skip
    axes.set_xticks(numbers)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("phase (dashed: a new model was activated)")
    axes.set_ylabel("regret per session")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return drawn
