"""Sessions that no state explains, and predicted against received rewards."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from latentbandits import BernoulliArms, Decision, mTS
from latentbandits.serving.engine import batch, sessions
from latentbandits.serving.engine.batch import PREDICTED
from latentbandits.serving.engine.sessions import likelihood_ratio
from latentbandits.serving.engine.statistics import decode_totals, encode_totals
from tests.unit.engine_driver import Driver, forget_beliefs

N_SESSIONS, N_ROUNDS = 150, 15
MOST = 17
"""Sessions of 150 that a right model may leave unexplained. Each is with probability 1/20 at most,
so more are in one run of a thousand at most (binomial)."""
MEANS = np.array([[0.9, 0.5, 0.1, 0.1], [0.1, 0.9, 0.5, 0.1], [0.1, 0.1, 0.9, 0.5]])
MODEL = BernoulliArms.from_means(MEANS, 0.05)


def played(seed: int, *, strangers: bool = False, policy: str = "mmTS") -> Driver:
    """Serve users of the model, or users who like all actions a little."""
    rng = np.random.default_rng(seed)
    driver = Driver(MODEL, policy=policy)
    for user in range(N_SESSIONS):
        rates = [0.35] * 4 if strangers else MEANS[rng.integers(3)]
        for _ in range(N_ROUNDS):
            decided = driver.ask(f"user {user}")
            driver.tell(decided, float(rng.random() < rates[int(decided.action)]))
    return driver


def unexplained(driver: Driver) -> int:
    return driver.engine.statistics.counts.get("unexplained", 0)


def test_the_ratio_is_that_of_the_densities() -> None:
    policy, rng = mTS(MODEL), np.random.default_rng(0)
    belief = policy.init()
    prior = policy.state_probabilities(belief)[0]
    for _ in range(20):
        action, reward = rng.integers(4, size=1), rng.integers(2, size=1).astype(float)
        density = np.exp(MODEL.log_likelihood(None, action, reward)[0])
        before = policy.state_probabilities(belief)[0]
        belief = policy.update(belief, None, Decision.logged(action), reward)
        after = policy.state_probabilities(belief)[0]
        expected = (prior @ density) / (before @ density)
        ratio = likelihood_ratio(prior.tolist(), before.tolist(), after.tolist())
        assert ratio == pytest.approx(expected, rel=1e-12)


def test_without_states_nothing_is_unexplained() -> None:
    assert likelihood_ratio((), [0.9, 0.1], [0.1, 0.9]) == 1.0
    assert likelihood_ratio((1.0,), [0.9, 0.1], [0.1, 0.9]) == 1.0
    impossible = likelihood_ratio((0.5, 0.5), [1.0, 0.0], [0.0, 1.0])
    assert 1e200 < impossible < np.inf


def test_few_users_of_the_model_are_unexplained_and_many_strangers() -> None:
    assert unexplained(played(1)) <= MOST
    assert unexplained(played(1, strangers=True)) > 3 * MOST


def test_a_ratio_upside_down_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def upside_down(prior, before, after):  # type: ignore[no-untyped-def]
        return likelihood_ratio(prior, after, before)

    monkeypatch.setattr(sessions, "likelihood_ratio", upside_down)
    assert unexplained(played(1)) > MOST


def test_a_session_is_counted_once_while_it_is_in_memory() -> None:
    driver = Driver(MODEL, policy="mTS")
    for _ in range(10):
        for action, value in (("0", 1.0), ("1", 1.0), ("2", 1.0), ("0", 0.0), ("3", 1.0)):
            driver.tell(driver.ask(actions=[action]), value)
    assert unexplained(driver) == 1
    forget_beliefs(driver.engine)  # a replay from the log counts nothing
    assert driver.session("ann").rewards == 50
    assert unexplained(driver) == 1


@pytest.mark.parametrize("policy", ["mTS", "mmTS", "mmGreedy", "Exploring(mmTS)"])
def test_predictions_of_a_right_model_are_right(policy: str) -> None:
    """Within 4.5 standard errors: wrong once in 100,000 runs."""
    text = "Exploring(policy='mmTS', e=0.2)" if policy.startswith("Exploring") else policy
    [tally] = played(2, policy=text).engine.statistics.tallies.values()
    n = N_SESSIONS * N_ROUNDS
    assert tally.rewards == n
    assert n / PREDICTED / 2 < tally.predictions < n / PREDICTED * 2
    assert abs(tally.received_sum - tally.predicted_sum) < 4.5 * tally.error_squares**0.5


def test_rewards_below_the_predictions_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PREDICTED", 1)  # else 140 rewards would be predicted
    [tally] = played(3, strangers=True).engine.statistics.tallies.values()
    assert tally.predictions == tally.rewards
    assert tally.predicted_sum - tally.received_sum > 4.5 * tally.error_squares**0.5


def test_policies_without_a_posterior_predict_nothing() -> None:
    driver = Driver(MODEL, policy="UCB1")
    for _ in range(100):
        driver.tell(driver.ask(), 1.0)
    [tally] = driver.engine.statistics.tallies.values()
    assert (tally.rewards, tally.predictions) == (100, 0)
    assert unexplained(driver) == 0


def test_totals_of_earlier_versions_are_read() -> None:
    totals = played_totals()
    for tally in totals["tallies"].values():
        del tally[3:]
    [tally] = decode_totals(msgspec.msgpack.encode(totals)).tallies.values()
    assert (tally.rewards, tally.predictions, tally.predicted_sum) == (1, 0, 0.0)


def played_totals() -> dict[str, dict[str, list[float]]]:
    driver = Driver(MODEL)
    driver.tell(driver.ask(), 1.0)
    totals: dict[str, dict[str, list[float]]] = msgspec.msgpack.decode(
        encode_totals(driver.engine.statistics)
    )
    return totals
