"""A latent state that switches (the paper's conclusion): `python -m evidence drift`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from latentbandits.environments import Switching, Synthetic
from latentbandits.experiments import experiment as frame
from latentbandits.experiments.experiment import Judged, Order
from latentbandits.models import GaussianArms
from latentbandits.models.composed.markov import Markov
from latentbandits.options import simulation_options
from latentbandits.policies import mmTS, mTS
from latentbandits.policies.registry import PolicySpec
from latentbandits.report import drawing
from latentbandits.report.report import Estimate, Report, Table, all_positive
from latentbandits.simulation.simulate import makers

# Switch probabilities, and every policy with and without a model of the switches.

PROBABILITIES = (0.0, 0.005, 0.02, 0.05)
KINDS: tuple[Literal["markov", "piecewise"], ...] = ("markov", "piecewise")
PROBLEM = Synthetic(model_noise=0.05)
HORIZON = 500
RUNS = 200

LONG_PROBLEM = Synthetic(model_noise=0.05, n_actions=3)
LONG_PROBABILITY = 0.002
LONGER = 10
"""Ten actions cannot be learned again in the 20 to 200 rounds between switches. Policies without a
model are therefore also played with three actions, as in Garivier & Moulines (2011), and with 500
rounds between switches, in runs of `LONGER` times as many rounds.
"""

KNOWING = {
    "Markov mTS": "mTS",
    "Markov mmTS": "mmTS",
    "Markov mTS, cautious": "mTS",
    "window mUCB": "mUCB",
    "discounted mUCB": "mUCB",
    "window mmUCB": "mmUCB",
    "discounted mmUCB": "mmUCB",
    "window UCB1": "UCB1",
    "discounted UCB1": "UCB1",
}
"""Policies that model the switches, each with its counterpart that does not."""

ORDER = (
    "UCB1", "window UCB1", "discounted UCB1", "TS", "mUCB", "window mUCB", "discounted mUCB",
    "mmUCB", "window mmUCB", "discounted mmUCB", "mTS", "Markov mTS", "Markov mTS, cautious",
    "mmTS", "Markov mmTS",
)  # fmt: skip
"""The rows of the tables."""

_TOO_SLOW_FOR_LONG = ("mmTS", "Markov mmTS")  # and TS, which has no twin


def name(kind: str, probability: float) -> str:
    return f"{kind} p={probability:g}"


def settings(horizon: int) -> list[frame.Setting]:
    return [
        frame.Setting(
            name(kind, probability),
            Switching(PROBLEM, probability, kind),
            policies(PROBLEM, probability, horizon),
        )
        for kind in KINDS
        for probability in PROBABILITIES
        if probability > 0 or kind == "markov"  # without switches the two kinds are the same
    ]


def long_settings(horizon: int) -> list[frame.Setting]:
    """Return the settings of the long problem for `horizon` rounds."""
    everyone = policies(LONG_PROBLEM, LONG_PROBABILITY, horizon)
    paired = {*KNOWING, *KNOWING.values()} - {*_TOO_SLOW_FOR_LONG}
    return [
        frame.Setting(
            name(kind, LONG_PROBABILITY),
            Switching(LONG_PROBLEM, LONG_PROBABILITY, kind),
            {policy: maker for policy, maker in everyone.items() if policy in paired},
        )
        for kind in KINDS
    ]


def policies(problem: Synthetic, probability: float, horizon: int) -> frame.Policies:
    """Return the policies of a setting.

    Markov policies are given the switch probability. Policies with a window or discount, and the
    cautious filter, assume at least one switch per run, because a policy cannot know that there are
    none. mUCB and mmUCB use log t instead of log n, as their windowed and discounted forms must:
    log n is larger and makes them keep a wrong state longer, which would look like a gain of
    forgetting.
    """
    expected = max(probability, 1 / horizon)
    still = {name: PolicySpec(name) for name in ("UCB1", "TS", "mUCB", "mmUCB", "mTS", "mmTS")}
    forgetting = {
        f"{kind} {name}": form(name, alternatives, expected, horizon)
        for name, alternatives in (
            ("UCB1", problem.n_actions), ("mUCB", problem.n_states), ("mmUCB", problem.n_states),
        )
        for kind, form in (("window", _window), ("discounted", _discounted))
    }  # fmt: skip
    made = makers(still | forgetting, reward_range=(0.0, 1.0))
    made |= {
        "Markov mTS": partial(_markov, mTS, probability),
        "Markov mTS, cautious": partial(_markov, mTS, expected),
        "Markov mmTS": partial(_markov, mmTS, probability),
    }
    return {name: made[name] for name in ORDER}


# The memory of windows and discounts. Garivier & Moulines (2011) advise lengths in proportion
# to 1 / sqrt(p): windows of 2 sqrt(log n / p) rounds, and discounts of 1 - sqrt(p) / 4, whose
# memory is 4 / sqrt(p). Their bounds ignore the number of alternatives, but each must be learned
# again. So the memory here is 4 or 8 / sqrt(p) for each action of UCB1, or state of mUCB and mmUCB.
# On other seeds than this experiment's, with 3, 5 and 10 actions and p from 0.0005 to 0.005, 4 was
# the best of 2, 4 and 8 for windows of UCB1, and 8 of 4, 8 and 16 for discounts.


def _window(policy: str, n_alternatives: int, probability: float, horizon: int) -> PolicySpec:
    rounds = min(horizon, round(4 * n_alternatives / math.sqrt(probability)))
    return PolicySpec("SlidingWindow", {"policy": policy, "rounds": rounds})


def _discounted(policy: str, n_alternatives: int, probability: float, horizon: int) -> PolicySpec:
    factor = 1 - math.sqrt(probability) / (8 * n_alternatives)
    return PolicySpec("Discounted", {"policy": policy, "factor": factor})


def _markov(policy: Any, probability: float, model: GaussianArms) -> Any:
    return policy(Markov.switching(model, probability, n_paths=8))


# Claims about policies that model a switching state: their gain with switches and cost without.

FILTERS = ("Markov mTS", "Markov mmTS", "Markov mTS, cautious")
STILL = ("mTS", "mmTS", "mUCB", "mmUCB", "TS", "UCB1")
NO_WINDOW = "window UCB1"  # with few switches the window is as long as the run: no claim
MOST_LOST = 0.1
MOST_GAINED = 0.05

SWITCHING = tuple(name(kind, p) for kind in KINDS for p in PROBABILITIES if p > 0)
OFTEN = tuple(name(kind, p) for kind in KINDS for p in PROBABILITIES if p > 0.01)
LONG = tuple(name(kind, LONG_PROBABILITY) for kind in KINDS)


def lead(results: frame.BySetting, setting: str, policy: str) -> Estimate:
    """Return the difference in regret, counterpart minus `policy`, paired over the same runs."""
    return results[setting].difference(KNOWING[policy], policy, "regret")


def lead_table(title: str, results: frame.BySetting) -> Table:
    """Tabulate the lead of each policy over its counterpart; a negative lead is a loss."""
    body = [
        (
            f"{policy} over {twin}",
            *(
                str(lead(results, setting, policy)) if {policy, twin} <= set(result) else ""
                for setting, result in results.items()
            ),
        )
        for policy, twin in KNOWING.items()
        if any({policy, twin} <= set(result) for result in results.values())
    ]
    return Table(title, ("lead", *results), body)


def pays(name: str, claim: str, policy: str, settings: tuple[str, ...]) -> Judged:
    """Claim that `policy` has less regret than its counterpart in each of `settings`."""
    twin = KNOWING[policy]

    def judge(results: frame.BySetting) -> tuple[str, str, bool | None]:
        leads = {setting: lead(results, setting, policy) for setting in settings}
        return f"regret {policy} < {twin}", _listed(leads), all_positive(leads.values())

    return Judged(name, claim, (policy, twin), judge)


def does_not_pay(name: str, claim: str, policy: str, settings: tuple[str, ...]) -> Judged:
    """Claim that `policy` lowers its counterpart's regret by less than MOST_GAINED of it."""
    twin = KNOWING[policy]

    def judge(results: frame.BySetting) -> tuple[str, str, bool | None]:
        leads = {setting: lead(results, setting, policy) for setting in settings}
        short_of_gain = [
            Estimate(MOST_GAINED * results[setting][twin].regret.mean - lead.mean, lead.stderr)
            for setting, lead in leads.items()
        ]
        predicted = f"regret {policy} > {1 - MOST_GAINED:g} x {twin}"
        return predicted, _listed(leads), all_positive(short_of_gain)

    return Judged(name, claim, (policy, twin), judge)


