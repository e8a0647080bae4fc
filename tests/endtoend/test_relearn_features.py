"""`latentbandits relearn` where callers send features by name: the successor keeps the names."""

import json

import numpy as np
import polars as pl
import pytest
from evidence.loop_visits import served

from latentbandits import LinearGaussian, load, save
from latentbandits.client import Client
from latentbandits.models.attributes.columns import Encoder, Number
from latentbandits.models.attributes.parts import with_parts
from tests.processes.service import run_command

WEIGHTS = np.array([[1.0, -1.0], [0.8, 0.6]])
NAMES = ("price", "length")
ENCODER = Encoder(tuple(Number(name, 0.0, 1.0) for name in NAMES), intercept=True)


def visit(client, prefix, n_sessions, rng):
    for i in range(n_sessions):
        weights = WEIGHTS[rng.integers(2)]
        for _ in range(3):
            rows = rng.normal(size=(3, 2))
            decided = client.decide(
                f"{prefix}-{i}",
                features=[dict(zip(NAMES, row, strict=True)) for row in rows.tolist()],
            )
            client.reward(
                decided.decision_id, float(rows[decided.index] @ weights + rng.normal() * 0.3)
            )


@pytest.mark.slow
def test_a_better_regression_is_promoted_and_takes_the_same_names(tmp_path):
    rng = np.random.default_rng(1)
    models = tmp_path / "models"
    wrong = np.concatenate([np.zeros((2, 1)), -WEIGHTS], axis=1)
    covariances = np.repeat(0.01 * np.eye(3)[None], 2, axis=0)
    save(with_parts(LinearGaussian(wrong, 0.3, covariances), encoder=ENCODER), models / "first")
    states, rows = rng.integers(2, size=200).repeat(10), rng.normal(size=(2000, 2))
    rewards = np.sum(rows * WEIGHTS[states], axis=1) + rng.normal(size=2000) * 0.3
    old = {"user": np.arange(200).repeat(10), "action": ["a"] * 2000, "reward": rewards}
    pl.DataFrame(old | dict(zip(NAMES, rows.T, strict=True))).write_csv(tmp_path / "old.csv")
    options = ("--policy", "mTS", "--explore", "0.9", "--models", str(models))
    with served(models / "first", tmp_path, *options) as url, Client(url, timeout=20.0) as client:
        visit(client, "before", 2_000, rng)
        done = run_command(
            "relearn", "--service", url, "--models", models, "--work", tmp_path / "work", "--with",
            tmp_path / "old.csv", "--policy", "mTS", "--held-out", "0.5", timeout=600,
        )  # fmt: skip
        assert "activate (done)" in done.stdout, done.stdout + done.stderr
        record = json.loads((tmp_path / "work/runs/000001.json").read_text())
        assert client.models().active == record["candidate"]
        assert record["data"]["decisions"] == 6000
        visit(client, "after", 5, rng)  # by the same names
    actual = load(record["candidate_path"]).weights
    actual = actual[np.argsort(-actual[:, 1])]
    np.testing.assert_allclose(actual, np.concatenate([np.zeros((2, 1)), WEIGHTS], 1), atol=0.1)
    assert list(tmp_path.glob("work/training*")) == []
