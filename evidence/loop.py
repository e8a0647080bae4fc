"""The closed loop on a real service: serve, log, relearn, promote only better candidates."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from evidence.evaluation import MEANS, NOISE
from evidence.loop_users import MovieLensUsers, SimulatedUsers, Users
from evidence.loop_visits import play, served, visit
from latentbandits.client import Client
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.experiments.movielens_data import find_folder, given_folder, load
from latentbandits.learning.fit_options import FitOptions
from latentbandits.learning.fitting import fit
from latentbandits.learning.save import save_fit
from latentbandits.loop.kept_log import ServiceSource
from latentbandits.loop.promotion import Side, judge
from latentbandits.loop.records import Run
from latentbandits.loop.relearn import FIT_OPTIONS, LoopSettings, Relearner
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.options import Option, positive
from latentbandits.policies import Exploring, mTS
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Relearn several times next to a real service, and try to promote broken candidates.

PHASES, TRIES, HTTP_TRIES = 4, 200, 5


# The measured loops: users, a first model, and a reference model that the loop should approach.

EXPLORE = 0.1  # of logs that candidates are judged on in process
POLICY = "mmTS"
HELD_OUT = 0.5  # of the sessions judge candidates
FIT: dict[str, Any] = {"kind": "arms", "rewards": "gaussian"}


@dataclass(frozen=True, eq=False)
class Case:
    """One loop.

    Attributes:
        name: the kind of users.
        users: the users who visit the service.
        reference: the model that the loop should approach; a policy on it has the least regret.
        reference_name: the name of the reference in tables.
        sessions: number of sessions of a phase, over HTTP.
        first_users: number of users from whom the first model is learned.
        broken_sessions, better_sessions: numbers of sessions of a log, for promotion in process.
        rough: standard deviation of the error in the means of a rough model.
        explore: share of random actions on the service.
    """

    name: str
    users: Users
    reference: GaussianArms
    reference_name: str
    sessions: int
    first_users: int
    broken_sessions: int
    better_sessions: int
    rough: float
    explore: float

    def save_first(self, path: Path, log: Path, rng: np.random.Generator) -> None:
        """Fit the first model to few users, and save it and their log."""
        table = self.users.first_table(self.first_users, rng)
        pl.DataFrame(table).write_parquet(log)
        save_fit(fit(table, bootstrap=0, states=3, **FIT), path)

    def rough_model(self, rng: np.random.Generator) -> GaussianArms:
        """Return the reference with errors in its means."""
        error = self.rough * rng.standard_normal(self.reference.means.shape)
        return self._with_means(self.reference.means + error)

    def broken_model(self, rng: np.random.Generator) -> GaussianArms:
        """Return the reference with its actions shuffled, or its rewards inverted."""
        means = self.reference.means
        if rng.random() < 0.5:
            return self._with_means(means.max() + means.min() - means)
        return self.shuffled_model(rng)

    def shuffled_model(self, rng: np.random.Generator) -> GaussianArms:
        """Return the reference with its actions permuted; no action keeps its place."""
        n = self.users.n_actions
        order = rng.permutation(n)
        places = np.empty(n, np.int64)
        places[order] = np.roll(order, 1)  # a single cycle
        return self._with_means(self.reference.means[:, places])

    def _with_means(self, means: Any) -> GaussianArms:
        return GaussianArms(means, self.reference.noise, 0.0, self.reference.state_prior)


def _simulated(arguments: argparse.Namespace) -> Case:
    users = SimulatedUsers(MEANS, NOISE, 8)
    return Case(
        name="simulated",
        users=users,
        reference=users.truth,
        reference_name="mTS, true model",
        sessions=2000,
        first_users=15,
        broken_sessions=2_500,
        better_sessions=20_000,
        rough=0.15,
        explore=0.2,
    )


def _movielens(arguments: argparse.Namespace) -> Case:
    users = MovieLensUsers(load(find_folder(arguments.data)))
    everyone = users.table(len(users.ratings), np.random.default_rng(arguments.seed))
    known = fit(everyone, bootstrap=0, states=4, **FIT).model
    means = known.expected_rewards(None)[0]
    return Case(
        name="movielens",
        users=users,
        reference=GaussianArms(means, known.noise, 0.0, known.state_prior),
        reference_name="mTS, model of all users",
        sessions=700,
        first_users=20,
        broken_sessions=1_500,
        better_sessions=8_000,
        rough=0.3 * float(means.std()),
        explore=0.1,
    )


_MAKERS = {"simulated": _simulated, "movielens": _movielens}


# Measurements of the closed loop: regret by phase, and which candidates are promoted.

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


class LoopExperiment(Experiment):
    """A service that starts with little data and learns from its own log."""

    name = "loop"
    help = "the closed loop on a real service: regret falls, broken candidates stay out"
    options = (
        Option("users", "who visits the service", ["simulated"], several=True,
               choices=list(_MAKERS)),
        Option("data", "a MovieLens 1M folder, as for `reproduce movielens`", metavar="DIR",
               recorded=False),
        Option("phases", "relearnings", PHASES, positive),
        Option("sessions", "of a phase (default 2000, MovieLens 700)", type=positive),
        Option("tries", "broken candidates", TRIES, positive),
        Option("http-tries", "broken candidates over HTTP", HTTP_TRIES, positive),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        """Look for the data, if they are needed, before the work begins."""
        if "movielens" in arguments.users:
            given_folder(arguments.data)

    def measure(self, work: Work) -> Report:
        """Run the phases on a real service, then judge broken and better candidates."""
        options = work.options
        measured = [_measured(_MAKERS[name](options), work) for name in options.users]
        return Report(
            settings={
                "sessions": [options.sessions or one.case.sessions for one in measured],
                "runs": {one.case.name: [_record(run) for run in one.runs] for one in measured},
            },
            policies=[row for one in measured for row in _rows(one)],
            claims=[claim for one in measured for claim in _claims(one, options)],
            tables=[_table(one) for one in measured],
        )

    def draw(self, results: Mapping[str, Any]) -> dict[str, Figure]:
        """Draw a figure for each kind of users in results.json."""
        return {
            "loop" if users == "simulated" else f"loop-{users}": _draw(users, results)
            for users in results["settings"]["users"]
        }


def _record(run: Run) -> dict[str, Any]:
    """Return a run's record without paths, whose folder is removed afterwards."""
    record = {key: value for key, value in asdict(run).items() if not key.endswith("_path")}
    return record | {"options": {**record["options"], "with_logs": []}}