def loses_little(name: str, claim: str, policy: str, setting: str) -> Judged:
    """Claim that without switches `policy` keeps 1 - MOST_LOST of its counterpart's reward."""
    twin = KNOWING[policy]

    def judge(results: frame.BySetting) -> tuple[str, str, bool]:
        ours, theirs = results[setting][policy], results[setting][twin]
        lost = 1 - ours.reward.mean / theirs.reward.mean
        predicted = f"reward {policy} loses at most {MOST_LOST:.0%} of {twin}'s, {setting}"
        measured = f"{lost:.1%} (regret {ours.regret} against {theirs.regret})"
        return predicted, measured, lost <= MOST_LOST

    return Judged(name, claim, (policy, twin), judge)


def _listed(leads: Mapping[str, Estimate]) -> str:
    return "lead " + ", ".join(f"{lead} at {setting}" for setting, lead in leads.items())


CLAIMS: tuple[frame.Checkable, ...] = (
    *(
        Order(f"D {setting}",
              "with switching, the filters beat every policy that takes the state as fixed",
              setting, "regret", FILTERS, STILL)
        for setting in SWITCHING
    ),
    *(
        pays(f"D {policy}",
             "given the latent model, discounting pays in runs of ten switches or more",
             policy, OFTEN)
        for policy in ("discounted mUCB", "discounted mmUCB")
    ),
    *(
        does_not_pay(f"D not {policy}",
                   "windows, and UCB1 with ten actions, learn too slowly between switches",
                   policy, OFTEN if policy == NO_WINDOW else SWITCHING)
        for policy in ("window mUCB", "window mmUCB", "window UCB1", "discounted UCB1")
    ),
    *(
        loses_little(f"D 0 {policy}", "without switches, a model of switches costs little",
                    policy, name("markov", 0.0))
        for policy in KNOWING if policy != NO_WINDOW
    ),
)  # fmt: skip

