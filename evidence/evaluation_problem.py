"""Generated logs of a problem in which the value of the candidate policy is known."""

from __future__ import annotations

import numpy as np

from latentbandits.beliefs import states
from latentbandits.evaluation import DecisionLog
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.choice import draw

MEANS = np.array([[0.9, 0.5, 0.4, 0.1], [0.1, 0.9, 0.4, 0.5], [0.5, 0.1, 0.9, 0.4]])
NOISE = 0.5
N_ROUNDS = 8
TRUE_MODEL = GaussianArms(MEANS, NOISE)
WRONG_MODEL = GaussianArms(MEANS + 0.05 * np.array([1, -1, 1, -1]), NOISE)
"""The reward model of DR, whose every mean is wrong by .05."""

LOGGERS = ("uniform", "learning")
TEMPER = 0.3
UNIFORM_SHARE = 0.3
"""The learning logger plays Thompson sampling on WRONG_MODEL with log weights multiplied by TEMPER,
and a uniformly random action with probability UNIFORM_SHARE.
"""


def generate(logger: str, n_sessions: int, rng: np.random.Generator) -> DecisionLog:
    """Return a log of `n_sessions` sessions with exact propensities."""
    state = rng.integers(len(MEANS), size=n_sessions)
    log_weights = np.zeros((n_sessions, len(MEANS)))
    shape = (n_sessions, N_ROUNDS)
    action, reward, chance = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
    rows = np.arange(n_sessions)
    for t in range(N_ROUNDS):
        pi = _logging_probabilities(logger, log_weights)
        action[:, t] = draw(pi, rng)
        reward[:, t] = MEANS[state, action[:, t]] + NOISE * rng.standard_normal(n_sessions)
        chance[:, t] = pi[rows, action[:, t]]
        log_weights += WRONG_MODEL.log_likelihood(None, action[:, t], reward[:, t])
    return DecisionLog(action, reward, np.full(n_sessions, N_ROUNDS), MEANS.shape[1], chance)


def true_value(n_sessions: int, rng: np.random.Generator) -> FloatArray:
    """Return the rewards of simulated sessions of the candidate, mTS with the true model."""
    state = rng.integers(len(MEANS), size=n_sessions)
    log_weights = np.zeros((n_sessions, len(MEANS)))
    earned = np.zeros(n_sessions)
    best = MEANS.argmax(axis=1)
    for _ in range(N_ROUNDS):
        action: IntArray = best[states.sample(log_weights, rng)]
        means = MEANS[state, action]
        earned += means
        reward = means + NOISE * rng.standard_normal(n_sessions)
        log_weights += TRUE_MODEL.log_likelihood(None, action, reward)
    return earned


def _logging_probabilities(logger: str, log_weights: FloatArray) -> FloatArray:
    n_actions = MEANS.shape[1]
    if logger == "uniform":
        return np.full((len(log_weights), n_actions), 1 / n_actions)
    plays = np.eye(n_actions)[WRONG_MODEL.means.argmax(axis=1)]
    sampled = states.probabilities(TEMPER * log_weights) @ plays
    mixture: FloatArray = (1 - UNIFORM_SHARE) * sampled + UNIFORM_SHARE / n_actions
    return mixture
