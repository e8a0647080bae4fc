"""Off-policy estimates against textbook loops, hand-computed numbers and limits."""

import math
from dataclasses import replace

import numpy as np
import pytest

from latentbandits import EXP4, UCB1, GaussianArms, Markov, mmTS, mTS, mUCB
from latentbandits.beliefs import joint
from latentbandits.evaluation import (
    DecisionLog,
    EvaluationError,
    evaluate,
    normal_interval,
    sequence_interval,
)
from latentbandits.evaluation.estimators import ESTIMATORS, WeightedLog, dm
from latentbandits.evaluation.follow import follow, predict
from latentbandits.policies.decision import Decision
from tests.reference import off_policy

MEANS = np.array([[0.9, 0.5, 0.1], [0.1, 0.4, 0.85]])
MODEL = GaussianArms(MEANS, noise=0.5, spread=0.2)


def random_log(seed=0, n=40, longest=5, missing=0.0, eligible=False, chances=True):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=n)
    lengths[0] = longest
    active = np.arange(longest) < lengths[:, None]
    mask = None
    if eligible:
        mask = rng.random((n, longest, 3)) < 0.7
        mask[:, :, 0] = True
    options = np.ones((n, longest, 3), bool) if mask is None else mask
    draw = np.where(options, rng.random((n, longest, 3)), -1)
    action = np.where(active, draw.argmax(axis=2), -1)
    state = rng.integers(2, size=n)
    means = MEANS[state[:, None], np.maximum(action, 0)]
    reward = np.where(active, means + 0.5 * rng.standard_normal((n, longest)), np.nan)
    reward[rng.random((n, longest)) < missing] = np.nan
    propensity = np.where(active, 1 / options.sum(axis=2), np.nan) if chances else None
    return DecisionLog(action, reward, lengths, 3, propensity, mask)


def one_at_a_time(policy, log, q_policy):
    """Follow a policy session by session with its own methods: the slow way."""
    rng = np.random.default_rng(0)
    sessions = []
    for i in range(log.n_sessions):
        belief, q_belief = policy.init(1), q_policy.init(1)
        steps = []
        for t in range(log.lengths[i]):
            mask = None if log.eligible is None else log.eligible[[i], t]
            pi = policy.action_probabilities(belief, None, rng, eligible=mask).values[0]
            q = joint.mean_rewards(q_policy.model, q_belief, None)[0]
            action, reward = int(log.action[i, t]), float(log.reward[i, t])
            mu = math.nan if log.propensity is None else log.propensity[i, t]
            steps.append({"pi": pi, "q": q, "mu": mu, "action": action, "reward": reward})
            if math.isnan(reward):
                continue
            made = policy.decide(belief, None, rng, eligible=mask)
            state = made.state if made.action[0] == action else np.array([0])
            chance = np.array([pi[action] if pi[action] > 0 else 1.0])
            own = Decision(np.array([action]), state, chance, "exact", "", mask)
            belief = policy.update(belief, None, own, [reward])
            q_belief = q_policy.update(q_belief, None, Decision.logged([action]), [reward])
        sessions.append(steps)
    return sessions


@pytest.mark.parametrize("policy", [mTS(MODEL), mUCB(MODEL), EXP4(MODEL), UCB1(3)], ids=type)
@pytest.mark.parametrize(("missing", "eligible"), [(0.0, False), (0.3, False), (0.2, True)])
def test_estimates_equal_the_textbook_loops(policy, missing, eligible):
    from latentbandits import mmGreedy

    log = random_log(seed=3, missing=missing, eligible=eligible)
    sessions = one_at_a_time(policy, log, mmGreedy(MODEL))
    actual = evaluate({"p": policy}, log, model=MODEL, horizon=5, estimators=list(ESTIMATORS))
    for name in ESTIMATORS:
        rows = [r["value"] for r in actual.rounds if r["policy"] == "p" and r["estimator"] == name]
        np.testing.assert_allclose(rows, off_policy.estimate(sessions, name), rtol=1e-9)


