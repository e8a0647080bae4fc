"""The variational mixture against a textbook loop, enumeration and a numerical Hessian."""

from functools import reduce

import numpy as np
import pytest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    ExponentialArms,
    GaussianArms,
    HurdleGammaArms,
    HurdleLogNormalArms,
    PoissonArms,
)
from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.learner import finish, observed
from latentbandits.learning.arms.mixture import Prepare, Problem, ascend, best_of
from latentbandits.learning.backends.backend import add
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.logs.rows import Log, make_family
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.mixture import fit_mixture
from latentbandits.models.arms.gaussian import Gaussian
from latentbandits.models.registry import reward_families
from tests.reference import mixture as textbook


def small_log(rewards, n_users=5, n_rounds=4, n_actions=2, seed=0):
    """Rewards of any family, for users of two kinds."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), n_rounds)
    actions = rng.integers(n_actions, size=len(users))
    level = np.array([0.2, 0.8])[users % 2]
    values = {
        "gaussian": level + rng.normal(0, 0.3, len(users)),
        "bernoulli": (rng.random(len(users)) < level).astype(float),
        "poisson": rng.poisson(4 * level).astype(float),
        "exponential": rng.exponential(level),
        "categorical": 1.0 + rng.binomial(2, level),
        "hurdle-lognormal": level * np.exp(rng.normal(0, 0.5, len(users))),
        "hurdle-gamma": rng.gamma(2.0, level / 2),
    }[rewards]
    if rewards.startswith("hurdle"):
        values = np.where(rng.random(len(users)) < 0.4, 0.0, values)
        values[[0, -1]] = 0.0, 0.7
    ids = [tuple(str(i) for i in range(n)) for n in (n_users, n_actions)]
    return Log(users, actions, values, *ids)


def problem_of(log, rewards):
    family = make_family(rewards, log.rewards)
    if isinstance(family, Gaussian):
        family = family.with_noise(0.3)
    return Problem.from_log(family, log)


def start_of(problem, n_states, kappa=2.0, seed=0):
    """A mixture whose states have seen the users with random weights."""
    rng = np.random.default_rng(seed)
    family, strength = problem.family, np.array([kappa])
    noise = family.first_noise(problem.totals.statistics[0], 1)
    weights = rng.dirichlet(np.ones(n_states))
    sums = (
        weights[:, None, None] * problem.totals.statistics * rng.uniform(0.5, 1, (n_states, 1, 1))
    )
    phi = family.posterior(family.prior(problem.centre, strength), sums[None], noise)
    return vb.Mixture(phi, 1 + 3 * weights[None], strength, noise)


def pooled_prior(problem, kappa, noise=None):
    """The pooled prior as a model of one state, in the units of the rewards."""
    family, centre = problem.family, problem.centre
    prior = family.prior(centre, np.array([kappa]))[0, :1]
    if family.family_name == "gaussian":
        spread = family.scale / np.sqrt(kappa)
        return GaussianArms((family.shift + family.scale * centre[:, 1])[None], 0.3, spread)
    if family.family_name == "categorical":
        return CategoricalArms(prior, family.values)
    if family.family_name == "hurdle-lognormal":
        mean = prior[..., 2] / prior[..., 3]
        return HurdleLogNormalArms(
            prior[..., 0], prior[..., 1], mean, prior[..., 3] ** -0.5, np.sqrt(noise)
        )
    if family.family_name == "hurdle-gamma":
        return HurdleGammaArms(*np.moveaxis(prior, -1, 0), power=1 / noise)
    kind = {"bernoulli": BernoulliArms, "poisson": PoissonArms, "exponential": ExponentialArms}
    return kind[family.family_name](prior[..., 0], prior[..., 1])


def fixed_strength(problem, mixture):
    """A step whose strength stays."""
    after = problem.step(mixture, problem.sums(mixture))
    return after._replace(strength=mixture.strength)


@pytest.mark.parametrize("rewards", reward_families())
def test_the_elbo_of_one_state_is_the_log_evidence(rewards):
    log = small_log(rewards)
    problem = problem_of(log, rewards)
    mixture = fixed_strength(problem, start_of(problem, 1))
    if rewards.startswith("hurdle"):  # until q is that of the estimated noise
        for _ in range(400):
            mixture = fixed_strength(problem, mixture)
    bound = problem.elbo(mixture, problem.sums(mixture))[0]
    noise = mixture.noise[0, 0]
    exact = textbook.log_evidence(log, pooled_prior(problem, 2.0, noise), 1)
    if rewards == "hurdle-lognormal":  # the weak prior of the noise
        exact -= 0.5 * (np.log(noise) + 1e-4 / noise)
    assert bound == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("rewards", reward_families())
def test_the_elbo_is_below_the_log_evidence_of_all_assignments(rewards):
    log = small_log(rewards)
    problem = problem_of(log, rewards)
    mixture = start_of(problem, 2)
    for _ in range(50):
        mixture = fixed_strength(problem, mixture)
    bound = problem.elbo(mixture, problem.sums(mixture))[0]
    exact = textbook.log_evidence(log, pooled_prior(problem, 2.0, mixture.noise[0, 0]), 2)
    assert exact - 3.0 < bound < exact


def test_a_step_is_that_of_the_textbook():
    log = small_log("bernoulli", n_users=12, n_rounds=7, n_actions=3, seed=1)
    problem = problem_of(log, "bernoulli")
    mixture = start_of(problem, 2)
    sums = problem.sums(mixture)
    after = problem.step(mixture, sums)
    alpha, beta, w, bound = textbook.bernoulli_step(
        log, *mixture.phi[0].transpose(2, 0, 1), mixture.shares[0], 2.0, problem.centre[:, 0]
    )
    np.testing.assert_allclose(after.phi[0, ..., 0], alpha, rtol=1e-10)
    np.testing.assert_allclose(after.phi[0, ..., 1], beta, rtol=1e-10)
    np.testing.assert_allclose(after.shares[0], w, rtol=1e-10)
    assert problem.elbo(mixture, sums)[0] == pytest.approx(bound, rel=1e-10)


@pytest.mark.usefixtures("small_buckets")
def test_sums_of_partitions_add_whatever_the_order_of_users():
    log = generate_arms(n_users=2100, n_rounds=5, n_states=2, n_actions=3, seed=1).log
    family = make_family("gaussian", log.rewards)
    problem = Problem.from_log(family, log)
    assert problem.engine.n_buckets == 4
    mixture = start_of(problem, 3)
    current = vb.broadcast(family, mixture)
    together = problem.sums(mixture)
    alone = [Prepare(family)(log.of_users(np.array([u]))) for u in range(log.n_users)]
    backwards = reduce(add, [vb.summarise(part, current) for part in alone[::-1]])
    shuffled = log.of_users(np.random.default_rng(0).permutation(log.n_users))
    elsewhere = Problem.from_log(family, shuffled).sums(mixture)
    for other in (backwards, elsewhere):
        for mine, theirs in zip(together, other, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_sparse_and_full_statistics_give_the_same_sums():
    log = small_log("categorical", n_users=40, n_rounds=3, n_actions=30)
    family = make_family("categorical", log.rewards)
    part = Prepare(family)(log)
    assert not isinstance(part.statistics, np.ndarray), "3 of 90 entries: sparse"
    current = vb.broadcast(family, start_of(Problem.from_log(family, log), 2))
    from dataclasses import replace

    full = replace(part, statistics=part.statistics.toarray())
    for mine, theirs in zip(vb.summarise(part, current), vb.summarise(full, current), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("rewards", ["bernoulli", "poisson", "gaussian", "exponential"])
def test_the_estimation_error_is_that_of_the_numerical_hessian(rewards):
    """Of the marginal likelihood in means and log odds, plus the pooled prior's own precision."""
    log = small_log(rewards, n_users=600, n_rounds=3 if rewards == "gaussian" else 5, seed=3)
    problem = problem_of(log, rewards)
    ascent = best_of(problem, 2, tolerance=1e-9)
    mixture, family = ascent.mixture, problem.family
    means, shares = family.moments(mixture.phi[0])[0], mixture.state_prior()[0]
    prior = family.prior(problem.centre, mixture.strength)[0]
    spread = family.moments(prior)[1][0]

    def height(vector):
        theta = vector[:-1].reshape(means.shape)
        share = 1 / (1 + np.exp(-vector[-1]))
        mine = theta[:, log.actions]
        density = {
            "bernoulli": lambda: np.where(log.rewards == 1, np.log(mine), np.log(1 - mine)),
            "poisson": lambda: log.rewards * np.log(mine) - mine,
            "exponential": lambda: -np.log(mine) - log.rewards / mine,
            "gaussian": lambda: -0.5 * ((log.rewards - mine) / 0.3) ** 2,
        }[rewards]()
        return textbook.marginal_log_likelihood(log, density, [share, 1 - share])

    at = np.append(means.ravel(), np.log(shares[0] / shares[1]))
    step = 1e-4
    size = len(at)
    hessian = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            corners = [
                sign * height(at + step * (a * np.eye(size)[i] + b * np.eye(size)[j]))
                for a, b, sign in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
            ]
            hessian[i, j] = sum(corners) / (4 * step**2)
    information = -hessian
    information[range(size - 1), range(size - 1)] += 1 / np.tile(spread, 2)
    expected = np.sqrt(np.diag(np.linalg.inv(information))[:-1]).reshape(means.shape)
    actual = np.sqrt(observed(problem, mixture).variance)
    np.testing.assert_allclose(actual, expected, rtol=0.08)
    variational = np.sqrt(family.moments(mixture.phi[0])[1])
    assert (variational < 0.97 * actual).any(), "the planted mistake: q's own spread is too small"


