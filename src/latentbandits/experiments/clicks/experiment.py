"""`reproduce clicks`: learn from a click log, play the recommended policy on new users."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from latentbandits.experiments.clicks.figure import draw
from latentbandits.experiments.clicks.problem import (
    ROUNDS,
    WINDOWS,
    ClickProblem,
    other_problem,
    play,
    play_knowing,
    play_popular,
    reference_problem,
)
from latentbandits.models.checks import FloatArray
from latentbandits.report.estimate import Estimate
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table

POLICIES = ("mIDS", "mmIDS", "mmBayesUCB", "mmGreedy", "mmTS")
"""Policies on the learned model that the table shows next to the recommended one."""


class ClicksExperiment:
    """Learn from a typical click log and from twenty others."""

    name = "clicks"
    help = "learning from clicks: the recommended policy on new users, beside popularity"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        problems = (
            "other problems to learn from and play on, from number SEED on (default 20; 0: none)"
        )
        parser.add_argument("--problems", type=_count, default=20, help=problems)
        parser.add_argument(
            "--policies", nargs="+", metavar="POLICY", default=list(POLICIES),
            help="on the learned model, in the table (default: " + " ".join(POLICIES) + ")",
        )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        from latentbandits.policies.registry import parse

        for policy in arguments.policies:
            parse(policy)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        started = time.perf_counter()
        progress.start("clicks", 1 + arguments.problems)
        reference = learn_and_play(reference_problem(), arguments.seed, tuple(arguments.policies))
        progress.advance(1)
        outcomes = []
        for outcome in _others(arguments.problems, arguments.seed, executor):
            outcomes.append(outcome)
            progress.advance(1)
        tables = [_states_table(reference), _rates_table(reference)]
        if outcomes:
            tables.append(_problems_table(outcomes))
        return Report(
            experiment=self.name,
            settings={"problems": arguments.problems, "seed": arguments.seed},
            seconds=time.perf_counter() - started,
            policies=_rows(reference),
            claims=_claims(reference) + (_problem_claims(outcomes) if outcomes else []),
            tables=tables,
            figures={"clicks": draw(reference.curves, reference.recommended)},
        )


class Outcome(NamedTuple):
    """The learned model of one problem, and true click rates of new users, `(n_new, ROUNDS)`."""

    name: str
    true_rates: FloatArray
    fitted_rates: FloatArray
    selection: list[dict[str, Any]]
    recommended: str
    verdict: str
    curves: dict[str, FloatArray]  # by policy: mean over users, (ROUNDS,)
    by_user: dict[str, FloatArray]  # by policy: (n_new, len(WINDOWS)), means over rounds 1..H

    def rate(self, policy: str, window: int) -> Estimate:
        return Estimate.from_values(self.by_user[policy][:, WINDOWS.index(window)])

    def lead(self, policy: str, window: int, other: str = "popularity") -> Estimate:
        index = WINDOWS.index(window)
        return Estimate.from_values(self.by_user[policy][:, index] - self.by_user[other][:, index])


def learn_and_play(problem: ClickProblem, seed: int, policies: Sequence[str] = ()) -> Outcome:
    """Learn from the problem's log with `fit`, and play its new users."""
    from latentbandits.learning import fit
    from latentbandits.policies.registry import Inputs, build

    result = fit(problem.log, seed=seed, bootstrap=0)
    judgement = result.report["judgement"]
    recommended = str(judgement["recommended_policy"])
    inputs = Inputs(result.model, horizon=ROUNDS, reward_range=(0.0, 1.0))
    true_inputs = Inputs(problem.true_model(), horizon=ROUNDS, reward_range=(0.0, 1.0))
    played = {"popularity": play_popular(problem), "knowing the state": play_knowing(problem)}
    played["mIDS, true model"] = play(problem, build("mIDS", true_inputs), seed)
    for name in dict.fromkeys((recommended, *policies)):
        if name != "popularity":
            played[name] = play(problem, build(name, inputs), seed)
    return Outcome(
        problem.name,
        problem.rates,
        result.model.expected_rewards(None)[0],
        result.report["selection"],
        recommended,
        str(judgement["verdict"]),
        {name: rates.mean(axis=0) for name, rates in played.items()},
        {
            name: np.stack([rates[:, :h].mean(axis=1) for h in WINDOWS], axis=1)
            for name, rates in played.items()
        },
    )


def _learn_other(job: tuple[int, int]) -> Outcome:
    problem, seed = job
    return learn_and_play(other_problem(problem), seed)


def _others(n: int, seed: int, executor: Executor | None) -> Iterator[Outcome]:
    jobs = [(seed + i, seed) for i in range(n)]
    return map(_learn_other, jobs) if executor is None else executor.map(_learn_other, jobs)


