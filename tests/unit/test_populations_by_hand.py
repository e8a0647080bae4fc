"""Small numbers of policies for populations, and of other policies, checked by hand."""

from functools import partial

import numpy as np
import pytest

from latentbandits import (
    EXP4,
    UCB1,
    Decision,
    Discounted,
    Exploring,
    GaussianArms,
    HierTS,
    LinearGaussian,
    LinTS,
    Phased,
    Popularity,
    Visit,
    mLookahead,
    mmTS,
    mUCB,
)
from latentbandits.beliefs.encoding import BeliefError, decode, encode
from latentbandits.learning.population_mixture import PopulationMixture
from latentbandits.policies.decision import pick
from latentbandits.policies.registry import Inputs, build, entries
from latentbandits_related import COFIBA, SCLUB, NMFBandit, ParticleMF, Rank1Elim
from latentbandits_related.graph import SparseGraph, components_after_cut

TWO = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5)


def visit(user, x):
    return Visit(np.array([user]), np.asarray(x, np.float64)[None])


def test_counts_of_checked_users_are_those_of_each_set():
    """Users with uneven visits split and merge; every set knows its size, visits and checks."""
    policy, rng = SCLUB(6, 2, a_theta=0.5, a_p=0.8), np.random.default_rng(3)
    belief, seen = policy.init(), set()
    for _ in range(250):
        user = min(int(rng.exponential(1.5)), 5)
        x, reward = rng.normal(size=2), rng.normal(2.0 * (user % 2), 0.3)
        belief = policy.update(belief, visit(user, [x]), Decision.logged([0]), [reward])
        sets = belief.set_of[0]
        for j in range(6):
            users = sets == j
            assert belief.set_sizes[0, j] == users.sum()
            assert belief.set_checked[0, j] == (belief.checked[0] & users).sum()
            assert belief.set_counts[0, j] == belief.counts[0, users].sum()
        seen.add(len(set(sets.tolist())))
    assert len(seen) > 2, "the sets hardly changed"


@pytest.mark.parametrize(("visits", "merged"), [(14, True), (13, False)])
def test_sets_merge_if_their_shares_of_visits_are_alike(visits, merged):
    """|p_j - p_k| < a_p / 2 F(t), F(t) = sqrt((1 + ln(1 + t)) / (1 + t)), with equal weights."""
    policy = SCLUB(2, 1, a_theta=100.0, a_p=0.5)
    t = 30.0
    bound = 0.25 * np.sqrt((1 + np.log(1 + t)) / (1 + t))
    draft = _draft(policy, counts=[visits, 30 - visits])
    policy._merge(draft, 0, 0, t)
    assert ((30 - 2 * visits) / t < bound) == merged == (draft.belief.set_sizes[0, 0] == 2)


def _draft(policy, counts):
    from latentbandits_related.sclub import _Draft

    draft = _Draft(policy.init())
    now = draft.belief
    now.set_of[0], now.set_sizes[0], now.set_checked[0] = [0, 1], [1, 1], [1, 1]
    now.counts[0], now.set_counts[0] = counts, counts
    return draft


def test_an_item_without_features_tells_no_users_apart():
    policy = COFIBA(4, np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), alpha2=0.1)
    belief = policy.update(policy.init(), Visit(np.array([1])), Decision.logged([0]), [5.0])
    assert not belief.user_cuts.any()


def test_a_node_that_lost_all_its_neighbours_is_alone():
    """A path 0 - 1 - 2 and the edge 0 - 2: without 0 - 1 it holds together, without both not."""
    graph = SparseGraph(3, np.array([[0, 1], [1, 2], [0, 2]]))
    number = _edge_numbers(graph)
    cut = np.zeros(3, bool)
    cut[number[0, 1]] = True
    assert components_after_cut(graph, cut, 0, np.array([1])) == []
    cut[number[0, 2]] = True
    parts = components_after_cut(graph, cut, 0, np.array([2]))
    assert [part.tolist() for part in parts] == [[0], [1, 2]]


def test_one_draw_is_enough_for_a_propensity_of_a_population():
    policy = HierTS(2, 1, propensity_draws=1)
    decision = policy.decide(policy.init(), visit(0, [[1.0]]), np.random.default_rng(0))
    assert (decision.propensity, decision.propensity_kind) == ([1.0], "counted")


def test_the_variance_of_users_vectors_is_learned_from_them():
    """400 users of deviation 3, rank 2: the posterior of s_u^2 is within 20% of 9."""
    policy = ParticleMF(400, 2, rank=2, n_particles=20, user_spread=3.0, learn_spread=True)
    belief = policy.update(policy.init(), Visit(np.array([0])), Decision.logged([1]), [0.5])
    np.testing.assert_allclose(belief.user_variance, 9.0, rtol=0.2)
    assert belief.user_variance.std() > 0


