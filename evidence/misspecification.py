"""The cost of a wrong model: `python -m evidence misspecification`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentbandits.environments import Synthetic
from latentbandits.environments.synthetic import SyntheticInstances
from latentbandits.experiments import experiment as frame
from latentbandits.experiments.experiment import Degrades, Judged, Order
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.options import simulation_options
from latentbandits.report import drawing
from latentbandits.report.report import Report
from latentbandits.simulation.simulate import makers

# The synthetic problem with latent states that the model does not know.


@dataclass(frozen=True)
class MissingStates:
    """The synthetic problem, with a model of all its states but the last ones.

    Args:
        problem: the synthetic problem.
        n_missing: number of states that the model lacks.

    >>> environment = MissingStates(Synthetic(model_noise=0.05), n_missing=1)
    >>> instances = environment.start(3, horizon=10, rng=np.random.default_rng(0))
    >>> instances.means.shape, instances.model.means.shape
    ((3, 5, 10), (3, 4, 10))
    """

    problem: Synthetic
    n_missing: int

    def __post_init__(self) -> None:
        if not 0 <= self.n_missing < self.problem.n_states:
            raise ValueError(
                f"n_missing must be from 0 to {self.problem.n_states - 1}; got {self.n_missing}"
            )

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> SyntheticInstances:
        runs = self.problem.start(n_runs, horizon, rng)
        known = self.problem.n_states - self.n_missing
        model = GaussianArms(runs.model.means[:, :known], runs.noise, runs.model.spread[:, :known])
        return replace(runs, model=model)


# Models with errors of size sigma0 in their means, and models that lack one of the states.

MODEL_NOISES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
MISSING = (0, 1)
TITLES = ("all states known", "4 of 5 states known")
HORIZON = 500
RUNS = 1000
CATCH_ALL = "mmTS, catch-all"

_UNITS = {"regret": "regret", "worst_decile_reward": "reward per round,\nworst 10% of runs"}
_COLOURS = {
    "TS": drawing.DARK,
    "mTS": drawing.BLUE,
    "mmTS": drawing.ORANGE,
    "mmIDS": drawing.GREEN,
    CATCH_ALL: drawing.PINK,
}
"""The policies in the figure; the tables show all."""


def name(sigma0: float, n_missing: int) -> str:
    known = Synthetic(sigma0).n_states - n_missing
    return f"sigma0={sigma0:g}" + (f", {known} of {known + n_missing} states" if n_missing else "")


def settings(horizon: int) -> list[frame.Setting]:
    return [
        frame.Setting(
            name(sigma0, n_missing), MissingStates(Synthetic(sigma0), n_missing), policies(horizon)
        )
        for n_missing in MISSING
        for sigma0 in MODEL_NOISES
    ]


def policies(horizon: int) -> frame.Policies:
    """Return the policies of every setting; TS is given the distribution of the means."""
    texts = {name: name for name in ("TS", "mUCB", "mmUCB", "mTS", "mIDS", "mmTS", "mmIDS")}
    texts[CATCH_ALL] = "mmTS(catch_all=True)"
    return makers(texts, horizon=horizon, reward_range=(0.0, 1.0))


# Claims about the cost of a wrong model, and about the catch-all state.


def no_worse(setting: str, policy: str, other: str) -> frame.Judgement:
    """Judge that `policy` earns no less than `other` in the worst decile, in `setting`.

    It fails only if the difference is below zero by two paired standard errors.
    """

    def judge(results: frame.BySetting) -> tuple[str, str, bool | None]:
        lead = results[setting].difference(policy, other, "worst_decile_reward")
        predicted = f"reward of the worst 10% {policy} >= {other}, {setting}"
        holds = True if lead.mean >= 0 else (None if lead.mean > -2 * lead.stderr else False)
        return predicted, f"lead {lead}", holds

    return judge


CLAIMS: tuple[frame.Checkable, ...] = (
    Degrades("W1", "a known model that is wrong costs regret",
             name(0.05, 0), name(0.5, 0), ("mTS", "mIDS", "mUCB")),
    Order("W2", "policies with the uncertainty of the model beat policies without it",
          name(0.3, 0), "regret", ("mmTS", "mmIDS"), ("mTS", "mIDS", "mUCB", "mmUCB")),
    Degrades("W3", "a missing state costs every posterior that trusts the model",
             name(0.05, 0), name(0.05, 1), ("mTS", "mIDS", "mmTS", "mmIDS")),
    *(
        Judged(f"W4 {sigma0:g}", "a catch-all state recovers the cost of a missing state",
               (CATCH_ALL, "TS"), no_worse(name(sigma0, 1), CATCH_ALL, "TS"))
        for sigma0 in MODEL_NOISES
    ),
    *(
        Order(f"W5 {sigma0:g}", "with a missing state, the catch-all beats trusting the model",
              name(sigma0, 1), "worst_decile_reward", (CATCH_ALL,), ("mTS", "mmTS"))
        for sigma0 in (0.05, 0.1)
    ),
)  # fmt: skip


# Play every policy with models of growing error, and with a state missing.


class MisspecificationExperiment(frame.Experiment):
    """Models with wrong means, or with too few states."""

    name = "misspecification"
    help = "models that are wrong: by how much, and with a latent state missing"
    options = simulation_options(RUNS, HORIZON)

    def choices(self, arguments: argparse.Namespace) -> Mapping[str, Iterable[str]]:
        return {"policies": policies(arguments.horizon)}

    def measure(self, work: frame.Work) -> Report:
        horizon, chosen = work.options.horizon, work.options.policies
        results = work.play_all(self.name, settings(horizon), chosen)
        tables = []
        for n_missing, title in zip(MISSING, TITLES, strict=True):
            part = {f"{s:g}": results[name(s, n_missing)] for s in MODEL_NOISES}
            tables.append(frame.metric_table(f"Regret over sigma0, {title}", part, "regret"))
            tables.append(
                frame.metric_table(f"Worst-decile reward, {title}", part, "worst_decile_reward")
            )
        return Report(
            settings={"sigma0": list(MODEL_NOISES)},
            policies=frame.policy_rows(results),
            claims=frame.check_all(CLAIMS, results),
            tables=tables,
        )

    def draw(self, results: Mapping[str, Any]) -> frame.Figures:
        """Draw regret and worst-decile reward by sigma0, with and without a missing state."""
        runs = results["settings"]["runs"]
        title = f"Wrong models: {runs:,} runs, one standard error"
        figure = drawing.new_figure(10, title, drawing.NARROW)
        panels = figure.subplots(4, 1, sharex=True)
        for row, metric in enumerate(("regret", "worst_decile_reward")):
            by_setting = drawing.estimates(results["policies"], metric)
            for column, n_missing in enumerate(MISSING):
                points = [by_setting[name(sigma0, n_missing)] for sigma0 in MODEL_NOISES]
                axes = panels[2 * row + column]
                for policy in (one for one in _COLOURS if one in points[0]):
                    curve = [point[policy] for point in points]
                    drawing.draw_line(axes, MODEL_NOISES, curve, "-", _COLOURS[policy], policy)
                states = "all 5 states known" if n_missing == 0 else "4 of 5 states known"
                drawing.plain(axes, y=_UNITS[metric], title=states)
        panels[-1].set_xlabel("how far the model's means are off (sd)", fontsize=drawing.SMALL)
        panels[0].set_xlim(MODEL_NOISES[0] - 0.01, MODEL_NOISES[-1] + 0.01)
        for axes in panels:
            drawing.label_lines(axes)
        return {"misspecification": figure}
