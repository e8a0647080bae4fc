"""A model of one's own: one class and one registration, then save, load and policies work."""

import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import latentbandits
from latentbandits import Ensemble, GaussianArms, Markov, load, mmTS, save
from latentbandits.models import checks, registry
from latentbandits.models.arms import gamma
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.numerics.laws import Interval
from latentbandits.names import Registry
from latentbandits.testing import check_model

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, eq=False, init=False)
class HalfNormalArms(ConjugateArms):
    """Rewards |N(0, 1 / theta)| with theta ~ Gamma(shape, rate): a family that we do not ship."""

    prior_fields = ("shape", "rate")

    shape: np.ndarray
    rate: np.ndarray
    state_prior: np.ndarray

    def __init__(self, shape, rate, state_prior=None):
        arrays = checks.positive_arrays(shape=shape, rate=rate)
        prior = checks.state_prior(state_prior, arrays["shape"])
        checks.set_fields(self, **arrays, state_prior=prior)

    @property
    def support(self):
        return Interval(low=0.0)

    @property
    def noise(self):
        return float(self.expected_rewards(None).max())

    def _hyperparameters(self):
        return np.stack([self.shape, self.rate], axis=-1)

    def statistic(self, reward):
        return np.stack([np.full_like(reward, 0.5), reward**2 / 2], axis=-1)

    def log_normaliser(self, phi):
        return gamma.log_normaliser(phi)

    def log_base_measure(self, reward):
        return 0.5 * np.log(2 / np.pi)

    def moments(self, phi):
        from scipy.special import gammaln

        shape, rate = phi[..., 0], phi[..., 1]
        first = np.sqrt(2 / np.pi) * np.exp(gammaln(shape - 0.5) - gammaln(shape)) * np.sqrt(rate)
        return first, 2 / np.pi * rate / (shape - 1) - first**2

    def sample(self, phi, rng):
        return rng.standard_gamma(phi[..., 0]) / phi[..., 1]

    def point(self, phi):
        return 2 / np.pi / self.moments(phi)[0] ** 2

    def mean_reward(self, theta):
        return np.sqrt(2 / np.pi / theta)

    def log_density(self, theta, reward):
        return 0.5 * np.log(2 * theta / np.pi) - theta * reward**2 / 2

    def draw(self, theta, rng):
        return np.abs(rng.standard_normal(theta.shape)) / np.sqrt(theta)

    def vague(self):
        return type(self)(self.shape[:1], self.rate[:1])


@pytest.fixture
def half_normal():
    registry.register(HalfNormalArms)
    yield HalfNormalArms([[4.0, 6.0], [9.0, 5.0]], [[2.0, 1.0], [1.0, 3.0]])
    registry.unregister("HalfNormalArms")


def test_a_registered_model_is_saved_and_loaded_alone_and_inside_others(half_normal, tmp_path):
    for i, model in enumerate(
        [
            half_normal,
            Markov(half_normal, np.eye(2)),
            Ensemble([half_normal, half_normal]),
            Markov(Ensemble([half_normal, half_normal]), np.eye(2)),
        ]
    ):
        save(model, tmp_path / str(i))
        again = load(tmp_path / str(i))
        assert type(again) is type(model)
        action, reward = np.array([1]), np.array([0.7])
        np.testing.assert_array_equal(
            *(m.condition(m.parameters(1), None, action, reward)[0] for m in (model, again))
        )


def test_the_toy_family_conforms(half_normal):
    check_model(half_normal, 2)


def test_policies_learn_on_a_registered_model(half_normal):
    policy = mmTS(half_normal)
    belief, rng = policy.init(), np.random.default_rng(0)
    for _ in range(60):
        decision = policy.decide(belief, None, rng)
        reward = half_normal.draw(np.array([9.0, 0.5])[decision.action], rng)
        belief = policy.update(belief, None, decision, reward)
    assert decision.action[0] == 1
    with pytest.raises(ValueError, match="HalfNormalArms takes rewards that are not negative"):
        policy.update(belief, None, decision, [-1.0])


def test_an_unregistered_model_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match=r"not a registered model .*register"):
        save(HalfNormalArms([[4.0]], [[1.0]]), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_registered_here_is_named_when_loading(half_normal, tmp_path):
    save(half_normal, tmp_path / "model")
    registry.unregister("HalfNormalArms")
    with pytest.raises(latentbandits.ArtefactError, match="unknown model 'HalfNormalArms'"):
        load(tmp_path / "model")


def test_names_of_our_models_are_taken():
    with pytest.raises(ValueError, match="'GaussianArms' is a model of latentbandits"):
        registry.register(type("GaussianArms", (), {}))
    with pytest.raises(TypeError, match="takes a class"):
        registry.register(GaussianArms([[1.0]], 0.5))


def test_entry_points_of_other_packages_are_found(monkeypatch):
    point = EntryPoint("HalfNormalArms", f"{__name__}:HalfNormalArms", registry.ENTRY_POINTS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    anew = Registry("model", registry.ENTRY_POINTS, registry._own)  # nothing was read before
    monkeypatch.setattr(registry, "_registry", anew)
    assert registry.find("HalfNormalArms") is HalfNormalArms


@pytest.mark.parametrize("name", [n for n, k in registry.kinds().items() if hasattr(k, "random")])
def test_a_random_problem_of_every_family_conforms_and_is_saved(name, tmp_path):
    kind = registry.find(name)
    model = kind.random(np.random.default_rng(3), 2, 3)
    context = (lambda n, rng: rng.standard_normal((n, 3, 3))) if model.n_features else None
    check_model(model, 3, context)
    save(model, tmp_path / "model")
    again, x = load(tmp_path / "model"), context and context(2, np.random.default_rng(4))
    assert type(again) is kind
    for one, other in zip(model.parameters(2), again.parameters(2), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(model.expected_rewards(x), again.expected_rewards(x))


def test_the_table_of_models_in_the_documentation_is_that_of_the_registry():
    page = (ROOT / "docs" / "how-to" / "choose-a-reward-model.md").read_text()
    for name, kind in registry.kinds().items():
        assert kind.summary.row in page, f"the row of {name} is missing:\n{kind.summary.row}"


def test_importing_the_library_loads_neither_scipy_nor_other_families():
    code = (
        "import sys, latentbandits; "
        "loaded = {'scipy', 'latentbandits.models.families', 'latentbandits.models.arms.gamma'}; "
        "assert not loaded & set(sys.modules), loaded & set(sys.modules); "
        "from latentbandits import *; assert PoissonArms and mmTS"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
