"""Particles: evidence without bias, states as a long MCMC run has them, and warnings."""

import warnings

import numpy as np
import pytest

from latentbandits import LinearGaussian, LogisticLinear, mmTS
from latentbandits.beliefs import joint
from latentbandits.models.composed.particle_model import TooFewParticles
from tests.reference.markov_chain import state_probabilities
from tests.reference.particles import Particles

D = 2
WEIGHTS = np.array([[1.0, 0.0], [-0.5, 1.0]])
COVARIANCES = np.array([np.eye(D), 0.5 * np.eye(D)])
NOISE = 0.5


def prior_sampler(rng, n):
    return WEIGHTS[:, None] + rng.standard_normal((2, n, D)) * np.sqrt([1.0, 0.5])[:, None, None]


def mean(theta, x):
    return theta @ x.swapaxes(1, 2)


def log_likelihood(theta, x, reward):
    z = (reward[:, None] - mean(theta, x)) / NOISE
    return -0.5 * z * z - np.log(NOISE * np.sqrt(2 * np.pi))


def log_prior(theta, state):
    z = theta - WEIGHTS[state][:, None]
    return -0.5 * np.square(z).sum(axis=2) / np.array([1.0, 0.5])[state][:, None]


def rounds(n_rounds, n_actions=2):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((n_rounds, 1, n_actions, D))
    return x, rng.integers(n_actions, size=(n_rounds, 1)), rng.standard_normal((n_rounds, 1))


def log_evidence(model, n_rounds):
    x, actions, rewards = rounds(n_rounds)
    parameters, total = model.parameters(1), np.zeros(model.n_states)
    for context, action, reward in zip(x, actions, rewards, strict=True):
        density, parameters = model.condition(parameters, context, action, reward)
        total += density[0]
    return total


def z_score(log_prior, n_rounds=5, n_seeds=400):
    """Of the mean estimated evidence over seeds against the exact evidence, in the worst state."""
    exact = log_evidence(LinearGaussian(WEIGHTS, NOISE, COVARIANCES), n_rounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooFewParticles)
        estimates = [
            log_evidence(
                Particles(
                    prior_sampler, log_likelihood, 48, mean=mean, log_prior=log_prior, seed=seed
                ),
                n_rounds,
            )
            for seed in range(n_seeds)
        ]
    ratios = np.exp(np.array(estimates) - exact)
    return np.abs((ratios.mean(axis=0) - 1) / (ratios.std(axis=0) / np.sqrt(n_seeds))).max()


def test_the_evidence_is_unbiased():
    assert z_score(log_prior) < 4.5


def test_moves_that_forget_the_prior_are_caught():
    assert z_score(lambda theta, state: np.zeros(theta.shape[:2])) > 4.5


def logistic_session(n_rounds):
    rng = np.random.default_rng(11)
    x = rng.standard_normal((n_rounds, D))
    truth = WEIGHTS[0] + 0.5
    return x, (rng.random(n_rounds) < 1 / (1 + np.exp(-x @ truth))).astype(float)


def compare_with_chain(n_rounds, n_particles, n_seeds, n_chains, n_steps):
    x, rewards = logistic_session(n_rounds)
    expected, error = state_probabilities(WEIGHTS, COVARIANCES, x, rewards, n_chains, n_steps)
    results = []
    for seed in range(n_seeds):
        model = LogisticLinear(WEIGHTS, COVARIANCES, n_particles, seed=seed)
        belief = joint.prior(model, 1)
        for features, reward in zip(x, rewards, strict=True):
            belief = joint.condition(
                model, belief, features[None, None], np.array([0]), np.array([reward])
            )
        results.append(joint.probabilities(belief.log_weights)[0])
    ours = np.mean(results, axis=0)
    own_error = np.std(results, axis=0, ddof=1) / np.sqrt(n_seeds)
    return np.abs(ours - expected) / np.hypot(error, own_error), own_error, error


def test_states_agree_with_a_markov_chain():
    off, own_error, error = compare_with_chain(12, 256, 20, 200, 2000)
    assert off.max() < 4.5
    assert max(own_error.max(), error.max()) < 0.01


@pytest.mark.slow
def test_states_agree_with_a_long_markov_chain():
    off, own_error, error = compare_with_chain(40, 1024, 80, 1000, 10_000)
    assert off.max() < 4.5
    assert max(own_error.max(), error.max()) < 0.003


def test_the_effective_sample_size_is_reported():
    model = LogisticLinear(WEIGHTS, COVARIANCES, 64)
    parameters = model.parameters(3)
    np.testing.assert_allclose(model.effective_sample_size(parameters), 64)
    context = np.ones((3, 1, D))
    _, parameters = model.condition(parameters, context, np.zeros(3, np.int64), np.ones(3))
    size = model.effective_sample_size(parameters)
    assert size.shape == (3, 2)
    assert ((size > 32) & (size < 64)).all()


def test_too_few_particles_for_the_dimension_warn():
    d = 20
    model = LogisticLinear(np.zeros((1, d)), 25 * np.eye(d)[None], n_particles=24)
    policy = mmTS(model)
    belief, rng = policy.init(), np.random.default_rng(0)

    def play(belief):
        for _ in range(10):
            x = rng.standard_normal((1, 2, d))
            decision = policy.decide(belief, x, rng, propensity=False)
            belief = policy.update(belief, x, decision, [0.0])

    with pytest.warns(TooFewParticles, match=r"effective sample size of [\d.]+ of 24 particles"):
        play(belief)


def test_likelihoods_that_are_not_numbers_are_refused():
    def broken(theta, x, reward):
        return np.full((*theta.shape[:2], 1), np.nan)

    model = Particles(prior_sampler, broken, 8, mean=mean)
    with pytest.raises(ValueError, match="log_likelihood returned nan for session 0, state 0"):
        model.condition(model.parameters(1), np.ones((1, 1, D)), np.array([0]), np.array([1.0]))
    with pytest.raises(ValueError, match="must return finite draws"):
        Particles(lambda rng, n: np.zeros(n), broken, 8, mean=mean)
    wrong = Particles(prior_sampler, lambda *a: np.zeros(3), 8, mean=mean)
    with pytest.raises(ValueError, match=r"must return an array of shape \(1, 16, 1\)"):
        wrong.condition(wrong.parameters(1), np.ones((1, 1, D)), np.array([0]), np.array([1.0]))


def test_an_impossible_reward_leaves_the_particles_and_rules_the_state_out():
    def only_positive(theta, x, reward):
        return np.where(reward[:, None] * np.ones((*theta.shape[:2], 1)) > 0, 0.0, -np.inf)

    model = Particles(prior_sampler, only_positive, 8, mean=mean)
    density, parameters = model.condition(
        model.parameters(1), np.ones((1, 1, D)), np.array([0]), np.array([-1.0])
    )
    assert np.isneginf(density).all()
    np.testing.assert_allclose(np.exp(parameters.log_weights).sum(axis=-1), 1)
