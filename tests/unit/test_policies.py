"""Policies against textbook loops, and the rules that the paper leaves open."""

from functools import partial

import numpy as np
import pytest

from latentbandits import (
    EXP4,
    TS,
    UCB1,
    Agent,
    Decision,
    GaussianArms,
    LinearGaussian,
    LinTS,
    LinUCB,
    mIDS,
    mmGreedy,
    mmIDS,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)
from latentbandits.beliefs.information import (
    best_actions,
    minimal_ratio_mixture,
    regret_and_information,
)
from latentbandits.policies.checked import Asked
from latentbandits.policies.registry import Inputs, build, entries
from latentbandits.testing import check_policy
from tests.reference.textbook import (
    TextbookEXP4,
    TextbookLinUCB,
    TextbookMUCB,
    TextbookUCB1,
    information_ratio_by_grid,
)

RNG = np.random.default_rng(11)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2, [0.2, 0.3, 0.5])
ROOTS = RNG.normal(size=(3, 2, 2))
LINEAR = LinearGaussian(RNG.normal(size=(3, 2)), 0.5, 0.1 * ROOTS @ ROOTS.swapaxes(1, 2))


def features(n, rng):
    return rng.normal(size=(n, 4, 2))


def registered(model, context, kind):
    inputs = Inputs(model)
    return {
        f"{entry.name} {kind}": (build(entry.name, inputs), context)
        for entry in entries("session")
        if entry.fits(inputs)
    }


CASES = {
    **registered(ARMS, None, "arms"),
    **registered(LINEAR, features, "linear"),
    "mUCB horizon": (mUCB(ARMS, horizon=500), None),
    "mmUCB slack": (mmUCB(ARMS, slack=0.1, horizon=500), None),
    "EXP4 horizon": (EXP4(ARMS, (-2.0, 3.0), horizon=500), None),
    "mmTS counted": (mmTS(LINEAR, propensity_draws=50), features),
    "LinTS counted": (LinTS(2, propensity_draws=50), features),
}


@pytest.mark.parametrize("name", CASES)
def test_every_policy_keeps_its_promises(name):
    policy, context = CASES[name]
    check_policy(policy, n_actions=4, context=context)


@pytest.mark.parametrize("horizon", [50, None])
@pytest.mark.parametrize("epsilon", [None, 0.15])
def test_mucb_against_the_textbook(horizon, epsilon):
    """200 sessions of 50 rounds with a wrong model, so that the consistent set is often empty."""
    rng = np.random.default_rng(12)
    n_empty = 0
    for session in range(200):
        means, truth = rng.random((3, 4)), rng.random(4) - 0.4
        model = GaussianArms(means, 0.1)
        policy = mUCB(model, horizon) if epsilon is None else mmUCB(model, epsilon, horizon)
        textbook = TextbookMUCB(means, 0.1, horizon, epsilon or 0.0)
        belief = policy.init()
        for _ in range(50 if session < 20 else 8):
            decision = policy.decide(belief, None, rng)
            assert (decision.state[0], decision.action[0]) == textbook.decide()
            reward = truth[decision.action[0]] + 0.1 * rng.standard_normal()
            belief = policy.update(belief, None, decision, [reward])
            textbook.update(decision.state[0], decision.action[0], reward)
            bound = 0.1 * np.sqrt(6 * belief.counts * np.log(horizon or belief.counts.sum() + 1))
            n_empty += (belief.gaps > bound).all()
    assert n_empty > 100


@pytest.mark.parametrize("horizon", [40, None])
def test_exp4_against_the_textbook(horizon):
    rng = np.random.default_rng(13)
    means = rng.random((4, 3))
    policy, textbook = EXP4(GaussianArms(means, 0.5), horizon=horizon), TextbookEXP4(means, horizon)
    belief = policy.init()
    for _ in range(40):
        actual = policy.action_probabilities(belief, None, rng).values[0]
        np.testing.assert_allclose(actual, textbook.probabilities(), atol=1e-12)
        decision = policy.decide(belief, None, rng, propensity=False)
        reward = rng.normal(0.5, 1.0)
        belief = policy.update(belief, None, decision, [reward])
        textbook.update(decision.action[0], reward)


def test_exp4_learns_under_the_restriction_it_decided_under():
    model = GaussianArms([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], 0.5)
    policy, rng = EXP4(model, horizon=10), np.random.default_rng(0)
    mask = np.array([[False, True, True]])
    belief = policy.init()
    decision = policy.decide(belief, None, rng, eligible=mask)
    after = policy.update(belief, None, decision, [0.0])
    # Expert 0 recommends action 1 and expert 1 action 2: one of them took a loss of 1 / 0.5.
    np.testing.assert_allclose(np.sort(after.losses[0]), [0.0, 2.0])
    assert after.losses[0].argmax() == decision.action[0] - 1


