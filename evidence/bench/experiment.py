"""`python -m evidence bench`: policies that learn within a session, on real users."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.bench import contestants
from evidence.bench.problem import archive
from evidence.bench.problems import PROBLEMS
from evidence.bench.protocol import FIRST, Task, run
from latentbandits.experiments import experiment as frame
from latentbandits.options import Option, choose
from latentbandits.report import drawing
from latentbandits.report.files import to_json
from latentbandits.report.report import Claim, Estimate, Report, Table, estimate_in

DATA = "../shared/data"
"""The folder with the data sets, beside the clone."""

ERRORS = 2.0
"""Paired standard errors beyond which a difference counts."""


class BenchExperiment(frame.Experiment):
    """Contestants on the problems, with what `fit` recommends among them."""

    name = "bench"
    help = "policies that learn within a session, on real and generated users; a leaderboard"
    options = (
        Option("problems", "only these; by default all whose data are there", several=True),
        Option("policies", "contestants: auto, popularity, uniform, kNN, HierTS, a policy, "
               "model/policy or module:name", list(contestants.DEFAULTS), several=True),
        Option("data", "folder with the data sets", DATA, metavar="DIR", recorded=False),
        Option("short", "fewer users, quick fits: minutes in place of an hour", False),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        for name in choose("problem", arguments.problems, PROBLEMS):
            missing = _missing(name, arguments.data)
            if missing and arguments.problems:
                raise ValueError(f"{arguments.data} has no {missing[0]}, which {name} needs")
        for text in arguments.policies:
            contestants.check(text)

    def measure(self, work: frame.Work) -> Report:
        options = work.options
        names = choose("problem", options.problems, PROBLEMS)
        there = [name for name in names if not _missing(name, options.data)]
        tasks = [
            Task(PROBLEMS[name], tuple(options.policies), Path(options.data), options.seed,
                 options.short)
            for name in there
        ]  # fmt: skip
        folder = Path(options.out)
        found = work.map("bench", _kept, [(task, folder) for task in tasks])
        for name in there:  # the next run measures anew: a contestant's code may have changed
            _file(folder, name).unlink()
        return report_on(found, there)

    def draw(self, results: Mapping[str, Any]) -> frame.Figures:
        """Draw a row for each problem, in the order of the evidence for states."""
        found = sorted(gains(results), key=lambda one: one[1].mean)
        if not found:
            return {}
        figure = drawing.new_figure(1.4 + 0.36 * len(found), width=drawing.NARROW)
        left, right = figure.subplots(1, 2, sharey=True)
        for row, (_, nats, shares) in enumerate(found):
            for axes, estimate, offset, colour in (
                (left, nats, 0.0, drawing.DARK),
                (right, shares["first"], 0.15, drawing.ORANGE),
                (right, shares["all"], -0.15, drawing.BLUE),
            ):
                axes.errorbar(estimate.mean, row + offset, xerr=2 * estimate.stderr, fmt="o",
                              color=colour, ms=4, lw=1.4)  # fmt: skip
        for axes in (left, right):
            axes.axvline(0.0, color=drawing.GREY, lw=1)
        left.set_xscale("symlog", linthresh=0.1)
        drawing.plain(left, x="nats a user, held-out", title="evidence for states")
        drawing.plain(right, x="share of best less worst", title="gain over one state")
        left.set_yticks(range(len(found)), [name for name, _, _ in found])
        left.set_xticks([-1.0, 0.0, 1.0, 10.0], ["-1", "0", "1", "10"])
        for place, text, colour in (
            (0.98, "rounds 1-10", drawing.ORANGE),
            (0.91, "all", drawing.BLUE),
        ):
            right.text(0.98, place, text, color=colour, transform=right.transAxes, ha="right",
                       va="top", fontsize=drawing.SMALL)  # fmt: skip
        return {"bench": figure}


def report_on(found: Sequence[dict[str, Any]], names: Sequence[str]) -> Report:
    """Return the report on the results of some problems."""
    summaries = [{key: value for key, value in one.items() if key != "rows"} for one in found]
    compared = [one for one in found if one["states"] is not None]
    tables = [leaderboard(one) for one in found]
    return Report(
        settings={"problems": list(names), "results": summaries},
        policies=[row for one in found for row in one["rows"]],
        claims=[claim for one in found for claim in claims(one)],
        tables=[*tables, states_table(compared)] if compared else tables,
        warnings=[why for one in found for why in one["absent"].values()],
    )


def _kept(task: Task, folder: Path) -> dict[str, Any]:
    """Return the results of a task; results of an interrupted run are read from the folder."""
    asked = {"policies": list(task.policies), "seed": task.seed, "short": task.short}
    file = _file(folder, task.problem.name)
    if file.is_file():
        kept = json.loads(file.read_text())
        if kept["asked"] == asked:
            results: dict[str, Any] = kept["results"]
            return results
    results = run(task)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(to_json({"asked": asked, "results": results}) + "\n")
    return results


def _file(folder: Path, problem: str) -> Path:
    """Return where the results of a problem are kept until all problems have results."""
    return folder / f"{problem}.json"


def _missing(name: str, data: str) -> list[str]:
    folder = Path(data)
    return [
        file
        for file in PROBLEMS[name].files
        if not ((folder / file).is_file() or archive(folder, file).is_file())
    ]


def leaderboard(one: Mapping[str, Any]) -> Table:
    """Return the contestants of a problem by the reward of all rounds, best first."""
    main = one["rows"][0]["form"]
    others = {(row["policy"], row["form"]): row for row in one["rows"]}
    forms = [form for form in dict.fromkeys(row["form"] for row in one["rows"]) if form != main]
    rows = [row for row in one["rows"] if row["form"] == main]
    rows.sort(key=lambda row: -row["all_reward"])
    body = []
    for rank, row in enumerate(rows, start=1):
        cells = [str(rank), row["policy"], f"{row['all_reward']:.4g}"]
        if "all_gain" in row:
            cells += [f"{estimate_in(row, 'first_gain'):+}", f"{estimate_in(row, 'all_gain'):+}"]
            more = (others[row["policy"], form] for form in forms)
            cells += [f"{estimate_in(other, 'all_gain'):+}" for other in more]
        body.append((*cells, f"{row['microseconds']:.0f}"))
    gains = [f"rounds 1-{rows[0]['first_rounds']}", f"1-{one['horizon']}"]
    columns = ["rank", "policy", "reward"]
    if "all_gain" in rows[0]:
        columns += [*gains, *(f"{form} offered" for form in forms)]
    title = f"{one['problem']}: gain a round over popularity, {one['test_users']} users"
    return Table(title, (*columns, "us"), body)


def states_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return what states gained over one state, beside what held-out evidence said before."""
    body: list[tuple[str, ...]] = []
    for one in found:
        states = one["states"]
        nats = ""
        if states["nats_per_user"] is not None:
            nats = f"{Estimate(states['nats_per_user'], states['nats_stderr'] or 0.0):+}"
        first, whole = (f"{estimate_in(states, f'{key}_gain'):+}" for key in ("first", "all"))
        model = one["model"]
        chosen = "" if model is None else f"{model['kind']}, {model['states']}"
        body.append((one["problem"], str(states["states"]), nats, first, whole, chosen))
    columns = ("problem", "states", "nats a user", f"rounds 1-{FIRST}", "all rounds", "fit")
    return Table("States over one state, both greedy", columns, body)


