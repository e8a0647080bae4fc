"""Evaluation from logs of lists: prefix weights by hand, what a cascade observed, and the gate."""

import numpy as np
import polars as pl
import pytest

from latentbandits import BernoulliArms, mTS
from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.evaluation.estimators import ESTIMATORS, WeightedLog
from latentbandits.evaluation.log import EvaluationError
from latentbandits.evaluation.reading import read_decisions
from latentbandits.loop.promotion import Side, judge
from latentbandits.models.clicks import Cascade, Each, PositionClicks, Positions
from latentbandits.policies import Exploring, mmGreedy
from latentbandits.policies.lists import decide_list, update_list

RATES = np.array([[0.6, 0.1, 0.5, 0.2], [0.1, 0.6, 0.2, 0.5]])
K, LENGTH, LISTS = 4, 3, 2
LOOKED = (1.0, 0.6, 0.3)
MODEL = BernoulliArms(50 * RATES, 50 * (1 - RATES))
CLICKS = (Each(), Cascade(), Positions(LOOKED))


def played(policy, n, clicks, seed=0, lists=LISTS):
    """Return actions, rewards and propensities of lists shown to users of two kinds."""
    rng = np.random.default_rng(seed)
    state, belief = rng.integers(2, size=n), policy.init(n)
    rows = []
    for _ in range(lists):
        shown = decide_list(policy, belief, None, rng, LENGTH, clicks)
        attracted = rng.random((n, LENGTH)) < RATES[state[:, None], shown.actions]
        reward = clicks.react(attracted.astype(float), rng.random((n, LENGTH)))
        belief = update_list(policy, belief, None, shown, reward, clicks)
        rows.append((shown.actions, reward, shown.propensities))
    return [np.concatenate(parts, axis=1) for parts in zip(*rows, strict=True)]


def logged(policy, n, clicks, seed=0, lists=LISTS):
    action, reward, chance = played(policy, n, clicks, seed, lists)
    shown = ~np.isnan(reward)
    action, chance = np.where(shown, action, -1), np.where(shown, chance, np.nan)
    return DecisionLog(action, reward, np.full(n, lists), K, chance, length=LENGTH, shown=shown,
                       clicks=clicks)  # fmt: skip


def by_hand(clicks, actions, rewards):
    """Return P(action | above) of Thompson sampling on MODEL's means, for one session."""
    rates = MODEL.expected_rewards(None)[0]
    weights, chances = np.array([0.5, 0.5]), []
    looked = clicks.looked(LENGTH)
    for start in range(0, len(actions), LENGTH):
        here, observed = weights.copy(), []
        for position in range(LENGTH):
            action, reward = actions[start + position], rewards[start + position]
            if np.isnan(reward):
                chances.append(1.0)
                continue
            allowed = [a for a in range(K) if a not in actions[start : start + position]]
            best = [max(allowed, key=lambda a, s=s: rates[s, a]) for s in range(2)]
            chances.append(float(sum(here[s] for s in range(2) if best[s] == action)))
            e = 1.0 if looked is None else looked[position]
            likelihood = e * rates[:, action] if reward else 1 - e * rates[:, action]
            observed.append(likelihood)
            if clicks.unrolled:
                here = here * likelihood / (here * likelihood).sum()
        for likelihood in observed:
            weights = weights * likelihood / (weights * likelihood).sum()
    return chances


@pytest.mark.parametrize("clicks", CLICKS, ids=lambda one: one.name)
def test_weights_are_those_of_prefixes_by_hand(clicks):
    log = logged(Exploring(mTS(MODEL), 0.5), 40, clicks)
    part = evaluate(mTS(MODEL), log, estimators=["IPS"], draws=None).weighted["mTS"]
    for i in range(40):
        chances = by_hand(clicks, log.action[i], log.reward[i])
        wanted = np.array(chances) / np.where(log.active[i], log.propensity[i], 1.0)
        assert np.allclose(part.ratio[i], wanted, atol=1e-12)


@pytest.mark.parametrize("clicks", CLICKS, ids=lambda one: one.name)
def test_estimates_agree_with_the_candidate_itself(clicks):
    """Four estimators on 1,500 sessions; each fails by chance once in 16,000 (4 errors)."""
    log = logged(Exploring(mTS(MODEL), 0.4), 1_500, clicks)
    candidate = Exploring(
        mmGreedy(PositionClicks(MODEL.alpha, MODEL.beta, examination=LOOKED)), 0.3
    )
    own = np.nansum(played(candidate, 3_000, clicks, seed=1)[1], axis=1)
    found = evaluate({"it": candidate}, log, against="logged")
    assert found.horizon == LISTS
    for name in ESTIMATORS:
        estimate = found.estimate("it", name)
        error = np.hypot(estimate.stderr, own.std() / np.sqrt(len(own)))
        assert abs(estimate.value - own.mean()) < 4 * error
    assert {row["horizon"] for row in found.differences} == {LISTS}


