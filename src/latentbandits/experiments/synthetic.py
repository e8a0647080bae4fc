"""Section 5.1 of the paper: `latentbandits reproduce synthetic`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from latentbandits.environments import Synthetic
from latentbandits.experiments import experiment as frame
from latentbandits.experiments import theory
from latentbandits.experiments.experiment import Alike, Degrades, Order, Share
from latentbandits.options import choose, simulation_options
from latentbandits.report.drawing import NARROW, new_figure
from latentbandits.report.report import Report, policy_table
from latentbandits.simulation import Results
from latentbandits.simulation.plots import draw_curves, name_lines
from latentbandits.simulation.simulate import PolicyMaker, makers

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

# Claims of the paper about its synthetic experiment (Section 5.1), and further ones.

GOOD, BAD = "sigma0=0.05", "sigma0=0.2"
SETTINGS = {GOOD: Synthetic(model_noise=0.05), BAD: Synthetic(model_noise=0.2)}
"""The problem with small and with large errors in the model that the policies are given."""

CLAIMS: tuple[frame.Checkable, ...] = (
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

HORIZON = 500
RUNS = 1000


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


class SyntheticExperiment(frame.Experiment):
    """The paper's Figure 1 and the claims about it."""

    name = "synthetic"
    help = "the paper's synthetic experiment (Section 5.1, Figure 1) and its regret bounds"
    options = simulation_options(RUNS, HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        policies(arguments.policies, arguments.horizon)

    def measure(self, work: frame.Work) -> Report:
        runs, horizon = work.options.runs, work.options.horizon
        chosen = policies(work.options.policies, horizon)
        results = {
            name: work.play(self.name, frame.Setting(name, environment, chosen))
            for name, environment in SETTINGS.items()
        }
        return Report(
            settings={"policies": list(chosen)},
            policies=frame.policy_rows(results),
            claims=frame.check_all(CLAIMS, results) + theory.claims(theory.check_bounds(work)),
            tables=[
                policy_table(f"{name}, {runs} runs", frame.policy_rows({name: result}))
                for name, result in results.items()
            ],
            figures={"synthetic": draw(results, runs)},
            frames={"curves": _curves(results)},
        )


def _curves(results: dict[str, Results]) -> polars.DataFrame:
    """Return columns policy, sigma0, round, mean, stderr, worst_decile_mean."""
    import polars

    return polars.concat(
        results[name].curves().insert_column(1, polars.lit(one.model_noise).alias("sigma0"))
        for name, one in SETTINGS.items()
    )


# The paper's Figure 1: three panels of reward over time.

DRAWN = ("TS", "mUCB", "mTS", "mmTS", "mmIDS")
"""The policies in the figure, few enough to be distinguished; the tables show all."""


def draw(results: Mapping[str, Results], runs: int) -> Figure:
    """Draw the good model, the bad model, and its worst runs."""
    good, bad = results["sigma0=0.05"], results["sigma0=0.2"]
    title = f"10 actions, 5 latent states: {runs:,} runs, one standard error"
    figure = new_figure(8, title, NARROW)
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    titles = (
        "good model: means off by 0.05",
        "bad model: means off by 0.2",
        "bad model, the worst 10% of runs",
    )
    drawn: tuple[Literal["mean", "worst"], ...] = ("mean", "mean", "worst")
    for axes, result, which, title in zip(panels, (good, bad, bad), drawn, titles, strict=True):
        shown = [policy for name, policy in result.items() if name in DRAWN]
        draw_curves(axes, shown or list(result.values()), which)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("")
        axes.set_ylabel("reward per round")
    panels[-1].set_xlabel("round")
    name_lines(figure, panels)
    return figure
