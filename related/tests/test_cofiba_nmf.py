"""COFIBA, NMF-Bandit and SL-EC: limits, exact cases, conformance, bad input."""

import numpy as np
import pytest
from tests.reference.population import TextbookGrouped

from latentbandits import BernoulliArms, Decision, GaussianArms, LinearGaussian
from latentbandits.learning.transitions import UserSequence, fit_transition
from latentbandits.models.visit import Visit
from latentbandits.testing import check_policy
from latentbandits_related import COFIBA, NMFBandit, fit_transition_pairs
from latentbandits_related.nmf import complete_from_blocks, factorise

RNG = np.random.default_rng(41)
ITEMS = RNG.normal(size=(6, 3))


def ids(n, rng):
    return Visit(rng.integers(5, size=n))


@pytest.mark.parametrize(
    "policy",
    [
        COFIBA(5, ITEMS, alpha2=0.3),
        pytest.param(NMFBandit(5, 6, rank=2, first=3), marks=pytest.mark.slow),
        NMFBandit(5, 6, rank=1, first=3, exploration=0.01),
    ],
    ids=["COFIBA", "NMF", "NMF greedy"],
)
def test_policies_keep_their_promises(policy):
    check_policy(policy, 6, context=ids)


def test_cofiba_without_cuts_is_one_linucb():
    policy = COFIBA(5, ITEMS, alpha=0.5, alpha2=np.inf, graph="complete")
    textbook = TextbookGrouped([0] * 5, 3, 0.5)
    belief, rng = policy.init(), np.random.default_rng(1)
    for _ in range(60):
        visit = ids(1, rng)
        mask = np.zeros((1, 6), bool)
        mask[0, rng.permutation(6)[:3]] = True
        decision = policy.decide(belief, visit, rng, eligible=mask)
        index = np.where(mask[0], textbook.indices(int(visit.user[0]), ITEMS), -np.inf)
        action = int(decision.action[0])
        assert index[action] >= index.max() - 1e-9
        reward = float(rng.normal())
        belief = policy.update(belief, visit, decision, [reward])
        textbook.update(int(visit.user[0]), ITEMS[action], reward)
    assert len(np.unique(belief.item_cluster)) == 1


def slow_cofiba(rounds, n_users, items, alpha2):
    """The cuts of COFIBA as sets of pairs, line by line, on complete graphs."""
    n_items, d = items.shape
    gram, b = np.zeros((n_users, d, d)), np.zeros((n_users, d))
    item_pairs = {frozenset((i, j)) for i in range(n_items) for j in range(i)}
    whole = {frozenset((i, j)) for i in range(n_users) for j in range(i)}

    def parts(n, pairs):
        label = list(range(n))
        for _ in range(n):
            for pair in pairs:
                i, j = pair
                label[i] = label[j] = min(label[i], label[j])
        return label

    graphs = {0: set(whole)}
    for t, (i, x, reward) in enumerate(rounds, start=1):
        gram[i] += np.outer(items[x], items[x])
        b[i] += reward * items[x]
        inverse = np.linalg.inv(gram + np.eye(d))
        w = np.einsum("nde,ne->nd", inverse, b)

        def cb(j, item, t=t, inverse=inverse):
            return alpha2 * np.sqrt(items[item] @ inverse[j] @ items[item] * np.log(t + 1))

        def like(item, i=i, w=w, cb=cb):
            return [
                abs((w[i] - w[j]) @ items[item]) <= cb(i, item) + cb(j, item)
                for j in range(n_users)
            ]

        cluster = parts(n_items, item_pairs)
        h, near = cluster[x], like(x)
        graphs[h] -= {pair for pair in graphs[h] if i in pair and not near[min(pair - {i})]}
        item_pairs -= {pair for pair in item_pairs if x in pair and like(min(pair - {x})) != near}
        after = parts(n_items, item_pairs)
        own = graphs[h]
        for name in {after[l] for l in range(n_items) if cluster[l] == h}:
            graphs[name] = own if name == after[x] else set(whole)
        if h not in set(after):
            graphs.pop(h, None)
    final = parts(n_items, item_pairs)
    return final, {name: parts(n_users, graphs[name]) for name in set(final)}


def test_cofiba_cuts_as_the_slow_loop_does():
    rng = np.random.default_rng(2)
    theta = rng.normal(size=(2, 3)) * 2
    rounds = []
    for _ in range(60):
        user, item = int(rng.integers(5)), int(rng.integers(6))
        rounds.append((user, item, float(ITEMS[item] @ theta[user % 2] + 0.1 * rng.normal())))
    policy = COFIBA(5, ITEMS, alpha2=1.2, graph="complete")
    belief = policy.init()
    for user, item, reward in rounds:
        belief = policy.update(belief, Visit(np.array([user])), Decision.logged([item]), [reward])
    items, users = slow_cofiba(rounds, 5, ITEMS, 1.2)
    assert belief.item_cluster[0].tolist() == items
    for name, labels in users.items():
        assert belief.user_cluster[0, name].tolist() == labels
    assert len(set(items)) > 1


