"""Every reward family on its own problem: `python -m evidence families`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from latentbandits.environments.protocol import Environment, Round
from latentbandits.environments.synthetic import Synthetic
from latentbandits.experiments import experiment as frame
from latentbandits.experiments.experiment import Judged, Order
from latentbandits.experiments.theory import regret_bound
from latentbandits.models.protocol import Extendable
from latentbandits.models.registry import kinds
from latentbandits.options import simulation_options
from latentbandits.policies import mmTS, mTS
from latentbandits.report import drawing
from latentbandits.report.report import Report, Table
from latentbandits.simulation import Results

# Problems drawn from a model's own prior, so that its uncertainty is calibrated.


@dataclass(frozen=True)
class FromPrior:
    """Each run draws its state uniformly, and its parameters from the prior of that state.

    Args:
        draw_model: `draw_model(n_runs, rng)` returns a `Generative` model, either one that all
            runs share or one with an instance for each run.
        n_actions: of a model with features: every round has so many actions with fresh features,
            of length about one.

    >>> from latentbandits import BernoulliArms
    >>> environment = FromPrior(lambda n, rng: BernoulliArms(rng.random((n, 2, 3)), 1.0))
    >>> runs = environment.start(4, horizon=10, rng=np.random.default_rng(0))
    >>> runs.round(0, np.random.default_rng(0)).rewards.shape
    (4, 3)
    """

    draw_model: Callable[[int, np.random.Generator], Any]
    n_actions: int = 10

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> PriorInstances:
        model = self.draw_model(n_runs, rng)
        state = rng.integers(model.n_states, size=n_runs)
        return PriorInstances(model, model.draw_theta(state, rng), n_runs, self.n_actions)


@dataclass(frozen=True, eq=False)
class PriorInstances:
    """Runs whose users have the parameters of their state."""

    model: Any
    theta: Any  # parameters of every run
    n_runs: int
    n_actions: int

    def round(self, t: int, rng: np.random.Generator) -> Round:
        context = None
        if self.model.n_features is not None:
            shape = (self.n_runs, self.n_actions, self.model.n_features)
            context = rng.standard_normal(shape) / np.sqrt(self.model.n_features)
        means = self.model.mean_rewards(self.theta, context)
        return Round(context, means, self.model.draw_rewards(self.theta, context, rng))


# A synthetic problem for every registered family: 5 states, 10 actions, drawn from its prior.

N_STATES, N_ACTIONS, N_FEATURES = 5, 10, 5


def _problem(kind: Any) -> FromPrior:
    """Return a family's problem: fresh arms in every run, or one model with features for all."""
    if not kind.summary.has_features:
        return FromPrior(partial(_fresh, kind))
    return FromPrior(partial(_shared, kind), N_ACTIONS)


def _fresh(kind: Any, n_runs: int, rng: np.random.Generator) -> Any:
    return kind.random(rng, n_runs, N_STATES, N_ACTIONS)


def _shared(kind: Any, n_runs: int, rng: np.random.Generator) -> Any:
    return kind.random(np.random.default_rng(0), N_STATES, N_FEATURES)


_FAMILIES = {
    name: kind
    for name, kind in kinds().items()
    if "random" in vars(kind)  # PositionClicks with single actions is BernoulliArms
}

PROBLEMS: dict[str, Environment] = {
    name: _problem(kind) for name, kind in _FAMILIES.items() if name != "GaussianArms"
} | {"GaussianArms": Synthetic(model_noise=0.2, gap=0.0)}
"""The problem of each family. In the paper's, means have errors N(0, sigma0^2), known in size."""

SUB_GAUSSIAN = {
    name: kind.random(np.random.default_rng(0), N_STATES, N_FEATURES).noise
    for name, kind in _FAMILIES.items()
    if kind.summary.sub_gaussian
}
"""Families whose rewards have a sub-Gaussian scale, which the regret bounds need."""


# mmTS compared with Thompson sampling of the same family without the latent model.

HORIZON = 300
RUNS = 400


def without_latent_model(model: Extendable) -> mmTS:
    """Return mmTS on one state, whose prior is as wide as all states and actions together."""
    return mmTS(model.vague())


POLICIES: frame.Policies = {"mmTS": mmTS, "mTS": mTS, "TS": without_latent_model}