def test_ucb1_against_the_textbook():
    rng = np.random.default_rng(14)
    policy, textbook = UCB1(3, scale=0.7), TextbookUCB1(3, 0.7)
    belief = policy.init()
    for _ in range(60):
        decision = policy.decide(belief, None, rng)
        indices = np.array(textbook.indices())
        assert indices[decision.action[0]] == indices.max()
        reward = rng.normal()
        belief = policy.update(belief, None, decision, [reward])
        textbook.update(decision.action[0], reward)
    assert (belief.counts > 0).all()


def test_linucb_against_the_textbook():
    rng = np.random.default_rng(15)
    policy, textbook = LinUCB(3, alpha=0.8, ridge=2.0), TextbookLinUCB(3, 0.8, 2.0)
    belief = policy.init()
    for _ in range(60):
        context = rng.normal(size=(1, 5, 3))
        decision = policy.decide(belief, context, rng)
        actual = policy._scores(belief, Asked(context, None, None))[0]
        np.testing.assert_allclose(actual, textbook.indices(context[0]), atol=1e-9)
        reward = rng.normal()
        belief = policy.update(belief, context, decision, [reward])
        textbook.update(context[0, decision.action[0]], reward)


def test_ts_against_the_textbook():
    """Posteriors of single actions, k = 1/(1/v0 + n/sigma^2) and m = k (m0/v0 + sum/sigma^2).

    Propensities against 200,000 draws from them: standard errors are below 0.0012, and six are
    allowed.
    """
    rng = np.random.default_rng(16)
    policy = TS(3, noise=0.5, prior_mean=0.4, prior_spread=0.3)
    belief, rewards = policy.init(), {0: [], 1: [], 2: []}
    for action in (0, 1, 1, 2, 1, 0):
        reward = rng.normal()
        rewards[action].append(reward)
        belief = policy.update(belief, None, Decision.logged([action]), [reward])
    variance = np.array([1 / (1 / 0.09 + len(seen) / 0.25) for seen in rewards.values()])
    mean = variance * [0.4 / 0.09 + sum(seen) / 0.25 for seen in rewards.values()]
    actual = policy.model.posterior_rewards(belief.parameters, None)
    np.testing.assert_allclose(actual[0][0, 0], mean, rtol=1e-12)
    np.testing.assert_allclose(actual[1][0, 0], variance, rtol=1e-12)
    draws = mean + np.sqrt(variance) * rng.standard_normal((200_000, 3))
    chances = np.bincount(draws.argmax(axis=1), minlength=3) / len(draws)
    propensities = policy.action_probabilities(belief, None, rng).values[0]
    np.testing.assert_allclose(propensities, chances, atol=6 * 0.0012)
    assert np.abs(chances - chances.mean()).max() > 0.1  # actions differ, so a mix-up would show


def test_lints_against_ridge_regression():
    """The posterior of N(0, v^2 I) is ridge regression with penalty sigma^2 / v^2."""
    rng = np.random.default_rng(17)
    policy = LinTS(3, noise=0.5, prior_spread=2.0)
    belief, played, rewards = policy.init(), [], []
    for _ in range(8):
        context = rng.normal(size=(1, 4, 3))
        action = int(rng.integers(4))
        played.append(context[0, action])
        rewards.append(rng.normal())
        belief = policy.update(belief, context, Decision.logged([action]), rewards[-1:])
    x = np.array(played)
    precision = np.eye(3) / 4 + x.T @ x / 0.25
    mean = np.linalg.solve(precision, x.T @ rewards / 0.25)
    np.testing.assert_allclose(belief.parameters.mean[0, 0], mean, rtol=1e-9)
    factor = belief.parameters.factor[0, 0]
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(precision), rtol=1e-9)


def test_information_by_hand():
    # Two equally likely scenarios, rewards (1, 0, .5) and (0, 1, .5): every action has regret .5;
    # the first two tell all (variance .25), the third nothing.
    rewards = np.array([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]]])
    regret, information = regret_and_information(
        rewards, np.array([[0.5, 0.5]]), best_actions(rewards, None)
    )
    np.testing.assert_allclose(regret, [[0.5, 0.5, 0.5]])
    np.testing.assert_allclose(information, [[0.25, 0.25, 0.0]])
    np.testing.assert_allclose(minimal_ratio_mixture(regret, information, None), [[0.5, 0.5, 0.0]])


def test_a_bad_action_that_tells_the_state_is_worth_it():
    # Action 2 never is best but tells the two states apart; actions 0 and 1 hardly do.
    model = GaussianArms([[0.6, 0.55, 0.0], [0.55, 0.6, 0.5]], noise=0.1)
    policy = mIDS(model)
    values = policy.action_probabilities(policy.init(), None, np.random.default_rng(0)).values[0]
    assert values[2] > 0


