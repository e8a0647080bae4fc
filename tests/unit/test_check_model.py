"""The conformance kit notices wrong maths: each planted bug is caught, and by the check it breaks.

A correct model fails with probability below 1e-6: every statistical comparison allows 6 standard
errors or a Kolmogorov-Smirnov statistic of 3.
"""

import numpy as np
import pytest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    Ensemble,
    ExponentialArms,
    FunctionModel,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    Log1pRewards,
    LogisticLinear,
    Markov,
    PoissonArms,
)
from latentbandits.models.numerics.laws import BINARY, Interval
from latentbandits.testing import check_model
from tests.reference.particles import Particles

K, D = 3, 2
MEANS = np.array([[0.9, 0.1, 0.4], [0.2, 0.8, 0.5]])


def features(n, rng):
    return rng.standard_normal((n, K, D))


MODELS = {
    "GaussianArms": (GaussianArms(MEANS, 0.5, 0.2), None),
    "GaussianArmsUnknownNoise": (GaussianArmsUnknownNoise(MEANS, 0.5, 4.0, 20.0), None),
    "BernoulliArms": (BernoulliArms(5 * MEANS, 5 * (1 - MEANS)), None),
    "PoissonArms": (PoissonArms(4 * MEANS, 2.0), None),
    "ExponentialArms": (ExponentialArms(8.0, 7 * MEANS), None),
    "CategoricalArms": (
        CategoricalArms(1 + np.arange(18.0).reshape(2, 3, 3) % 5, [1, 3, 5]),
        None,
    ),
    "LinearGaussian": (LinearGaussian(np.eye(2), 0.5, [np.eye(2)] * 2), features),
    "LinearGaussianUnknownNoise": (
        LinearGaussianUnknownNoise(np.eye(2), [np.eye(2)] * 2, 0.5, 20.0),
        features,
    ),
    "LogisticLinear": (LogisticLinear(2 * np.eye(2), [np.eye(2)] * 2), features),
}


@pytest.mark.parametrize("name", MODELS)
def test_our_models_pass_with_their_own_rewards(name):
    model, context = MODELS[name]
    check_model(model, K, context)


def change(model, method, mutate):
    """A copy of the model's class with one method wrapped."""

    def mutated(self, *args):
        return mutate(getattr(super(kind, self), method)(*args), self, *args)

    changed = {method: mutated}
    kind = type(type(model).__name__, (type(model),), changed)
    mutant = object.__new__(kind)
    mutant.__dict__.update(
        {name: value for name, value in vars(model).items() if name in model.__dataclass_fields__}
    )
    return mutant


def scaled(factor):
    return lambda result, *_: result * factor


def shifted(offset):
    return lambda result, *_: result + offset


def swapped(result, self, theta, reward):
    return np.log(np.where(reward == 1, 1 - theta, theta))