def _measured(case: Case, work: Work) -> Measured:
    seed, n_tries = work.options.seed, work.options.tries
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(prefix="latentbandits-loop-") as scratch:
        regrets, runs, kept_out = _serve_and_relearn(case, work, Path(scratch), rng)
    users = case.users
    best = Exploring(mTS(case.reference), case.explore)  # explores as the service does
    reference = play(best, users, 20_000, users.n_rounds, rng)[1]
    work.progress.start(f"{case.name}, candidates for promotion", 2 * n_tries)
    broken, better = [], []
    for i in range(n_tries):
        rng = np.random.default_rng([seed, 3, i])
        pair = case.rough_model(rng), case.broken_model(rng)
        broken.append(_at_the_gate(case, *pair, case.broken_sessions, seed, i, rng))
        rng = np.random.default_rng([seed, 3, i])
        pair = case.shuffled_model(rng), case.reference
        better.append(_at_the_gate(case, *pair, case.better_sessions, seed, i, rng))
        work.progress.advance(2)
    phases = [Estimate.from_values(regret) for regret in regrets]
    return Measured(case, phases, Estimate.from_values(reference), runs, kept_out, broken, better)


def _serve_and_relearn(
    case: Case, work: Work, folder: Path, rng: np.random.Generator
) -> tuple[list[FloatArray], list[Run], int]:
    """Return each phase's regrets, the records, and the number of rejected broken fits."""
    arguments, progress = work.options, work.progress
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
        settings = LoopSettings(
            work=folder / "work", models=models, policy=POLICY, with_logs=(str(older),),
            held_out=HELD_OUT, fit_options=replace(FIT_OPTIONS, **FIT),
        )  # fmt: skip

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

    def broken(paths: Any, options: FitOptions, progress: Any) -> Any:
        frame = pl.read_parquet(paths[-1]).drop_nulls("reward")  # the service's log
        if i % 2:
            frame = frame.with_columns(-pl.col("reward"))
        else:
            n = case.users.n_actions
            wrong = {str(a): str((a + 1 + i) % n) for a in range(n)}
            frame = frame.with_columns(pl.col("action").replace(wrong))
        return fit(frame, bootstrap=0, seed=options.seed, **FIT)

    return broken


