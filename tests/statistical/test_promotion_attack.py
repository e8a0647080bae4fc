"""How far one client can move a decision on promotion: before and after what bounds it.

Honest visitors come to a service whose model is right; the candidate plays the same action for
everybody and is worse by .23 per session (2 of 3 rounds compared). A client with 5% of the sessions
reports a reward of 1 where its action is one that the candidate likes, and 0 elsewhere. The shift
is that of the estimated difference, candidate minus current, per session. `pytest -s` prints it.
Seeds are fixed.
"""

import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms, mTS
from latentbandits.evaluation.reading import read_decisions
from latentbandits.loop.data import divide, held_out, users_of
from latentbandits.loop.promotion import Side, judge
from latentbandits.policies import Exploring

MEANS = np.array([[0.9, 0.35, 0.1], [0.1, 0.35, 0.8]])
RIGHT, WRONG = GaussianArms(MEANS, 0.3), GaussianArms([[0.1, 0.9, 0.2]], 0.3)
ROUNDS, HONEST, SHARE = 3, 4000, 0.3
SALT, NOW = b"0123456789abcdef", datetime(2026, 11, 18, tzinfo=UTC)


def visits(names, rng, liked=None):
    """Return the log of sessions of these names; `liked` actions earn 1, others 0."""
    policy, n = Exploring(mTS(RIGHT), 0.5), len(names)
    state, belief, rows = rng.integers(2, size=n), policy.init(n), []
    for _ in range(ROUNDS):
        decision = policy.decide(belief, None, rng)
        reward = MEANS[state, decision.action] + 0.3 * rng.standard_normal(n)
        if liked is not None:
            reward = np.isin(decision.action, liked).astype(float)
        belief = policy.update(belief, None, decision, reward)
        rows.append((decision.action, reward, decision.propensity))
    action, reward, chance = (
        np.stack(column, axis=1).ravel() for column in zip(*rows, strict=True)
    )
    return pl.DataFrame(
        {
            "session": np.repeat(names, ROUNDS),
            "round": np.tile(np.arange(1, ROUNDS + 1), n),
            "time": [NOW - timedelta(hours=1)] * (n * ROUNDS),
            "action": action.astype(str),
            "reward": reward,
            "propensity": chance,
            "propensity_kind": ["explored"] * (n * ROUNDS),
            "policy": ["mTS"] * (n * ROUNDS),
        }
    )


def verdict_of(table, clustered=True):
    judging = divide(table, salt=SALT, share=SHARE, now=NOW).judging
    log = read_decisions(judging, model=RIGHT).log
    sides = [Side(Exploring(mTS(model), 0.5), model, log) for model in (RIGHT, WRONG)]
    return judge(*sides, users=users_of(log.session_ids) if clustered else None)


@pytest.fixture(scope="module")
def honest():
    return visits([f"visitor {i}" for i in range(HONEST)], np.random.default_rng(1))


def shift(honest, attack):
    """Return by how much an attack moves the difference, and whether the candidate is activated."""
    moved = verdict_of(pl.concat([honest, attack]))
    return moved.difference - verdict_of(honest).difference, moved.activate


def test_ids_that_a_client_chooses_are_judged_no_more_often_than_others(honest):
    """With a hash that everybody knows, all of the client's sessions are judged."""
    count = HONEST // 20
    ids = [f"chosen {i}" for i in range(10 * count)]
    known = [name for name, held in zip(ids, held_out(ids, SALT, SHARE), strict=True) if held]
    (before, _), (after, passes) = (
        shift(honest, visits(names[:count], np.random.default_rng(2), liked=[1]))
        for names in (known, ids)
    )
    sys.stdout.write(
        f"5% of the sessions, ids chosen: shift {before:.3f} before, {after:.3f} after\n"
    )
    assert 0 < after < 0.5 * before
    assert not passes


def test_a_name_that_comes_again_and_again_counts_a_few_times(
    honest, monkeypatch: pytest.MonkeyPatch
):
    """One name that is held out, with 5% of the sessions."""
    count = HONEST // 20
    names = [f"again {i}" for i in range(50)]
    name = next(n for n, held in zip(names, held_out(names, SALT, SHARE), strict=True) if held)
    attack = visits([name] * count, np.random.default_rng(3), liked=[1])
    after, passes = shift(honest, attack)
    monkeypatch.setattr("latentbandits.loop.data.first_visits", lambda sessions: sessions)
    before, _ = shift(honest, attack)
    sys.stdout.write(
        f"5% of the sessions, one name: shift {before:.3f} before, {after:.3f} after\n"
    )
    assert abs(after) < 0.1 * before
    assert not passes


def test_sessions_of_one_user_are_not_taken_for_independent_ones():
    """Everybody comes five times with the same luck: 1/5 of the evidence, errors sqrt(5) larger."""
    rng = np.random.default_rng(4)
    once = visits([f"visitor {i}" for i in range(1500)], rng)
    five = pl.concat([once] * 5)
    apart, together = verdict_of(five, clustered=False), verdict_of(five)
    assert together.stderr == pytest.approx(np.sqrt(5) * apart.stderr, rel=0.02)
    assert together.difference == pytest.approx(apart.difference)


def test_rewards_that_a_client_holds_back_move_little(honest):
    """5% of the sessions report only rewards of actions that the candidate likes, late or never."""
    count = HONEST // 20
    attack = visits([f"late {i}" for i in range(count)], np.random.default_rng(5), liked=[1])
    kept = pl.when(pl.col("reward") > 0).then("reward").alias("reward")
    moved, passes = shift(honest, attack.with_columns(kept))
    sys.stdout.write(f"5% of the sessions, rewards held back: shift {moved:.3f}\n")
    assert abs(moved) < 0.15
    assert not passes