def test_both_parts_of_the_prior_add():
    log = small_log("bernoulli", n_users=60, n_rounds=10)
    problem = problem_of(log, "bernoulli")
    fitted = finish(problem, ascend(problem, start_of(problem, 2)))
    model = fitted.with_strength(50.0).model()
    mean, variance = model.posterior_rewards(model.parameters(1), None)
    np.testing.assert_allclose(mean[0], fitted.means, rtol=1e-9)
    expected = fitted.estimation + fitted.means * (1 - fitted.means) / 51
    np.testing.assert_allclose(variance[0], expected, rtol=1e-9)
    np.testing.assert_array_equal(fitted.within, 0.0)


@pytest.mark.parametrize("rewards", reward_families())
def test_every_family_gives_its_own_model(rewards):
    log = small_log(rewards, n_users=80, n_rounds=12)
    fit = fit_mixture(log, 2, rewards=rewards)
    assert fit.model.reward_family().family_name == rewards
    assert fit.converged
    assert np.diff(fit.elbos).min() > -1e-9
    assert (np.diff(fit.model.state_prior) <= 0).all(), "states by falling share"
    again = fit_mixture(log, 2, rewards=rewards)
    np.testing.assert_array_equal(again.fitted.means, fit.fitted.means)


def test_states_without_users_are_dropped():
    log = generate_arms(n_users=400, n_rounds=40, n_states=2, n_actions=4, seed=2).log
    assert fit_mixture(log, 2).model.n_states == 2
    assert fit_mixture(log, 6).model.n_states < 6