def _at_the_gate(
    case: Case,
    current: GaussianArms,
    candidate: GaussianArms,
    n_sessions: int,
    seed: int,
    i: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Judge a candidate on a fresh log; return the verdict with the true difference."""
    log, _ = play(Exploring(mTS(current), EXPLORE), case.users, n_sessions, GATE_ROUNDS, rng)
    verdict = judge(Side(mTS(current), current, log), Side(mTS(candidate), candidate, log), seed=i)
    regrets = [
        play(mTS(model), case.users, 2000, verdict.horizon, np.random.default_rng([seed, 4, i]))[1]
        for model in (current, candidate)
    ]
    gain = float(regrets[0].mean() - regrets[1].mean())
    half_width = (verdict.high - verdict.low) / 2
    return {"activated": verdict.activate, "gain": gain, "half_width": half_width}


def _rows(one: Measured) -> list[dict[str, Any]]:
    names = [(POLICY, f"{one.case.name}, phase {i + 1}") for i in range(len(one.phases))]
    names.append((one.case.reference_name, f"{one.case.name}, reference"))
    return [
        {"policy": policy, "setting": setting, **each.row("regret")}
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
    users, n_http = one.case.name, arguments.http_tries
    letter = "M" if users == "movielens" else "L"  # of the claims' ids
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


_USERS = {"simulated": "simulated users", "movielens": "users of MovieLens"}
_UNITS = {"simulated": "reward", "movielens": "stars"}


def _draw(users: str, results: Mapping[str, Any]) -> Figure:
    by_setting = drawing.estimates(results["policies"], "regret")
    phases = [
        next(iter(by_policy.values())) for name, by_policy in by_setting.items()
        if name.startswith(f"{users}, phase ")
    ]  # fmt: skip
    reference, aim = next(iter(by_setting[f"{users}, reference"].items()))
    numbers = range(1, len(phases) + 1)
    settings = results["settings"]
    visitors = settings["sessions"][settings["users"].index(users)]
    title = f"A service that learns from its own log: {_USERS[users]}"
    figure = drawing.new_figure(3.8, title, drawing.NARROW)
    axes = figure.subplots()
    drawing.draw_line(axes, numbers, phases, "-", drawing.ORANGE, "the service")
    label = reference.replace(", ", ",\n")
    axes.plot([1, len(phases)], [aim.mean, aim.mean], color=drawing.BLUE, lw=1.6, label=label)
    top = 1.15 * max(phase.mean for phase in phases)
    for number, run in zip(numbers, results["settings"]["runs"][users], strict=True):
        if run["decision"] == "activate" and number < len(phases):
            axes.axvline(number + 0.5, color=drawing.GREEN, lw=1.2, ls="--")
            axes.annotate(" new model", (number + 0.5, top), color=drawing.GREEN,
                          fontsize=drawing.SMALL, va="top")  # fmt: skip
    drawing.plain(axes, x="visitors so far", y=f"regret per session of 8 rounds ({_UNITS[users]})")
    axes.set_xticks(numbers, [f"{number * visitors:,}" for number in numbers])
    axes.set_xlim(1 - 0.02, len(phases) + 0.02)
    axes.set_ylim(0, top)
    drawing.label_lines(axes)
    return figure