BUGS = {
    "Bernoulli density with 0 and 1 swapped": ("BernoulliArms", "log_density", swapped),
    "Bernoulli prior of another strength": (
        "BernoulliArms", "sample",
        lambda r, self, phi, rng: rng.beta(2 * phi[..., 0], 2 * phi[..., 1])),
    "Bernoulli draws": (
        "BernoulliArms", "draw",
        lambda r, self, theta, rng: (rng.random(theta.shape) < theta**2) * 1.0),
    "Poisson density without its factorial": (
        "PoissonArms", "log_density",
        lambda r, self, theta, reward: reward * np.log(theta) - theta),
    "Poisson density without its normaliser": (
        "PoissonArms", "log_density", lambda r, self, theta, reward: r + theta),
    "Poisson density of another rate": (
        "PoissonArms", "log_density",
        lambda r, self, theta, reward: r + reward * np.log(1.1) - 0.1 * theta),
    "Poisson base measure": ("PoissonArms", "log_base_measure", scaled(0.9)),
    "Poisson normaliser": ("PoissonArms", "log_normaliser", scaled(1.05)),
    "Poisson draws": ("PoissonArms", "draw", shifted(1.0)),
    "exponential density without -log": (
        "ExponentialArms", "log_density", lambda r, self, theta, reward: -reward / theta),
    "exponential density of the rate": (
        "ExponentialArms", "log_density",
        lambda r, self, theta, reward: np.log(theta) - reward * theta),
    "exponential normaliser": ("ExponentialArms", "log_normaliser", scaled(1.1)),
    "exponential draws": ("ExponentialArms", "draw", scaled(1.2)),
    "exponential moments": (
        "ExponentialArms", "moments", lambda r, self, phi: (phi[..., 1] / phi[..., 0], r[1])),
    "categorical density": ("CategoricalArms", "log_density", shifted(0.1)),
    "categorical draws": (
        "CategoricalArms", "draw",
        lambda r, self, theta, rng: self.values[0] + self.values[-1] - r),
    "Gaussian density without its variance": (
        "GaussianArms", "log_likelihood", lambda r, self, x, a, reward: r + np.log(self.noise)),
    "Gaussian density of twice the noise": (
        "GaussianArms", "log_likelihood",
        lambda r, self, *round_: GaussianArms(self.means, 2 * self.noise).log_likelihood(*round_)),
    "Gaussian spread forgotten": (
        "GaussianArms", "condition", lambda r, self, p, x, a, reward: (
            GaussianArms(self.means, self.noise).condition(p, x, a, reward)[0], r[1])),
    "Gaussian draws of half the noise": (
        "GaussianArms", "draw_rewards", lambda r, self, theta, x, rng: (r + theta) / 2),
    "unknown noise, density": ("GaussianArmsUnknownNoise", "log_density", scaled(1.02)),
    "unknown noise, draws": (
        "GaussianArmsUnknownNoise", "draw",
        lambda r, self, theta, rng: theta.mean + 1.2 * (r - theta.mean)),
    "unknown noise, normaliser": ("GaussianArmsUnknownNoise", "log_normaliser", scaled(1.02)),
    "linear density of another noise": (
        "LinearGaussian", "log_likelihood",
        lambda r, self, *round_: LinearGaussian(self.weights, 2.0).log_likelihood(*round_)),
    "linear predictive without x' Sigma x": (
        "LinearGaussian", "condition", lambda r, self, p, x, a, reward: (
            self.log_likelihood(x, a, reward), r[1])),
    "linear, draws of theta": ("LinearGaussian", "draw_theta", scaled(1.3)),
    "linear with unknown noise, predictive": (
        "LinearGaussianUnknownNoise", "condition", lambda r, self, *_: (r[0] * 1.02, r[1])),
    "logistic density with 0 and 1 swapped": (
        "LogisticLinear", "_log_density",
        lambda r, self, theta, x, reward: LogisticLinear._log_density(self, -theta, x, reward)),
    "logistic draws": ("LogisticLinear", "draw_rewards", lambda r, *_: 1 - r),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug):
    name, method, mutate = BUGS[bug]
    model, context = MODELS[name]
    with pytest.raises(AssertionError):
        check_model(change(model, method, mutate), K, context)


GAUSSIAN_BUGS = {
    "density of another noise": (
        "log_likelihood",
        lambda r, self, *rest: GaussianArms(self.means, 1.03 * self.noise).log_likelihood(*rest)),
    "predictive at the posterior mean": (
        "condition", lambda r, self, p, x, a, reward: (self.log_likelihood(x, a, reward), r[1])),
    "wide draws of mean rewards": (
        "sample_rewards",
        lambda r, self, p, x, state, rng: r + 0.06 * rng.standard_normal(r.shape)),
    "shifted draws of rewards": ("draw_rewards", shifted(0.03)),
}  # fmt: skip


