"""The joint posterior of a session by conditioning one big multivariate normal: no recursion.

Under state s the parameters and the rewards are jointly normal. Everything that the fast code
finds by running updates is read off here from the whole covariance at once.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal


def linear_posterior(weights, covariance, noise, x, rewards):
    """Log evidence, posterior mean and posterior covariance of theta given one state.

    `x` is (n_rounds, n_features): the features of the actions that were played.
    """
    x, rewards = np.atleast_2d(x), np.asarray(rewards, float)
    of_rewards = x @ covariance @ x.T + noise**2 * np.eye(len(rewards))
    log_evidence = multivariate_normal(x @ weights, of_rewards).logpdf(rewards)
    gain = covariance @ x.T @ np.linalg.inv(of_rewards)
    mean = weights + gain @ (rewards - x @ weights)
    return log_evidence, mean, covariance - gain @ x @ covariance


def arms_posterior(means, spread, noise, actions, rewards):
    """The same for independent arms: features are one-hot."""
    x = np.eye(len(means))[np.asarray(actions)]
    covariance = np.diag(np.broadcast_to(spread, np.shape(means)) ** 2)
    return linear_posterior(np.asarray(means, float), covariance, noise, x, rewards)


def state_posterior(log_prior, log_evidences):
    log_weights = np.asarray(log_prior) + np.asarray(log_evidences)
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()