def below_bound(setting: str, noise: float, horizon: int) -> frame.Judgement:
    """Judge that the regret of mmTS is at most 3 S + 2 sigma sqrt(6 S n log n).

    The terms n delta + 2 n eps of the theorem are left out, which makes the claim stricter.
    """
    bound = regret_bound(N_STATES, horizon, noise)

    def judge(results: frame.BySetting) -> tuple[str, str, bool]:
        regret = results[setting]["mmTS"].regret
        return f"regret mmTS <= {bound:.0f}, {setting}", str(regret), regret.mean <= bound

    return judge


def claims(horizon: int) -> list[frame.Checkable]:
    return [
        *(
            Order(family, "the latent model helps in every family", family, "regret",
                  ("mmTS",), ("TS",))
            for family in PROBLEMS
        ),
        *(
            Judged(f"bound {family}", "the regret of mmTS is below its bound", ("mmTS",),
                   below_bound(family, noise, horizon))
            for family, noise in SUB_GAUSSIAN.items()
        ),
    ]  # fmt: skip


_COLOURS = {"TS": drawing.DARK, "mTS": drawing.BLUE, "mmTS": drawing.ORANGE}


class FamiliesExperiment(frame.Experiment):
    """Every reward family on its own synthetic problem."""

    name = "families"
    help = "every reward family: mmTS against Thompson sampling without the latent model"
    options = simulation_options(RUNS, HORIZON)

    def choices(self, arguments: argparse.Namespace) -> Mapping[str, Iterable[str]]:
        return {"policies": POLICIES}

    def measure(self, work: frame.Work) -> Report:
        problems = [frame.Setting(name, world, POLICIES) for name, world in PROBLEMS.items()]
        results = work.play_all(self.name, problems, work.options.policies)
        return Report(
            policies=frame.policy_rows(results),
            claims=frame.check_all(claims(work.options.horizon), results),
            tables=[_table(results, work.options)],
        )

    def draw(self, results: Mapping[str, Any]) -> frame.Figures:
        """Draw a row for each family and a dot for each policy."""
        by_setting = drawing.estimates(results["policies"], "regret")
        policies = results["settings"]["policies"]
        whole = "TS" if "TS" in policies else policies[0]
        runs = results["settings"]["runs"]
        title = f"Every reward family on its own problem: {runs} runs"
        figure = drawing.new_figure(0.42 * len(by_setting) + 1.6, title, drawing.NARROW)
        axes = figure.subplots()
        first = [one.mean / next(iter(by_setting.values()))[whole].mean
                 for one in next(iter(by_setting.values())).values()]  # fmt: skip
        for policy in policies:
            shares = [family[policy].mean / family[whole].mean for family in by_setting.values()]
            errors = [family[policy].stderr / family[whole].mean for family in by_setting.values()]
            places = range(len(by_setting))
            axes.errorbar(
                shares, places, xerr=errors, fmt="o", color=_COLOURS[policy], ms=6, lw=1.8
            )
            aside = {min(first): "right", max(first): "left"}.get(shares[0], "center")
            axes.annotate(policy, (shares[0], 0), xytext=(0, 8), textcoords="offset points",
                          ha=aside, color=_COLOURS[policy], weight="bold")  # fmt: skip
        words = " (no model of states)" if whole == "TS" else ""
        drawing.plain(axes, x=f"regret divided by that of {whole}{words}")
        axes.axvline(1, color=drawing.DARK, lw=1)
        axes.set_yticks(range(len(by_setting)), list(by_setting))
        axes.set_ylim(len(by_setting) - 0.5, -0.8)
        axes.set_xlim(left=0)
        return {"families": figure}


def _table(results: Mapping[str, Results], arguments: argparse.Namespace) -> Table:
    names = list(next(iter(results.values())))
    body: list[tuple[Any, ...]] = []
    for family, result in results.items():
        noise = SUB_GAUSSIAN.get(family)
        bound = "" if noise is None else f"{regret_bound(N_STATES, arguments.horizon, noise):.0f}"
        body.append((family, *(str(result[name].regret) for name in names), bound))
    title = f"Regret over {arguments.horizon} rounds, {arguments.runs} runs"
    return Table(title, ("family", *names, "bound"), body)
