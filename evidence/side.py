"""Attributes of users and items with known effects: the share of their value that is learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentbandits.environments.synthetic import separated_means
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning import fit
from latentbandits.learning.attributes.items import fit_items, read_items
from latentbandits.learning.learners import Learned
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Row
from latentbandits.models.attributes.items import add_items
from latentbandits.models.attributes.parts import log_softmax, with_parts
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.growing import add_average
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.options import Option, positive
from latentbandits.policies.latent.ucb import mmGreedy
from latentbandits.report.report import Claim, Estimate, Report, Table

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
        return _log_prior(users, self.by_country, self.by_age)


def _log_prior(users: list[Row], by_country: FloatArray, by_age: FloatArray) -> FloatArray:
    country = np.array([COUNTRIES.index(user["country"]) for user in users])
    age = np.array([(user["age"] - 40) / 10 for user in users])
    return log_softmax(by_country[country] + age[:, None] * by_age)


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
    by_country = strength * rng.standard_normal((len(COUNTRIES), n_states))
    by_age = 0.5 * strength * rng.standard_normal(n_states)
    users = draw_users(n_users, rng)
    chances = np.exp(_log_prior(users, by_country, by_age)).cumsum(axis=1)
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
    return AttributedUsers(table, means, state, by_country, by_age)


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


def draw_users(n: int, rng: np.random.Generator) -> list[Row]:
    """Draw the attributes of new users."""
    country = rng.choice(COUNTRIES, size=n, p=(0.1, 0.2, 0.4, 0.3))
    age = np.clip(rng.normal(40, 12, size=n), 16, 90).round()
    device = rng.choice(DEVICES, size=n)
    return [
        {"country": str(c), "age": float(a), "device": str(d)}
        for c, a, d in zip(country, age, device, strict=True)
    ]


# The value of users' attributes in round 1, on generated logs with known effects.

COLUMNS = ("country", "age", "device")
USELESS = ("device",)
"""Attributes of `generate_attributed`; the device is independent of the user's state."""

_NEW_USERS = 5_000


class RoundOne(NamedTuple):
    """Mean true reward of new users in round 1, with the action of highest estimated reward."""

    without: float  # the same best action for everybody
    gated: float  # with the learned model and gate
    best: float  # with the true means and the true P(s | z)
    untold: float  # with a model learned from the same log without attributes


def play_gate(n_users: int, n_rows: int, columns: tuple[str, ...], seed: int) -> RoundOne:
    """Fit a log of users with attributes and `n_rows` rows, and play round 1 with new users."""
    truth = generate_attributed(n_users, n_rows, seed=seed)
    model, untold = (
        fit(truth.table, kind="arms", user_features=told, states=4, bootstrap=0).model
        for told in (columns, ())
    )
    users = draw_users(_NEW_USERS, np.random.default_rng(seed + 1_000_003))
    known = [{name: user[name] for name in columns} for user in users]
    prior = model.gate.log_prior(known, model.log_state_prior)
    without, gated, best = round_one(truth, prior, model.expected_rewards(None)[0], users)
    average = np.repeat(untold.log_state_prior, len(users), axis=0)
    _, same, _ = round_one(truth, average, untold.expected_rewards(None)[0], users)
    return RoundOne(without, gated, best, same)


# The reward of predicted vectors of new items, on generated items with known effects.

GENRES = ("blues", "folk", "jazz", "rock")
KNOWN, NEW = 120, 60
NOISE, ROUNDS, OFFERED = 0.5, 20, 10


class ItemProblem(NamedTuple):
    """A model, the true vectors of known and new items, and the table of their attributes."""

    model: LinearGaussian
    vectors: FloatArray  # (KNOWN + NEW, 4)
    table: dict[str, Any]


class NewItems(NamedTuple):
    """Mean true reward of each user in the first ROUNDS rounds, `(n_users,)` each."""

    learned: FloatArray  # with the true vectors of new items
    predicted: FloatArray
    average: FloatArray  # every new item has the average vector
    explained: float  # share of the variance of expected rewards that attributes explain


