"""The rewards that a service takes where no setting says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentbandits import GaussianArms
from latentbandits.learning.fitting import fit
from latentbandits.learning.save import save_fit
from latentbandits.models.arms.dirichlet import BernoulliArms, CategoricalArms
from latentbandits.models.arms.gamma import ExponentialArms, PoissonArms
from latentbandits.models.composed.markov import Markov
from latentbandits.models.composed.transformed import Log1pRewards
from latentbandits.models.linear.logistic import LogisticLinear
from latentbandits.serving.engine.model_rows import read_artefact
from latentbandits.serving.errors import Invalid
from latentbandits.serving.settings import reward_range
from tests.unit.engine_driver import ARMS, Driver

RNG = np.random.default_rng(2)
GAUSSIAN = GaussianArms([[0.5, 0.1]], 0.1)


@pytest.mark.parametrize(
    ("model", "notes", "expected"),
    [
        (BernoulliArms.random(RNG, 2, 2), {"reward_range": [0.0, 0.0]}, (0.0, 1.0)),
        (LogisticLinear([[1.0]], [np.eye(1)]), {}, (0.0, 1.0)),
        (PoissonArms.random(RNG, 2, 2), {"reward_range": [0.0, 3.0]}, (0.0, math.inf)),
        (ExponentialArms.random(RNG, 2, 2), {}, (0.0, math.inf)),
        (CategoricalArms([[[1.0, 2.0, 3.0]]], [1.0, 2.0, 5.0]), {}, (1.0, 5.0)),
        (Log1pRewards(GAUSSIAN), {"reward_range": [0.0, 9.0]}, (-1.0, math.inf)),
        (GAUSSIAN, {}, (-math.inf, math.inf)),
        (GAUSSIAN, {"reward_range": [1.0, 5.0]}, (-3.0, 9.0)),
        (GAUSSIAN, {"reward_range": [1.0, 1.0]}, (0.5, 1.5)),
        (Markov(GAUSSIAN, [[1.0]]), {"reward_range": [1.0, 5.0]}, (-3.0, 9.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_family_or_the_data_give_the_range(model: Any, notes: Any, expected: Any) -> None:
    assert reward_range(model, notes) == pytest.approx(expected)


def test_a_fitted_model_brings_the_range_of_its_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = {
        "user": np.repeat(np.arange(60), 10).tolist(),
        "action": rng.integers(3, size=600).tolist(),
        "reward": rng.uniform(2.0, 4.0, 600).tolist(),
    }
    save_fit(fit(table, quick=True, states=1, rewards="gaussian"), tmp_path / "model")
    driver = Driver(ARMS, policy="mmTS")
    driver.activate(read_artefact(tmp_path / "model"))
    request = driver.ask("ann")
    for wrong, why in ((-1.5, "below reward_min, which is -0"), (1e6, "above reward_max")):
        with pytest.raises(Invalid, match=f"{why}.* by the model's family and data"):
            driver.tell(request, wrong)
    assert driver.tell(request, 5.5) == "applied"  # beyond the data, but not far


def test_a_setting_takes_the_place_of_the_models_range() -> None:
    driver = Driver(BernoulliArms.random(RNG, 2, 2), policy="mmTS")
    request = driver.ask("ann")
    with pytest.raises(Invalid, match="above reward_max, which is 1 by the model"):
        driver.tell(request, 2.0)
    assert driver.tell(request, 1.0) == "applied"
    wide = Driver(GAUSSIAN, policy="mmTS", reward_max=3.0)
    with pytest.raises(Invalid, match=r"above reward_max, which is 3$"):
        wide.tell(wide.ask("ann"), 3.5)
    assert wide.tell(wide.ask("ann"), -7.0) == "applied"