def test_rewards_that_tell_nothing_leave_an_item_at_its_prior():
    """2,000 particles, noise 1e6, item_spread 3: the deviation of V is within 6 errors of 3."""
    policy = ParticleMF(1, 1, rank=1, n_particles=2_000, noise=1e6, item_spread=3.0)
    belief = policy.update(policy.init(), Visit(np.array([0])), Decision.logged([0]), [4.0])
    assert belief.items.std() == pytest.approx(3.0, rel=6 / np.sqrt(4_000))


def test_a_kept_belief_of_a_model_with_one_state_learns():
    prior = LinearGaussian([[1.0]], 0.5, [[[1.0]]])
    policy = Phased(
        LinTS(1, 0.5), lambda sums: prior, partial(EXP4, reward_range=(0.0, 4.0)), 2, 1, first=1
    )
    belief = policy.init()
    for _ in range(3):
        logged = Decision.logged([0], propensity=[1.0])
        belief = policy.update(belief, visit(1, [[1.0]]), logged, [1.0])
    losses = belief.kept[0].losses
    np.testing.assert_allclose(losses[0, :, 0], [0.0, 0.75])  # 1 - 1/4, since the refit at round 2


def test_beliefs_of_learners_with_other_settings_are_told_apart():
    def policy(noise):
        learner = PopulationMixture(2, noise=noise, scale=1.0)
        return Phased(LinTS(1, 0.5), learner, partial(mmTS, propensity_draws=3), 2, 1)

    data = encode(policy(0.5), policy(0.5).init())
    assert decode(policy(0.5), data).rounds == [0.0]
    with pytest.raises(BeliefError, match="not one of this Phased"):
        decode(policy(0.6), data)


def test_beliefs_that_count_rounds():
    fading, popular = Discounted(UCB1(2), 0.9), Popularity(TWO)
    beliefs = [fading.init(), popular.init()]
    for _ in range(2):
        step = (None, Decision.logged([0]), [1.0])
        beliefs = [p.update(b, *step) for p, b in zip((fading, popular), beliefs, strict=True)]
    assert beliefs[0].rounds == beliefs[1].counts == [2.0]


def test_ts_without_a_model_has_a_standard_normal_prior():
    policy = build("TS", Inputs(n_actions=2))
    assert (policy.prior_mean, policy.prior_spread, policy.noise) == (0.0, 1.0, 1.0)


def test_a_horizon_of_one_round():
    assert mUCB(TWO, horizon=1).horizon == 1
    with pytest.raises(ValueError, match="at least 1"):
        mUCB(TWO, horizon=0)


def test_the_knowledge_gradient_counts_the_rounds_that_are_left():
    """Action 1 is worth a try for 20 more rounds, and not in the last one."""
    policy = mLookahead(GaussianArms([[0.5, 0.4]], 0.5, [[0.01, 0.3]]), steps=1, horizon=20)
    belief, rng = policy.init(), np.random.default_rng(0)
    assert policy.decide(belief, None, rng).action == [1]
    for _ in range(19):
        belief = policy.update(belief, None, Decision.logged([0]), [0.5])
    assert policy.decide(belief, None, rng).action == [0]


class First:
    """A policy of one's own that does not say how many actions it has."""

    def init(self, n_sessions=1):
        return (np.zeros(n_sessions),)

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        zeros = np.zeros(len(belief[0]), np.int64)
        return Decision(zeros, zeros, np.ones(len(zeros)), "exact", "First")

    def update(self, belief, context, decision, reward):
        return belief


def test_exploring_counts_the_actions_of_a_context():
    policy, rng = Exploring(First(), 1.0), np.random.default_rng(0)
    decision = policy.decide(policy.init(), np.zeros((1, 4, 2)), rng)
    assert decision.propensity == [0.25]
    with pytest.raises(ValueError, match="cannot tell how many actions"):
        policy.decide(policy.init(), np.zeros(1), rng)


def test_policies_show_their_arguments_and_nothing_private():
    inputs = Inputs(GaussianArms([[0.9, 0.1, 0.2]], 0.5, 0.1), horizon=20, reward_range=(0.0, 1.0))
    shown = [repr(entry.make(inputs, {})) for entry in entries("session") if entry.fits(inputs)]
    assert len(shown) > 20
    assert [text for text in shown if "(_" in text or " _" in text] == []


def test_rank_one_policies_have_one_state():
    assert Rank1Elim(2, 2, 100).n_states == 1


def test_a_node_may_lose_neighbours_of_one_part_or_none():
    """Node 0 loses 1 and 2, which are connected; in a cycle of four the rest holds together."""
    triangle = SparseGraph(3, np.array([[0, 1], [1, 2], [0, 2]]))
    number = _edge_numbers(triangle)
    cut = np.zeros(3, bool)
    cut[[number[0, 1], number[0, 2]]] = True
    parts = components_after_cut(triangle, cut, 0, np.array([1, 2]))
    assert [part.tolist() for part in parts] == [[0], [1, 2]]
    cycle = SparseGraph(4, np.array([[0, 1], [1, 2], [2, 3], [0, 3]]))
    cut = np.zeros(4, bool)
    cut[_edge_numbers(cycle)[0, 1]] = True
    assert components_after_cut(cycle, cut, 0, np.array([1])) == []


