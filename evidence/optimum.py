"""Policies compared with the exact optimum of small problems: `python -m evidence yardstick`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainc, betaln

from latentbandits.beliefs.joint import probabilities
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.experiments.experiment import Experiment, Figures, Work
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.known import Known
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.models.protocol import Model
from latentbandits.options import Option, positive
from latentbandits.policies.decision import Decision
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import AUTO, Inputs, build, entries, parse
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table
from latentbandits.simulation import simulate, tune

N_RANDOM = 100
_SEED = 2012


@dataclass(frozen=True, eq=False)
class Problem:
    """Rates of 2 states x 2 or 3 arms; a `spread` of zero makes the model known.

    `alpha` and `beta` are the prior's ones and zeros of an uncertain model.
    """

    name: str
    rates: FloatArray  # (n_states, n_arms)
    prior: FloatArray  # (n_states,)
    spread: float
    horizon: int

    @property
    def known(self) -> bool:
        return self.spread == 0

    @property
    def arms(self) -> BernoulliArms:
        """The model with beta priors; if the model is known, only its means are used."""
        spread = np.full(self.rates.shape, self.spread or 0.01)
        widest = np.sqrt(self.rates * (1 - self.rates))
        return BernoulliArms.from_means(self.rates, np.minimum(spread, 0.9 * widest), self.prior)

    @property
    def model(self) -> Model:
        """The model given to policies."""
        return Known(self.arms) if self.known else self.arms


def _problem(name: str, rates: list[list[float]], prior: float, spread: float, n: int) -> Problem:
    return Problem(name, np.array(rates), np.array([prior, 1 - prior]), spread, n)


NAMED = tuple(
    _problem(f"{name}, {'known' if spread == 0 else f'sd {spread:g}'}", rates, prior, spread, n)
    for name, rates, prior, spreads, n in (
        ("symmetric .7/.3", [[0.7, 0.3], [0.3, 0.7]], 0.5, (0.0, 0.2), 30),
        ("safe .5 against .9/.1, prior .5", [[0.5, 0.9], [0.5, 0.1]], 0.5, (0.0, 0.05), 30),
        ("safe .5 against .9/.1, prior .1", [[0.5, 0.9], [0.5, 0.1]], 0.1, (0.0, 0.05), 30),
        ("a good arm shared by both", [[0.8, 0.7, 0.1], [0.1, 0.7, 0.8]], 0.5, (0.0, 0.05), 15),
        ("an informative but dominated arm", [[0.6, 0.4, 0.1], [0.4, 0.6, 0.35]], 0.5, (0.0,), 15),
    )
    for spread in spreads
)
"""The problems of the project's notes on algorithms, section 7."""


def _rates(n_arms: int, rng: np.random.Generator) -> FloatArray:
    while True:
        rates = rng.uniform(0.05, 0.95, (2, n_arms))
        ranked = np.sort(rates, axis=1)
        lead = ranked[:, -1] - ranked[:, -2]
        if rates[0].argmax() != rates[1].argmax() and lead.min() >= 0.1:
            return rates


def random_problems(n_problems: int = N_RANDOM) -> tuple[Problem, ...]:
    """Draw problems: every second one uncertain, half of them with three arms.

    Rates are uniform in (.05, .95), redrawn until the states have different best arms, each .1
    ahead of the next. The prior of the first state is uniform in (.1, .9), the spread in
    (.05, .25), the horizon in 15 to 30 rounds (10 to 14 for three arms).

    >>> [problem.known for problem in random_problems(4)]
    [True, False, True, False]
    """
    rng = np.random.default_rng(_SEED)
    problems = []
    for i in range(n_problems):
        three = i % 4 >= 2
        rates = _rates(3 if three else 2, rng)
        first = rng.uniform(0.1, 0.9)
        spread = rng.uniform(0.05, 0.25)
        horizon = int(rng.integers(10, 15) if three else rng.integers(15, 31))
        prior = np.array([first, 1 - first])
        name = f"random {i}"
        problems.append(Problem(name, rates, prior, spread if i % 2 else 0.0, horizon))
    return tuple(problems)


# The exact dynamic programme over counts of ones and zeros, and exact regrets of policies.
#
# The belief of a Bernoulli problem is a function of the counts of every arm. Level t contains all
# C(t + 2 K - 1, 2 K - 1) count vectors of t rewards.

