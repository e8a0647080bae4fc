"""Exp4.S beside EXP4, and the experiment of moving states against policies that forget."""

import json

import numpy as np
import pytest
from evidence.__main__ import main
from evidence.nonstationary import N_ACTIONS, Exp4S

from latentbandits import EXP4, Decision, GaussianArms

MODEL = GaussianArms(np.eye(3, N_ACTIONS), noise=0.1)


def weights_after(policy, played, rewards):
    belief = policy.init()
    for action, reward in zip(played, rewards, strict=True):
        decision = Decision.logged([action], propensity=[0.5])
        belief = policy.update(belief, None, decision, [reward])
    return np.exp(belief.log_weights[0] - np.logaddexp.reduce(belief.log_weights[0]))


def test_without_mixing_it_is_exp4():
    rng = np.random.default_rng(0)
    played, rewards = rng.integers(3, size=60), rng.random(60)
    ours = weights_after(Exp4S(MODEL, horizon=50, mixing=0.0), played, rewards)
    np.testing.assert_allclose(ours, weights_after(EXP4(MODEL, horizon=50), played, rewards))


def test_mixing_lets_a_lost_expert_come_back():
    """The first action pays for 300 rounds, and then the second."""
    played = np.tile([0, 1, 2], 150)
    first = np.arange(450) < 300
    rewards = np.where(first, played == 0, played == 1).astype(float)
    still, moving = (
        weights_after(policy, played, rewards)
        for policy in (EXP4(MODEL, rate=0.2), Exp4S(MODEL, rate=0.2, mixing=0.02))
    )
    assert still.argmax() == 0
    assert moving.argmax() == 1
    assert moving.min() >= 0.02 / 3


@pytest.mark.slow
def test_learned_moves_beat_policies_that_forget_or_stand_still(tmp_path):
    words = ["--problems", "1", "--users", "500", "--seed", "5", "--jobs", "1"]
    assert main(["nonstationary", *words, "--out", str(tmp_path)]) == 0
    claims = json.loads((tmp_path / "results.json").read_text())["claims"]
    assert len(claims) == 8
    assert all(claim["holds"] for claim in claims), claims
