"""Small Bernoulli problems whose Bayes-optimal policy can be computed exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from latentbandits.beliefs.states import probabilities
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.known import Known
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.models.protocol import Model
from latentbandits.policies.decision import Decision
from latentbandits.policies.protocol import AnyPolicy

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
        from scipy.special import betaln

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
        from scipy.special import betainc

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