def item_problem(seed: int, informative: bool = True) -> ItemProblem:
    """Return items whose genre and year mostly determine their vectors, or not (permuted)."""
    rng = np.random.default_rng(seed)
    n = KNOWN + NEW
    covariances = np.stack([0.1 * np.eye(4)] * 3)
    model = LinearGaussian(1.5 * rng.standard_normal((3, 4)), NOISE, covariances)
    genre, year = rng.integers(4, size=n), rng.normal(size=n)
    effect = rng.standard_normal((4, 4)), rng.standard_normal(4)
    signal = effect[0][genre] + np.outer(year, effect[1])
    if not informative:
        signal = rng.permutation(signal)
    vectors = signal + 0.3 * rng.standard_normal((n, 4))
    ids = [f"i{k}" for k in range(n)]
    return ItemProblem(
        model, vectors, {"id": ids, "genre": [GENRES[g] for g in genre], "year": year}
    )


def play_items(informative: bool, seed: int, n_users: int = 400) -> NewItems:
    """Offer only new items, ranked by mmGreedy with learned, predicted and average vectors."""
    model, vectors, table = item_problem(seed, informative)
    known, new = table["id"][:KNOWN], table["id"][KNOWN:]
    catalogue = Catalogue(known, features=vectors[:KNOWN])
    read = read_items(table, "id", known)
    items = Learned(model, vectors[:KNOWN], np.full(KNOWN, 200))
    regression = fit_items(items, read, np.ones(KNOWN, np.bool_))
    rows = [{"genre": g, "year": y} for g, y in zip(table["genre"], table["year"], strict=True)]
    grown = (
        (model, Catalogue(table["id"], features=vectors)),
        add_items(with_parts(model, items=regression.items), catalogue, new, rows[KNOWN:]),
        add_average(model, catalogue, new),
    )
    learned, predicted, average = (
        _earned(grown_model, longer, new, vectors, n_users, seed, model)
        for grown_model, longer in grown
    )
    return NewItems(learned, predicted, average, regression.explained)


def _earned(
    model: Any,
    catalogue: Catalogue,
    ids: Sequence[str],
    vectors: FloatArray,
    n: int,
    seed: int,
    truth: LinearGaussian,
) -> FloatArray:
    """Return the mean true reward of `n` users; they and offers are the same for every model."""
    rng = np.random.default_rng(seed)
    policy, users = mmGreedy(model), np.arange(n)
    theta = truth.draw_theta(rng.integers(3, size=n), rng)
    belief, total = policy.init(n), np.zeros(n)
    assert catalogue.features is not None
    rows = catalogue.features[catalogue.indices(ids)]
    for _ in range(ROUNDS):
        offered = rng.integers(len(ids), size=(n, OFFERED))
        decision = policy.decide(belief, rows[offered], rng, propensity=False)
        item = offered[users, decision.action]
        mean = np.einsum("nd,nd->n", theta, vectors[KNOWN + item])
        reward = mean + NOISE * rng.standard_normal(n)
        belief = policy.update(belief, rows[offered], decision, reward)
        total += mean
    return total / ROUNDS


# `python -m evidence side`: the learned share of the value of users' and items' attributes.

SEEDS, USERS = 20, 4_000
ROWS = (15, 4)


class SideExperiment(Experiment):
    """Attributes of users and items with known effects."""

    name = "side"
    help = "attributes of users and items with known effects: how much of their worth is learned"
    options = (
        Option("seeds", "generated problems", SEEDS, positive),
        Option("users", "users of each generated log", USERS, positive),
    )

    def measure(self, work: Work) -> Report:
        options = work.options
        seeds = range(options.seed, options.seed + options.seeds)
        logs = {
            **{f"{rows} rows a user": (rows, COLUMNS) for rows in ROWS},
            f"{ROWS[0]} rows a user, a useless attribute": (ROWS[0], USELESS),
        }
        gates = {name: [(options.users, *log, i) for i in seeds] for name, log in logs.items()}
        kinds = {"informative": True, "not informative": False}
        items = {name: [(kind, i) for i in seeds] for name, kind in kinds.items()}
        played = work.map_groups("side, users", play_gate, gates)
        offered = work.map_groups("side, items", play_items, items)
        *useful, useless = played.values()
        claims = [_recovered(rows, rounds) for rows, rounds in zip(ROWS, useful, strict=True)]
        return Report(
            claims=[*claims, _no_cost(useless), *_item_claims(*offered.values())],
            tables=[_gate_table(played), _item_table(offered)],
        )


