"""Population policies: textbook loops, hand-computed cases, limits and conformance."""

import itertools

import numpy as np
import pytest

from latentbandits import Decision, LinearGaussian, LinTS
from latentbandits.models.visit import Visit
from latentbandits.policies.checked import Asked
from latentbandits.policies.registry import Inputs, build, entries
from latentbandits.policies.shared import HierTS, HierUCB, chunks
from latentbandits.serving.engine.models import make_policy
from latentbandits.testing import check_policy
from latentbandits_related import CLUB, SCLUB, AdaTS, DynUCB, MetaTS
from latentbandits_related.graph import CompleteGraph, random_graph
from latentbandits_related.per_user import GroupedLinUCB
from tests.reference.population import (
    TextbookCLUB,
    TextbookDynUCB,
    TextbookGrouped,
    TextbookSCLUB,
    joint_gaussian,
)

N, D, K = 5, 3, 4


def visits(n_users=N, d=D):
    return lambda n, rng: Visit(rng.integers(n_users, size=n), rng.normal(size=(n, K, d)))


CASES = {
    "grouped": GroupedLinUCB(D, [0, 0, 1, 2, 1]),
    "CLUB": CLUB(N, D, alpha2=0.3),
    "CLUB sparse": CLUB(N, D, alpha2=0.3, graph="sparse", n_clusters=2),
    "SCLUB": SCLUB(N, D, a_theta=0.3),
    "DynUCB": DynUCB(N, D, n_clusters=3),
    "HierTS": HierTS(N, D, 0.5),
    "HierTS counted": HierTS(N, D, 0.5, propensity_draws=20),
    "HierUCB": HierUCB(N, D, 0.5),
    "MetaTS": MetaTS(N, D, 0.5),
    "AdaTS": AdaTS(N, D, 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_population_policies_keep_their_promises(name):
    policy = CASES[name]
    check_policy(policy, K, context=visits(), order_free=policy.order_free)


def play(policy, textbook, n_users, n_rounds, seed, compare):
    """Both see the same visits; every decision is one that the textbook calls best."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(3, D)) * 2
    belief = policy.init()
    for _ in range(n_rounds):
        user = int(rng.integers(n_users))
        features = rng.normal(size=(1, K, D))
        visit = Visit(np.array([user]), features)
        decision = policy.decide(belief, visit, rng)
        index = textbook.indices(user, features[0])
        assert index[decision.action[0]] >= index.max() - 1e-9
        x = features[0, decision.action[0]]
        reward = float(x @ theta[user % 3] + 0.1 * rng.standard_normal())
        belief = policy.update(belief, visit, decision, [reward])
        textbook.update(user, x, reward)
        compare(belief)
    return belief


def partition(labels):
    return {frozenset(np.flatnonzero(labels == k).tolist()) for k in np.unique(labels)}


def test_grouped_against_the_textbook():
    groups = [0, 1, 0, 2, 1, 0]
    textbook = TextbookGrouped(groups, D, 0.5)
    play(GroupedLinUCB(D, groups, alpha=0.5), textbook, 6, 60, 1, lambda belief: None)


@pytest.mark.parametrize("graph", ["complete", "sparse"])
def test_club_against_the_textbook(graph):
    n = 12
    policy = CLUB(n, D, alpha=0.5, alpha2=0.5, graph=graph, seed=3)
    pairs = {(i, int(j)) for i in range(n) for j in policy._graph.edges(np.array([i]))[1]}
    textbook = TextbookCLUB(n, D, 0.5, 0.5, pairs)

    def compare(belief):
        assert partition(belief.component[0]) == {frozenset(textbook.members(i)) for i in range(n)}

    belief = play(policy, textbook, n, 150, 2, compare)
    assert 3 <= len(partition(belief.component[0])) < n
    for part in partition(belief.component[0]):  # pooled sums are the recomputed ones
        m, b = textbook.pooled(sorted(part))
        ridge = chunks.take(belief.pooled, np.array([min(part)]))
        np.testing.assert_allclose(ridge.inverse[0], np.linalg.inv(m), atol=1e-9)
        np.testing.assert_allclose(ridge.products[0], b, atol=1e-9)


def test_clubs_edge_falls_at_the_eighth_reward():
    """By hand: |w0 - w1| = 1.5 < 1.5448 at the 7th reward, 1.55 > 1.4948 at the 8th."""
    policy = CLUB(2, 1, alpha2=1.0)
    belief = policy.init()
    for reward in range(1, 9):
        assert (belief.component[0] == 0).all(), f"the edge fell before reward {reward}"
        user = (reward - 1) % 2
        visit = Visit(np.array([user]), np.ones((1, 1, 1)))
        belief = policy.update(belief, visit, Decision.logged([0]), [1.0 if user == 0 else -1.0])
    assert belief.component[0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("policy", "groups"),
    [
        (CLUB(8, D, alpha=0.5, alpha2=np.inf), np.zeros(8, int)),
        (CLUB(8, D, alpha=0.5, alpha2=0.1, graph="none"), np.arange(8)),
        (SCLUB(8, D, alpha=0.5, a_theta=np.inf, a_p=np.inf), np.zeros(8, int)),
        (DynUCB(8, D, n_clusters=1, alpha=0.5), np.zeros(8, int)),
    ],
    ids=["CLUB, no cuts", "CLUB, no edges", "SCLUB, no splits", "DynUCB, one cluster"],
)
def test_limits_are_linucb(policy, groups):
    play(policy, TextbookGrouped(groups, D, 0.5), 8, 80, 4, lambda belief: None)


def test_dynucb_against_the_textbook():
    policy = DynUCB(9, D, n_clusters=4, alpha=0.5, seed=5)
    start = np.concatenate([chunk.cluster[0] for chunk in policy.init().users])
    textbook = TextbookDynUCB(start, D, 4, 0.5)

    def compare(belief):
        assert belief.users[0].cluster[0].tolist() == textbook.labels
        for k in range(4):
            m, b = textbook.pooled(textbook.cluster(k))
            np.testing.assert_allclose(belief.inverse[0, k], np.linalg.inv(m), atol=1e-9)
            np.testing.assert_allclose(belief.products[0, k], b, atol=1e-9)

    play(policy, textbook, 9, 120, 6, compare)


def test_sclub_against_the_textbook():
    n = 9
    policy = SCLUB(n, D, alpha=0.5, a_theta=0.8, a_p=1.0)
    textbook = TextbookSCLUB(n, D, 0.5, 0.8, 1.0)
    sizes = []

    def compare(belief):
        sets = partition(belief.set_of[0])
        assert sets == {frozenset(s) for s in textbook.sets}
        assert sum(map(len, sets)) == n
        sizes.append(len(sets))
        for users in sets:
            j = int(belief.set_of[0, min(users)])
            assert belief.set_sizes[0, j] == len(users)
            m, b = textbook.pooled(sorted(users))
            ridge = chunks.take(belief.set_ridges, np.array([j]))
            np.testing.assert_allclose(ridge.inverse[0], np.linalg.inv(m), atol=1e-9)
            np.testing.assert_allclose(ridge.products[0], b, atol=1e-9)

    play(policy, textbook, n, 300, 7, compare)
    assert (np.diff(sizes) > 0).any(), "no set was split"
    assert (np.diff(sizes) < 0).any(), "no sets were merged"


def test_sclub_merges_equal_users_once_both_are_checked():
    """User 0 looks different after one phase; then both have the same data and merge again."""
    policy = SCLUB(2, 1, a_theta=1.0, a_p=np.inf)
    belief = policy.init()

    def reward(user, value):
        return policy.update(
            belief, Visit(np.array([user]), np.ones((1, 1, 1))), Decision.logged([0]), [value]
        )

    for _ in range(4):
        belief = reward(0, 5.0)
    assert belief.set_of[0, 0] != belief.set_of[0, 1], "user 0 did not leave"
    for _ in range(30):
        belief = reward(1, 5.0)
        belief = reward(0, 5.0)
    assert belief.set_of[0, 0] == belief.set_of[0, 1]


def random_visits(n_users, n_rounds, d, seed):
    rng = np.random.default_rng(seed)
    return [
        (int(rng.integers(n_users)), rng.normal(size=d), float(rng.normal()))
        for _ in range(n_rounds)
    ]


def learn(policy, history):
    belief = policy.init()
    for user, x, reward in history:
        visit = Visit(np.array([user]), x[None, None])
        belief = policy.update(belief, visit, Decision.logged([0]), [reward])
    return belief


def test_hierts_is_the_joint_gaussian_of_all_users():
    history = random_visits(4, 25, 2, 8)
    policy = HierTS(5, 2, noise=0.7, prior_spread=0.6, hyper_spread=1.3)
    belief = learn(policy, history)
    mean, covariance = joint_gaussian(history, 5, 2, 0.7, 0.6, 1.3)
    common = policy.mean_posterior(belief)
    np.testing.assert_allclose(common.mean[0], mean[:2], atol=1e-10)
    np.testing.assert_allclose(common.covariance[0], covariance[:2, :2], atol=1e-10)
    for user in range(5):  # user 4 has never been seen
        own = slice((user + 1) * 2, (user + 2) * 2)
        actual = policy.user_posterior(belief, np.array([user]))
        np.testing.assert_allclose(actual.mean[0], mean[own], atol=1e-10)
        np.testing.assert_allclose(actual.covariance[0], covariance[own, own], atol=1e-10)


def test_hierts_does_not_mind_the_order_of_rewards():
    history = random_visits(4, 30, 2, 9)
    policy = HierTS(4, 2, noise=0.7)
    one, other = learn(policy, history), learn(policy, history[::-1])
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-10)
    np.testing.assert_allclose(one.information, other.information, atol=1e-10)


def test_hierts_with_a_known_mean_is_lints_per_user():
    history = random_visits(3, 30, 2, 10)
    policy = HierTS(3, 2, noise=0.5, prior_spread=0.8, hyper_spread=1e-6)
    lints = LinTS(2, noise=0.5, prior_spread=0.8)
    belief = learn(policy, history)
    for user in range(3):
        alone = lints.init()
        for i, x, reward in history:
            if i == user:
                alone = lints.update(alone, x[None, None], Decision.logged([0]), [reward])
        actual = policy.user_posterior(belief, np.array([user]))
        np.testing.assert_allclose(actual.mean[0], alone.parameters.mean[0, 0], atol=1e-8)
        np.testing.assert_allclose(
            actual.covariance[0], alone.parameters.covariance[0, 0], atol=1e-8
        )


def test_hierts_without_differences_is_one_lints():
    history = random_visits(3, 30, 2, 11)
    policy = HierTS(3, 2, noise=0.5, prior_spread=1e-5, hyper_spread=0.8)
    lints = LinTS(2, noise=0.5, prior_spread=0.8)
    belief, one = learn(policy, history), lints.init()
    for _, x, reward in history:
        one = lints.update(one, x[None, None], Decision.logged([0]), [reward])
    for user in range(3):
        actual = policy.user_posterior(belief, np.array([user]))
        np.testing.assert_allclose(actual.mean[0], one.parameters.mean[0, 0], atol=1e-5)


def test_hierts_draws_from_its_posterior():
    """20,000 draws of the reward of one action: mean within 5 standard errors (rate 6e-7)."""
    policy = HierTS(3, 2, noise=0.5)
    belief = learn(policy, random_visits(3, 10, 2, 12))
    features = np.array([[[1.0, 2.0]]])
    posterior = policy.user_posterior(belief, np.array([1]))
    draws = policy._draw(belief, Visit(np.array([1]), features), 20_000, np.random.default_rng(0))
    mean = features[0, 0] @ posterior.mean[0]
    spread = np.sqrt(features[0, 0] @ posterior.covariance[0] @ features[0, 0])
    assert abs(draws.mean() - mean) < 5 * spread / np.sqrt(draws.size)
    assert abs(draws.std() / spread - 1) < 5 / np.sqrt(2 * draws.size)


def test_adats_prior_is_the_means_posterior_without_the_user():
    history = random_visits(2, 20, 2, 13)
    policy = AdaTS(3, 2, noise=0.7, prior_spread=0.6, hyper_spread=1.3)
    before = learn(policy, history)
    common = policy.mean_posterior(before)
    after = learn(policy, [*history, (2, np.array([1.0, 0.5]), 0.3), (0, np.ones(2), 4.0)])
    start = chunks.take(after.starts, np.array([2]))
    np.testing.assert_allclose(start.mean[0], common.mean[0])
    np.testing.assert_allclose(
        np.linalg.inv(start.precision[0]), 0.36 * np.eye(2) + common.covariance[0]
    )


def test_metats_keeps_the_mean_it_drew():
    history = random_visits(2, 20, 2, 14)
    policy = MetaTS(3, 2, noise=0.7)
    before = learn(policy, history)
    drawn = policy._start(before, np.array([2])).mean
    after = learn(
        policy, [*history, (2, np.ones(2), 0.3), (0, np.ones(2), 4.0), (2, np.ones(2), 1.0)]
    )
    np.testing.assert_array_equal(chunks.take(after.starts, np.array([2])).mean, drawn)
    many = [
        policy._start(before._replace(keys=np.array([k], np.uint64)), np.array([2])).mean[0]
        for k in range(2000)
    ]
    common = policy.mean_posterior(before)  # entries of the covariance: within 5 standard errors
    np.testing.assert_allclose(np.cov(np.array(many).T), common.covariance[0], atol=5 * 0.35 / 44)


def test_updates_share_the_chunks_that_they_do_not_touch():
    policy = HierTS(1000, 2)
    belief = policy.init()
    visit = Visit(np.array([700]), np.ones((1, 1, 2)))
    after = policy.update(belief, visit, Decision.logged([0]), [1.0])
    assert len(after.users) == 4
    assert [a is b for a, b in zip(after.users, belief.users, strict=True)] == [
        True,
        True,
        False,
        True,
    ]


def test_populations_side_by_side_are_populations_alone_across_chunks():
    rng = np.random.default_rng(15)
    for policy in (DynUCB(700, 2, n_clusters=3), CLUB(700, 2, alpha2=0.3, graph="sparse")):
        beliefs = [policy.init() for _ in range(3)]
        batch = policy.init(3)
        for _ in range(40):
            visit = Visit(rng.integers(700, size=3), rng.normal(size=(3, 2, 2)))
            decision = Decision.logged(rng.integers(2, size=3))
            reward = 3 * rng.normal(size=3)
            batch = policy.update(batch, visit, decision, reward)
            beliefs = [
                policy.update(
                    belief,
                    visit[np.array([b])],
                    Decision.logged(decision.action[b : b + 1]),
                    reward[b : b + 1],
                )
                for b, belief in enumerate(beliefs)
            ]
        visit = Visit(np.full(3, 5), rng.normal(size=(3, 4, 2)))
        together = policy._scores(batch, Asked(visit, None, None))
        for b, belief in enumerate(beliefs):
            alone = policy._scores(belief, Asked(visit[np.array([b])], None, None))
            np.testing.assert_allclose(alone[0], together[b], atol=1e-12)


def test_a_random_graph_has_about_p_of_all_edges():
    graph = random_graph(300, 0.1, np.random.default_rng(0))
    assert abs(graph.n_edges - 4485) < 5 * np.sqrt(4485 * 0.9)
    source, neighbour, edge = graph.edges(np.arange(300))
    assert (source != neighbour).all()
    assert (np.bincount(edge) == 2).all()
    assert len({tuple(sorted(p)) for p in zip(source, neighbour, strict=True)}) == graph.n_edges


def test_a_complete_graph_numbers_every_pair_once():
    source, neighbour, edge = CompleteGraph(6).edges(np.arange(6))
    numbers = {
        frozenset(p): int(e) for p, e in zip(zip(source, neighbour, strict=True), edge, strict=True)
    }
    assert sorted(numbers.values()) == list(range(15))
    assert set(numbers) == {frozenset(p) for p in itertools.combinations(range(6), 2)}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: DynUCB(5, 2, n_clusters=0), "n_clusters must be a whole number of at least 1"),
        (lambda: CLUB(0, 2), "n_users must be a whole number of at least 1"),
        (lambda: CLUB(5, 2, graph="ring"), "graph must be 'complete', 'sparse' or 'none'"),
        (lambda: CLUB(5, 2, alpha2=-1.0), "alpha2 must be above zero"),
        (lambda: SCLUB(5, 2, a_theta=0.0), "a_theta must be above zero"),
        (lambda: HierTS(5, 2, noise=0.0), "noise must be a finite number above zero"),
        (lambda: GroupedLinUCB(2, [0.5, 1.0]), "groups must be whole numbers"),
        (lambda: GroupedLinUCB(2, [-1, 0]), "groups must be numbered from 0"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("visit", "words"),
    [
        (None, "needs to know who asks"),
        (np.zeros((1, K, D)), "needs to know who asks"),
        (Visit(np.array([N]), np.zeros((1, K, D))), f"user {N} is out of range"),
        (Visit(np.array([-1]), np.zeros((1, K, D))), "user -1 is out of range"),
        (Visit(np.array([0, 1]), np.zeros((1, K, D))), "one user for each of 1 populations"),
        (Visit(["ann"], np.zeros((1, K, D))), "number your users' ids first"),
        (Visit([{}], np.zeros((1, K, D))), "number your users' ids first"),
        (Visit([[1], [1, 2]], np.zeros((1, K, D))), "number your users' ids first"),
        (Visit(np.array([1.5]), np.zeros((1, K, D))), "number your users' ids first"),
        (Visit(np.array([0]), None), "needs a context"),
        (Visit(np.array([0]), np.zeros((1, K, D + 1))), "n_features=3"),
    ],
)
def test_visits_that_cannot_be_are_refused(visit, words):
    policy = CLUB(N, D)
    with pytest.raises(ValueError, match=words):
        policy.decide(policy.init(), visit, np.random.default_rng(0))


@pytest.mark.parametrize("entry", entries("population"), ids=lambda entry: entry.name)
def test_the_service_takes_populations_whose_beliefs_are_sums_only(entry):
    model = LinearGaussian([[1.0, 0.0]], 0.5)
    if entry.name in ("HierTS", "HierUCB"):
        assert make_policy(f"{entry.name}(n_users=5)", model).noise == 0.5
        return
    with pytest.raises(ValueError, match=f"{entry.name}.* learns across users.*HierTS"):
        make_policy(f"{entry.name}(n_users=5)", model)


def test_population_policies_are_built_by_name():
    policy = build("DynUCB(n_clusters=3)", Inputs(n_features=2, n_users=7))
    assert (policy.n_users, policy.n_clusters) == (7, 3)
