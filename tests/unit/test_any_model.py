"""Functions and ensembles as models, and every kind of model on disk."""

import json
import math

import numpy as np
import pytest

from latentbandits import (
    ArtefactError,
    BernoulliArms,
    Ensemble,
    FunctionModel,
    GaussianArms,
    LinearGaussian,
    LogisticLinear,
    Markov,
    load,
    mmTS,
    mTS,
    mUCB,
    save,
)
from latentbandits.beliefs import joint
from latentbandits.models.registry import kinds
from tests.reference.particles import Particles
from tests.unit.test_new_models_conform import MODELS

MEANS = np.array([[0.9, 0.1, 0.4], [0.2, 0.8, 0.5]])


def test_a_function_of_a_table_is_the_table():
    table = GaussianArms(MEANS, 0.5)
    model = FunctionModel(
        lambda x, action: MEANS[:, action].swapaxes(0, 1), 0.5, n_states=2, n_actions=3
    )
    action, reward = np.array([0, 2, 1]), np.array([0.3, 0.9, -0.2])
    np.testing.assert_allclose(
        model.log_likelihood(None, action, reward), table.log_likelihood(None, action, reward)
    )
    np.testing.assert_allclose(model.expected_rewards(None), table.expected_rewards(None))
    for policy in (mTS, mmTS, mUCB):
        ours, theirs = policy(model), policy(table)
        for seed in range(5):
            a, b = (p.decide(p.init(3), None, np.random.default_rng(seed)) for p in (ours, theirs))
            np.testing.assert_array_equal(a.action, b.action)


def test_a_density_of_its_own():
    def poisson(context, action, reward):
        rate = np.exp(MEANS[:, action].T)
        return reward[:, None] * np.log(rate) - rate

    model = FunctionModel(
        lambda x, action: np.exp(MEANS[:, action].swapaxes(0, 1)),
        log_density=poisson,
        n_states=2,
        n_actions=3,
    )
    density = model.log_likelihood(None, np.array([1]), np.array([2.0]))
    np.testing.assert_allclose(density, [[0.2 - math.exp(0.1), 1.6 - math.exp(0.8)]])
    with pytest.raises(ValueError, match="mUCB and mmUCB also need"):
        mUCB(model).decide(mUCB(model).init(), None, np.random.default_rng(0))


def test_functions_that_go_wrong_are_named():
    def wrong_shape(context, action):
        return np.zeros((len(action), 3))

    def not_a_number(context, action):
        means = np.zeros((len(action), 2, action.shape[1]))
        means[1, 0, action.shape[1] - 1] = np.nan
        return means

    def build(mean, **options):
        return mTS(FunctionModel(mean, 0.5, n_states=2, n_actions=3, **options))

    rng = np.random.default_rng(0)
    policy = build(wrong_shape)
    with pytest.raises(
        ValueError, match=r"n_sessions=4, n_states=2, n_actions=3.*returned \(4, 3\)"
    ):
        policy.decide(policy.init(4), None, rng)
    policy = build(not_a_number)
    with pytest.raises(ValueError, match="returned nan for session 1, action 2, state 0"):
        policy.decide(policy.init(4), None, rng)
    with pytest.raises(ValueError, match=r"noise .* or log_density"):
        FunctionModel(wrong_shape, n_states=2)
    policy = build(wrong_shape, context_shape=(5,))
    with pytest.raises(ValueError, match=r"n_sessions=4, 5\); got \(4, 6\)"):
        policy.decide(policy.init(4), np.zeros((4, 6)), rng)
    with pytest.raises(ValueError, match="first axis"):
        policy.decide(policy.init(4), np.zeros((3, 5)), rng)


def test_a_density_that_is_not_a_number_is_named():
    model = FunctionModel(
        lambda x, a: np.zeros((len(a), 2, a.shape[1])),
        log_density=lambda x, a, r: np.full((len(a), 2), np.nan),
        n_states=2,
        n_actions=3,
    )
    with pytest.raises(ValueError, match="nan for session 0, action 2, state 0, reward 1"):
        model.log_likelihood(None, np.array([2]), np.array([1.0]))