def _edge_numbers(graph):
    edges = zip(*graph.edges(np.arange(graph.n_nodes)), strict=True)
    return {(min(s, n), max(s, n)): e for s, n, e in edges}


def test_experts_that_recommend_several_actions_share_their_weight():
    """One state with two best actions of five: each is recommended with probability 1/2."""
    model = GaussianArms([[0.9, 0.9, 0.1, 0.2, 0.3]], 0.5)
    policy = EXP4(model, reward_range=(0.0, 1.0), rate=1.0)
    logged = Decision.logged([0], propensity=[0.5])
    belief = policy.update(policy.init(), None, logged, [0.2])
    np.testing.assert_allclose(belief.losses, [[0.8]])  # (1 - 0.2) * 0.5 / 0.5


def test_the_last_round_but_one_is_worth_a_try():
    """With two rounds left, action 1 (mean 0.49, deviation 0.3) is tried; with one it is not."""
    model = GaussianArms([[0.5, 0.49]], 0.5, [[0.01, 0.3]])
    policy, rng = mLookahead(model, steps=1, horizon=2), np.random.default_rng(0)
    belief = policy.init()
    assert policy.decide(belief, None, rng).action == [1]
    belief = policy.update(belief, None, Decision.logged([0]), [0.5])
    assert policy.decide(belief, None, rng).action == [0]


def test_bounds_of_rank_one_elimination():
    lower, upper = Rank1Elim(2, 2, 100)._bounds(np.array([0.5]), 50)
    width = np.sqrt(np.log(100) / 50)
    np.testing.assert_allclose([lower[0], upper[0]], [0.5 - width, 0.5 + width])


def test_draws_of_a_user_without_rewards_have_the_variance_of_users():
    """4,000 draws of U V with V = 1 and variance 4 of U: within 6 errors of 4."""
    policy = ParticleMF(1, 1, rank=1, n_particles=1, user_spread=2.0)
    belief = policy.init()._replace(items=np.ones((1, 1, 1, 1)))
    draws = policy._draw(belief, Visit(np.array([0])), 4_000, np.random.default_rng(0))
    assert draws.var() == pytest.approx(4.0, rel=6 * np.sqrt(2 / 4_000))


def test_items_of_two_populations():
    items = np.stack([np.eye(2), 2 * np.eye(2)])
    policy = COFIBA(3, items)
    belief = policy.init(2)
    belief = policy.update(belief, Visit(np.array([0, 0])), Decision.logged([1, 1]), [1.0, 1.0])
    np.testing.assert_allclose(belief.gram[:, 0], [np.diag([0.0, 1.0]), np.diag([0.0, 4.0])])
    np.testing.assert_allclose(policy._item_features(1), 2 * np.eye(2))


def test_a_factorisation_explores_in_its_first_round():
    policy = NMFBandit(4, 3, rank=2, n_probes=2)
    chance = policy.action_probabilities(
        policy.init(), Visit(np.array([1])), np.random.default_rng(0)
    )
    assert (chance.values >= 0).all()
    assert chance.values.sum() == pytest.approx(1.0)


def test_nothing_is_drawn_where_no_session_has_a_tie():
    rng, untouched = np.random.default_rng(1), np.random.default_rng(1)
    assert pick(np.array([[False, True], [True, False]]), rng).tolist() == [1, 0]
    assert rng.random() == untouched.random()


def test_the_error_of_a_subspace_is_at_most_one():
    """diag(2, 1, 1) has rest 1 and keeps 1: sqrt(1 * 2 / 1) > 1; diag(1, 1) keeps nothing."""
    for values in ([2.0, 1.0, 1.0], [1.0, 1.0]):
        model = LinearGaussian(np.zeros((1, len(values))), 0.5, [np.diag(values)])
        policy = build("ProBALL(rank=1)", Inputs(model, horizon=100))
        assert policy.error == 1.0


def test_a_counted_decision_reports_the_state_of_its_own_draw():
    """The best actions of the two states differ, so the action tells the state."""
    policy = Exploring(mmTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.001)), 1e-9)
    for seed in range(20):
        decision = policy.decide_counting(
            policy.init(), None, np.random.default_rng(seed), draws=5, eligible=None
        )
        assert decision.state == decision.action


def test_policies_that_are_simulated_on_request_only():
    wanted = {entry.name for entry in entries("session") if entry.on_request}
    assert wanted == {
        "mLookahead", "SingleKUCB", "UCBS", "UCBC", "TSC", "PolicyReuse",
        "LatentOrderTS", "ProBALL", "Rank1Elim", "Rank1ElimKL",
    }  # fmt: skip


@pytest.mark.parametrize(
    "policy", [NMFBandit(4, 3, rank=2), ParticleMF(2, 2), COFIBA(2, np.eye(2))]
)
def test_policies_of_populations_show_nothing_private(policy):
    assert "(_" not in repr(policy)
    assert " _" not in repr(policy)