def test_a_list_that_ended_keeps_its_weight():
    """Averaging over the lists that reached a position would give 1 here instead of 1/2."""
    ratio = np.array([[2.0, 1.0], [1.0, 1.0]])
    reward = np.array([[0.0, 1.0], [0.0, np.nan]])
    active = np.array([[True, True], [True, False]])
    zeros = np.zeros((2, 2))
    log = WeightedLog(ratio, reward, zeros, zeros, active, length=2)
    assert ESTIMATORS["SNIPS"](log).value == pytest.approx([2 / 3])
    assert ESTIMATORS["IPS"](log).value == pytest.approx([1.0])
    assert len(log.effective_sample_size) == 1


def test_windows_count_lists():
    rng = np.random.default_rng(0)
    ratio = rng.uniform(0.5, 2, (3, 6))
    zeros = np.zeros((3, 6))
    log = WeightedLog(ratio, zeros, zeros, zeros, np.ones((3, 6), bool), window=2, length=2)
    assert np.allclose(log.rho[:, 3], ratio[:, :4].prod(axis=1))
    assert np.allclose(log.rho[:, 5], ratio[:, 2:].prod(axis=1))


def table(log, **changes):
    """Return the log as rows of an export."""
    session, place = np.nonzero(log.active)
    number, position = np.divmod(place, LENGTH)
    columns = {
        "session": [f"s{i:04}" for i in session],
        "round": number + 1,
        "action": log.action[session, place],
        "reward": log.reward[session, place],
        "propensity": log.propensity[session, place],
        "list_id": [f"{i}-{j}" for i, j in zip(session, number, strict=True)],
        "list_position": position + 1,
    }
    return pl.DataFrame(columns | changes)


@pytest.mark.parametrize("clicks", CLICKS, ids=lambda one: one.name)
def test_a_table_of_lists_is_read_in_any_order_of_rows(clicks):
    log = logged(Exploring(mTS(MODEL), 0.5), 30, clicks)
    shuffled = table(log).sample(fraction=1.0, shuffle=True, seed=0)
    read = read_decisions(shuffled, model=MODEL, click_model=clicks).log
    width = read.action.shape[1]
    assert read.length == LENGTH
    assert np.array_equal(read.active, log.active[:, :width])
    assert np.array_equal(read.reward[read.active], log.reward[log.active])
    assert read.n_rounds == LISTS


def test_rows_below_the_click_of_a_cascade_are_not_read():
    log = logged(Exploring(mTS(MODEL), 0.5), 30, Cascade())
    full = logged(Exploring(mTS(MODEL), 0.5), 30, Each())
    rewards = np.where(np.cumsum(full.reward.reshape(30, LISTS, LENGTH), axis=2) > 1, 0.0,
                       full.reward.reshape(30, LISTS, LENGTH)).reshape(30, -1)  # fmt: skip
    rows = table(full, reward=rewards[np.nonzero(full.active)])
    read = read_decisions(rows, model=MODEL, click_model="cascade").log
    assert read.active.sum() < full.active.sum()
    assert (np.nansum(read.reward.reshape(30, LISTS, LENGTH), axis=2) <= 1).all()
    assert log.length == read.length


@pytest.mark.parametrize(
    ("change", "clicks", "said"),
    [
        ({"list_position": 1}, "each", "a position repeats in a list"),
        ({"list_position": 7}, "each", "counts positions from 1"),
        ({"reward": 1.0}, "cascade", "at most one"),
        ({"reward": None}, "cascade", "lists of a cascade got no answer"),
    ],
)
def test_bad_lists_get_one_sentence(change, clicks, said):
    rows = table(logged(Exploring(mTS(MODEL), 0.5), 5, Each()))
    rows = rows.with_columns(**{name: pl.lit(value) for name, value in change.items()})
    with pytest.raises(EvaluationError, match=said):
        read_decisions(rows, model=MODEL, click_model=clicks)


def test_the_gate_compares_lists():
    log = logged(Exploring(mTS(MODEL), 0.5), 40_000, Cascade(), lists=3)
    blind = BernoulliArms([[4.0, 1.0, 3.0, 2.0]], [[6.0, 9.0, 7.0, 8.0]])
    policies = Exploring(mTS(blind), 0.5), Exploring(mTS(MODEL), 0.5)
    better = judge(Side(policies[0], blind, log), Side(policies[1], MODEL, log))
    assert better.activate
    assert better.typical == 3
    assert better.horizon <= 3
    same = judge(Side(mTS(MODEL), MODEL, log), Side(mTS(MODEL), MODEL, log))
    assert same.identical
