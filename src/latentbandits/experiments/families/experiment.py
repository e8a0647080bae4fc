"""mmTS compared with Thompson sampling of the same family without the latent model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from latentbandits.experiments.claims import BySetting, Checkable, Order, check_all
from latentbandits.experiments.families.problems import N_STATES, PROBLEMS, SUB_GAUSSIAN
from latentbandits.experiments.sweep import Policies, Setting, play, rows
from latentbandits.experiments.theory.bounds import regret_bound
from latentbandits.models.protocol import Extendable
from latentbandits.options import add_simulation_options, choose
from latentbandits.policies import mmTS, mTS
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table
from latentbandits.simulation import Results

HORIZON = 300
RUNS = 400


def without_latent_model(model: Extendable) -> mmTS:
    """Return mmTS on one state, whose prior is as wide as all states and actions together."""
    return mmTS(model.vague())


POLICIES: Policies = {"mmTS": mmTS, "mTS": mTS, "TS": without_latent_model}


@dataclass(frozen=True)
class BelowBound:
    """A claim that the regret of mmTS is at most 3 S + 2 sigma sqrt(6 S n log n).

    The terms n delta + 2 n eps of the theorem are left out, which makes the claim stricter.
    """

    setting: str
    noise: float
    horizon: int
    policies: tuple[str, ...] = ("mmTS",)

    def check(self, results: BySetting) -> Claim:
        bound = regret_bound(N_STATES, self.horizon, self.noise)
        regret = results[self.setting]["mmTS"].regret
        return Claim(
            f"bound {self.setting}",
            "the regret of mmTS is below its bound",
            f"regret mmTS <= {bound:.0f}, {self.setting}",
            str(regret),
            regret.mean <= bound,
        )


def claims(horizon: int) -> list[Checkable]:
    return [
        *(
            Order(family, "the latent model helps in every family", family, "regret",
                  ("mmTS",), ("TS",))
            for family in PROBLEMS
        ),
        *(BelowBound(family, noise, horizon) for family, noise in SUB_GAUSSIAN.items()),
    ]  # fmt: skip


class FamiliesExperiment:
    """Every reward family on its own synthetic problem."""

    name = "families"
    help = "every reward family: mmTS against Thompson sampling without the latent model"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        choose("policy", arguments.policies, POLICIES)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.families.figure import draw

        started = time.perf_counter()
        chosen = choose("policy", arguments.policies, POLICIES)
        problems = [Setting(name, world, POLICIES) for name, world in PROBLEMS.items()]
        results = play(self.name, problems, chosen, arguments, executor, progress)
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "horizon": arguments.horizon,
                "seed": arguments.seed,
                "policies": chosen,
            },
            seconds=time.perf_counter() - started,
            policies=rows(results),
            claims=check_all(claims(arguments.horizon), results),
            tables=[_table(results, arguments)],
        ).drawn_by(draw)


def _table(results: Mapping[str, Results], arguments: argparse.Namespace) -> Table:
    names = list(next(iter(results.values())))
    body: list[tuple[Any, ...]] = []
    for family, result in results.items():
        noise = SUB_GAUSSIAN.get(family)
        bound = "" if noise is None else f"{regret_bound(N_STATES, arguments.horizon, noise):.0f}"
        body.append((family, *(str(result[name].regret) for name in names), bound))
    title = f"Regret over {arguments.horizon} rounds, {arguments.runs} runs"
    return Table(title, ("family", *names, "bound"), body)
