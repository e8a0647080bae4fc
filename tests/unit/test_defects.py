"""Beliefs that went wrong once: each test failed before its defect was mended."""

import dataclasses
import threading

import numpy as np
import pytest

from latentbandits import (
    TS,
    UCB1,
    BernoulliArms,
    Ensemble,
    FunctionModel,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LinTS,
    LinUCB,
    Markov,
    mmGreedy,
    mmTS,
    mmUCB,
    mTS,
)
from latentbandits.beliefs import joint
from latentbandits.learning.transitions import UserSequence, fit_transition
from latentbandits.models.numerics.arrays import leaves
from tests.reference.particles import Particles

MEANS = np.array([[0.9, 0.1], [0.2, 0.8]])
TRANSITION = [[0.9, 0.1], [0.2, 0.8]]


def all_finite(belief):
    return all(np.isfinite(leaf).all() for leaf in leaves(belief))


def impossible(context, action, reward):
    """Rewards above one have density zero in every state."""
    return np.where(reward[:, None] > 1, -np.inf, 0.0) * np.ones(2)


FUNCTION = FunctionModel(
    lambda x, a: MEANS[:, a].swapaxes(0, 1), 0.5, impossible, n_states=2, n_actions=2
)


@pytest.mark.parametrize("reward", [1e154, -1e155, 1e300, 1e101])
@pytest.mark.parametrize(
    "policy",
    [
        mTS(GaussianArms(MEANS, 0.5)),
        mmTS(GaussianArms(MEANS, 0.5, 0.1)),
        mmUCB(GaussianArms(MEANS, 0.5, 0.1)),
        mmTS(GaussianArmsUnknownNoise(MEANS, 0.5, 4.0, 20.0)),
        mmTS(Markov(GaussianArms(MEANS, 0.5, 0.1), TRANSITION)),
        TS(2),
        UCB1(2),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_huge_rewards_leave_a_belief_finite_or_are_refused(policy, reward):
    belief, rng, refused = policy.init(), np.random.default_rng(0), []
    for outcome in (0.5, reward, 0.4, 0.3):
        decision = policy.decide(belief, None, rng)
        try:
            belief = policy.update(belief, None, decision, [outcome])
        except ValueError:
            refused.append(outcome)
    assert set(refused) <= {reward}
    np.testing.assert_allclose(policy.state_probabilities(belief).sum(axis=1), 1)
    assert np.isfinite(policy.state_probabilities(belief)).all()


@pytest.mark.parametrize("reward", [1e154, 1e150, 1e99])
@pytest.mark.parametrize("noise", [0.5, 1e-9])
def test_huge_rewards_of_linear_models(noise, reward):
    context = np.ones((1, 2, 2)) * [[1.0, 0.5]]
    covariances = [np.eye(2)] * 2
    for policy in (
        mmTS(LinearGaussian(np.eye(2), noise, covariances)),
        mmTS(LinearGaussianUnknownNoise(np.eye(2), covariances, noise, 5.0)),
        LinTS(2, noise),
        LinUCB(2),
    ):
        belief, rng = policy.init(), np.random.default_rng(0)
        for outcome in (0.5, reward, 0.4):
            decision = policy.decide(belief, context, rng)
            try:
                belief = policy.update(belief, context, decision, [outcome])
            except ValueError:
                assert outcome == reward
        assert np.isfinite(policy.state_probabilities(belief)).all()


def test_a_reward_at_a_tiny_noise_is_refused_before_anything_changes():
    policy = mTS(GaussianArms(MEANS, 1e-9))
    belief = policy.init(2)
    decision = policy.decide(belief, None, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"at most 1e.100 in size.*session 1 has 1e.150"):
        policy.update(belief, None, decision, [0.9, 1e150])
    assert all_finite(belief)


@pytest.mark.parametrize(
    ("policy", "reward"),
    [
        (mTS(FUNCTION), 2.0),
        (mmTS(FUNCTION), 2.0),
        (mmTS(Ensemble([FUNCTION, FUNCTION])), 2.0),
        (mTS(Markov(FUNCTION, TRANSITION)), 2.0),
        (mmTS(Markov(Ensemble([FUNCTION, FUNCTION]), TRANSITION)), 2.0),
        (mTS(BernoulliArms(np.full((2, 2), 1e20), 1e-20)), 0.0),
    ],
)
def test_a_reward_that_no_state_allows_is_refused(policy, reward):
    belief, rng = policy.init(3), np.random.default_rng(0)
    decision = policy.decide(belief, None, rng)
    with pytest.raises(ValueError, match=r"no state allows the reward .* of session 1"):
        policy.update(belief, None, decision, [1.0, reward, 1.0])
    belief = policy.update(belief, None, decision, [1.0, 1.0, 1.0])
    assert np.isfinite(policy.state_probabilities(belief)).all()


def test_a_reward_that_one_state_allows_rules_the_others_out():
    def one_state(context, action, reward):
        return np.stack([np.zeros(len(reward)), np.where(reward > 1, -np.inf, 0.0)], axis=1)

    model = FunctionModel(FUNCTION.mean, 0.5, one_state, n_states=2, n_actions=2)
    policy = mTS(model)
    decision = policy.decide(policy.init(), None, np.random.default_rng(0))
    belief = policy.update(policy.init(), None, decision, [2.0])
    np.testing.assert_array_equal(policy.state_probabilities(belief), [[1.0, 0.0]])
    belief = policy.update(belief, None, decision, [0.5])
    np.testing.assert_array_equal(policy.state_probabilities(belief), [[1.0, 0.0]])


def member_probability(model, rewards, action=0):
    """P(member | state 0) after these rewards of one action."""
    parameters = model.parameters(1)
    for reward in rewards:
        _, parameters = model.condition(parameters, None, np.array([action]), np.array([reward]))
    return model.posterior_rewards(parameters, None)[0][0, 0, action]


def test_markov_learns_which_certain_member_of_an_ensemble_is_right():
    members = [GaussianArms([[1.0]], 0.5), GaussianArms([[0.0]], 0.5)]
    rewards = [1.1, 0.8, 1.3, 0.9, 1.0, 1.2]
    for model in (
        Ensemble(members),
        Markov(Ensemble(members), [[1.0]]),
        Ensemble([Ensemble(members), Ensemble(members)]),
        Ensemble([Ensemble(members)]),
        Markov(Ensemble([Ensemble(members), Ensemble(members)]), [[1.0]]),
    ):
        assert not model.is_certain
        # One state that stays: the same as two Gaussians of equal prior probability.
        likelihood = [np.prod(np.exp(-2 * (np.array(rewards) - m) ** 2)) for m in (1.0, 0.0)]
        expected = likelihood[0] / sum(likelihood)
        assert member_probability(model, rewards) == pytest.approx(expected)


def test_nested_ensembles_with_features_learn_the_member():
    members = [LinearGaussian([[1.0]], 0.5), LinearGaussian([[-1.0]], 0.5)]
    flat, nested = Ensemble(members), Ensemble([Ensemble(members), Ensemble(members)])
    context = np.ones((1, 1, 1))
    results = []
    for model in (flat, nested, Markov(nested, [[1.0]])):
        parameters = model.parameters(1)
        for reward in (0.7, 1.4):
            _, parameters = model.condition(parameters, context, np.array([0]), np.array([reward]))
        results.append(model.posterior_rewards(parameters, context)[0].item())
    assert results[0] > 0.99
    np.testing.assert_allclose(results, results[0])


def test_an_ensemble_of_functions_moves():
    bad = FunctionModel(lambda x, a: 0 * MEANS[:, a].swapaxes(0, 1), 0.5, n_states=2, n_actions=2)
    good = FunctionModel(lambda x, a: MEANS[:, a].swapaxes(0, 1), 0.5, n_states=2, n_actions=2)
    model = Markov(Ensemble([good, bad]), np.eye(2))
    still = Ensemble([good, bad])
    beliefs = [joint.prior(m, 1) for m in (model, still)]
    for reward in (0.9, 0.8, 1.1):
        beliefs = [
            joint.condition(m, b, None, np.array([0]), np.array([reward]))
            for m, b in zip((model, still), beliefs, strict=True)
        ]
    moving, standing = (joint.probabilities(b.log_weights) for b in beliefs)
    np.testing.assert_allclose(moving, standing)
    np.testing.assert_allclose(
        *(
            m.posterior_rewards(b.parameters, None)[0]
            for m, b in zip((model, still), beliefs, strict=True)
        )
    )


def test_selecting_a_state_of_an_ensemble_keeps_the_probability_of_its_members():
    """By Bayes' rule: P(member | s) is proportional to weight(member) P_member(s)."""
    first = GaussianArms(MEANS, 0.5, 0.1, state_prior=[0.9, 0.1])
    second = GaussianArms(1 - MEANS, 0.5, 0.1, state_prior=[0.2, 0.8])
    ensemble = Ensemble([first, second], weights=[0.5, 0.5])
    expected = np.array([[0.9 / 1.1, 0.2 / 1.1], [0.1 / 0.9, 0.8 / 0.9]])
    for s in range(2):
        one = ensemble.select(None, np.array([s]))
        np.testing.assert_allclose(one.member_probabilities(one.parameters(1))[0, 0], expected[s])
    several = ensemble.select(np.zeros(3, np.int64), np.array([1, 0, 1]))
    np.testing.assert_allclose(
        several.member_probabilities(several.parameters(3))[:, 0], expected[[1, 0, 1]]
    )


def test_the_mean_reward_of_an_ensemble_weighs_members_by_their_probability_given_the_state():
    """0.9 / 1.1 * 1 + 0.2 / 1.1 * 0 for the first state."""
    first = GaussianArms([[1.0], [1.0]], 0.5, state_prior=[0.9, 0.1])
    second = GaussianArms([[0.0], [0.0]], 0.5, state_prior=[0.2, 0.8])
    ensemble = Ensemble([first, second])
    expected = [[0.9 / 1.1], [0.1 / 0.9]]
    np.testing.assert_allclose(ensemble.expected_rewards(None)[0], expected)
    np.testing.assert_allclose(ensemble.expected_rewards(None, np.array([1, 0])), expected[::-1])
    mean, _ = ensemble.posterior_rewards(ensemble.parameters(1), None)
    np.testing.assert_allclose(mean[0], expected)


def test_an_ensemble_takes_no_moving_member():
    markov = Markov(GaussianArms(MEANS, 0.5), TRANSITION)
    for members in ([markov], [markov, markov], [GaussianArms(MEANS, 0.5), markov]):
        with pytest.raises(ValueError, match="is a Markov model: give Markov the Ensemble"):
            Ensemble(members)


def linear_particles(**options):
    return Particles(
        lambda rng, n: np.eye(2)[:, None] + 0.1 * rng.standard_normal((2, n, 2)),
        lambda theta, x, r: -2 * (r[:, None] - theta @ x.swapaxes(1, 2)) ** 2,
        32,
        mean=lambda theta, x: theta @ x.swapaxes(1, 2),
        **options,
    )


def test_particles_with_features_work_inside_an_ensemble():
    model = Ensemble([linear_particles(n_features=2), LinearGaussian(np.eye(2), 0.5)])
    assert model.n_features == 2
    policy = mmTS(model, propensity_draws=5)
    belief, rng = policy.init(3), np.random.default_rng(0)
    context = rng.standard_normal((3, 4, 2))
    decision = policy.decide(belief, context, rng)
    belief = policy.update(belief, context, decision, rng.standard_normal(3))
    assert np.isfinite(policy.state_probabilities(belief)).all()
    with pytest.raises(ValueError, match="n_features=2"):
        policy.decide(belief, rng.standard_normal((3, 4, 3)), rng)


def test_particles_inside_markov_are_refused_by_name():
    for model in (linear_particles(), Ensemble([linear_particles()] * 2)):
        with pytest.raises(TypeError, match="Particles"):
            Markov(model, TRANSITION)


def test_particles_without_features_mix_with_arms():
    particles = Particles(
        lambda rng, n: MEANS[:, None] + 0.1 * rng.standard_normal((2, n, 2)),
        lambda theta, x, r: -2 * (r[:, None] - theta @ x.swapaxes(1, 2)) ** 2,
        32,
        mean=lambda theta, x: theta @ x.swapaxes(1, 2),
        n_actions=2,
    )
    for members in ([particles, GaussianArms(MEANS, 0.5)], [GaussianArms(MEANS, 0.5), particles]):
        policy = mmGreedy(Ensemble(members))
        belief, rng = policy.init(), np.random.default_rng(0)
        decision = policy.decide(belief, None, rng)
        belief = policy.update(belief, None, decision, [0.9])
        assert np.isfinite(policy.state_probabilities(belief)).all()


def test_linear_weights_that_are_certain_but_noise_that_is_not_is_learned_by_markov():
    model = LinearGaussianUnknownNoise([[1.0]], [[[0.0]]], 0.5, 5.0)
    assert model.spread_bound == 0
    assert not model.is_certain
    moving, context = Markov(model, [[1.0]]), np.ones((1, 1, 1))
    evidence = []
    for one in (model, moving):
        parameters, total = one.parameters(1), 0.0
        for reward in (5.0, -4.0, 6.0):
            density, parameters = one.condition(
                parameters, context, np.array([0]), np.array([reward])
            )
            total += density[0, 0]
        evidence.append(total)
    assert evidence[0] == pytest.approx(evidence[1])


@pytest.mark.parametrize("changes", [{}, {"propensity_draws": 3}])
def test_a_replaced_policy_has_one_catch_all_state(changes):
    policy = mmTS(GaussianArms(MEANS, 0.5, 0.1), catch_all=True)
    again = dataclasses.replace(policy, **changes)
    assert policy.n_states == again.n_states == 3
    off = dataclasses.replace(policy, catch_all=False)
    assert off.n_states == 2


def test_markov_answers_for_any_number_of_sessions_at_once():
    """Threads with different numbers of sessions share one model."""
    model = Markov(GaussianArms(MEANS, 0.5, 0.2), TRANSITION, n_paths=4)
    expected = {n: model.posterior_rewards(model.parameters(n), None)[0] for n in (1, 7)}
    errors = []

    def play(n):
        for _ in range(100):
            mean, _ = model.posterior_rewards(model.parameters(n), None)
            if mean.shape != expected[n].shape or not np.array_equal(mean, expected[n]):
                errors.append(mean.shape)

    threads = [threading.Thread(target=play, args=(n,)) for n in (1, 7, 1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_learned_transition_keeps_the_learned_first_state():
    model = GaussianArms([[1.0], [0.0]], 0.1)
    sequences = [UserSequence([0] * 3, [0.0, 1.0, 1.0]), UserSequence([0] * 3, [0.1, 0.9, 1.0])]
    fit = fit_transition(model, sequences)
    assert fit.state_prior[1] > 0.99
    moving = fit.markov(model)
    np.testing.assert_allclose(np.exp(moving.log_state_prior[0]), fit.state_prior)
    policy = mTS(moving)
    np.testing.assert_allclose(policy.state_probabilities(policy.init())[0], fit.state_prior)
    uncertain = fit.markov(GaussianArms([[1.0], [0.0]], 0.1, 0.1))
    weights = uncertain.parameters(1).log_weights[0, :, 0]
    np.testing.assert_allclose(np.exp(weights), fit.state_prior, atol=1e-300)