def test_a_hand_computed_session_pair():
    """Two sessions, one round: weights 2 and 0; IPS 2 * 1 / 2, SNIPS 1, DR by hand."""
    weighted = WeightedLog(
        ratio=np.array([[2.0], [0.0]]),
        reward=np.array([[1.0], [5.0]]),
        q=np.array([[0.6], [0.2]]),
        direct=np.array([[0.5], [0.3]]),
        active=np.ones((2, 1), bool),
    )
    assert ESTIMATORS["IPS"](weighted).value[0] == pytest.approx(1.0)
    assert ESTIMATORS["SNIPS"](weighted).value[0] == pytest.approx(1.0)
    # mean of (2 (1 - .6) + .5, 0 + .3) = .8
    assert ESTIMATORS["DR"](weighted).value[0] == pytest.approx(0.8)
    # 2 (1 - .6) / 2 + mean(.5, .3) = .4 + .4
    assert ESTIMATORS["SNDR"](weighted).value[0] == pytest.approx(0.8)
    assert dm(weighted).value[0] == pytest.approx(0.4)


def test_the_logging_policy_itself_has_the_mean_reward():
    """With pi = mu all weights are 1 and every estimator is the plain mean."""
    from latentbandits.policies import Uniform

    log = random_log(seed=5)
    actual = evaluate(
        {"uniform": Uniform(MODEL)}, log, model=MODEL, horizon=5, estimators=["IPS", "SNIPS"]
    )
    mean = actual.estimate("logged", "mean")
    for name in ("IPS", "SNIPS"):
        assert actual.estimate("uniform", name).value == pytest.approx(mean.value)


def test_an_ended_session_counts_as_zero_and_keeps_its_weight():
    """Averaging only over sessions that go on would give 1 in round 2; per session it is 1/2."""
    log = DecisionLog(
        np.array([[0, 0], [1, -1]]),
        np.array([[1.0, 1.0], [0.0, np.nan]]),
        np.array([2, 1]),
        2,
        np.array([[0.5, 0.5], [0.5, np.nan]]),
    )
    from latentbandits.policies import Uniform

    model = GaussianArms([[0.5, 0.5]], noise=1.0)
    actual = evaluate({"u": Uniform(model)}, log, model=model, horizon=2, estimators=["SNIPS"])
    second = next(r for r in actual.rounds if r["policy"] == "u" and r["round"] == 2)
    assert second["value"] == pytest.approx(0.5)
    assert second["value_if_reached"] == pytest.approx(1.0)


def test_rewards_teach_only_after_they_were_applied():
    """The reward of round 1 comes after decision 2: decision 2 is made from the prior."""
    action = np.array([[0, 0, 0]])
    reward = np.array([[0.9, 0.9, 0.9]])
    late = DecisionLog(
        action, reward, np.array([3]), 3, np.full((1, 3), 1 / 3), applied=np.array([[2, 2, 3]])
    )
    prompt = DecisionLog(action, reward, np.array([3]), 3, np.full((1, 3), 1 / 3))
    rng = np.random.default_rng(0)
    q_late, q_prompt = predict(MODEL, late), predict(MODEL, prompt)
    np.testing.assert_allclose(q_late[0, 1], q_late[0, 0])
    np.testing.assert_allclose(q_late[0, 2], q_prompt[0, 2])
    assert abs(q_prompt[0, 1] - q_prompt[0, 0]).max() > 0.1
    chance = follow(mTS(MODEL), late, None, rng).chance
    assert chance[0, 1] == chance[0, 0]


def test_a_late_reward_teaches_once():
    """The reward of round 1 comes before round 3 of 5: from then on the belief has it once."""
    rng = np.random.default_rng(4)
    action, reward = rng.integers(3, size=(6, 5)), rng.standard_normal((6, 5))
    log = DecisionLog(action, reward, np.full(6, 5), 3, np.full((6, 5), 1 / 3))
    late = np.tile(np.arange(1, 6), (6, 1))
    late[:, 0] = 2
    actual = predict(MODEL, replace(log, applied=late))
    reordered = [1, 0, 2, 3, 4]  # rewards of rounds 2 and 1 are learned before round 3
    same = replace(log, action=action[:, reordered], reward=reward[:, reordered])
    np.testing.assert_allclose(actual[:, 2:], predict(MODEL, same)[:, 2:])