def test_an_unseen_action_keeps_the_pooled_prior():
    log = generate_arms(n_users=100, n_rounds=20, n_states=2, n_actions=3, seed=0).log
    wide = Log(log.users, log.actions, log.rewards, log.user_ids, (*log.action_ids, "never"))
    model = fit_mixture(wide, 2).model
    np.testing.assert_allclose(model.means[:, 3], log.rewards.mean(), atol=1e-6)
    assert (model.spread[:, 3] > 2 * model.spread[:, 0]).all()


def test_a_shift_and_a_scale_of_gaussian_rewards_shift_and_scale_the_model():
    log = generate_arms(n_users=200, n_rounds=20, n_states=2, n_actions=3, seed=0).log
    far = Log(log.users, log.actions, 1e6 + 1e3 * log.rewards, log.user_ids, log.action_ids)
    one, other = fit_mixture(log, 2).model, fit_mixture(far, 2).model
    np.testing.assert_allclose(other.means, 1e6 + 1e3 * one.means, rtol=1e-9)
    np.testing.assert_allclose(other.spread, 1e3 * one.spread, rtol=1e-4)
    assert other.noise == pytest.approx(1e3 * one.noise, rel=1e-5)


def test_what_cannot_be():
    log = small_log("gaussian", n_users=12)
    with pytest.raises(LogError, match="13 states are more than the log's 12 users"):
        fit_mixture(log, 13)
    wide = Log(log.users, log.actions, log.rewards, log.user_ids, tuple(map(str, range(2600))))
    with pytest.raises(LogError, match="use --kind linear"):
        fit_mixture(wide, 2)
    with pytest.raises(ValueError, match="noise"):
        fit_mixture(log, 2, noise=-1.0)
    with pytest.raises(LogError, match="noise is for gaussian rewards"):
        fit_mixture(small_log("poisson"), 2, rewards="poisson", noise=1.0)
