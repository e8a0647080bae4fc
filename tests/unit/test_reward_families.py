"""`fit` for every kind of reward: the family is found, bad rewards are refused, tails are tamed."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from evidence.reward_logs import OVERLAPPING, generate_family

from latentbandits import GaussianArms, Log1pRewards, load, mmTS, save
from latentbandits.cli import main
from latentbandits.learning import fit
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.generate import generate_ratings
from latentbandits.learning.learners import align
from latentbandits.learning.logs.rows import Log, make_family
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.reading import split_users
from latentbandits.learning.rewards import TransformedLearner, choose_family

GENERATED = ("gaussian", "bernoulli", "poisson", "exponential", "categorical")


def heavy_tails(seed=0, n_users=400):
    """Counts from 1 on whose logarithm is about normal: the mean is far above the typical one."""
    truth = generate_family("gaussian", n_users, 20, 2, 6, seed=seed)
    rng = np.random.default_rng(seed)
    log = truth.log
    level = 2 + 2 * truth.means[truth.state[log.users], log.actions]
    rewards = 1 + np.floor(np.exp(level + rng.standard_normal(log.n_events)))
    log = Log(log.users, log.actions, rewards, log.user_ids, log.action_ids)
    return log, replace(truth, log=log).labelled_means()


@pytest.mark.parametrize("rewards", GENERATED)
def test_auto_finds_the_family(rewards):
    log = generate_family(rewards, n_users=250, n_rounds=20, n_states=2, n_actions=5, seed=3).log
    choice = choose_family(split_users(log, 0))
    assert choice.rewards == rewards
    assert choice.recommended_transform is None
    assert not choice.warnings


@pytest.mark.parametrize("rewards", ["poisson", "categorical"])
def test_a_family_that_evidence_rejects_is_used_with_a_warning(rewards):
    log = generate_family(rewards, n_users=250, n_rounds=20, n_states=2, n_actions=5, seed=3).log
    choice = choose_family(split_users(log, 0), requested="exponential")
    assert choice.rewards == "exponential"
    assert "speak against --rewards exponential" in choice.warnings[0]


def test_lattice_rewards_are_compared_by_the_probability_of_their_cell():
    """Against a slow sum: P(r - h/2 < N(mean, deviation) < r + h/2) before each reward."""
    from scipy.stats import norm

    from latentbandits.learning.logs.rows import cells_of_values, off_lattice

    log = generate_family("categorical", n_users=1, n_rounds=3, n_states=1, n_actions=1).log
    model = GaussianArms([[3.0]], noise=1.0, spread=0.5)
    values = np.unique(log.rewards)
    actual = score(model, log, cells=cells_of_values(values, off_lattice(values)))
    mean, variance = 3.0, 0.25
    for i, reward in enumerate(log.rewards):
        deviation = np.sqrt(variance + 1)
        cell = norm.cdf(reward + 0.5, mean, deviation) - norm.cdf(reward - 0.5, mean, deviation)
        assert actual.log_cell[i] == pytest.approx(np.log(cell), rel=1e-9)
        gain = variance / (variance + 1)
        mean, variance = mean + gain * (reward - mean), variance * (1 - gain)


@pytest.mark.parametrize("rewards", ["bernoulli", "poisson", "exponential", "categorical"])
def test_evidence_and_uniforms_are_those_of_the_belief_round_by_round(rewards):
    from latentbandits.beliefs import joint

    truth = generate_family(rewards, n_users=6, n_rounds=9, n_states=2, n_actions=3, seed=1)
    learner = ArmsLearner(make_family(rewards, truth.log.rewards), strength=30.0)
    from latentbandits.learning.learners import Candidate

    model = learner.learn(truth.log, Candidate(2, None), 0).model
    actual = score(model, truth.log)
    for user in range(6):
        belief = joint.prior(model, 1)
        for i in range(*truth.log.starts[user : user + 2]):
            before = joint.log_total(belief.log_weights)
            event = truth.log.actions[i : i + 1], truth.log.rewards[i : i + 1]
            belief = joint.condition(model, belief, None, *event)
            density = joint.log_total(belief.log_weights) - before
            assert actual.log_density[i] == pytest.approx(density[0], rel=1e-9)


def test_users_that_differ_within_a_state_are_noticed():
    varied = generate_family("bernoulli", 600, 60, 2, 5, strength=20.0, seed=1).log
    alike = generate_family("bernoulli", 600, 60, 2, 5, seed=1).log
    strengths = [
        ArmsLearner(make_family("bernoulli", log.rewards))
        .select(split_users(log, 0), (2,))
        .learner.strength
        for log in (varied, alike)
    ]
    assert 10 <= strengths[0] <= 100
    assert strengths[1] >= 1000


@pytest.mark.slow
@pytest.mark.parametrize("rewards", GENERATED)
def test_intervals_of_new_users_and_of_means_hold(rewards):
    """A short form of the experiment `recovery`. Means: 30 intervals of 90%, which share a log;
    fewer than 21 held have a probability below 1e-3. Rewards: 4,000 held out ones, 90% +- 2%.
    """
    truth = generate_family(rewards, 800, 25, 3, 10, separation=OVERLAPPING, seed=7)
    actual = fit(truth.log, rewards=rewards, states=3, bootstrap=0)
    model = actual.model
    means = model.expected_rewards(None)[0]
    order = align(means, truth.means)
    draws = model.sample_rewards(
        model.parameters(1), None, np.repeat(np.arange(3), 800)[None], np.random.default_rng(0)
    )[0].reshape(3, 800, 10)
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    assert ((low[order] <= truth.means) & (truth.means <= high[order])).sum() >= 21
    covered = {row["level"]: row["covered"] for row in actual.report["held_out"]["coverage"]}
    assert abs(covered[0.9] - 0.9) < 0.02


def test_a_transform_is_recommended_stored_and_decides_in_original_units(tmp_path):
    log, means = heavy_tails()
    assert choose_family(split_users(log, 0)).recommended_transform == "log1p"
    actual = fit(log, transform="log1p", kind="arms", states=2, bootstrap=3)
    assert isinstance(actual.model, Log1pRewards)
    rewards = actual.model.expected_rewards(None)[0]
    order = align(np.log(rewards), np.log(means))
    assert np.abs(np.log(rewards[order]) - np.log(means)).max() < 0.35
    average = np.bincount(log.actions, log.rewards) / np.bincount(log.actions)
    np.testing.assert_allclose(actual.model.state_prior @ rewards, average, rtol=0.15)
    assert abs(actual.report["held_out"]["coverage"][2]["covered"] - 0.9) < 0.03
    save(actual.model, tmp_path / "m")
    policy = mmTS(load(tmp_path / "m"))
    decision = policy.decide(policy.init(), None, np.random.default_rng(0))
    after = policy.update(policy.init(), None, decision, [1e6])
    assert np.isfinite(policy.state_probabilities(after)).all()
    with pytest.raises(ValueError, match="log1p, which cannot take -1"):
        policy.update(policy.init(), None, decision, [-1.0])


@pytest.mark.parametrize("transform", ["log1p", pytest.param("sqrt", marks=pytest.mark.slow)])
def test_a_transform_of_a_large_catalogue_is_learned_and_judged(transform):
    """Above 50 actions the model is linear, and all judged players take its features."""
    truth = generate_ratings(300, 60, 2, density=0.4, level=1.0, seed=4)
    table = {"user": truth.users, "action": truth.actions, "reward": np.exp(truth.rewards)}
    actual = fit(table, transform=transform, states=2, rank=4, reg=1.0, bootstrap=2)
    assert actual.report["settings"]["kind"] == "linear"
    assert actual.model.transform == transform
    rows = {row["policy"]: row for row in actual.report["judgement"]["replay"]}
    for policy in ("one state", "mmGreedy"):
        gain, error = (rows[policy][f"over_popularity{part}"] for part in ("", "_stderr"))
        assert gain > 2 * error


def test_a_transformed_learner_widens_in_its_own_units():
    log, _ = heavy_tails(n_users=150)
    learner = TransformedLearner(
        ArmsLearner(make_family("gaussian", np.log1p(log.rewards))), "log1p"
    )
    from latentbandits.learning.learners import Candidate, bootstrap

    chosen = Candidate(2, None)
    learned = learner.learn(log, chosen, 0)
    actual = bootstrap(learner, log, learned, 4)
    wide = learner.widened(learned, actual)
    assert (wide.model.model.spread >= learned.model.model.spread - 1e-12).all()
    np.testing.assert_allclose(wide.rewards(), learned.rewards())


STARS = generate_family("categorical", n_users=40, n_rounds=6, n_states=2, n_actions=3).log


@pytest.mark.parametrize(
    ("rewards", "settings", "message"),
    [
        (STARS.rewards, {"rewards": "bernoulli"}, "rewards that are 0 or 1; .* the first is"),
        (STARS.rewards + 0.25, {"rewards": "poisson"}, "counts .*; 240 of 240 are not"),
        (STARS.rewards - 3, {"rewards": "exponential"}, "not negative; "),
        (np.arange(240.0), {"rewards": "categorical"}, "at most 20 different values"),
        (STARS.rewards - 3, {"transform": "log1p"}, "log1p takes rewards that are above -1; "),
        (STARS.rewards - 3, {"transform": "sqrt"}, "sqrt takes rewards that are not negative; "),
        (STARS.rewards, {"transform": "cube"}, "log1p, sqrt"),
        (STARS.rewards, {"transform": "log1p", "rewards": "poisson"}, "modelled as gaussian"),
        (STARS.rewards, {"rewards": "normal"}, "auto, bernoulli, categorical"),
        (STARS.rewards, {"rewards": "poisson", "kind": "linear"}, "for models of --kind arms"),
        (STARS.rewards, {"rewards": "poisson", "noise": 1.0}, "noise is for gaussian"),
        (STARS.rewards, {"states": 41}, "41 states are more than the log's 40 users"),
    ],
)
def test_rewards_that_cannot_be(rewards, settings, message):
    log = Log(STARS.users, STARS.actions, rewards, STARS.user_ids, STARS.action_ids)
    with pytest.raises(LogError, match=message):
        fit(log, **settings)


def test_a_bad_reward_is_named_by_its_row_and_nothing_is_written(tmp_path, capsys):
    rewards = [0, 1, 0, 1, 0, 3, 1, 2]
    table = {"u": list("aabbccdd"), "a": list("xyxyxyxy"), "r": rewards}
    pl.DataFrame(table).write_csv(tmp_path / "log.csv")
    columns = ["--user", "u", "--action", "a", "--reward", "r", "--rewards", "bernoulli"]
    code = main(["fit", str(tmp_path / "log.csv"), *columns, "--out", str(tmp_path / "model")])
    assert code == 2
    error = capsys.readouterr().err
    assert "2 of 8 are not, the first is row 6" in error or "line 7" in error
    assert "Traceback" not in error
    assert not (tmp_path / "model").exists()


def test_clicks_from_the_command_line(tmp_path, capsys):
    log = generate_family("bernoulli", n_users=200, n_rounds=20, n_states=2, n_actions=4).log
    names = {"u": log.users, "a": log.actions, "click": log.rewards.astype(bool)}
    pl.DataFrame(names).write_csv(tmp_path / "clicks.csv")
    columns = ["--user", "u", "--action", "a", "--reward", "click", "--bootstrap", "2",
               "--kind", "arms"]  # fmt: skip
    out = tmp_path / "model"
    assert (
        main(["fit", str(tmp_path / "clicks.csv"), *columns, "--verbose", "--out", str(out)]) == 0
    )
    assert type(load(out)).__name__ == "BernoulliArms"
    report = json.loads((out / "report.json").read_text())
    assert report["families"]["chosen"] == "bernoulli"
    assert report["families"]["reason"] == "all rewards are 0 or 1"
    assert [row["elbo"] is not None for row in report["selection"]]
    assert report["uncertainty"]["estimation"] > 0
    printed = capsys.readouterr().out
    assert "bernoulli" in printed
    assert "ELBO" in printed
