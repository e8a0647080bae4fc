"""The bootstrap: aligned, as wide as the truth is far, and the prior no narrower for it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from latentbandits.learning import learners, user_hash
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.arms.mixture import Problem, ascend, start_at
from latentbandits.learning.backends.backend import engine_of, summary_of
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.learners import (
    Candidate,
    Disagreement,
    Learned,
    align,
    bootstrap,
    prior_errors,
)
from latentbandits.learning.linear.alternating import CompletionSettings, complete_fold
from latentbandits.learning.linear.clusters import cluster_fold
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.linear.variational import factorise
from latentbandits.learning.logs.rows import read_log
from latentbandits.models.arms.gaussian import Gaussian, GaussianArms
from latentbandits.models.linear.gaussian import LinearGaussian
from tests.unit.test_selection import ratings_log


def test_align_finds_any_permutation():
    rng = np.random.default_rng(0)
    reference = rng.random((6, 4))
    order = rng.permutation(6)
    np.testing.assert_array_equal(reference[order][align(reference[order], reference)], reference)


def test_align_by_what_counts():
    reference = np.array([[0.0, 0.0], [1.0, 1.0]])
    rewards = np.array([[0.0, 9.0], [1.0, -9.0]])  # the second action is hardly ever played
    assert align(rewards, reference).tolist() == [1, 0]
    assert align(rewards, reference, np.array([1.0, 1e-6])).tolist() == [0, 1]


@pytest.fixture(scope="module")
def arms():
    truth = generate_arms(n_users=600, n_rounds=20, n_states=3, n_actions=5, seed=2)
    learner = ArmsLearner(n_starts=5, by_action=False)
    chosen = Candidate(3, None)
    learned = learner.learn(truth.log, chosen, 0)
    return truth, learned, bootstrap(learner, truth.log, learned, 25)


def test_fits_of_arms_disagree_as_much_as_their_spread_says(arms):
    """Both estimate the same sampling error when the mixture is true."""
    _, learned, actual = arms
    deviations = np.sqrt((actual.rewards**2).mean(axis=0))
    ratio = np.sqrt(np.mean(deviations**2) / np.mean(learned.model.spread**2))
    assert 0.8 < ratio < 1.25


def test_without_alignment_fits_would_seem_to_disagree(arms):
    """The planted bug: states of each refit in a random order."""
    _, learned, actual = arms
    rng = np.random.default_rng(0)
    reference = learned.rewards()
    mixed = np.array([(d + reference)[rng.permutation(3)] - reference for d in actual.rewards])
    assert np.abs(mixed).mean() > 5 * np.abs(actual.rewards).mean()


def test_the_truth_is_within_epsilon(arms):
    truth, learned, actual = arms
    means = learned.model.means
    error = np.abs(means[align(means, truth.means)] - truth.means).max()
    assert error < actual.epsilon(0.05) * 1.5
    assert actual.epsilon(0.5) < actual.epsilon(0.05)
    rng_errors = prior_errors(learned, np.ones(5, bool))
    assert 0.5 < np.median(rng_errors) / actual.epsilon(0.5) < 2


def test_widening_never_narrows(arms):
    _, learned, actual = arms
    wide = ArmsLearner().widened(learned, actual).model
    assert (wide.spread >= learned.model.spread - 1e-12).all()
    np.testing.assert_array_equal(wide.means, learned.model.means)
    doubled = Disagreement(actual.rewards * 10, actual.shares)
    wider = ArmsLearner().widened(learned, doubled).model
    assert (wider.spread > 2 * learned.model.spread).all()


def test_a_linear_model_is_widened_by_the_variance_of_its_means():
    log, _ = ratings_log(n_users=300, n_actions=60, n_states=2, density=0.4, separation=2.0)
    learner = LinearLearner(reg=1.0, sweeps=10)
    chosen = Candidate(2, 3)
    learned = learner.learn(log, chosen, 0)
    actual = bootstrap(learner, log, learned, 6)
    # By hand: fits whose rewards differ by +-c times the first feature in one state, and by +-2c
    # times the second in the other, have weights (+-c, 0, ...) and (0, +-2c, ...).
    x, c = learned.features, 0.05
    by_hand = np.array([c, -c])[:, None, None] * np.stack([x[:, 0], 2 * x[:, 1]])
    wide = learner.widened(learned, Disagreement(by_hand, actual.shares[:2])).model
    added = wide.covariances - learned.model.covariances
    expected = np.zeros_like(added)
    expected[0, 0, 0], expected[1, 1, 1] = c**2, 4 * c**2
    np.testing.assert_allclose(added, expected, atol=0.02 * c**2)
    # What features can express of the fits' variance is in the variance of predictions.
    added = actual.in_features(learned)
    root = np.sqrt(learned.counts)[:, None]
    span = np.linalg.qr(x * root)[0]
    weighted = np.nan_to_num(actual.rewards).swapaxes(1, 2) * root  # (n_fits, n_actions, n_states)
    within = span @ (span.T @ weighted)
    for s in range(2):
        measured = np.einsum("bas,bas->", within[..., s : s + 1], within[..., s : s + 1]) / 6
        predicted = np.trace((x * root) @ added[s] @ (x * root).T)
        assert predicted == pytest.approx(measured, rel=0.1)


def test_a_surplus_rank_is_cut_and_not_widened():
    """200 users x 80 items of true rank 1: the prior stays as wide as without a bootstrap."""
    from latentbandits.learning.fitting import fit

    log = rank_one_log()
    options = {"kind": "linear", "states": 1, "rank": 10, "seed": 1, "assess": False}
    plain, wide = (fit(log, **options, bootstrap=n) for n in (0, 4))
    for one in (plain, wide):
        assert one.catalogue.features.shape[1] == 3  # one taste, a level and a popularity
    narrow, broad = (
        np.sqrt(learners.predictive_variance(Learned(f.model, f.catalogue.features, None)))
        for f in (plain, wide)
    )
    assert (broad >= narrow).all()
    assert (broad < 1.05 * narrow).all()
    assert wide.report["widening"]["scale"] == 1.0


def test_directions_that_features_do_not_express_get_no_variance():
    """The planted bug: least squares without a prior gives them a variance of 10^10."""
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.standard_normal(40), 1e-6 * rng.standard_normal(40)])
    model = LinearGaussian([[0.0, 0.0]], 1.0, [np.eye(2)])
    learned = Learned(model, features, np.full(40, 50))
    differences = Disagreement(0.1 * rng.standard_normal((8, 1, 40)), np.zeros((8, 1)))
    added = differences.in_features(learned)[0]
    assert added[1, 1] < 1e-6
    assert 1e-5 < added[0, 0] < 1e-2
    lstsq = [np.linalg.lstsq(features, row[0], rcond=None)[0] for row in differences.rewards]
    assert np.var(np.array(lstsq)[:, 1]) > 1e6
    # Never more than the users of the state vary, in any direction.
    most = differences.scaled(1e9).in_features(learned)[0]
    assert np.linalg.eigvalsh(most)[-1] <= 1 + 1e-9


def test_widening_stops_where_logged_rewards_say_so():
    truth = generate_arms(n_users=200, n_rounds=20, n_states=2, n_actions=4, seed=5)
    learner, chosen = ArmsLearner(n_starts=2, by_action=False), Candidate(2, None)
    learned = learner.learn(truth.log, chosen, 0)
    summary = summary_of(truth.log)
    unit = Disagreement(np.ones((2, 2, 4)), np.zeros((2, 2)))
    deviation = summary.rewards.deviation
    for size, scale in [(0.1, 1.0), (2.0, 0.25), (100.0, 0.0)]:
        wide, report = learners.widened(learner, learned, unit.scaled(size * deviation), summary)
        assert report["scale"] == scale
        limit = np.maximum(learners.logged_variance(summary), learners.predictive_variance(learned))
        assert (learners.predictive_variance(wide) <= 1.25**2 * limit).all()


def test_errors_fall_with_the_root_of_the_number_of_users():
    """A fit to four times as many users has half the error; states are in its own order."""
    few, many = (
        Learned(GaussianArms(means, 0.5), None, np.array([9, 9]))
        for means in ([[0.0, 1.0], [5.0, 6.0]], [[5.1, 6.1], [0.1, 1.1]])
    )
    actual = Disagreement(np.array([[[0.4, 0.8], [2.0, 4.0]]]), np.array([[0.2, -0.2]]))
    scaled = actual.of_more_users(few, many, 0.25)
    np.testing.assert_allclose(scaled.rewards, [[[1.0, 2.0], [0.2, 0.4]]])
    np.testing.assert_allclose(scaled.shares, [[-0.1, 0.1]])


def rank_one_log(n_users=200, n_actions=80, n_ratings=25, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    tastes, items = rng.standard_normal(n_users), rng.standard_normal(n_actions)
    users = np.repeat(np.arange(n_users), n_ratings)
    actions = np.concatenate(
        [rng.choice(n_actions, n_ratings, replace=False) for _ in range(n_users)]
    )
    rewards = tastes[users] * items[actions] + noise * rng.standard_normal(len(users))
    return read_log({"u": users, "a": actions, "r": rewards}, "u", "a", "r")


def repeated(log, seed):
    """The log in which each user occurs as often as its weight in the first replicate says."""
    weights = user_hash.bootstrap_weights(log.keys, 1, seed)[:, 0].astype(int)
    rows = [
        (f"{u} {copy}", log.action_ids[log.actions[event]], float(log.rewards[event]))
        for u in range(log.n_users)
        for copy in range(weights[u])
        for event in range(log.starts[u], log.starts[u + 1])
    ]
    users, actions, rewards = zip(*rows, strict=True)
    again = read_log({"u": users, "a": actions, "r": rewards}, "u", "a", "r")
    assert again.action_ids == log.action_ids
    return again


@pytest.mark.parametrize("learn", ["least squares", "clicks", "uncertain vectors"])
def test_a_replicate_of_a_completion_is_a_fit_to_repeated_users(learn):
    log = rank_one_log(n_users=40, n_actions=12, n_ratings=10)
    if learn == "clicks":
        log = replace(log, rewards=(np.asarray(log.rewards) > 0).astype(float))
    link = "logit" if learn == "clicks" else "identity"
    settings = CompletionSettings(2, 0.5, "plain", True, link, seed=3, sweeps=4)
    run = complete_fold
    if learn == "uncertain vectors":
        start = factorise(engine_of(log), settings, passes=2).uncertain
        run = partial(factorise, passes=2, start=start)
    replicate = run(engine_of(log), replace(settings, replicate=0))
    copies = run(engine_of(repeated(log, 3)), settings)
    np.testing.assert_allclose(replicate.features, copies.features, rtol=1e-7, atol=1e-9)
    one, other = (cluster_fold(each, 1, smallest=2).model for each in (replicate, copies))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-8)
    np.testing.assert_allclose(one.covariances, other.covariances, atol=1e-8)
    whole = run(engine_of(log), settings)
    assert np.abs(whole.features - copies.features).max() > 1e-3


def test_a_replicate_of_a_mixture_is_a_fit_to_repeated_users():
    log = generate_arms(n_users=60, n_rounds=10, n_states=2, n_actions=3, seed=4).log
    family = Gaussian()
    start = ascend(Problem.from_log(family, log), start_of(family, log), max_passes=3).mixture
    with_weights = Problem.from_log(family, log, n_replicates=1, seed=7)
    with_copies = Problem.from_log(family, repeated(log, 7))
    one, other, whole = (
        ascend(problem, start, max_passes=5).mixture
        for problem in (with_weights, with_copies, Problem.from_log(family, log))
    )
    np.testing.assert_allclose(one.phi, other.phi, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(one.shares, other.shares, rtol=1e-8)
    assert np.abs(one.shares - whole.shares).max() > 1


def start_of(family, log):
    means = np.array([[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]])
    return start_at(Problem.from_log(family, log), means, np.array([0.5, 0.5]))


def test_an_action_that_no_resample_saw_counts_for_nothing():
    rewards = np.zeros((2, 1, 2))
    rewards[:, 0, 0] = [0.1, -0.3]
    rewards[:, 0, 1] = np.nan
    actual = Disagreement(rewards, np.zeros((2, 1)))
    assert actual.epsilon(0.5) == pytest.approx(0.3)
    assert actual.typical(np.array([4, 4])) == pytest.approx(np.sqrt((0.01 + 0.09) / 2))


def test_a_model_that_is_wider_than_the_log_is_found():
    log = generate_arms(n_users=300, n_rounds=20, n_states=2, n_actions=3, seed=1).log
    means, counts = np.zeros((1, 3)), np.bincount(log.actions, minlength=3)
    logged = np.sqrt(learners.logged_variance(summary_of(log)))

    def said(model):
        return learners.excess_spread(Learned(model, None, counts), summary_of(log), log.action_ids)

    assert said(GaussianArms(means, 0.9 * logged.min(), 0.5 * logged)) == ""
    # The planted bugs: users who differ too much for one action, and too much noise.
    spread = np.array([0.5, 1.3, 0.5]) * logged
    assert f"for {log.action_ids[1]} to differ between users 1.3 times" in said(
        GaussianArms(means, 0.5, spread)
    )
    assert "vary 1.4 times" in said(GaussianArms(means, 1.4 * log.rewards.std(), 0.01))