_NEGLIGIBLE = 1e-14  # histories of smaller probability are dropped
_GRID = 20_001  # grid points of the integral for E[max]


@dataclass(frozen=True, eq=False)
class Programme:
    """The Bayes-optimal values of a problem."""

    problem: Problem

    @property
    def n_arms(self) -> int:
        return int(self.problem.rates.shape[1])

    @cached_property
    def levels(self) -> tuple[IntArray, ...]:
        """Count vectors `(n, 2 K)` of every round: ones and zeros of arm 0, of arm 1, ..."""
        levels = [np.zeros((1, 2 * self.n_arms), np.int64)]
        steps = np.eye(2 * self.n_arms, dtype=np.int64)
        for _ in range(self.problem.horizon):
            grown = (levels[-1][:, None] + steps).reshape(-1, 2 * self.n_arms)
            codes = self._codes(grown)
            levels.append(grown[np.unique(codes, return_index=True)[1]])
        return tuple(levels)

    def _codes(self, counts: IntArray) -> IntArray:
        """Return a unique number for every count vector; levels are sorted by it."""
        radix = (self.problem.horizon + 1) ** np.arange(counts.shape[1], dtype=np.int64)
        codes: IntArray = counts @ radix
        return codes

    def find(self, t: int, counts: IntArray) -> IntArray:
        """Return the positions of count vectors in level t."""
        return np.searchsorted(self._codes(self.levels[t]), self._codes(counts))

    def chances(self, counts: IntArray) -> FloatArray:
        """Return P(next reward of an arm = 1), `(n, K)`, by Bayes' rule from the counts."""
        ones, zeros = counts[:, None, 0::2], counts[:, None, 1::2]  # (n, 1, K)
        if self.problem.known:
            rates = self.problem.rates
            log_evidence = (ones * np.log(rates) + zeros * np.log1p(-rates)).sum(axis=2)
            means = np.broadcast_to(rates, (len(counts), *rates.shape))
        else:
            alpha, beta = self.problem.arms.alpha, self.problem.arms.beta
            log_evidence = betaln(alpha + ones, beta + zeros) - betaln(alpha, beta)
            log_evidence = log_evidence.sum(axis=2)
            means = (alpha + ones) / (alpha + beta + ones + zeros)
        joint = np.log(self.problem.prior) + log_evidence
        chances: FloatArray = np.einsum("ns,nsk->nk", probabilities(joint), means)
        return chances

    @cached_property
    def optimum(self) -> float:
        """The largest attainable expected sum of rewards, by backward induction."""
        horizon, k = self.problem.horizon, self.n_arms
        value = np.zeros(len(self.levels[horizon]))
        for t in range(horizon - 1, -1, -1):
            counts = self.levels[t]
            chances = self.chances(counts)
            best = np.full(len(counts), -np.inf)
            for action in range(k):
                up, down = counts.copy(), counts.copy()
                up[:, 2 * action] += 1
                down[:, 2 * action + 1] += 1
                p = chances[:, action]
                total = p * (1 + value[self.find(t + 1, up)])
                total += (1 - p) * value[self.find(t + 1, down)]
                best = np.maximum(best, total)
            value = best
        return float(value[0])

    @cached_property
    def best_mean(self) -> float:
        """E[max_a mu(a)] of one round under the prior, as the integral of 1 - P(max <= x)."""
        if self.problem.known:
            return float(self.problem.prior @ self.problem.rates.max(axis=1))
        x = np.linspace(0, 1, _GRID)[:, None, None]
        arms = self.problem.arms
        below = betainc(arms.alpha, arms.beta, x).prod(axis=2)  # (grid, n_states)
        return float(np.trapezoid(1 - below @ self.problem.prior, dx=1 / (_GRID - 1)))

    @property
    def optimal_regret(self) -> float:
        return self.problem.horizon * self.best_mean - self.optimum

    def regret(self, policy: AnyPolicy) -> float | None:
        """Return the exact Bayes regret of a policy; None if it has no exact probabilities.

        The probability of every count vector is propagated through the rounds.
        """
        if policy.order_free is False or policy.learns_from == "own":
            return None
        rng = np.random.default_rng(0)
        earned, mass, place = 0.0, np.ones(1), np.zeros(1, np.int64)
        belief = policy.init(1)
        for t in range(self.problem.horizon):
            probabilities = policy.action_probabilities(belief, None, rng)
            if probabilities is None or probabilities.kind not in ("exact", "quadrature"):
                return None
            counts = self.levels[t][place]
            chances = self.chances(counts)
            earned += float(mass @ (probabilities.values * chances).sum(axis=1))
            if t + 1 < self.problem.horizon:
                step = self._step(t, counts, mass, probabilities.values, chances)
                mass, place = step.mass, step.place
                belief = map_leaves(lambda leaf, rows=step.parent: leaf[rows], belief)
                belief = policy.update(belief, None, Decision.logged(step.action), step.reward)
        return self.problem.horizon * self.best_mean - earned

    def _step(
        self, t: int, counts: IntArray, mass: FloatArray, shares: FloatArray, chances: FloatArray
    ) -> _Step:
        """Return the reached count vectors of the next level."""
        ways = np.indices((*shares.shape, 2)).reshape(3, -1)
        parent, action, reward = ways
        weight = (mass[:, None] * shares)[parent, action]
        weight = weight * np.where(
            reward == 1, chances[parent, action], 1 - chances[parent, action]
        )
        kept = weight > _NEGLIGIBLE
        parent, action, reward, weight = parent[kept], action[kept], reward[kept], weight[kept]
        after = counts[parent]
        after[np.arange(len(after)), 2 * action + (1 - reward)] += 1
        place, first, index = np.unique(
            self.find(t + 1, after), return_index=True, return_inverse=True
        )
        total = np.bincount(index.ravel(), weight).astype(np.float64)
        return _Step(total, place, parent[first], action[first], reward[first].astype(np.float64))


