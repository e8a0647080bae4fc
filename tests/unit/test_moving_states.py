"""A state that moves: the filter against all paths, forgetting policies against textbook loops."""

import numpy as np
import pytest

from latentbandits import (
    UCB1,
    BernoulliArms,
    Discounted,
    FunctionModel,
    GaussianArms,
    LinearGaussian,
    LinUCB,
    LogisticLinear,
    Markov,
    SlidingWindow,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)
from latentbandits.beliefs import joint
from latentbandits.models.numerics.arrays import thin
from latentbandits.policies.checked import Asked
from latentbandits.policies.decision import Decision
from tests.reference.state_paths import enumerate_paths

TRANSITION = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
ROUNDS = 4
RNG = np.random.default_rng(1)
MODELS = {
    "Gaussian": GaussianArms(RNG.random((3, 2)), 0.3, 0.4, [0.5, 0.3, 0.2]),
    "Bernoulli": BernoulliArms(RNG.random((3, 2)) * 3 + 0.2, RNG.random((3, 2)) * 3 + 0.2),
    "linear": LinearGaussian(RNG.standard_normal((3, 2)), 0.3, np.array([np.eye(2)] * 3) / 2),
    "known": GaussianArms(RNG.random((3, 2)), 0.3, 0.0, [0.5, 0.5, 0.0]),
}


def history(name):
    rng = np.random.default_rng(2)
    contexts = rng.standard_normal((ROUNDS, 2, 2)) if name == "linear" else None
    return rng.integers(0, 2, ROUNDS), rng.integers(0, 2, ROUNDS).astype(float), contexts


def play(model, name):
    actions, rewards, contexts = history(name)
    belief = joint.prior(model, 1)
    for t in range(ROUNDS):
        context = None if contexts is None else contexts[t][None]
        belief = joint.condition(model, belief, context, actions[t : t + 1], rewards[t : t + 1])
    return belief


@pytest.mark.parametrize("name", MODELS)
def test_the_filter_is_exact_while_all_paths_are_kept(name):
    model = MODELS[name]
    actions, rewards, contexts = history(name)
    probabilities, evidence, means = enumerate_paths(model, TRANSITION, actions, rewards, contexts)
    moving = Markov(model, TRANSITION, n_paths=3**ROUNDS)
    belief = play(moving, name)
    np.testing.assert_allclose(joint.probabilities(belief.log_weights)[0], probabilities, rtol=1e-9)
    np.testing.assert_allclose(np.exp(joint.log_total(belief.log_weights)), evidence, rtol=1e-9)
    context = None if contexts is None else contexts[-1][None]
    ours, _ = moving.posterior_rewards(belief.parameters, context)
    np.testing.assert_allclose(ours[0], means, rtol=1e-8)


def test_the_known_filter_is_exact():
    model = GaussianArms([[0.2, 0.9], [0.6, 0.1], [0.4, 0.4]], 0.3)
    actions, rewards, _ = history("known")
    probabilities, evidence, _ = enumerate_paths(model, TRANSITION, actions, rewards)
    moving = Markov(model, TRANSITION)
    belief = joint.known_prior(moving, 1)
    for t in range(ROUNDS):
        belief = joint.condition_known(moving, belief, None, actions[t : t + 1], rewards[t : t + 1])
    np.testing.assert_allclose(
        joint.probabilities(belief.log_weights)[0], probabilities, rtol=1e-10
    )
    np.testing.assert_allclose(np.exp(joint.log_total(belief.log_weights)), evidence, rtol=1e-10)


def test_predicting_by_hand():
    """P = (.5, .5), the reward rules out state 1: (1, 0), and then T says (.9, .1)."""
    moving = Markov(GaussianArms([[1.0], [-1.0]], noise=0.01), [[0.9, 0.1], [0.5, 0.5]])
    belief = joint.condition_known(
        moving, joint.known_prior(moving, 1), None, np.array([0]), np.array([1.0])
    )
    np.testing.assert_allclose(joint.probabilities(belief.log_weights), [[0.9, 0.1]])