def test_a_window_weighs_the_last_rounds_only():
    ratio = np.array([[2.0, 3.0, 5.0, 7.0], [0.5, 0.0, 4.0, 1.0]])
    shape = np.zeros((2, 4))
    log = WeightedLog(ratio, shape, shape, shape, np.ones((2, 4), bool), window=2)
    np.testing.assert_allclose(log.rho, [[2, 6, 15, 35], [0.5, 0, 0, 4]])
    np.testing.assert_allclose(log.previous_rho, [[1, 2, 3, 5], [1, 0.5, 0, 4]])
    for window in (4, 9, None):
        whole = replace(log, window=window)
        np.testing.assert_allclose(whole.rho, np.cumprod(ratio, axis=1))
        np.testing.assert_allclose(whole.previous_rho[:, 1:], whole.rho[:, :-1])


def test_counted_draws_are_unbiased():
    log = random_log(seed=1, n=2000, longest=2)
    exact = follow(mmTS(MODEL), log, None, np.random.default_rng(0))
    counted = follow(mmTS(MODEL), log, None, np.random.default_rng(0), draws=50)
    gap = counted.chance - exact.chance
    error = gap[log.active].std() / math.sqrt(log.active.sum())
    assert abs(gap[log.active].mean()) < 4 * error


def test_beliefs_of_uneven_shape_are_followed_one_by_one():
    """The paths of a Markov belief grow with the rewards a session has seen."""
    model = Markov(MODEL, np.array([[0.9, 0.1], [0.1, 0.9]]))
    log = random_log(seed=2, n=6, longest=3, missing=0.4)
    batch = follow(mTS(model), log, None, np.random.default_rng(0)).chance
    alone = np.concatenate(
        [
            follow(mTS(model), log.take(np.array([i])), None, np.random.default_rng(0)).chance
            for i in range(6)
        ]
    )
    np.testing.assert_allclose(batch, alone, rtol=1e-12)
    joint = follow(mmTS(model, propensity_draws=20), log, None, np.random.default_rng(0)).chance
    assert np.isfinite(joint).all()


def test_queue_takes_each_logged_reward_once():
    """UCB1 tries every action once; the queues give its rewards in the log's order."""
    log = DecisionLog(
        np.array([[0, 1, 2, 0]]),
        np.array([[1.0, 2.0, 3.0, 4.0]]),
        np.array([4]),
        3,
        np.full((1, 4), 1 / 3),
    )
    actual = evaluate({"u": UCB1(3)}, log, estimators=["queue"])
    values = [r["value"] for r in actual.rounds if r["estimator"] == "queue"]
    assert sorted(values[:3]) == [1.0, 2.0, 3.0]
    assert len(values) == 3  # UCB1 then wants action 2, whose queue is empty


def test_replay_learns_from_accepted_rounds_only():
    log = random_log(seed=7, n=3000, longest=5)
    actual = evaluate({"m": mTS(MODEL)}, log, estimators=["replay"])
    rows = [r for r in actual.rounds if r["estimator"] == "replay"]
    # In the first accepted round mTS plays the best action of either state: .9, .1, .1 or .85.
    assert rows[0]["value"] == pytest.approx(
        (0.9 + 0.1 + 0.1 + 0.85) / 4, abs=4 * rows[0]["stderr"]
    )
    assert rows[1]["value"] > rows[0]["value"]


def test_the_default_horizon_ends_with_the_effective_sample_size():
    log = random_log(seed=4, n=400, longest=8)
    actual = evaluate({"m": mTS(MODEL)}, log, model=MODEL, estimators=["SNIPS"])
    sizes = [r["ess"] for r in actual.rounds if r["policy"] == "m"]
    assert all(size >= 100 for size in sizes[: actual.horizon])
    assert sizes[actual.horizon] < 100
    assert "falls below 100" in actual.horizon_reason


def test_differences_are_paired():
    log = random_log(seed=4, n=400, longest=2)
    actual = evaluate(
        {"a": mTS(MODEL), "b": mTS(MODEL)}, log, model=MODEL, against="a", estimators=["SNIPS"]
    )
    row = actual.differences[0]
    assert (row["policy"], row["against"]) == ("b", "a")
    assert row["value"] == pytest.approx(0.0)
    assert row["stderr"] == pytest.approx(0.0)


