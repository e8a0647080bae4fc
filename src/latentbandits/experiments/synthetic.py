"""Section 5.1 of the paper: `latentbandits reproduce synthetic`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latentbandits.environments import Synthetic
from latentbandits.experiments import theory
from latentbandits.experiments.experiment import Alike, Checkable, Degrades, Order, Share, check_all
from latentbandits.options import add_simulation_options, choose, windows
from latentbandits.report.report import Estimate, Progress, Report
from latentbandits.simulation import Results, simulate
from latentbandits.simulation.plots import draw_curves, name_lines
from latentbandits.simulation.simulate import PolicyMaker, makers

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

__all__ = ["SyntheticExperiment"]


# Claims of the paper about its synthetic experiment (Section 5.1), and further ones.

GOOD, BAD = "sigma0=0.05", "sigma0=0.2"

CLAIMS: tuple[Checkable, ...] = (
    Order("S1", "a good model: mUCB and mTS beat the baselines that have none",
          GOOD, "regret", ("mUCB", "mTS"), ("UCB1", "TS")),
    Degrades("S2", "mUCB and mTS degrade with a bad model", GOOD, BAD, ("mUCB", "mTS")),
    Order("S3", "a bad model: mmTS beats mTS", BAD, "regret", ("mmTS",), ("mTS",)),
    # 0.02 of the [0, 1] that means are drawn from is about the width of a line in the figure.
    Alike("S4", "mmUCB performs the same as mUCB", "mmUCB", "mUCB", tolerance=0.02),
    Order("S5", "EXP4 uses a good model less well than mUCB and mTS",
          GOOD, "regret", ("mUCB", "mTS"), ("EXP4",)),
    Order("S6", "EXP4 uses a bad model less well than mUCB and mTS",
          BAD, "regret", ("mUCB", "mTS"), ("EXP4",)),
    Order("S7", "the worst 10% of runs, a bad model: the baselines beat mUCB and mTS",
          BAD, "worst_decile_reward", ("UCB1", "TS"), ("mUCB", "mTS")),
    Order("S8", "the worst 10% of runs, a bad model: mmTS beats the baselines",
          BAD, "worst_decile_reward", ("mmTS",), ("UCB1", "TS")),
    Share("B1", "beyond the paper, a bad model: mmIDS beats mmTS", BAD, "mmIDS", "mmTS", 0.8),
    Share("B2", "beyond the paper, a good model: mmIDS beats mmTS", GOOD, "mmIDS", "mmTS", 0.9),
)  # fmt: skip


# The settings of the paper's synthetic experiment, and its policies.

MODEL_NOISES = (0.05, 0.2)
HORIZON = 500
RUNS = 1000


@dataclass(frozen=True)
class Setting:
    """One noise level of the model that the policies are given."""

    sigma0: float

    @property
    def name(self) -> str:
        return f"sigma0={self.sigma0:g}"

    @property
    def environment(self) -> Synthetic:
        return Synthetic(model_noise=self.sigma0)


SETTINGS = tuple(Setting(sigma0) for sigma0 in MODEL_NOISES)


REWARD_RANGE = (0.0, 1.0)
"""The range of the means, which are drawn uniformly; TS uses it as prior."""

POLICIES: Mapping[str, str] = {
    "UCB1": "UCB1(scale=1)",  # the classic scale for rewards in [0, 1]
    "UCB1(scale=0.5)": "UCB1(scale=0.5)",  # the standard deviation of a reward
} | {
    name: name
    for name in ("TS", "EXP4", "mUCB", "mmUCB", "mTS", "mmTS", "mIDS", "mmIDS", "mmGreedy")
}
"""Every policy of the paper's figure, and ours beyond it, by the name in tables."""


def policies(names: Sequence[str] | None, horizon: int) -> dict[str, PolicyMaker]:
    """Return the policies of these names, or all of them."""
    chosen = {name: POLICIES[name] for name in choose("policy", names, POLICIES)}
    return makers(chosen, horizon=horizon, reward_range=REWARD_RANGE)


# Play every policy at both noise levels, and check the theory on a grid of problems.