def claims(one: Mapping[str, Any]) -> list[Claim]:
    """Return the claims about what `fit` recommends: near the best, and not below popularity."""
    found = one["against_best"]
    if found is None:
        return []
    name, model = one["problem"], one["model"]
    policy = "auto" if model is None else f"auto ({model['recommended_policy']})"
    best = f"{policy} is within two errors of the best of the other half of the users"
    made = [
        not_below(
            f"{name} best, all rounds", best, estimate_in(found, "all_lead"), found["all_best"]
        )
    ]
    if one["horizon"] > FIRST:
        lead, other = estimate_in(found, "first_lead"), found["first_best"]
        made.append(not_below(f"{name} best, rounds 1-{FIRST}", best, lead, other))
    early = f"{policy} is not below popularity in rounds 1-{FIRST}"
    lead = estimate_in(found, "first_over_popularity")
    return [*made, not_below(f"{name} early", early, lead)]


def not_below(name: str, claim: str, lead: Estimate, other: str = "popularity") -> Claim:
    """Return the claim that a lead is not below zero by more than two standard errors."""
    least = -ERRORS * lead.stderr
    predicted = f"reward over {other} >= {least:.2g}"
    return Claim(name, claim, predicted, f"{lead:+}", lead.mean >= least)


def gains(results: Mapping[str, Any]) -> Iterable[tuple[str, Estimate, dict[str, Estimate]]]:
    """Yield problem, held-out evidence, and the gains of states as shares of what can be gained.

    The share is of the lead of the best contestant over the worst, on the same users.
    """
    for one in results["settings"]["results"]:
        states = one["states"]
        if states is None or states["nats_per_user"] is None:
            continue
        rows = [row for row in results["policies"] if row["setting"] == one["problem"]]
        rows = [row for row in rows if row["form"] == rows[0]["form"]]
        shares = {}
        for key in ("first", "all"):
            rewards = [row[f"{key}_reward"] for row in rows]
            span = max(rewards) - min(rewards)
            mean, stderr = states[f"{key}_gain"], states[f"{key}_gain_stderr"]
            shares[key] = Estimate(mean / span, stderr / span)
        nats = Estimate(states["nats_per_user"], states["nats_stderr"] or 0.0)
        yield one["problem"], nats, shares