def test_noise_free_blocks_of_full_rank_give_the_matrix_exactly():
    rng = np.random.default_rng(3)
    a = rng.dirichlet(np.ones(3), size=20)
    a[:3] = np.eye(3)  # every factor has a pure row
    truth = a @ rng.random((3, 15))
    row, column = np.arange(0, 20, 3), np.arange(0, 15, 2)
    actual = complete_from_blocks(truth[:, column], truth[row], row, 3)
    np.testing.assert_allclose(actual, truth, atol=1e-8)


def test_nmf_bandit_learns_a_noise_free_matrix():
    rng = np.random.default_rng(4)
    a = rng.dirichlet(np.full(2, 0.3), size=12)
    a[:2] = np.eye(2)
    truth = a @ rng.random((2, 10))
    policy = NMFBandit(12, 10, rank=2, exploration=1e9, first=2000)  # explores throughout
    belief = policy.init()
    for _ in range(2000):
        visit = Visit(rng.integers(12, size=1))
        decision = policy.decide(belief, visit, rng, propensity=False)
        reward = truth[visit.user, decision.action]
        belief = policy.update(belief, visit, decision, reward)
    np.testing.assert_allclose(belief.estimate[0], truth, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: factorise([[1.0, -0.1]], 1), r"matrix\[0, 1\] is -0.1"),
        (lambda: factorise([[1.0, 0.1]], 2), "rank must be from 1 to 1"),
        (lambda: NMFBandit(5, 6, rank=3, n_probes=2), "n_probes must be at least the rank"),
        (lambda: NMFBandit(2, 6, rank=3), "rank 3 is more than"),
        (lambda: COFIBA(0, ITEMS), "n_users must be"),
        (lambda: COFIBA(5, np.empty((0, 3))), "items is empty"),
        (lambda: COFIBA(5, ITEMS, alpha2=0.0), "alpha2 must be"),
        (lambda: COFIBA(5, ITEMS, graph="star"), "graph must be"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


TRANSITION = np.array([[0.9, 0.1, 0.0], [0.05, 0.8, 0.15], [0.2, 0.1, 0.7]])


def sequences(clicks, means, seed, n_users=200, n_rounds=100):
    rng = np.random.default_rng(seed)
    state = rng.integers(3, size=n_users)
    actions = rng.integers(means.shape[1], size=(n_users, n_rounds))
    rewards = np.empty((n_users, n_rounds))
    for t in range(n_rounds):
        mean = means[state, actions[:, t]]
        noisy = mean + 0.3 * rng.normal(size=n_users)
        rewards[:, t] = rng.random(n_users) < mean if clicks else noisy
        state = (rng.random((n_users, 1)) > TRANSITION[state].cumsum(axis=1)).sum(axis=1)
    return [UserSequence(a, r) for a, r in zip(actions, rewards, strict=True)]


@pytest.mark.parametrize("kind", ["gaussian", "clicks"])
def test_pair_frequencies_find_the_transition(kind):
    """Users of 100 rounds: to 0.06, and near the estimate of largest likelihood."""
    means = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.1], [0.3, 0.2, 0.9]])
    if kind == "gaussian":
        model = GaussianArms(means, 0.3)
    else:
        model = BernoulliArms(1e6 * means, 1e6 * (1 - means))
    log = sequences(kind == "clicks", means, 5, n_users=1000 if kind == "clicks" else 200)
    actual = fit_transition_pairs(model, log)
    np.testing.assert_allclose(actual.transition.sum(axis=1), 1)
    assert np.abs(actual.transition - TRANSITION).max() < 0.06
    if kind == "gaussian":
        likely = fit_transition(model, log).transition
        assert np.abs(actual.transition - likely).max() < 0.06
    assert actual.markov(model).transition.shape == (3, 3)


@pytest.mark.parametrize(
    ("model", "log", "words"),
    [
        (GaussianArms([[0.1], [0.9]], 0.3), [], "at least one user's sequence"),
        (GaussianArms([[0.1], [0.9]], 0.3), [UserSequence([0], [1.0])], "two rounds in a row"),
        (GaussianArms([[0.1], [0.9]], 0.3), [UserSequence([0, 1], [1.0, 1.0])], "has the action 1"),
        (LinearGaussian([[0.1], [0.9]], 0.3), [UserSequence([0], [1.0])], "fixed list of actions"),
    ],
)
def test_sequences_that_cannot_be_are_refused(model, log, words):
    with pytest.raises(ValueError, match=words):
        fit_transition_pairs(model, log)
