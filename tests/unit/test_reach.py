"""Candidates that choose actions which a log never could have."""

from __future__ import annotations

import numpy as np
import pytest

from latentbandits import GaussianArms, mTS
from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.evaluation.log import EvaluationError

MODEL = GaussianArms([[0.9, 0.1], [0.1, 0.9]], 0.5)


def log(propensity: float, certain: int, eligible: bool = True) -> DecisionLog:
    """Return 300 sessions of two decisions; the first `certain` sessions left no choice."""
    rng = np.random.default_rng(0)
    chance = np.full((300, 2), propensity)
    chance[:certain] = 1.0
    action = rng.integers(2, size=(300, 2))
    offered = None
    if not eligible:
        offered = np.zeros((300, 2, 2), np.bool_)
        np.put_along_axis(offered, action[:, :, None], True, axis=2)
    reward = rng.random((300, 2))
    return DecisionLog(action, reward, np.full(300, 2), 2, chance, eligible=offered)


def test_a_log_without_any_choice_is_refused() -> None:
    with pytest.raises(EvaluationError, match="probability 1; mTS would choose other actions"):
        evaluate(mTS(MODEL), log(1.0, 0))


def test_single_decisions_without_a_choice_are_warned_about() -> None:
    actual = evaluate(mTS(MODEL), log(0.5, 60))
    assert any("never could have: 120 of 600" in text for text in actual.warnings)
    assert not any("never could" in text for text in evaluate(mTS(MODEL), log(0.5, 0)).warnings)


def test_one_eligible_action_is_no_matter() -> None:
    actual = evaluate(mTS(MODEL), log(1.0, 0, eligible=False))
    assert not any("never could" in text for text in actual.warnings)
