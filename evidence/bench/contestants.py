"""From a contestant's text to a player: policies of the library, baselines, and classes of others.

A text is one of `BASELINES`; a policy of the registry, `mmTS`, which acts on the model that `fit`
recommends; a model and a policy on it, `one-state/mmTS`; or `module:name`, something of your own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from evidence.bench.players import Neighbours, SharedMean
from evidence.bench.training import FACTORS, FIT, MODELS, ONE_STATE, STATES, Training
from latentbandits.learning.assess.replay import Player, PolicyPlayer, ScorePlayer
from latentbandits.learning.learners import Learned
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.names import one_of
from latentbandits.policies.latent.ucb import mmGreedy
from latentbandits.policies.protocol import adopt, is_policy
from latentbandits.policies.registry import AUTO, Entry, find, parse

POPULARITY = "popularity"

Maker = Callable[[Training], Player]


def _auto(training: Training) -> Player:
    name = training.recommended
    return _popularity(training) if name == POPULARITY else _of_library(name, training)


def _popularity(training: Training) -> Player:
    return ScorePlayer(training.averages)


def _uniform(training: Training) -> Player:
    return ScorePlayer(np.zeros(training.n_actions))


BASELINES: Mapping[str, Maker] = {
    AUTO: _auto,
    POPULARITY: _popularity,
    "uniform": _uniform,
    "kNN": lambda training: Neighbours(training.log, training.averages),
    "HierTS": lambda training: SharedMean(training.log, training.model(FACTORS)),
}

OVER_ONE = (f"{STATES}/mmGreedy", f"{ONE_STATE}/mmGreedy")
"""The two contestants whose difference is the gain of states."""

DEFAULTS = (
    AUTO, POPULARITY, "uniform", *OVER_ONE, f"{STATES}/mmTS", f"{ONE_STATE}/mmTS",
    "mmGreedy", "mmBayesUCB(quantile=0.7)", "mmTS", "mTS", "mIDS",
    f"{FACTORS}/mmGreedy", f"{FACTORS}/mmTS", f"{FACTORS}/LinUCB", f"{FACTORS}/LinTS",
    "kNN", "HierTS",
)  # fmt: skip
"""The contestants that play if none are named."""


class CannotPlayError(ValueError):
    """A contestant that cannot be built on this problem; the message says why."""


def check(text: str) -> None:
    """Raise ValueError for a text that names no contestant."""
    if text in BASELINES:
        return
    if ":" in text:
        _imported(text)
        return
    model, slash, policy = text.rpartition("/")
    if slash:
        one_of("model", model, MODELS)
    parse(policy)


def make(text: str, training: Training) -> Player:
    """Return the player of a contestant; CannotPlayError if it cannot act on this problem."""
    try:
        if text in BASELINES:
            return BASELINES[text](training)
        if ":" in text:
            return _of_others(text, training)
        return _of_library(text, training)
    except (ValueError, NotImplementedError) as error:
        raise CannotPlayError(f"{text}: {error}") from error


def _of_library(text: str, training: Training) -> Player:
    model, _, policy = text.rpartition("/")
    spec = parse(policy)
    return _of_entry(find(spec.name), dict(spec.options), training, model)


def _of_entry(entry: Entry, options: dict[str, Any], training: Training, model: str = "") -> Player:
    """Return a policy that a registry entry, or the class of somebody else, makes.

    Without a named model, a policy that needs one acts on the model of `fit`. One that needs the
    number of features acts on the factors, and any other sees numbered actions.
    """
    if not model and "model" not in entry.needs:
        model = FACTORS if "n_features" in entry.needs else ""
    elif not model:
        model = FIT
    learned = training.model(model) if model else None
    policy = entry.make(training.inputs(learned), options)
    features = None if learned is None else learned.features
    return PolicyPlayer(policy, training.n_actions, features)


def _of_others(text: str, training: Training) -> Player:
    """Return the player of `module:name`.

    A class with `decide` and `update` is a policy, built as one of the registry. Any other callable
    takes the `Training` and returns a player, a policy that sees numbered actions, or a model.
    """
    made = _imported(text)
    if isinstance(made, type) and hasattr(made, "decide"):
        return _of_entry(Entry(made.__name__, made), {}, training)
    return as_player(made(training), training)


def as_player(made: Any, training: Training) -> Player:
    """Return a player of something that learned from the train users.

    A player is returned as it is. A policy sees numbered actions. A model is played by `mmGreedy`.
    """
    if hasattr(made, "choose") and hasattr(made, "learn"):
        player: Player = made
        return player
    if is_policy(made):
        return PolicyPlayer(adopt(made, "bench"), training.n_actions)
    features = None
    if isinstance(made, Learned):
        made, features = made.model, made.features
    if not hasattr(made, "n_states"):
        raise ValueError(f"it returned {made!r}: return a player, a policy or a model")
    return PolicyPlayer(mmGreedy(made), training.n_actions, features)


def _imported(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"cannot import the contestant {text}: {error}. Write module:name, and start the "
            "benchmark where the module can be imported (PYTHONPATH=.)"
        ) from None


@dataclass(eq=False)
class Timed:
    """A player that adds up the processor time of its decisions and of what it learns.

    It refuses choices that were not offered. Errors of the player's own say whose they are.
    """

    name: str
    player: Player
    seconds: float = 0.0
    decisions: int = 0

    def start(self, users: IntArray, rng: np.random.Generator) -> None:
        self._run(self.player.start, users, rng)

    def choose(self, actions: IntArray, offered: BoolArray) -> IntArray:
        self.decisions += len(actions)
        slot: IntArray = np.asarray(self._run(self.player.choose, actions, offered))
        columns = np.arange(offered.shape[1])
        if slot.shape != (len(actions),) or not ((columns == slot[:, None]) & offered).any(1).all():
            raise ValueError(
                f"the contestant {self.name} chose what was not offered: `choose` returns a column "
                "of `actions` for every user where `offered` is True, and a policy obeys `eligible`"
            )
        return slot

    def learn(self, reward: FloatArray) -> None:
        self._run(self.player.learn, reward)

    @property
    def microseconds(self) -> float:
        """Processor time of a decision with its reward, in a batch of users."""
        return 1e6 * self.seconds / max(self.decisions, 1)

    def _run(self, method: Callable[..., Any], *values: Any) -> Any:
        started = time.process_time()
        try:
            result = method(*values)
        except Exception as error:  # its traceback is the author's to read
            raise RuntimeError(f"the contestant {self.name} failed: {error!r}") from error
        self.seconds += time.process_time() - started
        return result
