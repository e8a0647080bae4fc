"""Models that version 0.1.0 saved still open, and compute the same numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from latentbandits import load
from latentbandits.models import load_catalogue, registry

FOLDER = Path(__file__).parent.parent / "data" / "artefacts-0.1.0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_of_0_1_0_computes_the_same(name):
    model, expected = load(FOLDER / name), EXPECTED[name]
    assert type(model).__name__ == expected["kind"]
    context = None if model.n_actions else np.tile([[1.0, 0.5], [0.0, 2.0]], (2, 1, 1))
    context = model.check_context(context, 2)
    action, reward = np.array([0, 1]), np.array([1.0, 0.0])
    density, parameters = model.condition(model.parameters(2), context, action, reward)
    mean, _ = model.posterior_rewards(parameters, context)
    likelihood = model.log_likelihood(context, action, reward)
    np.testing.assert_allclose(model.log_state_prior, expected["log_state_prior"])
    np.testing.assert_allclose(likelihood, expected["log_likelihood"], rtol=1e-12)
    np.testing.assert_allclose(density, expected["log_predictive"], rtol=1e-12)
    np.testing.assert_allclose(np.broadcast_to(mean, (2, *mean.shape[1:])),
                               expected["posterior_mean"], rtol=1e-12)  # fmt: skip


def test_catalogues_of_0_1_0_are_read():
    assert load_catalogue(FOLDER / "GaussianArms").ids == ("red", "green", "blüe")
    films = load_catalogue(FOLDER / "LinearGaussian")
    assert films.names == ("Film A", "Film B")
    np.testing.assert_array_equal(films.features, [[1.0, 0.5], [0.0, 2.0]])
    assert load_catalogue(FOLDER / "PoissonArms") is None


def test_every_kind_of_0_1_0_is_among_them():
    kinds = {entry["kind"] for entry in EXPECTED.values()}
    assert len(kinds) == 11  # all but FunctionModel, which cannot be saved
    assert kinds <= set(registry.kinds())