class SyntheticExperiment:
    """The paper's Figure 1 and the claims about it."""

    name = "synthetic"
    help = "the paper's synthetic experiment (Section 5.1, Figure 1) and its regret bounds"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        policies(arguments.policies, arguments.horizon)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.report.terminal import policy_table

        started = time.perf_counter()
        runs, horizon = arguments.runs, arguments.horizon
        chosen = policies(arguments.policies, horizon)
        results: dict[str, Results] = {}
        for setting in SETTINGS:
            progress.start(f"synthetic, {setting.name}", runs)
            results[setting.name] = simulate(
                chosen,
                setting.environment,
                n_runs=runs,
                horizon=horizon,
                seed=arguments.seed,
                **windows(arguments),
                executor=executor,
                progress=progress.advance,
            )
        rows = {
            name: [policy.row() | {"setting": name} for policy in result.values()]
            for name, result in results.items()
        }
        bounds = theory.check_bounds(arguments.seed, executor, progress, horizon=horizon)
        return Report(
            experiment=self.name,
            settings={
                "runs": runs,
                "horizon": horizon,
                "seed": arguments.seed,
                "policies": list(chosen),
            },
            seconds=time.perf_counter() - started,
            policies=[row for setting_rows in rows.values() for row in setting_rows],
            claims=check_all(CLAIMS, results) + theory.claims(bounds),
            tables=[policy_table(f"{name}, {runs} runs", r) for name, r in rows.items()],
            figures={"synthetic": draw(results, runs)},
            frames={"curves": _curves(results)},
        )


def _curves(results: dict[str, Results]) -> polars.DataFrame:
    """Return columns policy, sigma0, round, mean, stderr, worst_decile_mean."""
    import polars

    return polars.concat(
        results[setting.name].curves().insert_column(1, polars.lit(setting.sigma0).alias("sigma0"))
        for setting in SETTINGS
    )


# Results of an independent implementation, 2,000 runs; ours must agree within their errors.

REGRET: Mapping[str, Mapping[str, Estimate]] = {
    "sigma0=0.05": {
        "UCB1": Estimate(101.6, 0.2),
        "UCB1(scale=0.5)": Estimate(46.7, 0.2),
        "TS": Estimate(37.2, 0.4),
        "EXP4": Estimate(57.2, 0.4),
        "mUCB": Estimate(28.6, 0.6),
        "mTS": Estimate(6.2, 0.3),
        "mmTS": Estimate(7.3, 0.1),
    },
    "sigma0=0.2": {
        "UCB1": Estimate(101.6, 0.2),
        "UCB1(scale=0.5)": Estimate(46.7, 0.2),
        "TS": Estimate(37.2, 0.4),
        "EXP4": Estimate(80.4, 1.0),
        "mUCB": Estimate(66.0, 1.6),
        "mTS": Estimate(55.3, 1.4),
        "mmTS": Estimate(27.8, 0.3),
    },
}

WORST_DECILE_REWARD: Mapping[str, Mapping[str, float]] = {
    "sigma0=0.05": {"UCB1": 0.540, "UCB1(scale=0.5)": 0.644, "TS": 0.648},
    "sigma0=0.2": {
        "UCB1": 0.540,
        "UCB1(scale=0.5)": 0.644,
        "TS": 0.648,
        "mTS": 0.494,
        "mmTS": 0.677,
    },
}
"""Values printed without errors; they have as many runs as ours, so similar errors are assumed."""


# The paper's Figure 1: three panels of reward over time.

DRAWN = ("TS", "mUCB", "mTS", "mmTS", "mmIDS")
"""The policies in the figure, few enough to be distinguished; the tables show all."""


def draw(results: Mapping[str, Results], runs: int) -> Figure:
    """Draw the good model, the bad model, and its worst runs."""
    from matplotlib.figure import Figure

    good, bad = results["sigma0=0.05"], results["sigma0=0.2"]
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    titles = (
        r"good model, $\sigma_0 = 0.05$",
        r"bad model, $\sigma_0 = 0.2$",
        r"worst 10% of runs, $\sigma_0 = 0.2$",
    )
    for axes, result, which, title in zip(
        panels, (good, bad, bad), ("mean", "mean", "worst"), titles, strict=True
    ):
        shown = [policy for name, policy in result.items() if name in DRAWN]
        draw_curves(axes, shown or list(result.values()), "mean" if which == "mean" else "worst")
        axes.set_title(title, fontsize=10)
    panels[0].set_ylabel("mean reward")
    name_lines(figure, panels)
    figure.suptitle(f"10 actions, 5 latent states: {runs} runs, one standard error", fontsize=11)
    return figure
