"""The cost of a wrong model: `python -m evidence misspecification`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.sweep import Policies, Setting, metric_table, play, rows
from latentbandits.environments import MissingStates, Synthetic
from latentbandits.experiments.experiment import BySetting, Checkable, Degrades, Order, check_all
from latentbandits.options import add_simulation_options, choose
from latentbandits.report.drawing import (
    BLUE,
    DARK,
    GREEN,
    ORANGE,
    PINK,
    SMALL,
    WIDTH,
    draw_line,
    estimates,
    label_lines,
    plain,
)
from latentbandits.report.report import Claim, Progress, Report
from latentbandits.simulation.simulate import makers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MisspecificationExperiment"]


# Models with errors of size sigma0 in their means, and models that lack one of the states.

MODEL_NOISES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
MISSING = (0, 1)
HORIZON = 500
RUNS = 1000
CATCH_ALL = "mmTS, catch-all"


def name(sigma0: float, n_missing: int) -> str:
    known = Synthetic(sigma0).n_states - n_missing
    return f"sigma0={sigma0:g}" + (f", {known} of {known + n_missing} states" if n_missing else "")


def settings(horizon: int) -> list[Setting]:
    return [
        Setting(
            name(sigma0, n_missing), MissingStates(Synthetic(sigma0), n_missing), policies(horizon)
        )
        for n_missing in MISSING
        for sigma0 in MODEL_NOISES
    ]


def policies(horizon: int) -> Policies:
    """Return the policies of every setting; TS is given the distribution of the means."""
    texts = {name: name for name in ("TS", "mUCB", "mmUCB", "mTS", "mIDS", "mmTS", "mmIDS")}
    texts[CATCH_ALL] = "mmTS(catch_all=True)"
    return makers(texts, horizon=horizon, reward_range=(0.0, 1.0))


# Claims about the cost of a wrong model, and about the catch-all state.


@dataclass(frozen=True)
class NoWorse:
    """A claim that the worst decile of `policy` earns no less than that of `other` in `setting`.

    The claim fails only if the difference is below zero by two paired standard errors.
    """

    id: str
    claim: str
    setting: str
    policy: str
    other: str

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.other

    def check(self, results: BySetting) -> Claim:
        lead = results[self.setting].difference(self.policy, self.other, "worst_decile_reward")
        predicted = f"reward of the worst 10% {self.policy} >= {self.other}, {self.setting}"
        holds = True if lead.mean >= 0 else (None if lead.mean > -2 * lead.stderr else False)
        return Claim(self.id, self.claim, predicted, f"lead {lead}", holds)


CLAIMS: tuple[Checkable, ...] = (
    Degrades("W1", "a known model that is wrong costs regret",
             name(0.05, 0), name(0.5, 0), ("mTS", "mIDS", "mUCB")),
    Order("W2", "policies with the uncertainty of the model beat policies without it",
          name(0.3, 0), "regret", ("mmTS", "mmIDS"), ("mTS", "mIDS", "mUCB", "mmUCB")),
    Degrades("W3", "a missing state costs every posterior that trusts the model",
             name(0.05, 0), name(0.05, 1), ("mTS", "mIDS", "mmTS", "mmIDS")),
    *(
        NoWorse(f"W4 {sigma0:g}", "a catch-all state recovers the cost of a missing state",
                name(sigma0, 1), CATCH_ALL, "TS")
        for sigma0 in MODEL_NOISES
    ),
    *(
        Order(f"W5 {sigma0:g}", "with a missing state, the catch-all beats trusting the model",
              name(sigma0, 1), "worst_decile_reward", (CATCH_ALL,), ("mTS", "mmTS"))
        for sigma0 in (0.05, 0.1)
    ),
)  # fmt: skip


# Play every policy with models of growing error, and with a state missing.


class MisspecificationExperiment:
    """Models with wrong means, or with too few states."""

    name = "misspecification"
    help = "models that are wrong: by how much, and with a latent state missing"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        choose("policy", arguments.policies, policies(arguments.horizon))

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:

        started = time.perf_counter()
        chosen = choose("policy", arguments.policies, policies(arguments.horizon))
        results = play(
            self.name, settings(arguments.horizon), chosen, arguments, executor, progress
        )
        tables = []
        for n_missing, title in zip(
            MISSING, ("all states known", "4 of 5 states known"), strict=True
        ):
            part = {f"{s:g}": results[name(s, n_missing)] for s in MODEL_NOISES}
            tables.append(metric_table(f"Regret over sigma0, {title}", part, "regret"))
            tables.append(
                metric_table(f"Worst-decile reward, {title}", part, "worst_decile_reward")
            )
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "horizon": arguments.horizon,
                "seed": arguments.seed,
                "policies": chosen,
                "sigma0": list(MODEL_NOISES),
            },
            seconds=time.perf_counter() - started,
            policies=rows(results),
            claims=check_all(CLAIMS, results),
            tables=tables,
        ).drawn_by(draw)


# The figure of regret and worst-decile reward by sigma0, with and without a missing state.

_COLOURS = {"TS": DARK, "mTS": BLUE, "mmTS": ORANGE, "mmIDS": GREEN, CATCH_ALL: PINK}
"""The policies in the figure; the tables show all."""


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw four panels: two metrics, with and without a missing state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 6.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, metric in enumerate(("regret", "worst_decile_reward")):
        by_setting = estimates(results["policies"], metric)
        for column, n_missing in enumerate(MISSING):
            points = [by_setting[name(sigma0, n_missing)] for sigma0 in MODEL_NOISES]
            for policy in (one for one in _COLOURS if one in points[0]):
                curve = [point[policy] for point in points]
                draw_line(panels[row, column], MODEL_NOISES, curve, "-", _COLOURS[policy], policy)
            plain(panels[row, column])
    for column, title in enumerate(("all 5 states known", "4 of 5 states known")):
        panels[0, column].set_title(title, fontsize=10)
        panels[1, column].set_xlabel(r"error of the model, $\sigma_0$", fontsize=SMALL)
    panels[0, 0].set_ylabel("regret", fontsize=SMALL)
    panels[1, 0].set_ylabel("mean reward, worst 10% of runs", fontsize=SMALL)
    panels[0, 0].set_xlim(MODEL_NOISES[0] - 0.01, MODEL_NOISES[-1] + 0.01)
    for axes in panels.flat:
        label_lines(axes)
    runs = results["settings"]["runs"]
    figure.suptitle(f"Wrong models: {runs} runs, one standard error", fontsize=11)
    return {"misspecification": figure}