def test_the_mixture_minimises_the_ratio():
    rng = np.random.default_rng(17)
    for _ in range(60):
        k = int(rng.integers(2, 6))
        regret, information = rng.random((1, k)), rng.random((1, k))
        information[0, rng.random(k) < 0.2] = 0.0
        if (information == 0).all():
            continue
        mixture = minimal_ratio_mixture(regret, information, None)[0]
        assert mixture.sum() == pytest.approx(1)
        assert (mixture > 1e-12).sum() <= 2
        ratio = (mixture @ regret[0]) ** 2 / (mixture @ information[0])
        expected = information_ratio_by_grid(regret[0], information[0])
        assert ratio <= expected * (1 + 1e-9)
        assert ratio >= expected * 0.999


def test_a_certain_belief_plays_its_best_action():
    model = GaussianArms([[0.9, 0.1], [0.1, 0.9]], 0.1, state_prior=[1.0, 0.0])
    for policy in (mIDS(model), mmIDS(model), mTS(model), mmTS(model), mmGreedy(model)):
        decision = policy.decide(policy.init(50), None, np.random.default_rng(0))
        assert (decision.action == 0).all(), policy.name
        np.testing.assert_allclose(decision.propensity, 1.0)


@pytest.mark.parametrize(
    "policy",
    [
        mUCB(GaussianArms(np.zeros((2, 5)), 0.5)),
        mmUCB(GaussianArms(np.zeros((2, 5)), 0.5)),
        mTS(GaussianArms(np.zeros((2, 5)), 0.5)),
        mmTS(GaussianArms(np.zeros((2, 5)), 0.5)),
        mmGreedy(GaussianArms(np.zeros((2, 5)), 0.5)),
        mIDS(GaussianArms(np.zeros((2, 5)), 0.5)),
        EXP4(GaussianArms(np.zeros((2, 5)), 0.5)),
        UCB1(5),
    ],
    ids=lambda policy: policy.name,
)
def test_ties_favour_no_index(policy):
    """Five equal actions, 20,000 sessions: each within five standard errors of a fifth."""
    n = 20_000
    decision = policy.decide(policy.init(n), None, np.random.default_rng(18))
    np.testing.assert_allclose(decision.propensity, 0.2)
    counts = np.bincount(decision.action, minlength=5)
    assert np.abs(counts - n / 5).max() < 5 * np.sqrt(n * 0.2 * 0.8)


def test_propensities_say_how_they_were_found():
    rng = np.random.default_rng(19)
    context = features(3, rng)
    kinds = {
        name: policy.decide(policy.init(3), context if draw else None, rng).propensity_kind
        for name, (policy, draw) in CASES.items()
    }
    expected = {
        "mmTS arms": "quadrature",
        "TS arms": "quadrature",
        "Exploring arms": "quadrature",
        "Exploring linear": "explored",
        "mmTS linear": "none",
        "LinTS linear": "none",
        "mmTS counted": "counted",
        "LinTS counted": "counted",
        "mTS arms": "exact",
        "mTS linear": "exact",
        "EXP4 arms": "exact",
        "mUCB linear": "exact",
        "UCB1 arms": "exact",
        "LinUCB linear": "exact",
        "popularity linear": "exact",
    }
    assert {name: kinds[name] for name in expected} == expected


def test_asking_for_no_propensity_computes_none(monkeypatch):
    policy = mmTS(ARMS)

    def never(*arguments):
        raise AssertionError("a propensity was computed")

    monkeypatch.setattr(GaussianArms, "probability_best", never)
    decision = policy.decide(policy.init(2), None, np.random.default_rng(0), propensity=False)
    assert decision.propensity is None
    assert decision.propensity_kind == "none"