def test_few_paths_are_near_the_exact_filter_and_more_are_nearer():
    """Over many sessions, the error of state probabilities falls as paths are added."""
    model = MODELS["Gaussian"]
    rng = np.random.default_rng(3)
    n, rounds = 200, 6
    actions, rewards = rng.integers(0, 2, (rounds, n)), rng.random((rounds, n))

    def filtered(n_paths):
        moving = Markov(model, TRANSITION, n_paths)
        belief = joint.prior(moving, n)
        for action, reward in zip(actions, rewards, strict=True):
            belief = joint.condition(moving, belief, None, action, reward)
        return joint.probabilities(belief.log_weights)

    exact = filtered(3 ** (rounds - 1))
    errors = [np.abs(filtered(n_paths) - exact).mean() for n_paths in (2, 8, 32)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_a_state_that_stands_still_is_the_static_belief():
    model = MODELS["Gaussian"]
    still = play(Markov(model, np.eye(3), n_paths=2), "Gaussian")
    static = play(model, "Gaussian")
    np.testing.assert_allclose(still.log_weights, static.log_weights, rtol=1e-12)


def test_thinning_keeps_every_expected_weight():
    weights = np.array([0.5, 0.2, 0.12, 0.1, 0.05, 0.03])
    points = (np.arange(2000) + 0.5) / 2000  # every place that the uniform can take
    index, log_kept = thin(np.tile(np.log(weights), (2000, 1)), 3, points)
    total = np.zeros(6)
    np.add.at(total, index, np.exp(log_kept))
    np.testing.assert_allclose(total / 2000, weights, atol=2e-4)
    np.testing.assert_allclose(np.exp(log_kept).sum(axis=1), 1)
    assert all(len(set(row)) == 3 for row in index.tolist())


def test_tracking_a_state_that_switches():
    model = GaussianArms([[1.0, 0.0], [0.0, 1.0]], noise=0.3, spread=0.1)
    for policy in (mTS(Markov.switching(model, 0.05)), mmTS(Markov.switching(model, 0.05))):
        belief, rng = policy.init(), np.random.default_rng(0)
        for t in range(80):
            decision = policy.decide(belief, None, rng, propensity=False)
            mean = float(decision.action[0] == (0 if t < 40 else 1))
            belief = policy.update(belief, None, decision, [mean])
            if t in (39, 79):
                assert policy.state_probabilities(belief)[0].argmax() == (0 if t == 39 else 1)


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        ([[0.9, 0.2], [0.5, 0.5]], "row 0 sums to 1.1"),
        ([[1.1, -0.1], [0.5, 0.5]], r"transition\[0, 1\] is -0.1"),
        ([[1.0]], r"must be of shape \(n_states, n_states\) = \(2, 2\); got \(1, 1\)"),
        ([[np.nan, 1.0], [0.5, 0.5]], "must be finite"),
    ],
)
def test_bad_transitions_are_refused(transition, message):
    with pytest.raises(ValueError, match=message):
        Markov(GaussianArms([[1.0], [0.0]], noise=0.3), transition)


def test_what_cannot_move_says_so():
    with pytest.raises(TypeError, match="conjugate model"):
        Markov(LogisticLinear([[1.0], [0.0]], [[[1.0]]] * 2), np.eye(2))
    moving = Markov(GaussianArms([[1.0], [0.0]], noise=0.3), np.eye(2))
    with pytest.raises(ValueError, match="moves already"):
        Markov(moving, np.eye(2))
    with pytest.raises(ValueError, match="probability must be in"):
        Markov.switching(GaussianArms([[1.0], [0.0]], noise=0.3), 1.5)


def test_a_function_can_move():
    model = FunctionModel(
        lambda x, a: np.ones((len(a), 2, a.shape[1])), 0.5, n_states=2, n_actions=1
    )
    assert Markov.restarting(model, 0.1).transition[0, 1] == pytest.approx(0.05)


def test_discounting_is_the_sum_with_falling_weights():
    rng = np.random.default_rng(0)
    policy, factor = Discounted(UCB1(3, scale=0.5), 0.8), 0.8
    belief = policy.init()
    actions, rewards = rng.integers(0, 3, 20), rng.random(20)
    for a, r in zip(actions, rewards, strict=True):
        belief = policy.update(belief, None, Decision.logged([a]), [r])
    weights = factor ** np.arange(19, -1, -1)
    for a in range(3):
        assert belief.sums.counts[0, a] == pytest.approx(weights[actions == a].sum())
        assert belief.sums.sums[0, a] == pytest.approx((weights * rewards)[actions == a].sum())