def _claims(outcome: Outcome) -> list[Claim]:
    n_states, largest = len(outcome.fitted_rates), float(outcome.fitted_rates.max())
    truth = float(outcome.true_rates.max())
    rate = outcome.rate(outcome.recommended, 100)
    leads = {h: outcome.lead(outcome.recommended, h) for h in (10, 20, 50)}
    return [
        Claim("clicks-states", "the states of the log are found", "3 states",
              f"{n_states} states", n_states == 3),
        Claim("clicks-rate", "single clicks do not become states",
              f"the largest rate within 0.02 of {truth:.3f}", f"{largest:.3f}",
              abs(largest - truth) < 0.02),
        Claim("clicks-reward", "the recommended policy finds each user's state",
              "a click rate of at least 0.054 over 100 rounds",
              f"{outcome.recommended}: {rate}", rate.mean >= 0.054),
        Claim("clicks-early", "the recommended policy loses little in the first rounds",
              "never more than 0.001 below popularity in rounds 1-10, 1-20, 1-50",
              ", ".join(f"1-{h}: {lead.mean:+.4f} ±{lead.stderr:.4f}" for h, lead in leads.items()),
              all(lead.mean >= -0.001 for lead in leads.values())),
    ]  # fmt: skip


def _problem_claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    leads = np.array([o.lead(o.recommended, 100).mean for o in outcomes])
    gains = np.array([_gain(o) for o in outcomes])
    early = np.array(
        [o.lead(o.recommended, 10).mean / o.rate("popularity", 10).mean for o in outcomes]
    )
    n, needed = len(outcomes), int(np.ceil(0.95 * len(outcomes)))
    at_least = int((leads >= 0).sum())
    return [
        Claim("problems-popularity", "the recommended policy is at least as good as popularity",
              f"over 100 rounds in {needed} of {n} problems", f"in {at_least}", at_least >= needed),
        Claim("problems-gain", "the learned model has most of the true model's gain",
              "in the median at least 70% of what mIDS with the true model gains over popularity",
              f"{np.median(gains):.0%} (quartiles {np.quantile(gains, 0.25):.0%}, "
              f"{np.quantile(gains, 0.75):.0%})", bool(np.median(gains) >= 0.7)),
        Claim("problems-early", "the first rounds cost little", "rounds 1-10 at most 8% below "
              "popularity in every problem", f"{early.min():+.1%} in the worst",
              bool(early.min() >= -0.08)),
    ]  # fmt: skip


def _gain(outcome: Outcome) -> float:
    """Return the recommended policy's gain over popularity, as a share of the true model's gain."""
    possible = outcome.lead("mIDS, true model", 100).mean
    return outcome.lead(outcome.recommended, 100).mean / possible


def _states_table(outcome: Outcome) -> Table:
    rows = [
        (
            str(row["states"]),
            f"{row['elbo']:.1f}",
            f"{row['log_evidence']:.1f}",
            f"{row['evidence']:.5f}",
            str(row["kept_states"]) + (" *" if row["chosen"] else ""),
        )
        for row in outcome.selection
    ]
    title = "ELBO, log evidence and log probability of a held-out impression (* is chosen)"
    columns = ("states", "ELBO", "log evidence", "held out", "states kept")
    return Table(title, columns, list(rows))


def _rows(outcome: Outcome) -> list[dict[str, Any]]:
    rows = []
    for policy in outcome.by_user:
        row: dict[str, Any] = {"policy": policy, "recommended": policy == outcome.recommended}
        for h in WINDOWS:
            rate = outcome.rate(policy, h)
            row |= {f"rate_{h}": rate.mean, f"rate_{h}_stderr": rate.stderr}
        rows.append(row)
    return rows


def _rates_table(outcome: Outcome) -> Table:
    rows = []
    for policy in outcome.by_user:
        mark = " *" if policy == outcome.recommended else ""
        rates = (outcome.rate(policy, h) for h in WINDOWS)
        rows.append((policy + mark, *(f"{rate.mean:.4f} ±{rate.stderr:.4f}" for rate in rates)))
    title = "True click rate of new users (* is recommended)"
    return Table(title, ("policy", *(f"rounds 1-{h}" for h in WINDOWS)), rows)


def _problems_table(outcomes: Sequence[Outcome]) -> Table:
    rows = []
    for o in outcomes:
        cells = [o.rate(name, 100).mean for name in ("popularity", o.recommended)]
        early = o.lead(o.recommended, 10).mean / o.rate("popularity", 10).mean
        rows.append(
            (o.name, str(len(o.fitted_rates)), o.recommended, *(f"{cell:.4f}" for cell in cells),
             f"{o.rate('mIDS, true model', 100).mean:.4f}", f"{_gain(o):.0%}", f"{early:+.1%}")
        )  # fmt: skip
    columns = ("problem", "states", "recommended", "popularity", "recommended: rate",
               "mIDS, true model", "of its gain", "rounds 1-10")  # fmt: skip
    return Table("Other problems: click rates over 100 rounds", columns, rows)


def _count(text: str) -> int:
    from latentbandits.options import positive

    return 0 if text == "0" else positive(text)
