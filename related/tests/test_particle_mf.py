"""Particle Thompson sampling: evidence, two particles by hand, LinTS given the items; PerUser."""

import numpy as np
import pytest
from tests.reference.population import TextbookParticleMF

from latentbandits import TS, UCB1, Decision, LinearGaussian, LinTS, LinUCB, mmTS
from latentbandits.models.linear.gaussian import UserSums
from latentbandits.models.visit import Visit
from latentbandits.testing import check_policy
from latentbandits_related import ParticleMF
from latentbandits_related.per_user import PerUser
from latentbandits_related.reproduce.factorisation import PrintedParticleMF

N, M = 4, 5


def ids(n, rng):
    return Visit(rng.integers(N, size=n))


@pytest.mark.parametrize(
    "policy",
    [
        ParticleMF(N, M, n_particles=6),
        ParticleMF(N, M, n_particles=1),
        ParticleMF(N, M, rank=3, n_particles=6, learn_spread=True, propensity_draws=5),
    ],
    ids=["30", "one particle", "PTS-B"],
)
def test_particles_keep_their_promises(policy):
    check_policy(policy, M, context=ids)


def played(policy, rounds):
    belief = policy.init()
    for user, item, reward in rounds:
        belief = policy.update(belief, Visit(np.array([user])), Decision.logged([item]), [reward])
    return belief


def random_rounds(n_rounds, seed):
    rng = np.random.default_rng(seed)
    return [
        (int(rng.integers(N)), int(rng.integers(M)), float(rng.normal())) for _ in range(n_rounds)
    ]


def test_the_factor_of_a_user_is_lints_on_the_item_factors():
    policy = ParticleMF(N, M, n_particles=3, noise=0.6, user_spread=0.8)
    belief = played(policy, random_rounds(20, 1))
    rounds = random_rounds(20, 1)
    for particle in range(3):
        items = belief.items[0, particle]
        lints = LinTS(2, noise=0.6, prior_spread=0.8)
        own = lints.init()
        for user, item, reward in rounds:
            if user == 2:
                own = lints.update(own, items[None, [item]], Decision.logged([0]), [reward])
        factor = policy._user_factor(belief, np.array([2]))
        covariance = np.linalg.inv(factor.precision[0, particle])
        np.testing.assert_allclose(covariance, own.parameters.covariance[0, 0], atol=1e-9)
        np.testing.assert_allclose(
            covariance @ factor.information[0, particle], own.parameters.mean[0, 0], atol=1e-9
        )


def test_the_product_of_weights_is_the_evidence():
    """With the items held fixed, predictive densities multiply to p(rewards | V)."""
    policy = ParticleMF(N, M, n_particles=3, noise=0.6, user_spread=0.8, centre=0.2)
    start = policy.init()
    counts, sums = start.counts.copy(), start.sums.copy()
    total, rounds = np.zeros((1, 3)), random_rounds(15, 2)
    for _, item, reward in rounds:
        belief = start._replace(counts=counts.copy(), sums=sums.copy())
        total += policy.log_weights(belief, np.array([1]), np.array([item]), np.array([reward]))
        counts[0, 1, item] += 1
        sums[0, 1, item] += reward - 0.2
    for particle in range(3):
        x = start.items[0, particle][[item for _, item, _ in rounds]]
        r = np.array([reward for _, _, reward in rounds]) - 0.2
        prior = LinearGaussian(np.zeros((1, 2)), 0.6, 0.64 * np.eye(2)[None])
        known = UserSums((x.T @ x)[None], (x.T @ r)[None], (r @ r)[None], np.array([15.0]))
        assert total[0, particle] == pytest.approx(prior.condition_on_sums(known)[0][0, 0])


def test_two_particles_by_hand():
    """V = 1 and V = 2, rank 1, sigma = s_u = 1, no data: predictive N(0, 2) and N(0, 5)."""
    policy = ParticleMF(1, 1, rank=1, n_particles=2, noise=1.0)
    belief = policy.init()._replace(items=np.array([[[[1.0]], [[2.0]]]]))
    actual = np.exp(policy.log_weights(belief, np.array([0]), np.array([0]), np.array([3.0])))
    expected = [np.exp(-9 / (2 * v)) / np.sqrt(2 * np.pi * v) for v in (2.0, 5.0)]
    np.testing.assert_allclose(actual[0], expected)


