"""Lists against enumeration, the conformance kit on click families, and bugs that it catches."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import latentbandits.policies.lists as lists_module
import latentbandits.testing.lists as kit
from latentbandits import (
    UCB1,
    Agent,
    BernoulliArms,
    Cascade,
    Decision,
    Discounted,
    Each,
    Exploring,
    GaussianArms,
    ListDecision,
    Markov,
    Popularity,
    Positions,
    decide_list,
    mLookahead,
    mmGreedy,
    mmTS,
    mTS,
    simulate,
    update_list,
)
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.models.clicks import PositionClicks
from latentbandits.models.composed.known import Known
from latentbandits.models.linear.logistic import LogisticLinear
from latentbandits.policies.lists import CountedDraws, unroll
from latentbandits.policies.protocol import Asked
from latentbandits.policies.registry import Inputs, build, entries
from latentbandits.testing import check_policy
from tests.reference.lists import (
    click_posterior,
    expected_clicks,
    greedy_coverage,
    list_probabilities,
    moving_posterior,
    positions_posterior,
    thompson,
)

RNG = np.random.default_rng(3)
RATES = RNG.uniform(0.05, 0.8, (3, 4))
PRIOR = np.array([0.5, 0.3, 0.2])
ARMS = BernoulliArms(RATES * 20, (1 - RATES) * 20, state_prior=PRIOR)
TRANSITION = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.15, 0.8]])
"""Beta priors worth 20 observations, so the known rates of the states are RATES."""


def clicks(n, rng):
    return (rng.random(n) < 0.4).astype(float)


def features(n, rng):
    return rng.normal(size=(n, 4, 2))


def policies(model, context):
    inputs = Inputs(model, horizon=20)
    return {
        f"{entry.name} {type(model).__name__}": (build(entry.name, inputs), context)
        for entry in entries("session")
        if entry.fits(inputs)
    }


CLICK_POLICIES = {
    **policies(ARMS, None),
    **policies(LogisticLinear(RNG.normal(size=(3, 2)), [0.1 * np.eye(2)] * 3, 32), features),
    "mTS moving": (mTS(Markov(ARMS, TRANSITION)), None),
    "mmTS moving": (mmTS(Markov(ARMS, TRANSITION)), None),
}


SLOW = tuple(name for name in CLICK_POLICIES if "Logistic" in name or "Lookahead" in name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CLICK_POLICIES],
)
def test_every_policy_shows_lists_of_clicks(name):
    policy, context = CLICK_POLICIES[name]
    assert policy.for_clicks
    check_policy(policy, n_actions=4, context=context, reward=clicks)


@pytest.mark.parametrize("unrolled", [True, False])
@pytest.mark.parametrize("length", [2, 3])
def test_the_probability_of_every_list_against_enumeration(length, unrolled):
    """20,000 lists of mTS: counts and products of propensities against all lists by hand."""
    expected = list_probabilities(*thompson(RATES), PRIOR, 4, length, unrolled)
    policy, model = mTS(ARMS), Cascade() if unrolled else Each()
    shown = decide_list(policy, policy.init(20_000), None, np.random.default_rng(0), length, model)
    products = shown.propensities.prod(axis=1)
    for actions, chance in zip(shown.actions[:200], products, strict=False):
        assert chance == pytest.approx(expected[tuple(actions)], abs=1e-12)
    found, counts = np.unique(shown.actions, axis=0, return_counts=True)
    assert {tuple(a) for a in found.tolist()} <= {a for a, p in expected.items() if p > 0}
    for actions, count in zip(found.tolist(), counts, strict=True):
        chance = expected[tuple(actions)]
        assert abs(count - 20_000 * chance) < 5 * np.sqrt(20_000 * chance * (1 - chance)) + 0.5


def test_greedy_unrolled_is_the_greedy_rule_of_coverage():
    sharp = BernoulliArms(RATES * 1e6, (1 - RATES) * 1e6, state_prior=PRIOR)
    policy = mmGreedy(sharp)
    shown = decide_list(policy, policy.init(), None, np.random.default_rng(0), 3, "cascade")
    assert tuple(shown.actions[0]) == greedy_coverage(RATES, PRIOR, 3)


def test_values_of_lists_against_enumeration():
    shown = (2, 0, 3)
    by_hand = expected_clicks(RATES, [1, 0, 0], shown)
    assert Cascade().value(RATES[:1, list(shown)])[0] == pytest.approx(by_hand, abs=1e-12)
    best = max(
        expected_clicks(RATES, [1, 0, 0], pair)
        for pair in list_probabilities(*thompson(RATES), PRIOR, 4, 2, True)
    )
    assert Cascade().best_value(RATES[:1], 2)[0] == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(
    "make", [mTS, mmTS, lambda m: Exploring(mTS(m), 0.2), lambda m: mLookahead(Known(m), 1, 9)]
)
def test_a_moving_state_stands_still_within_a_list(make):
    """Three lists against all paths of states; a known model, so that RATES are exact."""
    policy = make(Markov(ARMS if make is not mmTS else _certain(), TRANSITION))
    lists = [[(0, 0), (2, 1)], [(1, 0), (3, 0), (0, 1)], [(2, 1)]]
    belief = policy.init()
    for shown in lists:
        actions, rewards = ([row] for row in zip(*shown, strict=True))
        decision = ListDecision.logged(actions)
        belief = update_list(policy, belief, None, decision, rewards, "cascade")
    expected = moving_posterior(RATES, PRIOR, TRANSITION, lists)
    np.testing.assert_allclose(policy.state_probabilities(belief)[0], expected, atol=1e-12)


def _certain():
    return BernoulliArms(RATES * 1e14, (1 - RATES) * 1e14, state_prior=PRIOR)


def test_uncertain_parameters_of_a_moving_state_stand_still_too():
    """With a state that never moves, the filter over paths is the plain posterior."""
    moving, still = mmTS(Markov(ARMS, np.eye(3))), mmTS(ARMS)
    decision, rewards = ListDecision.logged([[0, 2, 1], [3, 1, 0]]), [[0, 0, 1], [1, 0, 0]]
    beliefs = [
        update_list(policy, policy.init(2), None, decision, rewards, "cascade")
        for policy in (moving, still)
    ]
    np.testing.assert_allclose(
        moving.state_probabilities(beliefs[0]), still.state_probabilities(beliefs[1]), atol=1e-12
    )
    moved = mmTS(Markov(ARMS, TRANSITION))
    after = update_list(moved, moved.init(2), None, decision, rewards, "cascade")
    np.testing.assert_allclose(
        moved.state_probabilities(after),
        still.state_probabilities(beliefs[1]) @ TRANSITION,
        atol=1e-12,
    )


def test_positions_of_a_known_model_against_enumeration_in_any_order():
    model, policy = Positions([1, 0.6, 0.3]), mTS(ARMS)
    shown = [[(0, 1), (2, 0), (3, 1)], [(1, 0), (0, 0)], [(2, 0), (3, 0), (1, 0)]]
    expected = positions_posterior(RATES, PRIOR, model.examination, shown)
    for order in (shown, shown[::-1]):
        belief = policy.init()
        for one in order:
            actions, rewards = ([row] for row in zip(*one, strict=True))
            belief = update_list(policy, belief, None, ListDecision.logged(actions), rewards, model)
        np.testing.assert_allclose(policy.state_probabilities(belief)[0], expected, atol=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 6.0), (2.0, 30.0), (20.0, 20.0)])
def test_positions_of_uncertain_rates_against_integration_in_any_order(alpha, beta):
    """Thirty observations of one action: evidence, mean and variance to 1e-6, in three orders."""
    looked = (1.0, 0.6, 0.3)
    model = PositionClicks([[alpha, 2.0]], [[beta, 2.0]], examination=looked)
    policy, rng = mmTS(model), np.random.default_rng(int(alpha))
    rows = [(int(rng.integers(3)), float(rng.random() < 0.2)) for _ in range(30)]
    evidence, mean, variance = click_posterior(alpha, beta, looked, rows)
    beliefs = []
    for order in (range(30), reversed(range(30)), rng.permutation(30)):
        belief = policy.init()
        for i in order:
            position, click = rows[i]
            shown = ListDecision.logged([[0 if place == position else 1 for place in range(3)]])
            seen = [[click if place == position else np.nan for place in range(3)]]
            belief = update_list(policy, belief, None, shown, seen, Positions(looked))
        found = model.posterior_rewards(belief.parameters, None)
        assert abs(belief.log_weights[0, 0] - np.log(evidence)) < 1e-6
        assert abs(found[0][0, 0, 0] - mean) < 1e-6
        assert abs(found[1][0, 0, 0] - variance) < 1e-6
        beliefs.append(belief)
    for other in beliefs[1:]:
        assert np.array_equal(other.parameters.totals, beliefs[0].parameters.totals)
        assert np.allclose(other.log_weights, beliefs[0].log_weights, atol=1e-9)


def test_fractional_counts_would_be_seen():
    """The tempting update, P(looked | no click) as a count, is off by far more than 1e-6."""
    looked, n = (1.0, 0.5), 30
    _, mean, _ = click_posterior(1.0, 1.0, looked, [(1, 0.0)] * n)
    alpha, beta = 1.0, 1.0
    for _ in range(n):
        rate = alpha / (alpha + beta)
        beta += looked[1] * (1 - rate) / (1 - looked[1] * rate)
    assert abs(alpha / (alpha + beta) - mean) > 1e-3


def test_states_and_uncertain_rates_together_against_integration():
    looked = (1.0, 0.6)
    alphas, betas = np.array([[3.0, 1.0], [1.0, 4.0]]), np.array([[5.0, 9.0], [7.0, 4.0]])
    model = PositionClicks(alphas, betas, [0.3, 0.7], looked)
    policy, belief = mmTS(model), mmTS(model).init()
    rows = [(0, 0, 1.0), (1, 1, 0.0), (0, 1, 0.0), (1, 0, 1.0), (0, 1, 0.0)]
    for action, position, click in rows:
        shown = ListDecision.logged([[action, 1 - action][:: 1 if position == 0 else -1]])
        seen = [[click if place == position else np.nan for place in range(2)]]
        belief = update_list(policy, belief, None, shown, seen, Positions(looked))
    weights = np.array([0.3, 0.7])
    for s in range(2):
        for a in range(2):
            own = [(position, click) for action, position, click in rows if action == a]
            weights[s] *= click_posterior(alphas[s, a], betas[s, a], looked, own)[0]
    assert np.allclose(policy.state_probabilities(belief)[0], weights / weights.sum(), atol=1e-6)


def test_discounts_count_lists_and_not_positions():
    policy = Discounted(UCB1(3), factor=0.5)
    belief = policy.init()
    for actions, rewards in (([[0]], [[1.0]]), ([[0, 1, 2]], [[1.0, 0.0, 1.0]])):
        belief = update_list(policy, belief, None, ListDecision.logged(actions), rewards)
    np.testing.assert_allclose(belief.sums.counts, [[1.5, 1.0, 1.0]])
    np.testing.assert_allclose(belief.sums.sums, [[1.5, 0.0, 1.0]])


def test_rewards_that_were_not_observed_teach_nothing():
    policy, nan = mmTS(ARMS), np.nan
    decision = ListDecision.logged([[0, 1, 2]] * 3)
    rewards = [[nan, 1, nan], [0, nan, 1], [nan, nan, nan]]
    after = policy.state_probabilities(update_list(policy, policy.init(3), None, decision, rewards))
    for session, seen in enumerate([[(1, 1)], [(0, 0), (2, 1)], []]):
        weights = PRIOR.copy()
        for action, click in seen:
            weights *= RATES[:, action] if click else 1 - RATES[:, action]
        np.testing.assert_allclose(after[session], weights / weights.sum(), atol=1e-12)


def test_agent_shows_a_list_and_learns_from_its_click():
    agent = Agent(mTS(ARMS), seed=1, click_model="cascade")
    shown = agent.decide("ann", length=3)
    assert len(set(shown.actions)) == 3
    assert len(shown.states) == len(shown.propensities) == 3
    agent.update(shown, [0, 1, None])
    first, second, _ = shown.actions
    weights = PRIOR * (1 - RATES[:, first]) * RATES[:, second]
    np.testing.assert_allclose(agent.state_probabilities("ann"), weights / weights.sum())


def _simulate(policies, length, model, horizon=4, **more):
    users = UsersOfModel(_certain())
    return simulate(
        policies, users, n_runs=600, horizon=horizon, length=length, click_model=model, **more
    )


@pytest.mark.parametrize("model", ["each", "cascade", Positions([1])])
def test_simulated_lists_of_one_action_are_single_actions(model):
    policies = {"mTS": mTS, "popularity": Popularity}
    lists, single = _simulate(policies, 1, model), _simulate(policies, None, "each")
    for name in policies:
        np.testing.assert_allclose(lists[name].regrets, single[name].regrets, atol=1e-12)


@pytest.mark.parametrize("model", [Each(), Cascade(), Positions([1, 0.5, 0.2])])
def test_simulated_lists_are_worth_what_enumeration_says(model):
    """The list of popularity is fixed, so its value in each state is known."""
    shown = np.argsort(-(PRIOR @ RATES))[:3]
    worth = model.value(RATES[:, shown])
    best = [max(_values(RATES[s], model)) for s in range(3)]
    results = _simulate({"popularity": Popularity, "mTS": mTS}, 3, model)
    found = np.stack([results["popularity"].rewards, results["popularity"].regrets / 4], axis=1)
    expected = np.stack([worth, best - worth], axis=1)
    nearest = np.abs(found[:, None] - expected).max(axis=2).argmin(axis=1)
    np.testing.assert_allclose(found, expected[nearest], atol=1e-5)
    counts = np.bincount(nearest, minlength=3)
    assert (np.abs(counts - 600 * PRIOR) < 5 * np.sqrt(600 * PRIOR * (1 - PRIOR))).all()
    assert results["mTS"].regret.mean > 0


def _values(rates, model):
    for shown in list_probabilities(*thompson(RATES), PRIOR, 4, 3, False):
        yield model.value(rates[None, list(shown)])[0]


def test_simulated_users_teach_which_state_they_are_in():
    """Later lists lose less than the first one, and least where all positions are seen."""
    lost = {}
    for name, model in (("each", "each"), ("rarely", Positions([1, 0.05, 0.05]))):
        result = _simulate({"mTS": mTS}, 3, model, horizon=6)["mTS"]
        regret = result.best_curve - result.curve
        lost[name] = regret[1:].mean() / regret[0]
    assert lost["each"] < 0.8 * lost["rarely"] < 0.75, lost


def test_another_policy_changes_no_simulated_list():
    alone = _simulate({"mTS": mTS}, 2, Positions([1, 0.5]))
    both = _simulate({"popularity": Popularity, "mTS": mTS}, 2, Positions([1, 0.5]))
    np.testing.assert_array_equal(alone["mTS"].rewards, both["mTS"].rewards)


class Stranger:
    """Three methods; its decisions do not repeat what was eligible."""

    n_actions = 4

    def init(self, n_sessions=1):
        return np.zeros((n_sessions, 1))

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        scores = rng.random((len(belief), 4))
        action = np.where(True if eligible is None else eligible, scores, -1).argmax(axis=1)
        return Decision(action, np.zeros_like(action), None, "none", "Stranger")

    def update(self, belief, context, decision, reward):
        return belief + 1


def test_a_list_of_a_strangers_policy_has_eligible_actions_only():
    mask, policy = np.array([[True, False, True, True]] * 50), Stranger()
    rng = np.random.default_rng(0)
    shown = decide_list(policy, policy.init(50), None, rng, 3, eligible=mask)
    assert (np.sort(shown.actions, axis=1) == [0, 2, 3]).all()


def _decide(policy=None, length=2, model="each", **more):
    policy = policy or mTS(ARMS)
    return decide_list(policy, policy.init(), None, np.random.default_rng(0), length, model, **more)


def _update(rewards, model="cascade", policy=None, actions=((0, 1, 2),)):
    policy = policy or mTS(ARMS)
    return update_list(policy, policy.init(), None, ListDecision.logged(actions), rewards, model)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: _decide(length=0), "length"),
        (lambda: _decide(length=5), "session 0 has 4"),
        (lambda: _decide(length=2, eligible=[[True, False, False, False]]), "session 0 has 1"),
        (lambda: _decide(model="cascad"), "did you mean 'cascade'"),
        (lambda: _decide(model="positions"), "Positions"),
        (lambda: _decide(length=3, model=Positions([1, 0.5])), "cannot have 3"),
        (lambda: _decide(mTS(GaussianArms(RATES, 1.0)), model="cascade"), "GaussianArms"),
        (lambda: _decide(mTS(GaussianArms(RATES, 1.0)), model=Positions([1, 1])), "GaussianArms"),
        (lambda: _update([[1, 0, 1]]), "at most one"),
        (lambda: _update([[0.5, 0, 1]]), "position 0 has 0.5"),
        (lambda: _update([[np.nan, 1, 0]]), "reads from the top"),
        (lambda: _update([[0, 1]]), "shape"),
        (lambda: _update([["a", 1, 0]]), "number"),
        (lambda: _update([[0, 1, 0]], Positions([1, 0.5, 0.5]), mmTS(ARMS)), "looked at"),
        (lambda: _update([[0, 1, 0]], Positions([1, 0.5, 0.5]), UCB1(4)), "looked at"),
        (lambda: _update([[0, 1, 0]], "each", mTS(ARMS), ((0, 1, 4),)), "out of range"),
        (lambda: Positions([0.5, 0.5]), "begin with 1"),
        (lambda: _decide(mmTS(ARMS), model=Positions([1, 0.5])), "mmTS cannot learn"),
        (lambda: _decide(Exploring(mmTS(ARMS), 0.1), model=Positions([1, 0.5])), "cannot learn"),
        (lambda: _simulate({"mTS": mTS}, 0, "each"), "length"),
        (lambda: _simulate({"mTS": mTS}, 5, "each"), "session 0 has 4"),
        (lambda: _simulate({"mTS": mTS}, 2, Positions([1])), "cannot have 2"),
        (lambda: _simulate({"mTS": mTS}, 2, "each", by_pull=True), "by_pull"),
        (lambda: Positions([1, 0]), "above 0"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# Bugs that the conformance kit must catch.


@dataclass(frozen=True, eq=False)
class SameDraw(mTS):
    """The propensities of the first position for all positions."""

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        decision = super().decide(belief, context, rng, eligible=eligible, propensity=propensity)
        if eligible is None or not propensity:
            return decision
        whole = super().action_probabilities(belief, context, rng).values
        chance = whole[np.arange(len(whole)), decision.action] + 1e-9
        return replace(decision, propensity=chance)


@dataclass(frozen=True, eq=False)
class LastOnly(mTS):
    """Only the last position of a list is learned from."""

    def update_position(self, belief, context, decision, reward, *, last, looked=None):
        return self.update(belief, context, decision, reward) if last else belief


def _sorted_lists(*arguments, **more):
    shown = decide_list(*arguments, **more)
    first = shown.actions.argsort(axis=1).T
    return ListDecision(tuple(shown.at(position) for position in first))


def _repeating(*arguments, **more):
    shown = decide_list(*arguments, **more)
    return ListDecision(shown.positions[:1] * shown.length)


def _one_more_draw(policy, belief, context, rng, *arguments, **more):
    rng.random()
    return decide_list(policy, belief, context, rng, *arguments, **more)


def _unseen_is_zero(policy, belief, context, decision, rewards, model):
    return update_list(policy, belief, context, decision, np.nan_to_num(rewards), Each())


@pytest.mark.parametrize("policy", [SameDraw(ARMS), LastOnly(ARMS)])
def test_the_kit_catches_a_policy_that_breaks_lists(policy):
    with pytest.raises(AssertionError, match=r"list|cascade"):
        check_policy(policy, n_actions=4, reward=clicks)


@pytest.mark.parametrize(
    ("name", "bug", "words"),
    [
        ("decide_list", _sorted_lists, "product of its propensities|ineligible"),
        ("decide_list", _repeating, "repeats"),
        ("decide_list", _one_more_draw, "one action"),
        ("update_list", _unseen_is_zero, "cascade teaches"),
    ],
)
def test_the_kit_catches_bugs_of_the_lists(monkeypatch, name, bug, words):
    monkeypatch.setattr(kit, name, bug)
    with pytest.raises(AssertionError, match=words):
        check_policy(mTS(ARMS), n_actions=4, reward=clicks)


def test_the_kit_passes_without_a_bug():
    assert kit.decide_list is lists_module.decide_list
    check_policy(mTS(ARMS), n_actions=4, reward=clicks)


def counted_lists(learned, weighted):
    """Return counted propensities of 20 lists of 3, `(20, 3)`, those of 50,000 draws from each
    position's own belief, and the standard errors of the differences for 3,000 equal weights.
    """
    policy, rng, n, draws = mmTS(ARMS), np.random.default_rng(5), 20, 4_000
    belief = policy.init(n)
    for action, reward in learned:
        belief = policy.update(belief, None, Decision.logged([action] * n), [reward] * n)
    drawn = policy.draw_rewards(belief, Asked(None, None, rng), draws + 1)
    counted = CountedDraws(policy, None, rng, drawn, Cascade() if weighted else Each())
    shown = unroll(policy, belief, None, counted.decide, 3, Cascade())
    exact = []
    for one in shown.positions:
        asked = Asked(None, one.eligible, rng)
        chances = policy.count_probabilities(belief, asked, 50_000).values
        exact.append(chances[np.arange(n), one.action])
        belief = policy.update_position(belief, None, one, np.zeros(n), last=False)
    chance = np.stack(exact, axis=1)
    error = np.sqrt(chance * (1 - chance) * (1 / 3_000 + 1 / 50_000)) + 1 / draws
    return shown.propensities, chance, error


@pytest.mark.parametrize("learned", [[], [(0, 1.0), (2, 0.0), (1, 1.0)]])
def test_one_set_of_draws_counts_the_propensities_of_all_positions(learned):
    """60 propensities, each within 5 standard errors: false alarms below 1e-4.

    Draws that are not weighted by the clicks above are noticed.
    """
    counted, exact, error = counted_lists(learned, weighted=True)
    assert (np.abs(counted - exact) < 5 * error).all()
    planted, exact, error = counted_lists(learned, weighted=False)
    assert (np.abs(planted - exact)[:, 1:] > 5 * error[:, 1:]).mean() > 0.5