def test_the_sequence_is_wider_than_the_interval_at_every_size():
    rng = np.random.default_rng(0)
    for n in (10, 100, 5000, 100_000):
        influence = rng.standard_normal(n)
        one, many = normal_interval(0.0, influence), sequence_interval(0.0, influence)
        assert many.high > one.high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(propensity=np.zeros((1, 1))), "propensity 0.0"),
        (dict(propensity=np.full((1, 1), 1.5)), "propensity 1.5"),
        (dict(propensity=np.full((1, 1), np.nan)), "propensity nan"),
        (dict(action=np.array([[7]])), "action 7 is out of range"),
        (dict(eligible=np.array([[[False, True]]])), "not among its eligible"),
        (dict(action=np.empty((0, 0), np.int64)), "empty"),
    ],
)
def test_a_bad_log_is_refused(change, message):
    good = dict(
        action=np.array([[0]]), reward=np.array([[1.0]]), lengths=np.array([1]), n_actions=2
    )
    with pytest.raises(EvaluationError, match=message):
        DecisionLog(**(good | change))


def test_estimators_that_do_not_fit_are_refused_with_those_that_do():
    log = random_log(chances=False)
    with pytest.raises(EvaluationError, match=r"no propensities.*fit this log: none"):
        evaluate(mTS(MODEL), log, estimators=["IPS"])
    with pytest.raises(EvaluationError, match=r"no estimator fits this log.*depend on the past"):
        evaluate(mTS(MODEL), log)
    with pytest.raises(EvaluationError, match="no estimator 'IPW'"):
        evaluate(mTS(MODEL), log, estimators=["IPW"])
    with pytest.raises(EvaluationError, match="against"):
        evaluate(mTS(MODEL), random_log(), against="nobody")
    with pytest.raises(EvaluationError, match="horizon must be from 1 to 5"):
        evaluate(mTS(MODEL), random_log(), horizon=6)


def test_a_log_without_any_reward_is_refused_unless_it_is_filled():
    log = random_log()
    bare = replace(log, reward=np.full_like(log.reward, np.nan))
    with pytest.raises(EvaluationError, match=r"none of the \d+ decisions.*unrewarded"):
        evaluate(mTS(MODEL), bare)
    filled = evaluate(mTS(MODEL), bare, unrewarded=0.0, estimators=["IPS"])
    assert filled.estimate("mTS", "IPS").value == 0


