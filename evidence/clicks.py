"""Learning from clicks: the learned model compared with showing the most popular action."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evidence.loop_visits import shown_means
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning import fit
from latentbandits.learning.logs.rows import Log
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.options import Option, whole
from latentbandits.policies.registry import Inputs, build, parse
from latentbandits.report.report import Claim, Estimate, Report, Table

# Click logs with a known truth, and new users to play.

LOGGED, NEW, IMPRESSIONS = 4_000, 2_000, 60
ROUNDS = 100
WINDOWS = (10, 20, 50, 100)
"""Numbers of rounds H; click rates are averaged over rounds 1..H."""

_SURE = 1e9  # pseudo-observations of the true model, so that it is practically certain


@dataclass(frozen=True, eq=False)
class ClickProblem:
    """Click rates of every state and action, a log of some users, and the states of new users."""

    name: str
    rates: FloatArray  # (n_states, n_actions)
    log: Log
    state: IntArray  # (n_new,): states of the new users

    @property
    def popular(self) -> int:
        """The action with the largest click rate in the log (one click and 20 shows added)."""
        shown = np.bincount(self.log.actions, minlength=self.log.n_actions)
        clicked = np.bincount(self.log.actions, self.log.rewards, minlength=self.log.n_actions)
        overall = clicked.sum() / shown.sum()
        return int(((clicked + 20 * overall) / (shown + 20)).argmax())

    def true_model(self) -> BernoulliArms:
        """Return the model with the true rates and equally likely states."""
        return BernoulliArms(self.rates * _SURE, (1 - self.rates) * _SURE)


def reference_problem(seed: int = 0, n_new: int = NEW) -> ClickProblem:
    """Return the problem of the reference figures: 3 states, 20 actions, 2.2% clicks."""
    rng = np.random.default_rng(3 + seed)
    rates = np.clip(rng.gamma(1, 0.02, (3, 20)), 0.002, 0.25)
    state = rng.integers(0, 3, LOGGED + n_new)
    users = np.repeat(np.arange(LOGGED), IMPRESSIONS)
    actions = rng.integers(0, 20, len(users))
    clicks = (rng.random(len(users)) < rates[state[users], actions]).astype(np.float64)
    return ClickProblem("reference", rates, _log(users, actions, clicks, 20), state[LOGGED:])


def other_problem(seed: int) -> ClickProblem:
    """Return a problem with 3 x 20 or 4 x 30 click rates, log-uniform in 1 to 10%.

    If `seed // 2` is odd, the log shows the action with the highest click rate so far with
    probability 1/2. Other impressions are of random actions.
    """
    rng = np.random.default_rng([seed, 20])
    n_states, n_actions = ((3, 20), (4, 30))[seed % 2]
    seeks = (seed // 2) % 2 == 1
    rates = np.exp(rng.uniform(np.log(0.01), np.log(0.1), (n_states, n_actions)))
    state = rng.integers(0, n_states, LOGGED + NEW)
    actions = rng.integers(0, n_actions, (IMPRESSIONS, LOGGED))
    clicks = np.empty((IMPRESSIONS, LOGGED))
    shown, clicked = np.full(n_actions, 20.0), np.full(n_actions, 1.0)
    for t in range(IMPRESSIONS):
        if seeks:
            popular = int((clicked / shown).argmax())
            actions[t] = np.where(rng.random(LOGGED) < 0.5, popular, actions[t])
        clicks[t] = rng.random(LOGGED) < rates[state[:LOGGED], actions[t]]
        shown += np.bincount(actions[t], minlength=n_actions)
        clicked += np.bincount(actions[t], clicks[t], minlength=n_actions)
    users = np.repeat(np.arange(LOGGED), IMPRESSIONS)
    log = _log(users, actions.T.ravel(), clicks.T.ravel(), n_actions)
    name = f"{n_states} x {n_actions}, {'popular' if seeks else 'uniform'}, seed {seed}"
    return ClickProblem(name, rates, log, state[LOGGED:])


def play(problem: ClickProblem, policy: Any, seed: int = 0) -> FloatArray:
    """Return the true click rate of the actions shown to new users, `(n_new, ROUNDS)`."""
    rates, rng = problem.rates[problem.state], np.random.default_rng([seed, 7])
    everyone = np.arange(len(rates))

    def click(action: IntArray) -> FloatArray:
        return (rng.random(len(rates)) < rates[everyone, action]).astype(np.float64)

    return shown_means(policy, rates, click, ROUNDS, rng)


def play_popular(problem: ClickProblem) -> FloatArray:
    """Show every new user the most popular action of the log."""
    rates = problem.rates[problem.state, problem.popular]
    return np.broadcast_to(rates[:, None], (len(rates), ROUNDS))


def play_knowing(problem: ClickProblem) -> FloatArray:
    """Show every new user the best action of their state."""
    rates = problem.rates.max(axis=1)[problem.state]
    return np.broadcast_to(rates[:, None], (len(rates), ROUNDS))


def _log(users: IntArray, actions: IntArray, clicks: FloatArray, n_actions: int) -> Log:
    ids = tuple(str(u) for u in range(LOGGED)), tuple(str(a) for a in range(n_actions))
    return Log(users, actions, clicks, *ids)


# `python -m evidence clicks`: learn from a click log, play the recommended policy on new users.

POLICIES = ("mIDS", "mmIDS", "mmBayesUCB", "mmGreedy", "mmTS")
"""Policies on the learned model that the table shows next to the recommended one."""


class ClicksExperiment(Experiment):
    """Learn from a typical click log and from twenty others."""

    name = "clicks"
    help = "learning from clicks: the recommended policy on new users, beside popularity"
    options = (
        Option("problems", "other problems to learn from and play on, from number SEED on; 0: none",
               20, whole),
        Option("policies", "on the learned model, in the table", list(POLICIES), several=True,
               metavar="POLICY"),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        for policy in arguments.policies:
            parse(policy)

    def measure(self, work: Work) -> Report:
        seed, n = work.options.seed, work.options.problems
        reference = learn_and_play(reference_problem(), seed, tuple(work.options.policies))
        outcomes = work.map(self.name, learn_other, [(seed + i, seed) for i in range(n)])
        tables = [_rates_table(reference)]
        if outcomes:
            tables.append(_problems_table(outcomes))
        return Report(
            policies=_rows(reference),
            claims=_claims(reference) + (_problem_claims(outcomes) if outcomes else []),
            tables=tables,
        )


class Outcome(NamedTuple):
    """The learned model of one problem, and true click rates of new users, `(n_new, ROUNDS)`."""

    name: str
    true_rates: FloatArray
    fitted_rates: FloatArray
    recommended: str
    verdict: str
    by_user: dict[str, FloatArray]  # by policy: (n_new, len(WINDOWS)), means over rounds 1..H

    def rate(self, policy: str, window: int) -> Estimate:
        return Estimate.from_values(self.by_user[policy][:, WINDOWS.index(window)])

    def lead(self, policy: str, window: int, other: str = "popularity") -> Estimate:
        index = WINDOWS.index(window)
        return Estimate.from_values(self.by_user[policy][:, index] - self.by_user[other][:, index])


def learn_and_play(problem: ClickProblem, seed: int, policies: Sequence[str] = ()) -> Outcome:
    """Learn from the problem's log with `fit`, and play its new users."""
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
        recommended,
        str(judgement["verdict"]),
        {
            name: np.stack([rates[:, :h].mean(axis=1) for h in WINDOWS], axis=1)
            for name, rates in played.items()
        },
    )