def test_the_posterior_of_a_single_cell_is_right():
    """One cell, one reward: the mean of U V of 40 populations within 5 standard errors of a grid's.

    The weights as printed in the paper are found out.
    """
    grid = np.linspace(-6, 6, 601)
    u, v = np.meshgrid(grid, grid, indexing="ij")
    density = np.exp(-0.5 * (u**2 + v**2) - 0.5 * ((2.0 - u * v) / 0.7) ** 2)
    expected = (density * u * v).sum() / density.sum()
    for kind, right in ((ParticleMF, True), (PrintedParticleMF, False)):
        means = [
            float((belief.users * belief.items).mean())
            for belief in (
                played(kind(1, 1, rank=1, n_particles=500, noise=0.7, seed=s), [(0, 0, 2.0)])
                for s in range(40)
            )
        ]
        error = np.std(means) / np.sqrt(40)
        assert error < 0.02
        assert (abs(np.mean(means) - expected) < 5 * error) == right


def features(n, rng):
    return Visit(rng.integers(N, size=n), rng.normal(size=(n, M, 2)))


TWO_STATES = LinearGaussian([[1.0, 0.0], [0.0, 1.0]], 0.5, np.tile(np.eye(2), (2, 1, 1)))
CONTEXT = {
    "TS": (TS(M), ids),
    "UCB1": (UCB1(M), ids),
    "LinUCB": (LinUCB(2), features),
    "mmTS": (mmTS(TWO_STATES), features),
}


@pytest.mark.parametrize("name", CONTEXT)
@pytest.mark.parametrize("shared", [False, True])
def test_any_policy_per_user_keeps_its_promises(name, shared):
    policy, context = CONTEXT[name]
    check_policy(PerUser(policy, N, shared), M, context=context)


def test_per_user_is_the_policy_on_the_users_own_rounds():
    policy, bare = PerUser(UCB1(M), N), UCB1(M)
    belief, alone = policy.init(), [bare.init() for _ in range(N)]
    for user, item, reward in random_rounds(40, 3):
        visit, decision = Visit(np.array([user])), Decision.logged([item])
        belief = policy.update(belief, visit, decision, [reward])
        alone[user] = bare.update(alone[user], None, decision, [reward])
    for user in range(N):
        _, own = policy._serving(belief, np.array([user]))
        np.testing.assert_array_equal(own.counts, alone[user].counts)
        np.testing.assert_allclose(own.sums, alone[user].sums)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ParticleMF(0, 3), "n_users must be"),
        (lambda: ParticleMF(3, 3, n_particles=0), "n_particles must be"),
        (lambda: ParticleMF(3, 3, noise=-1.0), "noise must be"),
        (lambda: ParticleMF(3, 3, centre=np.nan), "centre must be finite"),
        (lambda: PerUser(UCB1(3), 0), "n_users must be"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_item_ids_take_no_features():
    policy = ParticleMF(N, M)
    with pytest.raises(ValueError, match="items with ids"):
        policy.decide(
            policy.init(), Visit(np.array([0]), np.zeros((1, M, 2))), np.random.default_rng(0)
        )


def test_weights_are_those_of_the_textbook_loop():
    policy = ParticleMF(N, M, n_particles=4, noise=0.6)
    belief = played(policy, random_rounds(12, 4))
    textbook = TextbookParticleMF(N, M, 4, 2, 0.6, np.random.default_rng(0))
    textbook.particles = list(zip(belief.users[0], belief.items[0], strict=True))
    textbook.ratings = random_rounds(12, 4)
    actual = policy.log_weights(belief, np.array([1]), np.array([3]), np.array([0.7]))
    expected = [textbook.log_weight(d, 1, 3, 0.7) for d in range(4)]
    np.testing.assert_allclose(actual[0], expected)
