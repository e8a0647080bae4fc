"""Default values of models and policies: users rely on them, so a change has to be meant."""

import inspect
import math

import pytest

import latentbandits
import latentbandits_related
from latentbandits.policies import registry

PRIOR = {"noise": 1.0, "prior_spread": 1.0, "hyper_spread": 1.0}
DEFAULTS = {
    "Agent": {"seed": 0, "click_model": "each"},
    "GaussianArms": {"spread": 0.0},
    "LogisticLinear": {"n_particles": 256, "n_moves": 1, "seed": 0, "offset": False},
    "Markov": {"n_paths": 16},
    "PositionClicks": {"examination": (1.0,)},
    # Policies of one session.
    "EXP4": {"reward_range": (0.0, 1.0)},
    "Exploring": {"draws": 100},
    "LinTS": {"noise": 1.0, "prior_spread": 1.0, "propensity_draws": 0},
    "LinUCB": {"alpha": 1.0, "ridge": 1.0},
    "PolicyReuse": {"rule": "BE", "kappa": 1.0, "improvement": "expected"},
    "ProBALL": {"combine": "min", "ridge": 1.0, "bound": 1.0, "length": 1.0, "scale": 1.0},
    "SingleKUCB": {"alpha": 3.0},
    "TS": {"noise": 1.0, "prior_mean": 0.0, "prior_spread": 1.0, "propensity_draws": 0},
    "TSC": {"alpha": 3.0, "beta": 1.0, "every_action_first": False},
    "UCB1": {"scale": 1.0},
    "UCBC": {"alpha": 3.0, "every_action_first": False},
    "UCBS": {"alpha": 3.0},
    "mBayesUCB": {"quantile": 0.9},
    "mmBayesUCB": {"quantile": 0.9},
    "mmIDS": {"draws": 100, "seed": 0},
    "mmTS": {"propensity_draws": 0, "catch_all": False},
    # Policies of a population; those of CLUB and SCLUB are of the authors' code.
    "AdaTS": {**PRIOR, "propensity_draws": 0, "seed": 0},
    "CLUB": {"alpha": 0.1, "alpha2": 1.0, "graph": "complete", "n_clusters": 1, "seed": 0},
    "COFIBA": {"alpha": 0.1, "alpha2": 0.3, "graph": "sparse", "seed": 0},
    "DynUCB": {"n_clusters": 20, "alpha": 0.1, "seed": 0},
    "GroupedLinUCB": {"alpha": 0.1},
    "HierTS": {**PRIOR, "propensity_draws": 0},
    "HierUCB": {**PRIOR, "width": 1.0},
    "MetaTS": {**PRIOR, "propensity_draws": 0, "seed": 0},
    "NMFBandit": {"rank": 3, "exploration": 1.0, "first": 500, "seed": 0},
    "ParticleMF": {
        "rank": 2, "n_particles": 30, "noise": math.sqrt(0.5), "user_spread": 1.0,
        "item_spread": 1.0, "centre": 0.0, "learn_spread": False, "propensity_draws": 0, "seed": 0,
    },
    "Phased": {"first": 2000, "factor": 2.0},
    "SCLUB": {"alpha": 0.1, "a_theta": 1.0, "a_p": math.sqrt(2)},
}  # fmt: skip
OF_THE_REGISTRY = {
    "UCB1": {"noise": 1.0},
    "TS": {"noise": 1.0, "propensity_draws": 0},
    "Discounted": {"policy": "mUCB", "factor": 0.99},
    "SlidingWindow": {"policy": "mUCB", "rounds": 100},
    "Exploring": {"policy": "mmTS", "e": 0.1, "draws": 100},
}


def defaults(build):
    parameters = inspect.signature(build).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not parameter.empty and parameter.default is not None
    }


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name):
    package = latentbandits_related if name in latentbandits_related.__all__ else latentbandits
    assert defaults(getattr(package, name)) == DEFAULTS[name]


@pytest.mark.parametrize("name", OF_THE_REGISTRY)
def test_defaults_of_the_registry(name):
    assert defaults(registry.find(name).builder) == OF_THE_REGISTRY[name]


def test_no_default_is_left_out():
    packages = (latentbandits, latentbandits_related)
    public = {name: getattr(package, name) for package in packages for name in package.__all__}
    rooms = ("latentbandits.models", "latentbandits.policies", "latentbandits_related")
    with_defaults = {
        name
        for name, value in public.items()
        if inspect.isclass(value)
        and value.__module__.startswith(rooms)
        and not issubclass(value, Exception)
        and defaults(value)
    }
    assert with_defaults <= {*DEFAULTS, "mLookahead", "PerUser"}, "add it to the table above"