def test_an_ensemble_is_the_flat_posterior_over_member_and_state():
    """By brute force: all pairs (member, state) side by side as the states of one model."""
    rng = np.random.default_rng(0)
    tables, weights = rng.random((3, 2, 4)), np.array([0.5, 0.3, 0.2])
    priors = rng.dirichlet([1, 1], 3)
    ensemble = Ensemble(
        [GaussianArms(t, 0.4, state_prior=p) for t, p in zip(tables, priors, strict=True)], weights
    )
    flat = GaussianArms(tables.reshape(6, 4), 0.4, state_prior=(weights[:, None] * priors).ravel())
    ours, theirs = joint.prior(ensemble, 1), joint.prior(flat, 1)
    for _ in range(8):
        action, reward = rng.integers(4, size=1), rng.random(1)
        ours = joint.condition(ensemble, ours, None, action, reward)
        theirs = joint.condition(flat, theirs, None, action, reward)
    pairs = joint.probabilities(theirs.log_weights).reshape(3, 2)
    np.testing.assert_allclose(joint.probabilities(ours.log_weights)[0], pairs.sum(axis=0))
    np.testing.assert_allclose(
        ensemble.member_probabilities(ours.parameters)[0].T, pairs / pairs.sum(axis=0)
    )
    mean, variance = ensemble.posterior_rewards(ours.parameters, None)
    share = (pairs / pairs.sum(axis=0))[:, :, None]
    expected = (share * tables).sum(axis=0)
    np.testing.assert_allclose(mean[0], expected)
    np.testing.assert_allclose(
        variance[0], (share * (tables - expected) ** 2).sum(axis=0), atol=1e-12
    )


def test_ensembles_that_cannot_be():
    with pytest.raises(ValueError, match="at least one"):
        Ensemble([])
    with pytest.raises(ValueError, match="n_states of model 0 is 2, of model 1 1"):
        Ensemble([GaussianArms(MEANS, 0.5), GaussianArms(MEANS[:1], 0.5)])
    with pytest.raises(ValueError, match="weights must sum to one"):
        Ensemble([GaussianArms(MEANS, 0.5)], weights=[0.5])


SAVABLE = {
    name: model
    for name, (model, *_) in MODELS.items()
    if not isinstance(model, (FunctionModel, Particles))
}


@pytest.mark.parametrize("name", SAVABLE)
def test_saved_and_loaded_is_the_same(name, tmp_path):
    model, context, reward, _ = MODELS[name]
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    rng = np.random.default_rng(0)
    x = None if context is None else context(3, rng)
    x = model.check_context(x, 3)
    outcome = rng.standard_normal(3) if reward is None else reward(3, rng)
    results = [
        m.condition(m.parameters(3), x, np.array([0, 1, 2]), outcome)[0] for m in (model, again)
    ]
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(model.log_state_prior, again.log_state_prior)
    rewards = [m.expected_rewards(x) for m in (model, again)]
    np.testing.assert_array_equal(*rewards)


def test_every_kind_is_saved_in_these_tests():
    tested = {type(model).__name__ for model in SAVABLE.values()}
    families = {name for name, kind in kinds().items() if hasattr(kind, "random")}
    assert tested | families | {"FunctionModel"} == set(kinds())  # families: test_model_registry.py


def test_functions_say_that_they_cannot_be_saved(tmp_path):
    function = MODELS["FunctionModel"][0]
    for model in (function, Markov(function, np.eye(2)), Ensemble([function])):
        with pytest.raises(
            TypeError, match="functions cannot be saved: save what they are made of"
        ):
            save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_an_altered_part_of_a_nested_model_is_noticed(tmp_path):
    model = Markov(Ensemble([BernoulliArms([[1.0], [2.0]], 3.0)] * 2), np.eye(2))
    save(model, tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert "model:Ensemble/models:1:BernoulliArms/alpha" in manifest["arrays"]
    path = tmp_path / "model" / "arrays.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtefactError, match="truncated or altered"):
        load(tmp_path / "model")


def test_particles_learn_the_same_after_loading(tmp_path):
    model = LogisticLinear(np.eye(2), [np.eye(2)] * 2, n_particles=32, seed=5)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.n_particles, again.seed) == (32, 5)
    x, action = np.ones((2, 3, 2)), np.array([0, 1])
    learned = [m.condition(m.parameters(2), x, action, np.ones(2))[1] for m in (model, again)]
    for ours, theirs in zip(*learned, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_catch_all_says_where_it_does_not_work():
    with pytest.raises(TypeError, match="no vague state"):
        mmTS(MODELS["FunctionModel"][0], catch_all=True)
    with pytest.raises(TypeError, match="no vague state"):
        mmTS(Markov(LinearGaussian(np.eye(2), 0.5), np.eye(2)), catch_all=True)
