"""Contestants that are no policies of the library: neighbours, and users who share a mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latentbandits.learning import Log
from latentbandits.learning.learners import Learned
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.visit import Visit
from latentbandits.policies.decision import Decision
from latentbandits.policies.shared.hierarchical import HierBelief, HierTS


@dataclass(eq=False)
class Neighbours:
    """User-based k nearest neighbours, greedily.

    A user's similarity to a train user is the cosine of their rewards' deviations from the actions'
    averages, over shared actions, times n / (n + `shrinkage`) for n shared actions. An action's
    score is its average plus the weighted mean of the deviations of the k most similar train users.

    Args:
        log: the train users.
        averages: average reward of every action.
        k: number of neighbours.
        shrinkage: of similarities and of weighted means.
    """

    log: Log
    averages: FloatArray
    k: int = 50
    shrinkage: float = 5.0
    _known: FloatArray = field(init=False)  # (n_train, n_actions): 1 where there is a reward
    _deviations: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        merged = self.log.merged("mean")
        shape = (merged.n_users, merged.n_actions)
        self._known, self._deviations = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        place = merged.users, merged.actions
        self._known[place] = 1.0
        self._deviations[place] = merged.rewards - self.averages[merged.actions]

    def start(self, users: IntArray, rng: np.random.Generator) -> None:
        shape = (len(users), len(self._known))
        self._rng = rng
        self._products, self._shared = np.zeros(shape), np.zeros(shape)
        self._own, self._theirs = np.zeros(shape), np.zeros(shape)

    def choose(self, actions: IntArray, offered: BoolArray) -> IntArray:
        norms = np.sqrt(self._own * self._theirs) + 1e-12
        similar = self._products / norms * (self._shared / (self._shared + self.shrinkage))
        k = min(self.k, similar.shape[1])
        nearest = np.argpartition(-similar, k - 1, axis=1)[:, :k]
        weight = np.maximum(np.take_along_axis(similar, nearest, axis=1), 0.0)[:, :, None]
        place = nearest[:, :, None], actions[:, None, :]
        sums = (weight * self._deviations[place]).sum(axis=1)
        total = (weight * self._known[place]).sum(axis=1)
        scores = self.averages[actions] + sums / (total + 1.0)
        scores = scores + 1e-9 * self._rng.random(scores.shape)  # ties at random
        slot: IntArray = np.where(offered, scores, -np.inf).argmax(axis=1)
        self._chosen = np.take_along_axis(actions, slot[:, None], axis=1)[:, 0]
        return slot

    def learn(self, reward: FloatArray) -> None:
        own = (reward - self.averages[self._chosen])[:, None]
        theirs, known = self._deviations[:, self._chosen].T, self._known[:, self._chosen].T
        self._products += own * theirs
        self._shared += known
        self._own += own**2 * known
        self._theirs += theirs**2


MOST_USERS, MOST_ROWS = 500, 100
"""Train users, and rows of each, from which `HierTS` learns the mean that users share."""


@dataclass(eq=False)
class SharedMean:
    """`HierTS` on factors: the mean that users share is learned from train users, exactly.

    Each session goes on from there with one new user. Rewards are less their mean, as the prior of
    the shared mean is around 0.

    Args:
        log: the train users.
        factors: features of every action.
    """

    log: Log
    factors: Learned
    _policy: HierTS = field(init=False)
    _trained: HierBelief = field(init=False)

    def __post_init__(self) -> None:
        assert self.factors.features is not None
        self._features = self.factors.features
        self._level = float(self.log.rewards.mean())
        noise = float(self.factors.model.noise)
        self._policy = HierTS(1, self._features.shape[1], noise, prior_spread=1.0, hyper_spread=3.0)
        self._trained = self._train()

    def _train(self) -> HierBelief:
        """Return the belief of one population after the rewards of the train users.

        Messages of users about the mean add up, so each user is first a population of one.
        """
        log = self.log.of_users(np.arange(min(self.log.n_users, MOST_USERS)))
        blank = self._policy.init(1)
        belief = self._policy.init(log.n_users)
        lengths = np.minimum(np.diff(log.starts), MOST_ROWS)
        place = np.arange(int(lengths.max()))
        rows = log.starts[:-1][:, None] + np.minimum(place, lengths[:, None] - 1)
        features = self._features[log.actions[rows]]
        rewards = log.rewards[rows] - self._level
        past = place >= lengths[:, None]
        features[past], rewards[past] = 0.0, 0.0  # a row of zeros says nothing
        zero = np.zeros(log.n_users, np.int64)
        for t in place:
            visit = Visit(zero, features[:, t, None])
            belief = self._policy.update(belief, visit, Decision.logged(zero), rewards[:, t])
        return blank._replace(
            precision=blank.precision + (belief.precision - blank.precision).sum(axis=0),
            information=(blank.information + belief.information.sum(axis=0)),
        )

    def start(self, users: IntArray, rng: np.random.Generator) -> None:
        n = len(users)
        self._rng, self._zero = rng, np.zeros(n, np.int64)
        fresh = self._policy.init(n)
        self._belief: HierBelief = fresh._replace(
            precision=np.repeat(self._trained.precision, n, axis=0),
            information=np.repeat(self._trained.information, n, axis=0),
        )

    def choose(self, actions: IntArray, offered: BoolArray) -> IntArray:
        self._visit = Visit(self._zero, self._features[actions])
        self._decision: Any = self._policy.decide(
            self._belief, self._visit, self._rng, eligible=offered, propensity=False
        )
        chosen: IntArray = self._decision.action
        return chosen

    def learn(self, reward: FloatArray) -> None:
        self._belief = self._policy.update(
            self._belief, self._visit, self._decision, reward - self._level
        )
