"""A reward family and a policy of one's own: one class and one registration each.

Then `simulate`, `serve`, `tune`, save and load work with them, alone and together.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from latentbandits import Decision, GaussianArms, load, save
from latentbandits.beliefs.encoding import can_encode, decode, encode
from latentbandits.cli import main
from latentbandits.policies import registry
from latentbandits.policies.registry import Entry, Inputs, build
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.settings import gather
from latentbandits.testing import check_policy
from tests.unit.engine_driver import ARMS, Driver, forget_beliefs
from tests.unit.test_model_registry import half_normal  # noqa: F401


@dataclass(frozen=True)
class MostSurprising:
    """Plays the action that was tried least often; its three methods are all that there is."""

    n_actions: int
    start: int = 0

    def init(self, n_sessions=1):
        return (np.zeros((n_sessions, self.n_actions)),)

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        (counts,) = belief
        scores = -np.roll(counts, -self.start, axis=1)
        if eligible is not None:
            scores = np.where(np.roll(eligible, -self.start, axis=1), scores, -np.inf)
        action = (scores.argmax(axis=1) + self.start) % self.n_actions
        return Decision(action, np.zeros_like(action), np.ones(len(action)), "exact", "Surprise")

    def update(self, belief, context, decision, reward):
        rewards = np.asarray(reward, np.float64)
        (counts,) = belief
        if context is not None or rewards.shape != counts.shape[:1] or np.isnan(rewards).any():
            raise ValueError("the toy takes no context, and one finite reward for every session")
        if decision.action.max() >= self.n_actions:
            raise ValueError(f"there are {self.n_actions} actions")
        return (counts + np.eye(self.n_actions)[decision.action],)


@pytest.fixture
def surprise():
    yield registry.register(Entry("Surprise", MostSurprising, summary="a toy"))
    registry.unregister("Surprise")


def test_the_toy_conforms_and_its_belief_is_data(surprise):
    policy = build("Surprise(start=1)", Inputs(ARMS))
    check_policy(policy, n_actions=4)
    assert can_encode(policy)
    belief = policy.update(policy.init(2), None, Decision.logged([0, 3]), [1.0, 2.0])
    np.testing.assert_array_equal(decode(policy, encode(policy, belief))[0], belief[0])


def play(driver, n_rounds):
    decided = []
    for _ in range(n_rounds):
        decided.append(driver.decide(DecisionRequest("ann")))
        driver.reward(RewardReport(decided[-1].decision_id, 0.5))
    return [one.index for one in decided]


def test_a_service_runs_the_toy_policy_and_rebuilds_its_belief(surprise):
    driver = Driver(ARMS, policy="Surprise(start=2)")
    assert play(driver, 4) == [2, 3, 0, 1]
    forget_beliefs(driver.engine)
    assert play(driver, 2) == [2, 3]
    assert gather({"policy": "Surprise"}, None, {}).policy == "Surprise"


def test_a_service_runs_the_toy_family(half_normal):  # noqa: F811
    driver = Driver(half_normal, policy="mmTS")
    assert set(play(driver, 5)) <= {0, 1}
    assert sum(driver.session("ann").state_probabilities) == pytest.approx(1.0)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_both_toys_are_simulated_saved_and_loaded(jobs, half_normal, surprise, tmp_path):  # noqa: F811
    save(half_normal, tmp_path / "model")
    assert type(load(tmp_path / "model")) is type(half_normal)
    command = ["simulate", str(tmp_path / "model"), "--runs", "60", "--horizon", "30"]
    policies = ["--policies", "mmTS", "Surprise", "Exploring(policy=Surprise, e=0.5)", "TS", "EXP4"]
    assert main([*command, "--jobs", jobs, *policies, "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {row["policy"]: row["regret"] for row in results["policies"]}
    assert list(rows)[2] == "Exploring(policy='Surprise', e=0.5)"
    assert rows["mmTS"] < rows["Surprise"]
    assert results["warnings"] == []


def test_a_policy_that_no_other_process_can_import_is_played_in_this_one(tmp_path):
    class Local(MostSurprising):
        """A class that cannot be pickled."""

    save(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), tmp_path / "model")
    registry.register(Entry("Local", Local))
    command = ["simulate", str(tmp_path / "model"), "--runs", "2", "--horizon", "2"]
    try:
        assert main([*command, "--policies", "Local", "--jobs", "2", "--out", str(tmp_path)]) == 0
    finally:
        registry.unregister("Local")


def test_without_options_all_policies_are_played_also_the_toy(surprise, tmp_path):
    save(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), tmp_path / "model")
    command = ["simulate", str(tmp_path / "model"), "--runs", "2", "--horizon", "2", "--jobs", "1"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert "Surprise" in [row["policy"] for row in results["policies"]]


PACKAGE = """
import numpy as np
from latentbandits import Decision

class Alternate:
    def __init__(self, n_actions, start=0):
        self.n_actions, self.start = n_actions, start

    def init(self, n_sessions=1):
        return (np.full(n_sessions, float(self.start)),)

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        action = belief[0].astype(int) % self.n_actions
        if eligible is not None:
            action = np.where(eligible[np.arange(len(action)), action], action, eligible.argmax(1))
        return Decision(action, np.zeros_like(action), np.ones(len(action)), "exact", "Alternate")

    def update(self, belief, context, decision, reward):
        return (belief[0] + 1,)
"""

USE = """
import numpy as np
from latentbandits import Agent, GaussianArms, simulate
from latentbandits.environments import Synthetic
from latentbandits.policies.registry import Inputs, build, entries
from tests.unit.engine_driver import Driver
from latentbandits.serving.engine.values import DecisionRequest, RewardReport

model = GaussianArms([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]], noise=0.5)
assert "Alternate" in [entry.name for entry in entries("session")]
policy = build("Alternate(start=1)", Inputs(model))
assert (policy.n_states, policy.order_free, policy.model_or_none) == (1, None, None)
agent = Agent(policy)
played = []
for _ in range(4):
    chosen = agent.decide("ann")
    agent.update(chosen, 0.5)
    played.append(chosen.action)
assert played == [1, 2, 0, 1], played
driver = Driver(model, policy="Alternate")
served = []
for _ in range(3):
    made = driver.decide(DecisionRequest("bob"))
    driver.reward(RewardReport(made.decision_id, 0.5))
    served.append(made.index)
assert served == [0, 1, 2], served
players = {"mine": lambda model: build("Alternate", Inputs(model))}
results = simulate(players, Synthetic(0.1), n_runs=4, horizon=5)
assert results["mine"].regret.mean > 0
exploring = build("Exploring(policy=Alternate, e=0.3)", Inputs(model))
chances = exploring.action_probabilities(exploring.init(), None, np.random.default_rng(0))
np.testing.assert_allclose(chances.values, [[0.8, 0.1, 0.1]])
print("joined")
"""


def test_a_policy_in_a_package_of_its_own_joins_by_its_entry_point(tmp_path):
    """Two files make the package: a class with three methods, and metadata with one line."""
    (tmp_path / "alternating.py").write_text(PACKAGE)
    metadata = tmp_path / "alternating-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: alternating\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[latentbandits.policies]\nAlternate = alternating:Alternate\n"
    )
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(tmp_path), str(root), *sys.path])
    made = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout == "joined\n"
