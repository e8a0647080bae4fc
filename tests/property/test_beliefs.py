"""Properties of beliefs, for any history."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentbandits import Decision, GaussianArms, LinearGaussian, load, mmTS, mTS, save
from latentbandits.beliefs import joint

finite = st.floats(-5, 5, allow_subnormal=False)


@st.composite
def arm_histories(draw):
    n_states, n_actions = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    model = GaussianArms(
        draw(arrays(float, (n_states, n_actions), elements=finite)),
        noise=draw(st.floats(0.05, 3)),
        spread=draw(arrays(float, (n_states, n_actions), elements=st.floats(0, 2))),
    )
    n_rounds = draw(st.integers(1, 8))
    actions = draw(arrays(np.int64, n_rounds, elements=st.integers(0, n_actions - 1)))
    rewards = draw(arrays(float, n_rounds, elements=finite))
    return model, actions, rewards


@st.composite
def linear_histories(draw):
    n_states, d = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    roots = draw(arrays(float, (n_states, d, d), elements=st.floats(-1, 1)))
    model = LinearGaussian(
        draw(arrays(float, (n_states, d), elements=finite)),
        noise=draw(st.floats(0.1, 3)),
        covariances=roots @ roots.swapaxes(1, 2),
    )
    n_rounds = draw(st.integers(1, 6))
    contexts = draw(arrays(float, (n_rounds, 1, 2, d), elements=st.floats(-2, 2)))
    actions = draw(arrays(np.int64, n_rounds, elements=st.integers(0, 1)))
    rewards = draw(arrays(float, n_rounds, elements=finite))
    return model, contexts, actions, rewards


def learn(policy, actions, rewards, contexts=None):
    belief = policy.init()
    for t, (action, reward) in enumerate(zip(actions, rewards, strict=True)):
        context = None if contexts is None else contexts[t]
        belief = policy.update(belief, context, Decision.logged([action]), [reward])
    return belief


@given(arrays(float, (3, 4), elements=st.floats(-1e6, 0)))
def test_beliefs_normalise_at_any_log_likelihood(log_weights):
    actual = joint.probabilities(log_weights)
    np.testing.assert_allclose(actual.sum(axis=1), 1)
    assert ((actual >= 0) & (actual <= 1)).all()


@given(arm_histories(), st.randoms(use_true_random=False))
def test_the_order_of_rewards_does_not_matter(history, random):
    model, actions, rewards = history
    order = list(range(len(actions)))
    random.shuffle(order)
    policy = mmTS(model)
    one, other = learn(policy, actions, rewards), learn(policy, actions[order], rewards[order])
    scale = 1 + np.abs(one.log_weights).max()
    np.testing.assert_allclose(one.log_weights, other.log_weights, atol=1e-10 * scale)
    np.testing.assert_allclose(one.parameters.sums, other.parameters.sums, atol=1e-12)


@given(linear_histories(), st.randoms(use_true_random=False))
def test_the_order_of_rewards_does_not_matter_with_features(history, random):
    model, contexts, actions, rewards = history
    order = list(range(len(actions)))
    random.shuffle(order)
    policy = mmTS(model)
    one = learn(policy, actions, rewards, contexts)
    other = learn(policy, actions[order], rewards[order], contexts[order])
    scale = 1 + np.abs(one.log_weights).max()
    np.testing.assert_allclose(one.log_weights, other.log_weights, atol=1e-8 * scale)
    np.testing.assert_allclose(one.parameters.mean, other.parameters.mean, atol=1e-7)
    np.testing.assert_allclose(one.parameters.covariance, other.parameters.covariance, atol=1e-8)


@given(arm_histories(), st.randoms(use_true_random=False))
def test_relabelling_states_changes_nothing_else(history, random):
    model, actions, rewards = history
    order = list(range(model.n_states))
    random.shuffle(order)
    relabelled = GaussianArms(model.means[order], model.noise, model.spread[order])
    for make in (mTS, mmTS):
        ours = make(model).state_probabilities(learn(make(model), actions, rewards))
        theirs = make(relabelled).state_probabilities(learn(make(relabelled), actions, rewards))
        np.testing.assert_allclose(ours[:, order], theirs, atol=1e-9)


@given(arm_histories())
def test_relabelling_actions_relabels_propensities(history):
    model, actions, rewards = history
    flipped = GaussianArms(model.means[:, ::-1], model.noise, model.spread[:, ::-1])
    last = model.n_actions - 1
    rng = np.random.default_rng(0)
    for make in (mTS, mmTS):
        ours = make(model).action_probabilities(learn(make(model), actions, rewards), None, rng)
        belief = learn(make(flipped), last - actions, rewards)
        theirs = make(flipped).action_probabilities(belief, None, rng)
        np.testing.assert_allclose(ours.values[:, ::-1], theirs.values, atol=2e-6)
        np.testing.assert_allclose(ours.values.sum(axis=1), 1, atol=1e-6)


@given(arm_histories())
def test_a_certain_model_makes_mmts_mts(history):
    model, actions, rewards = history
    certain = GaussianArms(model.means, model.noise)
    ours = learn(mmTS(certain), actions, rewards).log_weights
    theirs = learn(mTS(model), actions, rewards).log_weights
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@settings(max_examples=20)
@given(history=st.one_of(arm_histories(), linear_histories()))
def test_a_saved_model_is_the_same_model(history, tmp_path_factory):
    model = history[0]
    path = tmp_path_factory.mktemp("saved") / "model"
    save(model, path)
    again = load(path)
    for name in model.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