LONG_CLAIMS: tuple[frame.Checkable, ...] = tuple(
    pays(f"D long {policy}",
         "with few actions and rare switches, a model of switches lowers regret", policy, LONG)
    for policy in KNOWING if policy != "Markov mmTS"
)  # fmt: skip


# The figure of regret by switch probability, and of every policy in the long problem.

_COLOURS = {
    "UCB1": drawing.GREY,
    "TS": drawing.DARK,
    "mUCB": drawing.SKY,
    "mmUCB": drawing.PINK,
    "mTS": drawing.BLUE,
    "mmTS": drawing.ORANGE,
}
_PANELS = {
    "no model: UCB1 and TS": ("UCB1", "TS"),
    **{policy: (policy,) for policy in ("mUCB", "mmUCB", "mTS", "mmTS")},
}
"""The panels: policies that take the state as fixed; their switching counterparts are added."""

_KNOWING_COLOURS = (drawing.GREEN, drawing.BROWN)
_KIND = "markov"  # piecewise switches give nearly the same lines; the tables show both


_Point = Mapping[str, Estimate]


class DriftExperiment(frame.Experiment):
    """A latent state that switches, in a Markov chain or piecewise."""

    name = "drift"
    help = "a latent state that moves: switching versions of the synthetic problem"
    options = simulation_options(RUNS, HORIZON)

    def choices(self, arguments: argparse.Namespace) -> Mapping[str, Iterable[str]]:
        return {"policies": policies(PROBLEM, 0.0, arguments.horizon)}

    def measure(self, work: frame.Work) -> Report:
        chosen, horizon = work.options.policies, work.options.horizon
        longer = LONGER * horizon
        short = work.play_all(self.name, settings(horizon), chosen)
        long = work.play_all(self.name, long_settings(longer), chosen, horizon=longer)
        tables = []
        for problem, rounds, results in ((PROBLEM, horizon, short), (LONG_PROBLEM, longer, long)):
            where = f"{problem.n_actions} actions, {rounds} rounds, {work.options.runs} runs"
            saved = f"Regret that knowing saves, below zero where it costs: {where}"
            tables += [
                frame.metric_table(f"Regret: {where}", results, "regret"),
                lead_table(saved, results),
            ]
        return Report(
            settings={
                "long_horizon": longer,
                "switch_probabilities": [*PROBABILITIES, LONG_PROBABILITY],
            },
            policies=frame.policy_rows(short | long),
            claims=[*frame.check_all(CLAIMS, short), *frame.check_all(LONG_CLAIMS, long)],
            tables=[table for table in tables if table.rows],
        )

    def draw(self, results: Mapping[str, Any]) -> frame.Figures:
        """Draw a panel per policy with its switching counterparts, and the long runs."""
        by_setting = drawing.estimates(results["policies"], "regret")
        points = [by_setting[name(_KIND, p)] for p in PROBABILITIES]
        long = {
            kind: by_setting.get(name(kind, LONG_PROBABILITY), {})
            for kind in ("markov", "piecewise")
        }
        figure = drawing.new_figure(
            8.0 if not any(long.values()) else 11.0,
            f"Users who change, {PROBLEM.n_actions} actions: {results['settings']['runs']} runs, "
            "one standard error\ndashed and hollow: assumes a fixed state",
            drawing.NARROW,
        )
        grid = figure.add_gridspec(4, 2, height_ratios=(1, 1, 1, 1.3))
        highest = max(estimate.mean for point in points for estimate in point.values())
        for place, (title, fixed) in enumerate(_PANELS.items()):
            axes = figure.add_subplot(grid[divmod(place, 2)])
            label = "regret" if place % 2 == 0 else ""
            drawing.plain(axes, x="chance of a switch per round", y=label, title=title)
            axes.set_ylim(0, 1.05 * highest)
            _draw_probabilities(axes, points, fixed)
            drawing.label_lines(axes)
        if any(long.values()):
            _draw_long(figure.add_subplot(grid[3, :]), long)
        return {"drift": figure}


