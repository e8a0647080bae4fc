"""Whatever the priors and rewards: beliefs are finite and sum to one, and relabelling is free."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    ExponentialArms,
    GaussianArmsUnknownNoise,
    Markov,
    PoissonArms,
)
from latentbandits.beliefs import joint

SCALES = st.floats(-9, 9).map(lambda power: 10.0**power)
ACTIONS = st.lists(st.integers(0, 1), min_size=1, max_size=8)


def positive(*shape):
    size = int(np.prod(shape))
    return st.lists(SCALES, min_size=size, max_size=size).map(lambda v: np.reshape(v, shape))


def bernoulli(data):
    rewards = st.sampled_from([0.0, 1.0])
    return BernoulliArms(data.draw(positive(2, 2)), data.draw(positive(2, 2))), rewards


def poisson(data):
    rewards = st.integers(0, 10**7).map(float)
    return PoissonArms(data.draw(positive(2, 2)), data.draw(positive(2, 2))), rewards


def exponential(data):
    rewards = st.floats(0, 1e6)
    return ExponentialArms(2.001 + data.draw(positive(2, 2)), data.draw(positive(2, 2))), rewards


def categorical(data):
    rewards = st.sampled_from([-1.0, 0.0, 7.0])
    return CategoricalArms(data.draw(positive(2, 2, 3)), [-1.0, 0.0, 7.0]), rewards


def unknown_noise(data):
    model = GaussianArmsUnknownNoise(
        data.draw(positive(2, 2)) - 1, data.draw(positive(2, 2)), 1.0, 2.5
    )
    return model, st.floats(-1e6, 1e6)


FAMILIES = [bernoulli, poisson, exponential, categorical, unknown_noise]


def filtered(model, actions, rewards):
    belief = joint.prior(model, 1)
    for action, reward in zip(actions, rewards, strict=True):
        belief = joint.condition(model, belief, None, np.array([action]), np.array([reward]))
    return belief


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(FAMILIES), ACTIONS)
def test_beliefs_are_finite_and_draws_too(data, family, actions):
    model, rewards = family(data)
    history = [data.draw(rewards) for _ in actions]
    for world in (model, Markov.switching(model, 0.1, n_paths=3)):
        belief = filtered(world, actions, history)
        probabilities = joint.probabilities(belief.log_weights)
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        draws = world.sample_rewards(
            belief.parameters, None, np.array([[0, 1]]), np.random.default_rng(0)
        )
        assert np.isfinite(draws).all()


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(FAMILIES[:-1]), ACTIONS)
def test_relabelling_states_changes_nothing(data, family, actions):
    """But for rounding, which squares of extreme rewards turn into more than a tolerance."""
    model, rewards = family(data)
    history = [data.draw(rewards) for _ in actions]
    swapped = model._replace(
        {name: getattr(model, name)[::-1].copy() for name in model.prior_fields}
    )
    ours = joint.probabilities(filtered(model, actions, history).log_weights)
    theirs = joint.probabilities(filtered(swapped, actions, history).log_weights)
    np.testing.assert_allclose(ours, theirs[:, ::-1], atol=1e-6)
