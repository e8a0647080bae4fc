"""A fit that starts from an earlier model."""

from __future__ import annotations

import numpy as np
import pytest

from latentbandits import GaussianArms
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.arms.mixture import Problem, best_of, earlier_means, start_at
from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.fitting import fit
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.logs.rows import make_family
from latentbandits.models import LinearGaussian
from latentbandits.models.artefacts import Catalogue

GENERATED = generate_arms(n_users=400, n_rounds=15, n_states=4, n_actions=6, seed=3)


def test_actions_are_found_by_their_ids_and_unknown_ones_are_average() -> None:
    model = GaussianArms([[0.1, 0.5], [0.9, 0.3]], 1.0, state_prior=[0.2, 0.8])
    actual = earlier_means(model, Catalogue(["a", "b"]), ["b", "c", "a"])
    np.testing.assert_allclose(actual.means, [[0.5, 0.3, 0.1], [0.3, 0.6, 0.9]])
    np.testing.assert_allclose(actual.shares, [0.2, 0.8])
    linear = LinearGaussian([[1.0, 2.0]], 1.0)
    items = Catalogue(["a", "b"], features=[[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(earlier_means(linear, items, ["b", "a"]).means, [[2.0, 1.0]])


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
def test_the_climb_begins_at_the_earlier_means(family: str) -> None:
    log = GENERATED.log
    rewards = {"gaussian": log.rewards, "bernoulli": (log.rewards > 0.5) * 1.0,
               "poisson": np.round(np.abs(log.rewards) * 3)}[family]  # fmt: skip
    from dataclasses import replace

    log = replace(log, rewards=rewards)
    problem = Problem.from_log(make_family(family, log.rewards, None), engine_of(log))
    means = np.random.default_rng(0).uniform(0.3, 0.7, (4, log.n_actions))
    start = start_at(problem, means, np.full(4, 0.25))
    actual = problem.family.moments(start.phi[0])[0]
    assert np.abs(actual - means).max() < 0.05  # the pooled prior pulls a little


def test_an_earlier_model_is_one_of_the_starts() -> None:
    """With no other start, the fit is the climb from the earlier model: it keeps its states."""
    engine = engine_of(GENERATED.log)
    problem = Problem.from_log(make_family("gaussian", GENERATED.log.rewards, None), engine)
    good = best_of(problem, 4, n_starts=6)
    means = problem.family.moments(good.mixture.phi[0])[0]
    model = GaussianArms(means, 0.5)
    known = earlier_means(model, None, GENERATED.log.action_ids)
    only = ArmsLearner(
        make_family("gaussian", GENERATED.log.rewards, None), n_starts=0, earlier=known
    )
    warm = only._ascent(problem, engine, 4, 0)
    assert warm.elbo.max() >= good.elbo.max() - 0.01
    assert len(warm.elbos) < len(good.elbos)  # it begins where the other climb ended


def test_fit_takes_an_earlier_model_and_is_never_worse_for_it() -> None:
    options = {"states": 4, "bootstrap": 0, "assess": False}
    cold = fit(GENERATED.log, **options)
    warm = fit(GENERATED.log, **options, earlier=(cold.model, cold.catalogue))
    elbos = [one.report["selection"][0]["elbo"] for one in (cold, warm)]
    assert elbos[1] >= elbos[0] - 0.01
    wrong = GaussianArms(np.zeros((2, 3)), 1.0)  # other states and other actions: no start at all
    other = fit(GENERATED.log, **options, earlier=(wrong, None))
    np.testing.assert_allclose(other.model.means, cold.model.means)
