"""Policies compared with the exact optimum: `python -m evidence yardstick`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evidence.optimum_problems import N_RANDOM, NAMED, Problem, Programme, random_problems
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.options import Option, choose, positive
from latentbandits.policies.registry import AUTO, Inputs, build, entries
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table
from latentbandits.simulation import simulate, tune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["YardstickExperiment"]


# One problem: its optimum, and the Bayes regret of every policy, exact or simulated.

QUANTILES = ("mBayesUCB(quantile=0.95)", "mmBayesUCB(quantile=0.95)")
_TUNE_EFFORT = 0.3


@dataclass(frozen=True)
class Measured:
    """Regrets of one problem; exact regrets have a standard error of zero."""

    problem: Problem
    optimum: float
    regrets: Mapping[str, Estimate]
    chosen: str  # the policy that `auto` chose

    def ratio(self, policy: str) -> float:
        return self.regrets[policy].mean / self.optimum


def policies(problem: Problem) -> list[str]:
    """Return the texts of all registered policies that the problem's model can build."""
    inputs = _inputs(problem)
    texts = [entry.name for entry in entries("session") if not entry.missing(inputs)]
    return [text for text in (*texts, *QUANTILES) if _can_build(text, inputs)]


def _inputs(problem: Problem) -> Inputs:
    return Inputs(model=problem.model, reward_range=(0.0, 1.0), horizon=problem.horizon)


def _can_build(text: str, inputs: Inputs) -> bool:
    try:
        build(text, inputs)
    except ValueError:
        return False
    return True


def measure(problem: Problem, chosen: Sequence[str], runs: int, seed: int) -> Measured:
    """Return the regrets of the chosen policies; the regret of `auto` is that of tune's winner."""
    programme = Programme(problem)
    texts = [text for text in policies(problem) if text in chosen]
    winner = ""
    if AUTO in chosen:
        winner = tune(problem.model, problem.horizon, seed=seed, effort=_TUNE_EFFORT).winner
        texts = list(dict.fromkeys([*texts, winner]))
    inputs = _inputs(problem)
    built = {text: build(text, inputs) for text in texts}
    regrets: dict[str, Estimate] = {}
    for text, policy in built.items():
        exact = programme.regret(policy)
        if exact is not None:
            regrets[text] = Estimate(exact, 0.0)
    simulated = {text: policy for text, policy in built.items() if text not in regrets}
    if simulated:
        users = UsersOfModel(problem.model)
        results = simulate(simulated, users, n_runs=runs, horizon=problem.horizon, seed=seed)
        regrets |= {text: results[text].regret for text in simulated}
    if winner:
        regrets[AUTO] = regrets[winner]
    return Measured(problem, programme.optimal_regret, regrets, winner)


# Every policy of the registry compared with the exact optimum of small problems.

RUNS = 2000
LIMITS = {"mLookahead": (1.05, None), AUTO: (1.10, 1.35)}
"""By policy: the largest ratio of summed regrets, and the largest ratio in a single problem."""


_KINDS = (
    (True, drawing.BLUE, -0.14, "known model"),
    (False, drawing.ORANGE, 0.14, "uncertain model"),
)
_TICKS = (1, 1.5, 2, 3, 5, 10, 20, 40)


class YardstickExperiment(Experiment):
    """Compare policies with optimal play on problems that are small enough to solve."""

    name = "yardstick"
    help = "every policy beside the exact Bayes optimum of small Bernoulli problems"
    options = (
        Option("problems", "random problems beside the named ones", N_RANDOM, positive),
        Option("runs", "runs of policies that cannot be evaluated exactly", RUNS, positive),
        Option("policies", "only these; by default all of them", several=True, metavar="POLICY"),
    )

    def check(self, arguments: argparse.Namespace) -> None:
        choose("policy", arguments.policies, _all_policies())

    def measure(self, work: Work) -> Report:
        options = work.options
        chosen = choose("policy", options.policies, _all_policies())
        problems = (*NAMED, *random_problems(options.problems))
        one = partial(measure, chosen=chosen, runs=options.runs, seed=options.seed)
        measured = work.map(self.name, one, problems)
        return Report(
            settings={"problems": len(problems), "policies": chosen},
            policies=_rows(measured),
            claims=claims(measured),
            tables=[_summary(measured, chosen), _named(measured, chosen), _choices(measured)],
        )

    def draw(self, results: Mapping[str, Any]) -> dict[str, Figure]:
        """Draw every policy, sorted by the sum of regrets."""
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for row in results["policies"]:
            if row["policy"] in results["settings"]["policies"]:
                rows.setdefault(row["policy"], []).append(row)
        overall = {
            policy: sum(row["regret"] for row in points)
            / sum(row["optimal_regret"] for row in points)
            for policy, points in rows.items()
        }
        ranked = sorted(rows, key=lambda policy: overall[policy])
        n_problems = len(next(iter(rows.values())))
        title = f"How far from the best possible: {n_problems} small problems"
        figure = drawing.new_figure(1.4 + 0.29 * len(ranked), title, drawing.NARROW)
        axes = figure.subplots()
        largest = 1.0
        for known, colour, shift, words in _KINDS:
            for place, policy in enumerate(ranked):
                ratios = [max(row["ratio"], 0.95) for row in rows[policy] if row["known"] == known]
                largest = max(largest, *ratios, 1.0)
                axes.plot(
                    ratios, [place + shift] * len(ratios), ".", color=colour, alpha=0.35, ms=6
                )
            axes.annotate(words, (1, 1), xycoords="axes fraction", xytext=(-4, -60 * shift - 18),
                          textcoords="offset points", ha="right", color=colour)  # fmt: skip
        axes.plot([overall[p] for p in ranked], range(len(ranked)), "k|", markersize=14)
        axes.annotate("bar: ratio of summed regrets", (1, 1), xycoords="axes fraction",
                      xytext=(-4, -42), textcoords="offset points", ha="right")  # fmt: skip
        axes.set_xscale("log")
        drawing.plain(axes, x="regret divided by the smallest possible regret")
        axes.set_yticks(range(len(ranked)), ranked)
        axes.set_ylim(len(ranked) - 0.5, -0.7)
        ticks = [tick for tick in _TICKS if tick <= largest]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlim(0.94, 1.04 * largest)
        return {"yardstick": figure}


