"""Catalogues that change: actions added at the end, actions of which nothing is known, retiring."""

import numpy as np
import pytest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    ExponentialArms,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    Log1pRewards,
    LogisticLinear,
    PoissonArms,
    mmTS,
    save,
)
from latentbandits.models import growing
from latentbandits.models.artefacts import Catalogue, load_catalogue
from latentbandits.policies import Decision

ARMS = [
    GaussianArms, GaussianArmsUnknownNoise, BernoulliArms, PoissonArms, ExponentialArms,
    CategoricalArms,
]  # fmt: skip
LINEAR = [LinearGaussian, LinearGaussianUnknownNoise, LogisticLinear]


def moments(model, context=None):
    mean, variance = model.posterior_rewards(model.parameters(1), context)
    return mean[0], variance[0]


@pytest.mark.parametrize("kind", ARMS)
def test_an_added_arm_has_the_prior_that_was_asked_for(kind):
    model = kind.random(np.random.default_rng(0), 2, 5)
    known, spread = moments(model)
    wanted = known[:, :1] * 0.5 + known[:, 1:2] * 0.5
    variance = 0.7 * spread[:, :1]
    grown, catalogue = growing.add_arms(model, Catalogue("abcde"), ["f"], wanted, variance)
    assert catalogue.ids == tuple("abcdef")
    mean, after = moments(grown)
    np.testing.assert_allclose(mean[:, :5], known)
    np.testing.assert_allclose(after[:, :5], spread)
    np.testing.assert_allclose(mean[:, 5:], wanted, rtol=1e-4)
    np.testing.assert_allclose(after[:, 5:], variance, rtol=1e-4)


@pytest.mark.parametrize("kind", ARMS)
def test_what_a_session_learned_does_not_change_when_an_action_is_added(kind):
    """The rewards of earlier actions give the same P(s) and the same means afterwards."""
    model = kind.random(np.random.default_rng(1), 3, 4)
    grown, _ = growing.add_average(model, Catalogue("abcd"), ["e", "f"])
    rng = np.random.default_rng(2)
    theta = model.draw_theta(np.array([1]), rng)
    rounds = [(a, model.draw_rewards(theta, None, rng)[0, a]) for a in (0, 3, 3, 1, 2, 0)]
    results = []
    for one in (model, grown):
        policy = mmTS(one)
        belief = policy.init()
        for action, reward in rounds:
            decision = Decision(np.array([action]), np.array([0]), None, "none", "mmTS")
            belief = policy.update(belief, None, decision, [reward])
        results.append((policy.state_probabilities(belief), moments_of(one, belief)[:, :, :4]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-9)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-9)


def moments_of(model, belief):
    return model.posterior_rewards(belief.parameters, None)[0]


@pytest.mark.parametrize("kind", LINEAR)
def test_the_uncertainty_of_a_vector_enters_the_reward_variance(kind):
    rng = np.random.default_rng(3)
    model = kind.random(rng, 2, 3)
    rows = rng.standard_normal((6, 3))
    catalogue = Catalogue("abcdef", features=rows)
    factor = rng.standard_normal((3, 3)) / 3
    covariance = factor @ factor.T
    vector = rng.standard_normal(3)
    grown, more = growing.add_vectors(
        model, catalogue, ["new"], vector[None], covariance[None], ["a new one"]
    )
    assert more.names[-1] == "a new one"
    assert more.n_offsets == growing.OFFSETS
    np.testing.assert_allclose(growing.plain_features(grown, more)[:6], rows)
    if kind is LogisticLinear:
        return
    before, after = moments(model, rows[None]), moments(grown, more.context("abcdef"))
    np.testing.assert_allclose(before[0], after[0])
    np.testing.assert_allclose(before[1], after[1], atol=1e-12)
    mean, variance = moments(grown, more.context(["new"]))
    certain = moments(model, vector[None, None])
    np.testing.assert_allclose(mean, certain[0])
    # Brute force: vectors drawn from N(vector, covariance), weights drawn from the prior.
    vectors = rng.multivariate_normal(vector, covariance, 200_000)
    brute = []
    for state in range(2):
        theta = model.draw_theta(np.full(200_000, state), rng)
        theta = theta[0] if isinstance(theta, tuple) else theta
        brute.append(np.einsum("nd,nd->n", vectors, np.asarray(theta)).var())
    average = np.exp(model.log_state_prior[0]) @ variance[:, 0]
    assert average == pytest.approx(np.mean(brute), rel=0.03)


def grown_by(n, at_once):
    """A linear model of two actions with `n` uncertain ones added, at once or one after another."""
    model = LinearGaussian([[1.0, 0.0]], 0.5, [np.eye(2)])
    catalogue = Catalogue(["a", "b"], features=[[1.0, 0.0], [0.0, 1.0]])
    names = [f"new {i}" for i in range(n)]
    for some in [names] if at_once else [[name] for name in names]:
        covariances = np.repeat(0.3 * np.eye(2)[None], len(some), axis=0)
        model, catalogue = growing.add_vectors(
            model, catalogue, some, np.ones((len(some), 2)), covariances
        )
    return model, catalogue


@pytest.mark.parametrize("at_once", [True, False])
def test_every_new_action_has_an_offset_of_its_own(at_once):
    _, catalogue = grown_by(11, at_once)
    offsets = catalogue.features[:, 2:] > 0
    assert offsets.sum(axis=1).tolist() == [0] * 2 + [1] * 11
    assert offsets.sum(axis=0).tolist() == [1] * 11 + [0]
    assert catalogue.n_offsets == 12


