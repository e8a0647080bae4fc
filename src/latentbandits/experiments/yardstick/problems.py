"""Small Bernoulli problems whose Bayes-optimal policy can be computed exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.models.arms.bernoulli import BernoulliArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.known import Known
from latentbandits.models.protocol import Model

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