def _all_policies() -> list[str]:
    return [*policies(NAMED[1]), AUTO]


def summed_ratio(measured: Sequence[Measured], policy: str) -> float:
    """Return the sum of a policy's regrets divided by the sum of the optimal regrets."""
    total = sum(one.regrets[policy].mean for one in measured)
    return total / sum(one.optimum for one in measured)


def claims(measured: Sequence[Measured]) -> list[Claim]:
    """Return claims that each measured policy is within its limits."""
    checked_claims = []
    for policy, (overall, each) in LIMITS.items():
        if policy not in measured[0].regrets:
            continue
        ratio = summed_ratio(measured, policy)
        checked_claims.append(
            Claim(f"Y {policy}", f"{policy} is near the optimum over all problems",
                  f"ratio of summed regrets <= {overall:.2f}", f"{ratio:.3f}", ratio <= overall)
        )  # fmt: skip
        if each is not None:
            worst = max(one.ratio(policy) for one in measured)
            checked_claims.append(
                Claim(f"Y {policy} worst", f"{policy} is near the optimum in every problem",
                      f"ratio in any problem <= {each:.2f}", f"{worst:.3f}", worst <= each)
            )  # fmt: skip
    return checked_claims


def _rows(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {
            "policy": policy,
            "setting": one.problem.name,
            "regret": regret.mean,
            "regret_stderr": regret.stderr,
            "optimal_regret": one.optimum,
            "ratio": one.ratio(policy),
            "known": one.problem.known,
            "horizon": one.problem.horizon,
            **({"chosen": one.chosen} if policy == AUTO else {}),
        }
        for one in measured
        for policy, regret in one.regrets.items()
    ]


def _summary(measured: Sequence[Measured], chosen: Sequence[str]) -> Table:
    """Tabulate ratios of summed regrets, and quantiles of the ratios, best policy first."""
    body = []
    for policy in chosen:
        ratios = [one.ratio(policy) for one in measured]
        split = [
            summed_ratio([one for one in measured if one.problem.known == known], policy)
            for known in (True, False)
        ]
        numbers = [summed_ratio(measured, policy), *split, np.quantile(ratios, 0.9), max(ratios)]
        body.append((policy, *(f"{number:.2f}" for number in numbers)))
    body.sort(key=lambda row: float(row[1]))
    columns = ("policy", "all", "known models", "uncertain models", "90% of problems", "worst")
    title = f"Bayes regret over that of the optimum, {len(measured)} problems"
    return Table(title, columns, list(body))


def _named(measured: Sequence[Measured], chosen: Sequence[str]) -> Table:
    named = [one for one in measured if not one.problem.name.startswith("random")]
    columns = [name for name in chosen if name in _SHOWN]
    body = [(one.problem.name, *(f"{one.ratio(name):.2f}" for name in columns)) for one in named]
    return Table("Ratio by problem", ("problem", *columns), list(body))


_SHOWN = ("mTS", "mmTS", "mIDS", "mmIDS", "mUCB", "mmGreedy", "mLookahead",
          "mmBayesUCB", "mmBayesUCB(quantile=0.95)", AUTO)  # fmt: skip


def _choices(measured: Sequence[Measured]) -> Table:
    counts = Counter(one.chosen.partition("(horizon")[0] for one in measured if one.chosen)
    rows = [(name, str(count)) for name, count in counts.most_common()]
    return Table("The policies that auto chose", ("policy", "problems"), list(rows))
