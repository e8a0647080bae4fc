"""Phased and its mixture learner: evidence by brute force, refits at doublings, limits."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from latentbandits import EXP4, Decision, LinearGaussian, LinTS, LinUCB, mmTS, mTS
from latentbandits.learning.population_mixture import PopulationMixture
from latentbandits.models.linear.gaussian import UserSums
from latentbandits.models.visit import Visit
from latentbandits.policies.shared import Phased
from latentbandits.testing import check_policy

D, K = 2, 4
FITTED = LinearGaussian(
    [[1.0, 0.0], [-0.5, 0.5]], 0.5, [0.2 * np.eye(2), [[0.3, 0.1], [0.1, 0.2]]], [0.3, 0.7]
)


def visits(n, rng):
    return Visit(rng.integers(5, size=n), rng.normal(size=(n, K, D)))


def phased(deploy, start=None, first=3, learner=None):
    return Phased(start or LinUCB(D), learner or (lambda sums: FITTED), deploy, 5, D, first=first)


@pytest.mark.parametrize("deploy", [mmTS, EXP4], ids=["mmTS", "EXP4"])
def test_phased_keeps_its_promises(deploy):
    check_policy(phased(deploy), K, context=visits, order_free=False)


def rounds_of(rng, n_rounds, d=3):
    x, r = rng.normal(size=(n_rounds, d)), rng.normal(size=n_rounds)
    return (
        x,
        r,
        UserSums((x.T @ x)[None], (x.T @ r)[None], (r @ r)[None], np.array([1.0 * n_rounds])),
    )


def test_evidence_and_posterior_by_brute_force():
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(3, 3, 3))
    roots[2, :, 2] = 0  # a singular prior
    model = LinearGaussian(rng.normal(size=(3, 3)), 0.7, roots @ roots.swapaxes(1, 2))
    for n_rounds in (1, 2, 8):
        x, r, sums = rounds_of(rng, n_rounds)
        log_evidence, posterior = model.condition_on_sums(sums)
        parameters, total = model.parameters(1), np.zeros((1, 3))
        for t in range(n_rounds):  # one round after another
            log_density, parameters = model.condition(
                parameters, x[t][None, None], np.array([0]), r[t : t + 1]
            )
            total += log_density
        np.testing.assert_allclose(log_evidence, total, rtol=1e-9)
        np.testing.assert_allclose(posterior.mean, parameters.mean, atol=1e-8)
        np.testing.assert_allclose(posterior.covariance, parameters.covariance, atol=1e-8)
        for s in range(3):
            joint = x @ model.covariances[s] @ x.T + 0.49 * np.eye(n_rounds)
            expected = multivariate_normal(x @ model.weights[s], joint).logpdf(r)
            assert log_evidence[0, s] == pytest.approx(expected, rel=1e-9)


def test_refits_happen_at_the_doublings_and_only_there():
    seen = []

    def learner(sums):
        seen.append(int(sums.counts.sum()))
        return FITTED

    policy = phased(mmTS, first=4, learner=learner)
    belief, rng = policy.init(), np.random.default_rng(2)
    for t in range(1, 40):
        visit = visits(1, rng)
        belief = policy.update(belief, visit, policy.decide(belief, visit, rng), [1.0])
        assert (belief.weights.shape[1] == 0) == (t < 4)
    assert seen == [4, 8, 16, 32]


def test_one_component_with_a_fixed_prior_is_lints_per_user():
    prior = LinearGaussian([[0.0, 0.0]], 0.5, [0.64 * np.eye(2)])
    lints = LinTS(D, noise=0.5, prior_spread=0.8)
    policy = phased(mmTS, start=lints, learner=lambda sums: prior)
    belief, alone = policy.init(), [lints.init() for _ in range(5)]
    rng = np.random.default_rng(3)
    for t in range(30):
        visit = visits(1, rng)
        user = int(visit.user[0])
        one = policy.decide(belief, visit, np.random.default_rng(t))
        other = lints.decide(alone[user], visit.features, np.random.default_rng(t))
        own = policy._serving(belief, visit.user)[1]
        np.testing.assert_allclose(own.parameters.mean, alone[user].parameters.mean, atol=1e-10)
        np.testing.assert_allclose(
            own.parameters.covariance, alone[user].parameters.covariance, atol=1e-10
        )
        assert one.action.shape == other.action.shape
        reward = rng.normal(size=1)
        logged = Decision.logged(one.action)
        belief = policy.update(belief, visit, logged, reward)
        alone[user] = lints.update(alone[user], visit.features, logged, reward)


def test_between_refits_the_user_is_served_by_the_deployed_policy_on_its_own_rounds():
    """MmTS from sums has the weights of mmTS round by round."""
    policy = phased(mmTS, first=1)
    alone, bare = [mmTS(FITTED).init() for _ in range(5)], mmTS(FITTED)
    belief, rng = policy.init(), np.random.default_rng(4)
    for _ in range(25):
        visit, logged, reward = (
            visits(1, rng),
            Decision.logged(rng.integers(K, size=1)),
            rng.normal(size=1),
        )
        belief = policy.update(belief, visit, logged, reward)
        user = int(visit.user[0])
        alone[user] = bare.update(alone[user], visit.features, logged, reward)
    for user in range(5):
        own = policy._serving(belief, np.array([user]))[1]
        difference = own.log_weights - alone[user].log_weights
        np.testing.assert_allclose(difference, difference[0, 0], atol=1e-8)


def test_experts_keep_their_own_weights_between_refits():
    policy = phased(lambda model: EXP4(model, reward_range=(-3.0, 3.0)), first=2)
    belief, rng = policy.init(), np.random.default_rng(5)
    for t in range(3):
        visit = Visit(np.array([1]), rng.normal(size=(1, K, D)))
        belief = policy.update(belief, visit, policy.decide(belief, visit, rng), [1.0])
        assert belief.kept[0].losses.shape[2] == (2 if t >= 1 else 1)
    assert belief.kept[0].rounds[0].tolist() == [0, 1, 0, 0, 0]


def clustered_sums(seed, n_users=60, n_rounds=15, d=3, noise=0.3):
    rng = np.random.default_rng(seed)
    centres = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, -1.0]])
    x = rng.normal(size=(n_users, n_rounds, d))
    r = (x @ centres[np.arange(n_users) % 3][:, :, None])[:, :, 0]
    r = r + noise * rng.standard_normal(r.shape)
    return centres, UserSums(
        x.swapaxes(1, 2) @ x,
        (x.swapaxes(1, 2) @ r[:, :, None])[:, :, 0],
        (r * r).sum(axis=1),
        np.full(n_users, 1.0 * n_rounds),
    )


def test_the_mixture_finds_the_clusters():
    """Three clusters of 20 users: the most likely component of each user is near its centre."""
    centres, sums = clustered_sums(6)
    model = PopulationMixture(5, noise=0.3, scale=0.6)(sums)
    own = (model.condition_on_sums(sums)[0] + model.log_state_prior).argmax(axis=1)
    offset = model.weights[own] - centres[np.arange(60) % 3]
    assert np.linalg.norm(offset, axis=1).max() < 0.15


def test_em_never_falls():
    _, sums = clustered_sums(7)
    learner = PopulationMixture(4, noise=0.3, scale=0.6, prior_variance=1e-6)
    model = learner._start(sums, np.random.default_rng(0))
    heights = []
    for _ in range(25):
        model, height = learner.sweep(model, sums)
        heights.append(height)
    assert (np.diff(heights[:-1]) > -1e-2).all()  # priors on shares and covariances cost little
    assert heights[-1] > heights[0] + 10


def test_users_without_rounds_do_not_count():
    _, sums = clustered_sums(8)
    more = UserSums(*(np.concatenate([a, np.zeros((7, *a.shape[1:]))]) for a in sums))
    learner = PopulationMixture(3, noise=0.3, scale=0.6)
    np.testing.assert_array_equal(learner(sums).weights, learner(more).weights)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: phased(mmTS, start=mTS(FITTED)), "start must be a policy whose belief"),
        (lambda: phased(mmTS, first=0), "first must be"),
        (lambda: Phased(LinUCB(D), None, mmTS, 5, D, factor=1.0), "factor must be above 1"),
        (lambda: PopulationMixture(0, 0.3, 1.0), "n_components must be"),
        (lambda: PopulationMixture(3, 0.0, 1.0), "noise must be"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