def share_of_gain(rounds: Sequence[RoundOne]) -> float:
    """Return the summed gain of the gates divided by the summed achievable gain."""
    without, gated, best, _ = np.array(rounds).T
    return float((gated - without).sum() / (best - without).sum())


def _recovered(rows: int, rounds: Sequence[RoundOne]) -> Claim:
    share = share_of_gain(rounds)
    worst = min(share_of_gain([one]) for one in rounds)
    return Claim(
        f"gate-{rows}", f"a gate learned from {rows} rows a user has most of the achievable gain",
        "at least 90% of the achievable gain in round 1",
        f"{share:.1%} (worst problem {worst:.0%})", share >= 0.9,
    )  # fmt: skip


def _no_cost(rounds: Sequence[RoundOne]) -> Claim:
    lead = Estimate.from_values(np.array([one.gated - one.untold for one in rounds]))
    return Claim(
        "gate-useless", "an uninformative attribute costs nothing",
        "reward of round 1 with it at most one standard error below that of a model without it",
        f"{lead:+}", lead.mean >= -lead.stderr,
    )  # fmt: skip


def _item_claims(plays: Sequence[NewItems], useless: Sequence[NewItems]) -> list[Claim]:
    learned, predicted, average = (estimate.mean for estimate in _rewards(plays))
    gain = (predicted - average) / (learned - average)
    lead = Estimate.from_values(
        np.concatenate([one.predicted - one.average for one in useless]), n_groups=len(useless)
    )
    return [
        Claim("items", "new items with informative attributes earn almost what learned vectors "
              "earn", "at least 80% of the reward of learned vectors in rounds 1-20",
              f"{predicted / learned:.1%} ({gain:.0%} of what is gained over average vectors)",
              predicted >= 0.8 * learned),
        Claim("items-useless", "uninformative attributes of items cost nothing",
              "reward with predicted vectors at most one standard error below that with average "
              "vectors", f"{lead:+}", lead.mean >= -lead.stderr),
    ]  # fmt: skip


def _rewards(plays: Sequence[NewItems]) -> list[Estimate]:
    """Return the mean rewards with learned, predicted and average vectors, over the problems."""
    means = np.array([[one.learned.mean(), one.predicted.mean(), one.average.mean()]
                      for one in plays])  # fmt: skip
    return [Estimate.from_values(column.copy()) for column in means.T]


def _gate_table(played: Mapping[str, Sequence[RoundOne]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, rounds in played.items():
        without, gated, best, untold = np.mean(np.array(rounds), axis=0)
        means = (f"{mean:.3f}" for mean in (without, untold, gated, best))
        share = "" if "useless" in name else f"{share_of_gain(rounds):.1%}"
        rows.append((name, *means, share))
    columns = (
        "log", "best average action", "without attributes", "with the gate", "achievable",
        "share of the gain",
    )  # fmt: skip
    return Table("Mean reward of new users in round 1", columns, rows)


def _item_table(offered: Mapping[str, Sequence[NewItems]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, plays in offered.items():
        explained = float(np.mean([one.explained for one in plays]))
        rows.append((name, *map(str, _rewards(plays)), f"{explained:.0%}"))
    title = "Mean reward of rounds 1-20 on new items, ten offered a round"
    columns = ("attributes", "learned vectors", "predicted", "average item", "explained")
    return Table(title, columns, rows)
