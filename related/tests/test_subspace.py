"""SOLD and ProBALL: exact cases, limits, unbiasedness, bad input."""

import numpy as np
import pytest

from latentbandits import LinUCB
from latentbandits.models.linear.gaussian import UserSums
from latentbandits.policies.checked import Asked
from latentbandits.testing import check_policy
from latentbandits_related.proball import ProBALL
from latentbandits_related.subspace import learn_subspace, subspace_distance

RNG = np.random.default_rng(31)
BASIS = np.linalg.qr(RNG.normal(size=(4, 2)))[0]


def trajectories(n_users, n_rounds, noise, seed, d=4, scale=1.0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, 2)))[0]
    beta = rng.normal(size=(n_users, 2)) @ basis.T
    x = rng.normal(size=(n_users, n_rounds, d)) * scale
    return basis, beta, x, (x @ beta[:, :, None])[:, :, 0] + noise * rng.normal(size=x.shape[:2])


def test_noiseless_data_give_the_subspace_and_the_moment_exactly():
    basis, beta, x, r = trajectories(30, 12, 0.0, 1)
    actual = learn_subspace(x, r, 2, ridge=1e-9, n_bootstrap=0)
    assert subspace_distance(actual.basis, basis) < 1e-6
    np.testing.assert_allclose(actual.second_moment, beta.T @ beta / 30, atol=1e-6)
    np.testing.assert_allclose(actual.mean, beta.mean(axis=0), atol=1e-6)
    assert learn_subspace(x, r, ridge=1e-9, n_bootstrap=0).basis.shape == (4, 2)


def test_the_trace_is_unbiased_over_seeds():
    """60 logs of 300 users x 6 rounds: the mean trace within 4 standard errors of 2.

    The same without undoing the ridge is found out.
    """
    actual, biased = [], []
    for seed in range(60):
        _, _, x, r = trajectories(300, 6, 0.5, [2, seed])
        actual.append(np.trace(learn_subspace(x, r, 2, n_bootstrap=0).second_moment))
        halves = []
        for h in (0, 1):
            gram = np.einsum("nhd,nhe->nde", x[:, h::2], x[:, h::2]) + np.eye(4)
            halves.append(
                np.linalg.solve(gram, np.einsum("nhd,nh->nd", x[:, h::2], r[:, h::2])[..., None])[
                    ..., 0
                ]
            )
        biased.append(np.trace(halves[0].T @ halves[1]) / 300)
    for values, right in ((actual, True), (biased, False)):
        error = abs(np.mean(values) - 2) / (np.std(values) / np.sqrt(60))
        assert (error < 4) == right


def test_the_bootstrap_estimates_the_error():
    """Over 10 logs, the average bootstrap error is within a factor of two of the true one."""
    ratios = []
    for seed in range(10):
        basis, _, x, r = trajectories(200, 6, 0.5, [3, seed])
        actual = learn_subspace(x, r, 2, n_bootstrap=30, seed=seed)
        ratios.append(actual.error / subspace_distance(actual.basis, basis))
    assert 0.5 < np.exp(np.mean(np.log(ratios))) < 2


def test_ragged_trajectories_and_the_prior():
    _, _, x, r = trajectories(50, 9, 0.3, 4)
    lengths = RNG.integers(2, 10, size=50)
    actual = learn_subspace(
        [row[:n] for row, n in zip(x, lengths, strict=True)],
        [row[:n] for row, n in zip(r, lengths, strict=True)],
        2,
        n_bootstrap=10,
    )
    prior = actual.prior(noise=0.3)
    assert prior.n_states == 1
    values = np.linalg.eigvalsh(prior.covariances[0])[::-1]
    rest = actual.error**2 * actual.eigenvalues[:2].sum() / 2
    np.testing.assert_allclose(values, [*(actual.eigenvalues[:2] + rest), rest, rest], atol=1e-9)


def test_a_logging_policy_that_knows_the_user_is_found_out():
    rng = np.random.default_rng(5)
    beta = rng.normal(size=(300, 3))
    offered = rng.normal(size=(300, 8, 5, 3))
    best = (offered @ beta[:, None, :, None])[..., 0].argmax(axis=2)
    x = np.take_along_axis(offered, best[:, :, None, None], axis=2)[:, :, 0]
    r = (x @ beta[:, :, None])[:, :, 0] + 0.5 * rng.normal(size=(300, 8))
    with pytest.warns(UserWarning, match="depend on the user's weights"):
        learn_subspace(x, r, 2, n_bootstrap=0)


