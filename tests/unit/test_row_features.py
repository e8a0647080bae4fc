"""Features of each row: mixtures of regressions with users as groups."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from latentbandits import LinearGaussian, LogisticLinear, load
from latentbandits.learning import fit
from latentbandits.learning.attributes.encoding import encode
from latentbandits.learning.attributes.regression import (
    PrepareSums,
    RegressionMixture,
    StateRegressions,
    ascend,
    regressions,
)
from latentbandits.learning.backends.backend import MemoryEngine
from latentbandits.learning.logs.rows import Log, LogColumns, read_columns
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.save import save_fit
from latentbandits.learning.user_hash import bootstrap_weights

pytestmark = pytest.mark.usefixtures("small_buckets")

WEIGHTS = np.array([[0.0, 1.0, 0.5], [0.5, -1.0, 0.0]])


def table(n_users=400, n_rounds=12, clicks=False, seed=0):
    rng = np.random.default_rng(seed)
    state = (rng.random(n_users) < 0.4).astype(int)
    who = np.repeat(np.arange(n_users), n_rounds)
    price = rng.uniform(0, 10, len(who))
    country = rng.choice(["AT", "DE"], len(who))
    x = np.stack([np.ones(len(who)), (price - 5) / 2.9, (country == "DE") - 0.5], axis=1)
    theta = WEIGHTS[state] * (2.0 if clicks else 1.0) + 0.2 * rng.standard_normal((n_users, 3))
    mean = np.einsum("ed,ed->e", x, theta[who])
    reward = mean + 0.5 * rng.standard_normal(len(who))
    if clicks:
        reward = (rng.random(len(who)) < 1 / (1 + np.exp(-mean))).astype(float)
    action = rng.integers(6, size=len(who))
    return {"user": who, "action": action, "reward": reward, "price": price, "country": country}


def test_states_and_weights_are_recovered_and_saved(tmp_path):
    actual = fit(table(), features=["price", "country"], bootstrap=2)
    model = actual.model
    assert isinstance(model, LinearGaussian)
    assert model.n_states == 2
    np.testing.assert_allclose(model.state_prior, [0.6, 0.4], atol=0.06)
    np.testing.assert_allclose(model.weights, WEIGHTS, atol=0.12)
    assert model.noise == pytest.approx(0.5, abs=0.03)
    assert model.encoder.labels == ("(intercept)", "price", "country=DE")
    assert actual.report["judgement"]["verdict"] == "helps"
    save_fit(actual, tmp_path / "model")
    assert load(tmp_path / "model").encoder == model.encoder


@pytest.mark.slow
def test_clicks_are_logistic():
    data = table(n_users=200, clicks=True, n_rounds=20)
    model = fit(data, features=["price", "country"], states=2, bootstrap=0, assess=False).model
    assert isinstance(model, LogisticLinear)
    np.testing.assert_allclose(model.weights[:, 1], [2.0, -2.0], atol=0.5)


def test_an_interaction_brings_its_columns_and_their_products():
    model = fit(table(200), features=["price*country"], states=1, bootstrap=0, assess=False).model
    assert model.encoder.labels == ("(intercept)", "price", "country=DE", "price*country=DE")


def test_lists_of_numbers_are_vectors_as_they_are():
    data = table(200)
    x = np.stack([np.ones(len(data["price"])), data["price"] - 5], axis=1)
    data = data | {"features": x.tolist()}
    model = fit(data, features=["features"], states=2, bootstrap=0, assess=False).model
    assert model.n_features == 2
    np.testing.assert_array_equal(model.encoder.encode([{"features": [1.0, 3.0]}]), [[1.0, 3.0]])


def test_the_penalised_evidence_never_falls_and_sums_add():
    rng = np.random.default_rng(1)
    data = table(100, 8)
    x = np.stack([np.ones(800), (data["price"] - 5) / 2.9], axis=1)
    ids = tuple(f"u{i}" for i in range(100)), tuple("abcdef")
    log = Log(data["user"], data["action"], data["reward"], *ids, features=x)
    engine = MemoryEngine(log)
    learner = RegressionMixture(PrepareSums(False), floor=0.01)
    mixture = StateRegressions(
        rng.standard_normal((2, 2)), np.stack([np.eye(2)] * 2), np.full(2, 0.5), 1.0
    )
    one = ((0, mixture),)
    whole = learner.summarise(learner.prepare(log), one)[0]
    halves = [learner.prepare(log.of_users(np.arange(i, 100, 2))) for i in range(2)]
    for ours, a, b in zip(whole, *(learner.summarise(h, one)[0] for h in halves), strict=True):
        np.testing.assert_allclose(ours, a + b, rtol=1e-9)
    before = -np.inf
    for _ in range(40):
        sums = engine.fold(learner, ((0, mixture),))[0]
        now = learner.objective(sums, mixture)
        assert now > before - 1e-6
        mixture, before = learner.step(sums, mixture), now


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["planet"], "no column planet"),
        (["same"], "same value in all rows"),
        (["price*country*same"], "an interaction is of two columns"),
        (["ragged"], "lists of different lengths"),
    ],
)
def test_columns_that_cannot_be_features_are_refused(columns, message):
    data = table(20, 4)
    n = len(data["user"])
    data |= {"same": [1.0] * n, "ragged": [[1.0]] * (n - 1) + [[1.0, 2.0]]}
    with pytest.raises(LogError, match=message):
        fit(data, features=columns)


def test_bootstraps_are_fits_with_weights_of_users_and_widen_the_covariances():
    """A replicate is the fit to a log in which each user occurs as often as their weight says."""
    data = pl.DataFrame(table(200, 10))
    plain = fit(data, features=["price"], states=2, bootstrap=0, assess=False)
    actual = fit(data, features=["price"], states=2, bootstrap=6, assess=False)
    grown = actual.model.covariances - plain.model.covariances
    assert (np.linalg.eigvalsh(grown) > -1e-12).all()
    assert actual.report["uncertainty"]["bootstrap_fits"] == 6
    users = read_columns(data, LogColumns("user", "action", "reward", more=("price",)))
    log = replace(users, features=encode(plain.model.encoder, users.beside))
    weights = bootstrap_weights(log.keys, 6, 0)[:, 4].astype(int)
    often = log.of_users(np.repeat(np.arange(log.n_users), weights))
    ids = tuple(map(str, range(often.n_users)))
    often = replace(often, user_ids=ids, known_keys=None)
    learner = regressions(1.0, is_clicks=False)
    start = StateRegressions(WEIGHTS[:, :2], np.stack([np.eye(2)] * 2), np.full(2, 0.5), 1.0)
    replicates = replace(learner, n_replicates=6)
    one, _ = ascend(replicates, MemoryEngine(log), [start] * 6)[4]
    other, _ = ascend(learner, MemoryEngine(often), [start])[0]
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
