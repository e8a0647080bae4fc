"""A reward family of one's own in one file: it is learned, saved, loaded, served and listed."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
import pytest

from latentbandits import load
from latentbandits.cli import main
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.mixture import fit_mixture
from latentbandits.learning.reading import split_users
from latentbandits.learning.rewards import choose_family
from latentbandits.models import checks, registry
from latentbandits.models.arms import dirichlet
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.numerics.laws import Counts
from latentbandits.testing import check_model
from tests.unit.engine_driver import Driver


@dataclass(frozen=True, eq=False, init=False)
class GeometricArms(ConjugateArms):
    """Rewards 0, 1, 2, ... with P(r) = theta (1 - theta)^r, and theta ~ Beta(alpha, beta)."""

    family_name: ClassVar[str] = "geometric"
    prior_fields: ClassVar[tuple[str, ...]] = ("alpha", "beta")

    alpha: np.ndarray
    beta: np.ndarray
    state_prior: np.ndarray

    def __init__(self, alpha, beta, state_prior=None):
        arrays = checks.positive_arrays(alpha=alpha, beta=beta)
        checks.above("alpha", arrays["alpha"], 2, "so that the mean reward has a variance")
        prior = checks.state_prior(state_prior, arrays["alpha"])
        checks.set_fields(self, **arrays, state_prior=prior)

    @classmethod
    def from_means(cls, means, spread, state_prior=None):
        mean = np.asarray(means, float)
        alpha = 2 + mean * (mean + 1) / np.square(spread)
        return cls(alpha, mean * (alpha - 1), state_prior)

    @property
    def support(self):
        return Counts()

    @property
    def noise(self):
        mean = self.expected_rewards(None).max()
        return float(np.sqrt(mean * (mean + 1)))

    def statistic(self, reward):
        return np.stack([np.ones_like(reward), reward], axis=-1)

    @property
    def counts_and_sums(self):
        return np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def log_base_measure(self, reward):
        return 0.0

    def log_normaliser(self, phi):
        return dirichlet.log_normaliser(phi)

    def expected(self, phi):
        return dirichlet.expected_log(phi)

    def prior(self, centre, strength):
        return super().prior(centre, strength) + np.array([1.0, 0.0])

    def prior_variance(self, prior):
        mean = self.moments(prior)[0]
        return mean * (mean + 1) / np.maximum(prior[..., 0] - 2, 0.1)

    def moments(self, phi):
        mean = phi[..., 1] / (phi[..., 0] - 1)
        return mean, mean * (mean + 1) / (phi[..., 0] - 2)

    def reward_variance(self, phi):
        mean = self.moments(phi)[0]
        return mean * (mean + 1)

    def distribution(self, phi, reward):
        from scipy.special import betaln

        rounds = np.maximum(np.floor(reward) + 1, 0)
        above = np.exp(betaln(phi[..., 0], phi[..., 1] + rounds) - betaln(phi[..., 0], phi[..., 1]))
        return 1 - above, above

    def sample(self, phi, rng):
        return rng.beta(phi[..., 0], phi[..., 1])

    def point(self, phi):
        return 1 / (1 + self.moments(phi)[0])

    def mean_reward(self, theta):
        return (1 - theta) / theta

    def log_density(self, theta, reward):
        return np.log(theta) + reward * np.log1p(-theta)

    def draw(self, theta, rng):
        return rng.geometric(theta).astype(float) - 1

    def vague(self):
        return type(self).from_means(*self._overall())


@pytest.fixture(autouse=True)
def geometric():
    registry.register(GeometricArms)
    yield
    registry.unregister("GeometricArms")


MEANS = np.array([[6.0, 1.0, 2.0], [1.0, 6.0, 2.0]])


def log_of_users(n_users=300, n_rounds=20):
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(n_users), n_rounds)
    actions = rng.integers(3, size=len(users))
    rewards = rng.geometric(1 / (1 + MEANS[users % 2, actions])).astype(float) - 1
    ids = [tuple(str(i) for i in range(n)) for n in (n_users, 3)]
    return Log(users, actions, rewards, *ids)


def test_the_toy_family_conforms():
    check_model(GeometricArms.from_means(MEANS, 0.5), 3)


def test_the_toy_family_is_found_and_learned():
    log = log_of_users()
    choice = choose_family(split_users(log, 0))
    assert choice.rewards == "geometric", "Poisson rewards of these means vary far less"
    fit = fit_mixture(log, 2, rewards="geometric")
    assert np.diff(fit.elbos).min() > -1e-9
    order = np.argsort(-fit.fitted.means[:, 0])
    np.testing.assert_allclose(fit.fitted.means[order], MEANS, rtol=0.15)


def test_the_toy_family_goes_from_a_table_to_the_service(tmp_path, capsys):
    log = log_of_users()
    table = {"u": log.users, "a": log.actions, "r": log.rewards}
    pl.DataFrame(table).write_csv(tmp_path / "log.csv")
    columns = ["--user", "u", "--action", "a", "--reward", "r", "--bootstrap", "2"]
    asked = ["--kind", "arms", "--rewards", "geometric", "--states", "2"]
    out = ["--out", str(tmp_path / "model")]
    assert main(["fit", str(tmp_path / "log.csv"), *columns, *asked, *out]) == 0
    model = load(tmp_path / "model")
    assert isinstance(model, GeometricArms)
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    assert abs(report["held_out"]["coverage"][2]["covered"] - 0.9) < 0.03
    driver = Driver(model, policy="mmTS")
    for _ in range(30):
        decided = driver.ask("ann")
        driver.tell(decided, 9.0 if decided.index == 1 else 0.0)
    assert driver.ask("ann").index == 1
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    assert "geometric" in capsys.readouterr().out