def learn_other(problem: int, seed: int) -> Outcome:
    """Learn from another problem, of this number, and play its new users."""
    return learn_and_play(other_problem(problem), seed)


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
    early = np.array([_early(o) for o in outcomes])
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


def _early(outcome: Outcome) -> float:
    """Return the recommended policy's lead over popularity in rounds 1-10, as a share."""
    return outcome.lead(outcome.recommended, 10).mean / outcome.rate("popularity", 10).mean


def _rows(outcome: Outcome) -> list[dict[str, Any]]:
    rows = []
    for policy in outcome.by_user:
        row: dict[str, Any] = {"policy": policy, "recommended": policy == outcome.recommended}
        for h in WINDOWS:
            row |= outcome.rate(policy, h).row(f"rate_{h}")
        rows.append(row)
    return rows


def _rates_table(outcome: Outcome) -> Table:
    rows = []
    for row in _rows(outcome):
        mark = " *" if row["recommended"] else ""
        cells = (f"{row[f'rate_{h}']:.4f} ±{row[f'rate_{h}_stderr']:.4f}" for h in WINDOWS)
        rows.append((row["policy"] + mark, *cells))
    title = "True click rate of new users (* is recommended)"
    return Table(title, ("policy", *(f"rounds 1-{h}" for h in WINDOWS)), rows)


def _problems_table(outcomes: Sequence[Outcome]) -> Table:
    rows = []
    for o in outcomes:
        cells = [o.rate(name, 100).mean for name in ("popularity", o.recommended)]
        rows.append(
            (o.name, str(len(o.fitted_rates)), o.recommended, *(f"{cell:.4f}" for cell in cells),
             f"{o.rate('mIDS, true model', 100).mean:.4f}", f"{_gain(o):.0%}", f"{_early(o):+.1%}")
        )  # fmt: skip
    columns = ("problem", "states", "recommended", "popularity", "recommended: rate",
               "mIDS, true model", "of its gain", "rounds 1-10")  # fmt: skip
    return Table("Other problems: click rates over 100 rounds", columns, rows)