class _Step(NamedTuple):
    """Count vectors of a level: probability, position, and one way to reach each."""

    mass: FloatArray
    place: IntArray
    parent: IntArray
    action: IntArray
    reward: FloatArray


# Policies compared with the exact optimum: `python -m evidence yardstick`.

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
    texts = [entry.name for entry in entries("session") if entry.fits(inputs)]
    return texts + [text for text in QUANTILES if parse(text).name in texts]


def _inputs(problem: Problem) -> Inputs:
    return Inputs(model=problem.model, reward_range=(0.0, 1.0), horizon=problem.horizon)


def measure(problem: Problem, chosen: Sequence[str], runs: int, seed: int) -> Measured:
    """Return the regrets of the chosen policies; `auto` has the regret of tune's winner."""
    programme = Programme(problem)
    texts = [text for text in policies(problem) if text in chosen]
    winner = ""
    if AUTO in chosen:
        winner = tune(problem.model, problem.horizon, seed=seed, effort=_TUNE_EFFORT).winner
        texts = list(dict.fromkeys([*texts, winner]))
    inputs = _inputs(problem)
    regrets: dict[str, Estimate] = {}
    simulated: dict[str, AnyPolicy] = {}
    for text in texts:
        policy = build(text, inputs)
        exact = programme.regret(policy)
        if exact is None:
            simulated[text] = policy
        else:
            regrets[text] = Estimate(exact, 0.0)
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

    def choices(self, arguments: argparse.Namespace) -> Mapping[str, Iterable[str]]:
        return {"policies": [*policies(NAMED[1]), AUTO]}

    def measure(self, work: Work) -> Report:
        options = work.options
        chosen = options.policies
        problems = (*NAMED, *random_problems(options.problems))
        jobs = [(problem, chosen, options.runs, options.seed) for problem in problems]
        measured = work.map(self.name, measure, jobs)
        return Report(
            settings={"problems": len(problems)},
            policies=_rows(measured),
            claims=claims(measured),
            tables=[_summary(measured, chosen), _named(measured, chosen)],
        )

    def draw(self, results: Mapping[str, Any]) -> Figures:
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
            **regret.row("regret"),
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


_SHOWN = ("mTS", "mmTS", "mIDS", "mmIDS", "mUCB", "mmGreedy", "mLookahead",
          "mmBayesUCB", "mmBayesUCB(quantile=0.95)", AUTO)  # fmt: skip


def _named(measured: Sequence[Measured], chosen: Sequence[str]) -> Table:
    columns = [name for name in chosen if name in _SHOWN]
    body = [
        (one.problem.name, *(f"{one.ratio(name):.2f}" for name in columns))
        for one in measured if not one.problem.name.startswith("random")
    ]  # fmt: skip
    return Table("Ratio by problem", ("problem", *columns), list(body))