def _draw_probabilities(axes: Any, points: Sequence[_Point], fixed: tuple[str, ...]) -> None:
    """Draw regret by switch probability for some policies and their switching counterparts."""
    shown = [policy for policy in points[0] if KNOWING.get(policy, policy) in fixed]
    twins = [policy for policy in shown if policy in KNOWING]
    for policy in shown:
        colour = _COLOURS[policy] if policy in _COLOURS else _KNOWING_COLOURS[twins.index(policy)]
        style = "-" if policy in KNOWING else "--"
        curve = [point[policy] for point in points]
        drawing.draw_line(axes, range(len(points)), curve, style, colour, _short(policy))
    axes.margins(x=0.03)
    axes.set_xticks(
        range(len(points)), [f"{p:.2g}" if p == 0 else f"{100 * p:g}%" for p in PROBABILITIES]
    )


def _short(policy: str) -> str:
    """Return the name of a policy without the name of its counterpart."""
    words = policy.split()
    return policy if policy not in KNOWING else "\n".join(words[:1] + words[2:])


def _draw_long(axes: Any, results: Mapping[str, _Point]) -> None:
    """Draw a row per policy: a disc for Markov switches, a square for piecewise ones."""
    policies = list(next(iter(results.values())))
    for (kind, by_policy), marker, above in zip(results.items(), "os", (True, False), strict=True):
        for row, policy in enumerate(policies):
            colour = _COLOURS[KNOWING.get(policy, policy)]
            face = colour if policy in KNOWING else "white"
            axes.errorbar(by_policy[policy].mean, row, xerr=by_policy[policy].stderr, fmt=marker,
                          color=colour, markerfacecolor=face, markersize=6)  # fmt: skip
        words = {"markov": "disc: random times", "piecewise": "square: fixed number"}[kind]
        axes.annotate(words, (0.99, 0.94 if above else 0.86), xycoords="axes fraction",
                      ha="right", va="top", fontsize=drawing.SMALL)  # fmt: skip
    stretch = round(1 / LONG_PROBABILITY)
    title = f"{LONG_PROBLEM.n_actions} actions, long runs, a switch every {stretch} rounds"
    drawing.plain(axes, x="regret: reward lost over all rounds", title=title)
    axes.set_yticks(range(len(policies)), policies)
    axes.set_ylim(len(policies) - 0.4, -0.6)
    axes.set_xlim(left=0)
