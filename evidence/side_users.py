"""Generate logs with attributes whose effects are known, to measure how much is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.environments.synthetic import separated_means
from latentbandits.models.attributes.columns import Row
from latentbandits.models.attributes.parts import log_softmax
from latentbandits.models.checks import FloatArray, IntArray

COUNTRIES = ("AT", "CH", "DE", "FR")
DEVICES = ("desktop", "phone")


@dataclass(frozen=True, eq=False)
class AttributedUsers:
    """A log of users with attributes, and the truth: P(s | z) and the states' mean rewards."""

    table: dict[str, Any]  # columns user, action, reward, country, age, device
    means: FloatArray  # (n_states, n_actions)
    state: IntArray  # (n_users,)
    by_country: FloatArray  # (4, n_states): scores
    by_age: FloatArray  # (n_states,): scores of an age ten years above 40

    def log_prior(self, users: list[Row]) -> FloatArray:
        """Return the true log P(s | z), `(n, n_states)`."""
        country = np.array([COUNTRIES.index(user["country"]) for user in users])
        age = np.array([(user["age"] - 40) / 10 for user in users])
        return log_softmax(self.by_country[country] + age[:, None] * self.by_age)

    def users(self, n: int, seed: int) -> list[Row]:
        """Draw the attributes of new users."""
        return _users(n, np.random.default_rng(seed))


def generate_attributed(
    n_users: int = 4_000,
    n_rounds: int = 15,
    n_states: int = 4,
    n_actions: int = 8,
    *,
    strength: float = 1.5,
    noise: float = 0.5,
    seed: int = 0,
) -> AttributedUsers:
    """Generate users whose state depends on their country and age, but not on their device.

    Scores of the states are normal with standard deviation `strength` for a country, and half of
    that for ten years of age.

    >>> sorted(generate_attributed(n_users=20, n_rounds=2).table)
    ['action', 'age', 'country', 'device', 'reward', 'user']
    """
    rng = np.random.default_rng(seed)
    means = separated_means(n_states, n_actions, 0.1, rng)
    truth = AttributedUsers(
        {},
        means,
        np.zeros(0, np.int64),
        strength * rng.standard_normal((len(COUNTRIES), n_states)),
        0.5 * strength * rng.standard_normal(n_states),
    )
    users = _users(n_users, rng)
    chances = np.exp(truth.log_prior(users)).cumsum(axis=1)
    state = (rng.random((n_users, 1)) >= chances[:, :-1]).sum(axis=1)
    who = np.repeat(np.arange(n_users), n_rounds)
    action = rng.integers(n_actions, size=len(who))
    reward = means[state[who], action] + noise * rng.standard_normal(len(who))
    table = {
        "user": who,
        "action": action,
        "reward": reward,
        **{name: [users[u][name] for u in who] for name in ("country", "age", "device")},
    }
    return AttributedUsers(table, means, state, truth.by_country, truth.by_age)


def round_one(
    truth: AttributedUsers, gate_prior: FloatArray, learned: FloatArray, users: Any
) -> tuple[float, float, float]:
    """Return round 1's mean reward without attributes, with the learned gate, and with the truth.

    `gate_prior` is the learned log P(s | z) of `users`, `learned` the learned means
    `(n_states, n_actions)`. All three play the action of the largest expected reward.
    """
    true_prior = np.exp(truth.log_prior(users))
    expected = true_prior @ truth.means  # (n_users, n_actions)
    everyone = np.arange(len(users))
    average = int(expected.mean(axis=0).argmax())
    chosen = (np.exp(gate_prior) @ learned).argmax(axis=1)
    return (
        float(expected[:, average].mean()),
        float(expected[everyone, chosen].mean()),
        float(expected.max(axis=1).mean()),
    )


def _users(n: int, rng: np.random.Generator) -> list[Row]:
    country = rng.choice(COUNTRIES, size=n, p=(0.1, 0.2, 0.4, 0.3))
    age = np.clip(rng.normal(40, 12, size=n), 16, 90).round()
    device = rng.choice(DEVICES, size=n)
    return [
        {"country": str(c), "age": float(a), "device": str(d)}
        for c, a, d in zip(country, age, device, strict=True)
    ]