def test_one_round_sessions_equal_open_bandit_pipeline():
    """The same numbers from obp's estimators, where it can be installed."""
    ope = pytest.importorskip("obp.ope", reason="Open Bandit Pipeline does not install here")
    rng = np.random.default_rng(0)
    n, k = 500, 3
    mu = rng.dirichlet(np.ones(k), size=n)
    pi = rng.dirichlet(np.ones(k), size=n)
    action = (mu.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    reward, q, rows = rng.standard_normal(n), rng.standard_normal((n, k)), np.arange(n)
    inputs = dict(
        reward=reward,
        action=action,
        pscore=mu[rows, action],
        action_dist=pi[:, :, None],
        estimated_rewards_by_reg_model=q[:, :, None],
    )
    ours = WeightedLog(
        ratio=(pi / mu)[rows, action][:, None],
        reward=reward[:, None],
        q=q[rows, action][:, None],
        direct=(pi * q).sum(axis=1)[:, None],
        active=np.ones((n, 1), bool),
    )
    theirs = {
        "IPS": ope.InverseProbabilityWeighting(),
        "SNIPS": ope.SelfNormalizedInverseProbabilityWeighting(),
        "DR": ope.DoublyRobust(),
    }
    for name, estimator in theirs.items():
        expected = estimator.estimate_policy_value(**inputs)
        assert ESTIMATORS[name](ours).value[0] == pytest.approx(expected, rel=1e-9)
    expected = ope.DirectMethod().estimate_policy_value(**inputs)
    assert dm(ours).value[0] == pytest.approx(expected, rel=1e-9)


def test_the_direct_method_simulates_longer_sessions():
    """On users of the model itself DM is the value that simulation gives, session by session."""
    from latentbandits.evaluation.follow import simulator

    log = random_log(seed=9, n=3000, longest=3)
    actual = evaluate(
        {"m": mTS(MODEL)}, log, model=MODEL, estimators=["DM"], simulated=simulator(MODEL, log)
    )
    rows = [r for r in actual.rounds if r["estimator"] == "DM"]
    # In the first round mTS plays the best action of a state at random: .9, .1, .1 or .85.
    error = actual.by_round["m", "DM"].influence[:, 0].std() / math.sqrt(3000)
    assert rows[0]["value"] == pytest.approx(0.4875, abs=4 * error)
    assert simulator(MODEL, random_log(eligible=True)) is None


def test_the_direct_method_has_no_interval_and_no_verdict():
    log = random_log(seed=9, n=300, longest=1)
    names = {"a": mTS(MODEL), "b": mUCB(MODEL)}
    actual = evaluate(names, log, model=MODEL, estimators=["DM", "SNIPS"], against="a")
    rows = [r for r in (*actual.estimates, *actual.rounds) if r["estimator"] == "DM"]
    assert rows
    for row in rows:
        assert math.isfinite(row["value"])
        assert all(math.isnan(row[key]) for key in ("stderr", "low", "high"))
    assert {row["estimator"] for row in actual.differences} == {"SNIPS"}


def test_queue_is_refused_where_actions_depend_on_the_past():
    """Propensities of one action and round that differ between sessions say that they do."""
    log = random_log(seed=9, n=300, longest=3)
    evaluate({"m": mTS(MODEL)}, log, estimators=["queue"])
    adaptive = log.propensity.copy()
    adaptive[0, 1] = 0.5
    with pytest.raises(EvaluationError, match=r"queue cannot be computed.*depend on the past"):
        evaluate({"m": mTS(MODEL)}, replace(log, propensity=adaptive), estimators=["queue"])
    known = evaluate({"m": mTS(MODEL)}, replace(log, propensity=adaptive), model=MODEL)
    assert "queue" not in {row["estimator"] for row in known.estimates}


def losing_rewards_by_action(log, rng):
    """Drop 60% of the rewards of action 0, and 5% of the others'."""
    lost = rng.random(log.reward.shape) < np.where(log.action == 0, 0.6, 0.05)
    return replace(log, reward=np.where(lost, np.nan, log.reward))


def test_the_logging_policy_is_identical_to_itself_where_rewards_are_missing_by_action():
    from latentbandits.policies import Uniform

    for i in range(10):
        log = losing_rewards_by_action(random_log(seed=20 + i, n=500), np.random.default_rng(i))
        actual = evaluate({"u": Uniform(MODEL)}, log, model=MODEL, against="logged")
        assert [row["verdict"] for row in actual.differences] == ["identical"] * 4


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_missing_rewards_leave_estimates_unbiased(name):
    """30 logs, seed in the generator; 4 standard errors: a right estimator fails with p < 1e-4.

    Action 0 pays 1 more than the model says and loses most rewards. The planted error is to leave
    missing rewards out of the weighted mean.
    """
    gaps, left_out = [], []
    truth = np.mean([1.9, 1.1, 0.1, 0.85])  # the first round of mTS: action 0 or 2 in both states
    for i in range(30):
        log = random_log(seed=100 + i, n=1000, longest=2)
        log = replace(log, reward=log.reward + (log.action == 0))
        log = losing_rewards_by_action(log, np.random.default_rng([2, i]))
        options = dict(model=MODEL, horizon=1, estimators=[name])
        gaps.append(evaluate({"m": mTS(MODEL)}, log, **options).estimate("m", name).value - truth)
        wanted = log.observed[:, 0] & (log.action[:, 0] != 1)  # mTS plays 0 and 2 equally often
        left_out.append(log.reward[wanted, 0].mean() - truth)
    for values, biased in ((np.array(gaps), False), (np.array(left_out), True)):
        z = abs(values.mean()) / (values.std(ddof=1) / math.sqrt(len(values)))
        assert bool(z > 4) == biased
