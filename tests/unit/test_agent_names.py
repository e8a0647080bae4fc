"""An agent with a catalogue speaks of actions by their names; `load_agent` makes such an agent."""

import numpy as np
import pytest

import latentbandits as lb
from latentbandits import Agent, BernoulliArms, GaussianArms, LinearGaussian, mmTS, save
from latentbandits.learning import save_fit
from latentbandits.learning.generate import generate_arms
from latentbandits.models import Catalogue

DRINKS = Catalogue(["tea", "milk", "water"])
MODEL = GaussianArms([[0.9, 0.1, 0.3], [0.1, 0.9, 0.3]], noise=0.3, spread=0.1)


def test_names_and_indices_learn_the_same():
    """The same decisions and beliefs, whichever way actions are named."""
    by_index, by_name = Agent(mmTS(MODEL), 1), Agent(mmTS(MODEL), 1, catalogue=DRINKS)
    for reward in (0.8, 0.2, 0.7, 0.1):
        number, name = by_index.decide("ann"), by_name.decide("ann")
        assert (DRINKS.ids[number.action], number.propensity) == (name.action, name.propensity)
        by_index.update(number, reward)
        by_name.reward("ann", name.action, reward)
    expected = by_index.state_probabilities("ann")
    np.testing.assert_array_equal(by_name.state_probabilities("ann"), expected)
    by_index.reward("ann", by_index.decide("ann").action, 0.5)  # indices work too


def test_a_reward_counts_once():
    """A notebook cell that runs twice does not learn twice."""
    agent = Agent(mmTS(MODEL), catalogue=DRINKS)
    agent.decide("ann", eligible=["milk"])
    agent.reward("ann", "milk", 1.0)
    learned = agent.state_probabilities("ann")
    with pytest.raises(ValueError, match=r"'ann' with the action 'milk' waits for a reward.*none"):
        agent.reward("ann", "milk", 1.0)
    np.testing.assert_array_equal(agent.state_probabilities("ann"), learned)
    agent.update(agent.decide("ann", eligible=["tea"]), 1.0)
    with pytest.raises(ValueError, match="waits for a reward"):
        agent.reward("ann", "tea", 1.0)


def test_late_rewards_go_to_their_decisions():
    agent = Agent(mmTS(MODEL), catalogue=DRINKS)
    for name in ("milk", "tea", "milk"):
        agent.decide("ann", eligible=[name])
    agent.reward("ann", "tea", 0.1)
    with pytest.raises(ValueError, match=r"actions that do: 'milk'$"):
        agent.reward("ann", "coffee", 0.1)
    agent.reward("ann", "milk", 0.9)
    agent.reward("ann", "milk", 0.9)
    assert agent.state_probabilities("ann")[1] > 0.99
    agent.decide("ann")
    agent.forget("ann")
    with pytest.raises(ValueError, match="waits for a reward"):
        agent.reward("ann", "tea", 0.1)


def test_a_reward_that_the_model_refuses_can_be_sent_again():
    agent = Agent(mmTS(BernoulliArms([[1, 1, 1]], 1)), catalogue=DRINKS)
    agent.decide("ann", eligible=["tea"])
    with pytest.raises(ValueError, match=r"has 0\.5"):
        agent.reward("ann", "tea", 0.5)
    agent.reward("ann", "tea", 1)


def test_eligible_names_masks_and_retired_actions():
    agent = Agent(mmTS(MODEL), catalogue=DRINKS.retire(["tea"]))
    assert "tea" not in {agent.decide(i).action for i in range(50)}
    assert agent.decide("ann", eligible=[False, False, True]).action == "water"
    assert agent.decide("ann", eligible=["water", "tea"]).action == "water"
    with pytest.raises(ValueError, match="no action 'cola'"):
        agent.decide("ann", eligible=["cola"])
    assert set(agent.decide("bob", length=2).actions) == {"milk", "water"}


def test_a_catalogue_with_features_is_the_context():
    vectors = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    model = LinearGaussian([[0.9, 0.1], [0.1, 0.9]], noise=0.1)
    catalogue = Catalogue(DRINKS.ids, features=vectors)
    named, plain = Agent(mmTS(model), 3, catalogue=catalogue), Agent(mmTS(model), 3)
    for i in range(20):
        assert named.decide(i).action == DRINKS.ids[plain.decide(i, vectors).action]
    with pytest.raises(ValueError, match="leave the context out"):
        named.decide("ann", vectors)


def test_a_decision_is_one_short_line():
    chosen = Agent(mmTS(MODEL), catalogue=DRINKS).decide("ann", eligible=["tea"])
    assert repr(chosen).startswith("Chosen(action='tea', state=")
    assert len(repr(chosen)) < 100


def test_from_a_log_to_an_agent(tmp_path):
    """`load_agent` has the model, the names and the policy that the fit recommends."""
    log = generate_arms(n_users=200, n_rounds=15, n_states=2, n_actions=3).log
    fit = lb.fit(log, states=2, quick=True)
    save_fit(fit, tmp_path / "model")
    agent = lb.load_agent(tmp_path / "model")
    recommended = fit.report["judgement"]["recommended_policy"]
    assert agent.policy.name.lower() == recommended.partition("(")[0].lower()
    assert agent.catalogue.ids == fit.catalogue.ids
    agent.reward("ann", agent.decide("ann").action, 1.0)
    other = lb.load_agent(tmp_path / "model", "mmGreedy", seed=5)
    assert other.policy.name == "mmGreedy"
    with pytest.raises(ValueError, match="mmgredy"):
        lb.load_agent(tmp_path / "model", "mmgredy")


def test_a_model_without_catalogue_or_recommendation(tmp_path):
    save(MODEL, tmp_path / "arms")
    agent = lb.load_agent(tmp_path / "arms")
    assert agent.policy.name == "mmTS"
    assert agent.decide("ann", eligible=["2"]).action == "2"
    save(LinearGaussian(np.eye(2), noise=0.1), tmp_path / "linear")
    with pytest.raises(ValueError, match="come with each request"):
        lb.load_agent(tmp_path / "linear")


def test_a_folder_ships_the_popularity_that_was_judged(tmp_path):
    """Whoever chose the actions saw the users' states, so that averages and model disagree."""
    rng = np.random.default_rng(0)
    happy = rng.random(400) < 0.5
    action = (rng.random((400, 6)) < np.where(happy, 0.9, 0.1)[:, None]).astype(int)
    chance = np.where(happy[:, None], 0.8, 0.2) + np.where(action == 0, 0.15, 0.0)
    table = {
        "user": np.repeat(np.arange(400), 6),
        "action": np.array(["ask", "offer"])[action.ravel()],
        "reward": (rng.random((400, 6)) < chance).astype(float).ravel(),
    }
    fitted = lb.fit(table, user="user", action="action", reward="reward", states=2, assess=False)
    asked = table["action"] == "ask"
    averages = [table["reward"][asked].mean(), table["reward"][~asked].mean()]
    assert averages[1] > averages[0] + 0.2
    by_model = fitted.model.state_prior @ fitted.model.expected_rewards(None)[0]
    assert by_model[0] > by_model[1]
    save_fit(fitted, tmp_path / "model")
    agent = lb.load_agent(tmp_path / "model", policy="popularity")
    assert [agent.decide(name).action for name in ("ann", "bob")] == ["offer", "offer"]