def test_counted_propensities_agree_with_quadrature():
    """Arms as one-hot features: the same problem, counted and integrated. Six standard errors."""
    spread = 0.3
    arms = GaussianArms(ARMS.means, 0.5, spread, ARMS.state_prior)
    linear = LinearGaussian(
        ARMS.means, 0.5, np.stack([spread**2 * np.eye(4)] * 3), ARMS.state_prior
    )
    n_draws = 40_000
    rng = np.random.default_rng(20)
    exact = mmTS(arms).action_probabilities(mmTS(arms).init(), None, rng).values[0]
    counted = mmTS(linear, propensity_draws=n_draws)
    actual = counted.action_probabilities(counted.init(), np.eye(4)[None], rng)
    assert actual.kind == "counted"
    error = np.sqrt(exact * (1 - exact) / n_draws)
    assert (np.abs(actual.values[0] - exact) < 6 * error).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(reward=[np.nan, 0.0]), "reward must be finite; session 0 has nan"),
        (dict(reward=[0.0]), r"reward must be of shape \(2,\); got \(1,\)"),
        (dict(reward=["a", "b"]), "reward must be a number per session"),
        (dict(decision=Decision.logged([0, 9])), "action 9 is out of range: there are 4 actions"),
        (dict(decision=Decision.logged([0, -1])), "action -1 is out of range"),
        (dict(decision=Decision.logged([0])), "the decision is for 1 sessions, the belief for 2"),
        (dict(context=np.zeros((2, 4, 1))), "takes no context"),
    ],
)
def test_bad_rounds_are_refused(change, message):
    policy = mmTS(ARMS)
    belief = policy.init(2)
    arguments = dict(context=None, decision=Decision.logged([0, 1]), reward=[0.0, 1.0]) | change
    with pytest.raises(ValueError, match=message):
        policy.update(belief, **arguments)


def test_a_decision_of_another_policy_is_refused():
    rng = np.random.default_rng(0)
    other = mTS(ARMS)
    decision = other.decide(other.init(), None, rng)
    policy = mmTS(ARMS)
    with pytest.raises(ValueError, match="made by mTS, not by mmTS"):
        policy.update(policy.init(), None, decision, [0.0])
    policy.update(policy.init(), None, Decision.logged(decision.action), [0.0])


def test_policies_that_need_more_than_the_action_say_so():
    with pytest.raises(ValueError, match="learns from the state that was believed"):
        mUCB(ARMS).update(mUCB(ARMS).init(), None, Decision.logged([0]), [0.0])
    with pytest.raises(ValueError, match="learns from the probability of the action"):
        EXP4(ARMS).update(EXP4(ARMS).init(), None, Decision.logged([0]), [0.0])


@pytest.mark.parametrize(
    ("eligible", "message"),
    [
        (np.ones((1, 3), bool), r"eligible must be of shape \(n_sessions=1, n_actions=4\)"),
        (np.zeros((1, 4), bool), "session 0 has no eligible action"),
        (np.ones((1, 4)), "eligible must be a boolean mask"),
    ],
)
def test_bad_masks(eligible, message):
    policy = mmTS(ARMS)
    with pytest.raises(ValueError, match=message):
        policy.decide(policy.init(), None, np.random.default_rng(0), eligible=eligible)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(UCB1, 0), "n_actions must be a whole number"),
        (partial(UCB1, 3, scale=-1.0), "scale must be a finite number above zero"),
        (partial(LinUCB, 2, ridge=0.0), "ridge must be a finite number above zero"),
        (partial(mUCB, ARMS, horizon=0), "horizon must be a whole number of at least 1"),
        (partial(mmUCB, ARMS, slack=-0.1), "slack must be a finite number of at least zero"),
        (partial(EXP4, ARMS, reward_range=(1.0, 0.0)), "reward_range must be"),
        (partial(EXP4, ARMS, rate=-1.0), "rate must be"),
        (partial(mmIDS, ARMS, draws=0), "draws must be a whole number"),
        (partial(TS, 3, noise=-1.0), "noise must be"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_agent_learns_each_session_by_itself():
    agent = Agent(mmTS(GaussianArms([[0.9, 0.1], [0.1, 0.9]], 0.1, 0.05)), seed=1)
    for _ in range(4):
        for session, best in (("ann", 0), ("bob", 1)):
            chosen = agent.decide(session)
            agent.update(chosen, 0.9 if chosen.action == best else 0.1)
    assert agent.state_probabilities("ann")[0] > 0.99
    assert agent.state_probabilities("bob")[1] > 0.99
    agent.forget("ann")
    np.testing.assert_allclose(agent.state_probabilities("ann"), 0.5)


def test_agent_takes_late_rewards_features_and_masks():
    agent = Agent(mmTS(LINEAR, propensity_draws=10), seed=2)
    rng = np.random.default_rng(3)
    contexts = [rng.normal(size=(4, 2)) for _ in range(3)]
    chosen = [agent.decide("ann", x, eligible=[True, False, True, False]) for x in contexts]
    assert {c.action for c in chosen} <= {0, 2}
    for late in reversed(chosen):
        agent.update(late, 1.0)
    other = Agent(mmTS(LINEAR), seed=3)
    for c in chosen:
        other.update(c, 1.0)
    np.testing.assert_allclose(agent.state_probabilities("ann"), other.state_probabilities("ann"))
    before = agent.state_probabilities("ann")
    with pytest.raises(ValueError, match="reward must be finite"):
        agent.update(chosen[0], float("nan"))
    np.testing.assert_array_equal(agent.state_probabilities("ann"), before)
