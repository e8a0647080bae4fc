"""Every policy of the registry compared with the exact optimum of small problems."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, as_completed
from typing import Any

import numpy as np

from latentbandits.experiments.yardstick.play import Measured, measure, policies
from latentbandits.experiments.yardstick.problems import N_RANDOM, NAMED, random_problems
from latentbandits.options import choose, positive
from latentbandits.policies.registry import AUTO
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table

RUNS = 2000
LIMITS = {"mLookahead": (1.05, None), AUTO: (1.10, 1.35)}
"""By policy: the largest ratio of summed regrets, and the largest ratio in a single problem."""


class YardstickExperiment:
    """Compare policies with optimal play on problems that are small enough to solve."""

    name = "yardstick"
    help = "every policy beside the exact Bayes optimum of small Bernoulli problems"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--problems", type=positive, default=N_RANDOM,
            help=f"random problems beside the named ones (default {N_RANDOM})",
        )  # fmt: skip
        parser.add_argument(
            "--runs", type=positive, default=RUNS,
            help=f"runs of policies that cannot be evaluated exactly (default {RUNS})",
        )  # fmt: skip
        parser.add_argument(
            "--policies", nargs="+", metavar="POLICY", help="only these (default: all of them)"
        )

    def check(self, arguments: argparse.Namespace) -> None:
        choose("policy", arguments.policies, _all_policies())

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.yardstick.figure import draw

        started = time.perf_counter()
        chosen = choose("policy", arguments.policies, _all_policies())
        problems = (*NAMED, *random_problems(arguments.problems))
        jobs = [(problem, chosen, arguments.runs, arguments.seed) for problem in problems]
        progress.start("yardstick", len(jobs))
        measured = _run(jobs, executor, progress)
        return Report(
            experiment=self.name,
            settings={
                "problems": len(problems),
                "runs": arguments.runs,
                "seed": arguments.seed,
                "policies": chosen,
            },
            seconds=time.perf_counter() - started,
            policies=_rows(measured),
            claims=claims(measured),
            tables=[_summary(measured, chosen), _named(measured, chosen), _choices(measured)],
        ).drawn_by(draw)


def _all_policies() -> list[str]:
    return [*policies(NAMED[1]), AUTO]


def _run(
    jobs: list[tuple[Any, ...]], executor: Executor | None, progress: Progress
) -> list[Measured]:
    if executor is None:
        rows = []
        for job in jobs:
            rows.append(measure(*job))
            progress.advance(1)
        return rows
    futures = [executor.submit(measure, *job) for job in jobs]
    for _ in as_completed(futures):
        progress.advance(1)
    return [future.result() for future in futures]


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


_SHOWN = ("mTS", "mmTS", "mIDS", "mmIDS", "mUCB", "mmGreedy", "mmKG", "mLookahead",
          "mmBayesUCB", "mmBayesUCB(quantile=0.95)", AUTO)  # fmt: skip


def _choices(measured: Sequence[Measured]) -> Table:
    counts = Counter(one.chosen.partition("(horizon")[0] for one in measured if one.chosen)
    rows = [(name, str(count)) for name, count in counts.most_common()]
    return Table("The policies that auto chose", ("policy", "problems"), list(rows))