@pytest.mark.parametrize("bug", GAUSSIAN_BUGS)
@pytest.mark.parametrize(
    "compose",
    [
        lambda model: Markov(model, [[0.8, 0.2], [0.3, 0.7]]),
        lambda model: Ensemble([model, MODELS["GaussianArms"][0]]),
        Log1pRewards,
    ],
    ids=["Markov", "Ensemble", "Log1pRewards"],
)
def test_a_bug_of_a_model_inside_another_is_caught(compose, bug):
    method, mutate = GAUSSIAN_BUGS[bug]
    with pytest.raises(AssertionError):
        check_model(compose(change(MODELS["GaussianArms"][0], method, mutate)), K)


def test_a_wrong_mean_of_an_ensemble_is_caught():
    first = GaussianArms(MEANS, 2.0, state_prior=[0.9, 0.1])
    second = GaussianArms(1 - MEANS, 2.0, state_prior=[0.2, 0.8])
    check_model(Ensemble([first, second]), K)
    average = lambda r, self, *_: np.mean([m.expected_rewards(None) for m in self.models], axis=0)  # noqa: E731
    with pytest.raises(AssertionError, match=r"mean|state"):
        check_model(change(Ensemble([first, second]), "expected_rewards", average), K)


class CoinFlips:
    """A user's own model, with only the methods that the m-policies need."""

    n_states, n_actions, n_features, n_sessions = 2, 2, None, None
    is_certain, noise, transition = True, 0.5, None
    log_state_prior = np.log([[0.5, 0.5]])
    chances = np.array([[0.9, 0.2], [0.3, 0.6]])

    def check_context(self, context, n_sessions):
        return None

    def check_reward(self, reward):
        pass

    def expected_rewards(self, context, state=None):
        return self.chances[None] if state is None else self.chances[state]

    def log_likelihood(self, context, action, reward):
        chance = self.chances[:, action].T
        return np.log(np.where(reward[:, None] == 1, chance, 1 - chance))


def test_a_users_own_model_is_checked():
    def flips(n, rng):
        return rng.integers(0, 2, n) * 1.0

    check_model(CoinFlips(), 2, reward=flips, support=BINARY)

    class Inverted(CoinFlips):
        def log_likelihood(self, context, action, reward):
            return super().log_likelihood(context, action, 1 - reward)

    with pytest.raises(AssertionError, match=r"likelihood of action 0 in state 0 has the mean 0.1"):
        check_model(Inverted(), 2, reward=flips, support=BINARY)
    with pytest.raises(AssertionError, match="integrates to"):  # without the support: not a density
        check_model(CoinFlips(), 2, reward=flips)


def test_models_made_of_functions_are_checked():
    def laplace(theta, x, reward):
        return -2 * np.abs(reward[:, None] - theta @ x.swapaxes(1, 2))

    def prior(rng, n):
        return MEANS[:, None] + 0.3 * rng.standard_normal((2, n, K))

    def log_prior(theta, state):
        return -0.5 * (((theta - MEANS[state, None]) / 0.3) ** 2).sum(axis=2)

    def mean(theta, x):
        return theta @ x.swapaxes(1, 2)

    known = {"mean": mean, "log_prior": log_prior, "n_actions": K}
    check_model(Particles(prior, laplace, **known, noise=0.7), K)

    def unnormalised(theta, x, reward):
        return laplace(theta, x, reward) + 0.1

    with pytest.raises(AssertionError, match=r"integrates to 1\.1"):
        check_model(Particles(prior, unnormalised, **known), K)

    def uniform(context, action, reward):  # on [m - 1, m + 1]
        return np.where(np.abs(reward[:, None] - MEANS[:, action].T) <= 1, np.log(0.5), -np.inf)

    model = FunctionModel(
        lambda x, a: MEANS[:, a].swapaxes(0, 1), 1.0, uniform, n_states=2, n_actions=K
    )
    with pytest.raises(AssertionError):  # the mean is no longer in the middle
        check_model(model, K, reward=lambda n, rng: rng.random(n), support=Interval(0.0, 2.0))


def test_markov_of_a_family_has_its_support():
    model = Markov(MODELS["BernoulliArms"][0], [[0.9, 0.1], [0.3, 0.7]], n_paths=4)
    check_model(model, K, reward=lambda n, rng: rng.integers(0, 2, n) * 1.0)