def test_a_window_is_the_policy_on_its_last_rounds():
    rng = np.random.default_rng(0)
    model = GaussianArms(rng.random((3, 4)), 0.5)
    policies = [UCB1(4), mUCB(model, horizon=50), mmUCB(model, slack=0.1)]
    for inner in policies:
        window, fresh = SlidingWindow(inner, 5), inner.init()
        belief = window.init()
        rounds = [
            (Decision.logged([rng.integers(4)], [rng.integers(3)]), rng.random(1))
            for _ in range(17)
        ]
        for decision, reward in rounds:
            belief = window.update(belief, None, decision, reward)
        for decision, reward in rounds[-5:]:
            fresh = inner.update(fresh, None, decision, reward)
        for ours, theirs in zip(belief.sums, fresh, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_linucb_that_forgets_nothing_is_linucb():
    rng = np.random.default_rng(0)
    plain, window = LinUCB(3, alpha=0.7, ridge=2.0), SlidingWindow(LinUCB(3, 0.7, 2.0), 100)
    discounted = Discounted(LinUCB(3, 0.7, 2.0), 1.0)
    beliefs = [policy.init(4) for policy in (plain, window, discounted)]
    for _ in range(25):
        context, reward = rng.standard_normal((4, 5, 3)), rng.standard_normal(4)
        chosen = [
            policy.decide(belief, context, rng).action
            for policy, belief in zip((plain, window, discounted), beliefs, strict=True)
        ]
        np.testing.assert_array_equal(chosen[0], chosen[1])
        np.testing.assert_array_equal(chosen[0], chosen[2])
        decision = Decision.logged(chosen[0])
        beliefs = [
            policy.update(belief, context, decision, reward)
            for policy, belief in zip((plain, window, discounted), beliefs, strict=True)
        ]


@pytest.mark.parametrize(
    ("policy", "weights"),
    [
        (SlidingWindow(LinUCB(3, 0.7, 2.0), 6), np.where(np.arange(20) < 14, 0.0, 1.0)),
        (Discounted(LinUCB(3, 0.7, 2.0), 0.8), 0.8 ** np.arange(19, -1, -1)),
    ],
)
def test_linucb_that_forgets_is_weighted_ridge_regression(policy, weights):
    """Index x'A^-1 b + alpha sqrt(x'A^-1 x), A = ridge I + sum w x x', b = sum w x r, by hand."""
    rng = np.random.default_rng(0)
    belief = policy.init()
    precision, products = 2.0 * np.eye(3), np.zeros(3)
    for weight in weights:
        context, action, reward = rng.standard_normal((1, 5, 3)), rng.integers(5), rng.normal()
        belief = policy.update(belief, context, Decision.logged([action]), [reward])
        x = context[0, action]
        precision += weight * np.outer(x, x)
        products += weight * x * reward
    inverse = np.linalg.inv(precision)
    context = rng.standard_normal((1, 5, 3))
    index = [x @ inverse @ products + 0.7 * np.sqrt(x @ inverse @ x) for x in context[0]]
    actual = policy._inner._scores(belief.sums, Asked(context, None, None))[0]
    np.testing.assert_allclose(actual, index, rtol=1e-12)
    assert policy.decide(belief, context, rng).action == np.argmax(index)


@pytest.mark.parametrize("forget", [lambda p: SlidingWindow(p, 40), lambda p: Discounted(p, 0.97)])
def test_the_bonus_grows_with_what_is_remembered(forget):
    """Garivier & Moulines: log of min(t, window), or of the discounted number of rounds, not t."""
    policy, rng = forget(UCB1(2, scale=0.5)), np.random.default_rng(0)
    belief = policy.init()
    for t in range(300):
        belief = policy.update(belief, None, Decision.logged([t % 2]), rng.normal(size=1))
    counts = belief.sums.counts[0]
    remembered = 40.0 if isinstance(policy, SlidingWindow) else (1 - 0.97**300) / 0.03
    assert counts.sum() == pytest.approx(remembered)
    bonus = 0.5 * np.sqrt(2 * np.log(remembered) / counts)
    index = policy._inner._scores(belief.sums, Asked(None, None, None))[0]
    np.testing.assert_allclose(index, belief.sums.sums[0] / counts + bonus)


def test_posteriors_are_not_discounted():
    with pytest.raises(TypeError, match="Posteriors forget with Markov"):
        Discounted(mTS(GaussianArms([[1.0]], noise=0.5)), 0.9)
    with pytest.raises(ValueError, match="factor"):
        Discounted(UCB1(2), 1.5)
    with pytest.raises(ValueError, match="rounds"):
        SlidingWindow(UCB1(2), 0)
