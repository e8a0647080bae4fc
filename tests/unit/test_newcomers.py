"""Mistakes of the first hour end in one clear sentence, and fixed defects stay fixed."""

import re
import stat
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from latentbandits import (
    EXP4,
    Agent,
    Decision,
    GaussianArms,
    LinearGaussian,
    Markov,
    extras,
    mIDS,
    mmGreedy,
    mmIDS,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)
from latentbandits.cli.main import COMMANDS, main
from latentbandits.policies import Popularity, Uniform

ARMS = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1)
LATENT = (mUCB, mmUCB, mTS, mmTS, EXP4, mIDS, mmIDS, mmGreedy, Popularity, Uniform)


@pytest.mark.parametrize("policy", LATENT, ids=lambda policy: policy.__name__)
@pytest.mark.parametrize("wrong", [[[0.9, 0.1]], None, "model", GaussianArms, np.eye(2)])
def test_what_is_no_model_is_refused(policy, wrong):
    with pytest.raises(TypeError, match=f"{policy.__name__} needs a model .*GaussianArms"):
        policy(wrong)


def test_a_number_is_no_generator():
    policy = mmTS(ARMS)
    with pytest.raises(TypeError, match=r"numpy.random.default_rng\(seed\); got 0"):
        policy.decide(policy.init(), None, 0)


def test_update_wants_a_decision():
    policy = mmTS(ARMS)
    with pytest.raises(TypeError, match=r"Decision.logged\(action\); got 0"):
        policy.update(policy.init(), None, 0, [1.0])


def test_an_agent_wants_what_it_decided():
    agent = Agent(mmTS(ARMS))
    with pytest.raises(TypeError, match=r"agent.decide\(session_id\).*got 'ann'"):
        agent.update("ann", 1.0)
    with pytest.raises(TypeError, match="Agent needs a policy"):
        Agent(mmTS)


def test_an_agent_asks_a_policy_of_one_s_own_for_its_states():
    class Own:
        def init(self, n_sessions=1):
            return (np.zeros(n_sessions),)

        def decide(self, belief, context, rng, *, eligible=None, propensity=True):
            return Decision.logged([0])

        def update(self, belief, context, decision, reward):
            return (belief[0] + 1,)

        def state_probabilities(self, belief):
            return np.stack([belief[0], 1 - belief[0]], axis=1)

    agent = Agent(Own())
    np.testing.assert_array_equal(agent.state_probabilities("ann"), [0, 1])
    agent.update(agent.decide("ann"), 1.0)
    np.testing.assert_array_equal(agent.state_probabilities("ann"), [1, 0])
    del Own.state_probabilities
    with pytest.raises(TypeError, match="Own has no method state_probabilities"):
        Agent(Own()).state_probabilities("ann")


@pytest.mark.parametrize("action", [[1.7], [float("nan")], [float("inf")], ["a"], [True]])
def test_a_logged_action_is_a_whole_number(action):
    with pytest.raises(ValueError, match="action must be whole numbers"):
        Decision.logged(action)


def test_a_logged_state_is_a_whole_number():
    with pytest.raises(ValueError, match=r"state must be whole numbers; got 0.5"):
        Decision.logged([1], state=[0.5])
    np.testing.assert_array_equal(Decision.logged([1.0, 2.0]).action, [1, 2])


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (ARMS, "quadrature"),
        (GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), "exact"),
        (Markov.switching(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), 0.1), "exact"),
        (LinearGaussian(np.eye(2), 0.5), "exact"),
    ],
    ids=["uncertain arms", "certain arms", "certain states that move", "certain weights"],
)
def test_mmts_says_how_it_found_a_propensity(model, kind):
    policy, rng = mmTS(model), np.random.default_rng(0)
    context = None if model.n_actions else np.array([[[1.0, 0.2], [0.3, 0.4]]])
    actual = policy.action_probabilities(policy.init(), context, rng)
    assert actual.kind == kind
    assert policy.decide(policy.init(), context, rng).propensity_kind == kind
    if kind == "exact":
        exact = mTS(model).action_probabilities(mTS(model).init(), context, rng)
        np.testing.assert_array_equal(actual.values, exact.values)


def test_replacing_a_field_adds_no_second_catch_all_state():
    policy = mmTS(ARMS, catch_all=True)
    again = replace(policy, propensity_draws=7)
    assert (policy.n_states, again.n_states, again.propensity_draws) == (3, 3, 7)
    np.testing.assert_array_equal(again.model.means, policy.model.means)
    other = replace(policy, model=GaussianArms(np.eye(3), noise=0.5, spread=0.1))
    assert other.n_states == 4
    assert ARMS.n_states == 2
    with pytest.raises(ValueError, match="catch_all must be True or False"):
        mmTS(ARMS, catch_all="yes")


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o644])
def test_a_new_key_leaves_the_file_s_permissions_alone(tmp_path, mode):
    keys = tmp_path / "keys.toml"
    assert main(["key", "one", "--keys", str(keys)]) == 0
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    keys.chmod(mode)
    assert main(["key", "two", "--keys", str(keys)]) == 0
    assert stat.S_IMODE(keys.stat().st_mode) == mode


EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
IMPORTED_AS = {"openfeature_sdk": "openfeature", "scikit_learn": "sklearn"}


def installed_by(extra):
    """The packages of an extra, by the names that they are imported as."""
    result = set()
    for requirement in EXTRAS[extra]:
        name, brackets = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()
        if name == "latentbandits":
            result |= set().union(*(installed_by(one) for one in brackets.split(",")))
        else:
            name = name.replace("-", "_")
            result.add(IMPORTED_AS.get(name, name))
    return result


@pytest.mark.parametrize("command", COMMANDS)
def test_the_extra_that_is_named_has_the_package_that_is_missing(command):
    """Also with another extra installed: relearn needs rich, which the service does not."""
    packages = set().union(*(installed_by(extra) for extra in EXTRAS))
    request = extras.COMMANDS.get(command, "learning")
    for package in packages:
        error = ModuleNotFoundError(name=package)
        sentence = str(extras.missing(error, f"`latentbandits {command}`", request))
        extra = re.search(r"latentbandits\[(\w+)\]", sentence)[1]
        assert package in installed_by(extra), sentence