@pytest.mark.parametrize(
    ("features", "rewards", "options", "words"),
    [
        (np.ones((5, 1, 2)), np.ones((5, 1)), {}, "user 0 has a single round"),
        (np.ones((1, 4, 2)), np.ones((1, 4)), {}, "at least two users"),
        (np.ones((5, 4, 2)), np.ones((5, 3)), {}, "4 rounds of features and 3 rewards"),
        ([np.ones((4, 2)), np.ones((4, 3))], np.ones((2, 4)), {}, "same number of features"),
        (RNG.normal(size=(5, 4, 2)), np.ones((5, 4)), {"rank": 3}, "rank must be at most"),
        (RNG.normal(size=(5, 4, 2)), np.ones((5, 4)), {"rank": 0}, "rank must be"),
        (RNG.normal(size=(5, 4, 2)), np.full((5, 4), np.nan), {}, "must be finite"),
        (RNG.normal(size=(5, 4, 2)), np.ones((5, 4)), {"ridge": 0.0}, "ridge must be"),
    ],
)
def test_bad_trajectories_are_refused(features, rewards, options, words):
    with pytest.raises(ValueError, match=words):
        learn_subspace(features, rewards, **options)


def features(n, rng):
    return rng.normal(size=(n, 5, 4))


@pytest.mark.parametrize("combine", ["switch", "min"])
def test_proball_keeps_its_promises(combine):
    check_policy(ProBALL(BASIS, 0.3, 0.5, 50, combine, threshold=0.7), 5, context=features)


def played(policy, seed, n_rounds=30):
    rng = np.random.default_rng(seed)
    belief = policy.init()
    for _ in range(n_rounds):
        x = features(1, rng)
        decision = policy.decide(belief, x, np.random.default_rng(0))
        belief = policy.update(belief, x, decision, rng.normal(size=1))
    return belief


def test_the_whole_space_without_error_is_linucb():
    """U = I and Delta = 0: low = full = LinUCB's index with alpha = r(V)."""
    policy = ProBALL(np.eye(4), 0.0, 0.5, 100, ridge=2.0, bound=1.5)
    belief = played(policy, 6)
    x = features(1, RNG)
    gram = belief.gram[0] + 2 * np.eye(4)
    radius = (
        0.5 * np.sqrt(np.log(np.linalg.det(gram) / 2.0**4) + 2 * np.log(100)) + np.sqrt(2.0) * 1.5
    )
    linucb = LinUCB(4, alpha=radius, ridge=2.0)
    sums = UserSums(belief.gram, belief.products, np.zeros(1), belief.rounds)
    bare = linucb.model.condition_on_sums(sums)[1]
    for combine in ("min", "switch"):
        same = ProBALL(np.eye(4), 0.0, 0.5, 100, combine, ridge=2.0, bound=1.5)
        actual, expected = (
            same._scores(belief, Asked(x, None, None)),
            linucb._scores(bare, Asked(x, None, None)),
        )
        np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_the_true_subspace_is_linucb_in_its_own_coordinates():
    policy = ProBALL(BASIS, 0.0, 0.5, 100, "switch")
    small = ProBALL(np.eye(2), 0.0, 0.5, 100, "switch")
    belief = played(policy, 7)
    x = features(1, np.random.default_rng(8))
    inner = small.init()._replace(
        gram=BASIS.T @ belief.gram @ BASIS,
        products=belief.products @ BASIS,
        rounds=belief.rounds,
    )
    np.testing.assert_allclose(
        policy._scores(belief, Asked(x, None, None)),
        small._scores(inner, Asked(x @ BASIS, None, None)),
        atol=1e-9,
    )


def test_the_switch_happens_where_it_should():
    """Delta sqrt(t) reaches 0.5 at t = 25 for Delta = 0.1."""
    low = ProBALL(BASIS, 0.1, 0.5, 100, "switch", threshold=1e9)
    switch = ProBALL(BASIS, 0.1, 0.5, 100, "switch", tau=1.0, threshold=0.5)
    belief = played(low, 9)
    x = features(1, np.random.default_rng(10))
    for rounds, early in ((24.0, True), (25.0, False)):
        at = belief._replace(rounds=np.array([rounds]))
        actual, expected = (
            switch._scores(at, Asked(x, None, None)),
            low._scores(at, Asked(x, None, None)),
        )
        assert np.array_equal(actual, expected) == early


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ProBALL(2 * BASIS, 0.0, 0.5, 9), "orthonormal columns"),
        (lambda: ProBALL(BASIS.T, 0.0, 0.5, 9), "k <= d"),
        (lambda: ProBALL(BASIS, -0.1, 0.5, 9), "error must be"),
        (lambda: ProBALL(BASIS, 0.1, 0.5, 9, "max"), "combine must be"),
        (lambda: ProBALL(BASIS, 0.1, 0.0, 9), "noise must be"),
        (lambda: ProBALL(BASIS, 0.1, 0.5, 0), "horizon must be"),
    ],
)
def test_policies_that_cannot_be_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