@pytest.mark.parametrize("at_once", [True, False])
def test_a_reward_for_a_new_action_moves_another_only_by_what_their_vectors_share(at_once):
    """The exact posterior: rewards are x_i'theta + offset_i, offsets are independent.

    Prior covariance of two new actions: 1' I 1 = 2 from theta; each has an offset of variance
    .3 tr((w w' + I)) = .9 of its own. Seven actions, so that four coordinates would be shared.
    """
    model, catalogue = grown_by(7, at_once)
    policy = mmTS(model)
    context = catalogue.context([f"new {i}" for i in range(7)])
    decision = Decision(np.array([0]), np.array([0]), None, "none", "mmTS")
    belief = policy.update(policy.init(), context, decision, [4.0])
    actual = model.posterior_rewards(belief.parameters, context)[0][0, 0]
    surprise = (4.0 - 1.0) / (2 + 0.9 + 0.25)
    np.testing.assert_allclose(actual, [1 + 2.9 * surprise] + [1 + 2 * surprise] * 6)


def test_beyond_the_most_offsets_vectors_are_certain():
    model, catalogue = grown_by(growing.MOST_OFFSETS + 3, at_once=True)
    assert catalogue.n_offsets == growing.MOST_OFFSETS
    _, variance = moments(model, catalogue.features[None])
    np.testing.assert_allclose(variance[0, 2:-3], 2.9)
    np.testing.assert_allclose(variance[0, -3:], 2.0)


def test_a_catalogue_whose_new_actions_share_offsets_gives_the_next_one_its_own():
    """Earlier versions wrote such catalogues."""
    model, catalogue = grown_by(5, at_once=True)
    rows = np.delete(catalogue.features, np.arange(6, 10), axis=1)
    rows[-1, 2] = rows[-2, 5]
    shared = Catalogue(catalogue.ids, features=rows, n_offsets=4)
    narrow = LinearGaussian(model.weights[:, :6], 0.5, model.covariances[:, :6, :6])
    grown, more = growing.add_vectors(
        narrow, shared, ["next"], np.ones((1, 2)), 0.3 * np.eye(2)[None]
    )
    assert more.n_offsets == grown.n_features - 2 == 8
    np.testing.assert_allclose(more.features[:-1, :6], rows)
    assert np.flatnonzero(more.features[-1, 2:]).tolist() == [4]


def test_a_logistic_model_keeps_its_known_offset_last():
    model = LogisticLinear([[1.0], [-1.0]], [np.eye(1)] * 2, offset=True)
    catalogue = Catalogue(["a", "b"], features=[[1.0, 0.3], [2.0, -0.4]])
    grown, more = model, catalogue
    for name in "cdefgh":
        grown, more = growing.add_vectors(
            grown, more, [name], np.array([[1.5, 0.1]]), 0.2 * np.eye(2)[None]
        )
    np.testing.assert_allclose(
        grown.expected_rewards(more.context(["a", "b"])),
        model.expected_rewards(catalogue.context(["a", "b"])),
    )
    np.testing.assert_array_equal(more.features[2:, -1], 0.1)
    assert (more.features[2:, 1:-1] > 0).sum(axis=0).tolist() == [1] * 6 + [0] * 2


def test_an_unknown_action_of_a_linear_model_is_the_average_one_and_wide():
    rng = np.random.default_rng(5)
    model = LinearGaussian(rng.standard_normal((2, 2)), 0.5, [0.1 * np.eye(2)] * 2)
    rows = rng.standard_normal((50, 2))
    grown, more = growing.add_average(model, Catalogue([str(i) for i in range(50)], None, rows),
                                      ["new"])  # fmt: skip
    mean, variance = moments(grown, more.context(["new"]))
    known = moments(model, rows[None])
    np.testing.assert_allclose(mean[:, 0], known[0].mean(axis=1))
    wide = known[0].var(axis=1).mean()
    assert variance.mean() >= wide


def test_a_transformed_model_grows_with_its_smearing():
    inner = GaussianArms([[1.0, 2.0]], 0.5, 0.1)
    model = Log1pRewards(inner, smearing=[1.0, 1.2])
    grown, _ = growing.add_average(model, Catalogue("ab"), ["c"])
    assert grown.n_actions == 3
    assert grown.smearing.tolist() == [1.0, 1.2, 1.1]


def test_a_retired_action_stays_in_its_place_and_in_the_artefact(tmp_path):
    catalogue = Catalogue("abc").retire(["b"])
    assert catalogue.ids == tuple("abc")
    save(GaussianArms([[1.0, 2.0, 3.0]], 0.5), tmp_path / "model", catalogue)
    assert load_catalogue(tmp_path / "model").retired == {"b"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, c: growing.add_average(m, c, ["a"]), "an action 'a' already"),
        (lambda m, c: growing.add_average(m, c, ["x", "x"]), "an action 'x' already"),
        (lambda m, c: c.retire(["z"]), "no action 'z'"),
        (lambda m, c: c.retire(["a", "b"]), "leave at least one"),
        (lambda m, c: growing.add_vectors(m, c, ["x"], np.ones((1, 2))), "no features"),
    ],
)
def test_changes_that_cannot_be_are_refused(change, message):
    model = GaussianArms([[1.0, 2.0]], 0.5)
    with pytest.raises(ValueError, match=message):
        change(model, Catalogue("ab"))
