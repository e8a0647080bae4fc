"""A mixture of arms the slow way: one user, one reward at a time."""

import math
from itertools import permutations

import numpy as np


def log_posterior(log, means, shares, variance, centre, spread):
    """Log p(rewards, means, shares), the density that expectation-maximisation climbs."""
    n_states, n_actions = means.shape
    total = 0.0
    for user in range(log.n_users):
        by_state = []
        for s in range(n_states):
            value = math.log(shares[s])
            for i in range(log.starts[user], log.starts[user + 1]):
                gap = log.rewards[i] - means[s, log.actions[i]]
                value += -0.5 * math.log(2 * math.pi * variance) - gap * gap / (2 * variance)
            by_state.append(value)
        top = max(by_state)
        total += top + math.log(sum(math.exp(value - top) for value in by_state))
    total -= 0.5 * (math.log(variance) + (0.01 * spread) ** 2 / variance)
    for s in range(n_states):
        total += math.log(shares[s])
        for a in range(n_actions):
            total -= 0.5 * ((means[s, a] - centre[a]) / spread) ** 2
    return total


def sweep(log, means, shares, variance, centre, spread):
    """One step of expectation-maximisation: responsibilities, then means, shares, variance."""
    n_states, n_actions = means.shape
    counts, sums = np.zeros((n_states, n_actions)), np.zeros((n_states, n_actions))
    taken, responsibilities = np.zeros(n_states), []
    for user in range(log.n_users):
        events = range(log.starts[user], log.starts[user + 1])
        weights = []
        for s in range(n_states):
            likelihood = shares[s]
            for i in events:
                gap = log.rewards[i] - means[s, log.actions[i]]
                likelihood *= math.exp(-gap * gap / (2 * variance))
            weights.append(likelihood)
        weights = [weight / sum(weights) for weight in weights]
        responsibilities.append(weights)
        for s in range(n_states):
            taken[s] += weights[s]
            for i in events:
                counts[s, log.actions[i]] += weights[s]
                sums[s, log.actions[i]] += weights[s] * log.rewards[i]
    new = (sums / variance + centre / spread**2) / (counts / variance + 1 / spread**2)
    error = 0.0
    for user in range(log.n_users):
        for i in range(log.starts[user], log.starts[user + 1]):
            for s in range(n_states):
                gap = log.rewards[i] - new[s, log.actions[i]]
                error += responsibilities[user][s] * gap * gap
    return (
        new,
        (taken + 1) / (log.n_users + n_states),
        (error + (0.01 * spread) ** 2) / (log.n_events + 1),
    )


def moments(log):
    """Mean products of two and three different rounds of a user, by going through all of them.

    Each user's pairs and triples have the same weight in all; an entry is divided by how often
    its actions come together.
    """
    k = log.n_actions
    paid = np.zeros(k), np.zeros((k, k)), np.zeros((k, k, k))
    played = np.zeros(k), np.zeros((k, k)), np.zeros((k, k, k))
    for user in range(log.n_users):
        events = list(range(log.starts[user], log.starts[user + 1]))
        for size in (1, 2, 3):
            chosen = list(permutations(events, size))
            for some in chosen:
                entry = tuple(log.actions[i] for i in some)
                reward = math.prod(log.rewards[i] for i in some)
                paid[size - 1][entry] += reward / len(chosen)
                played[size - 1][entry] += 1 / len(chosen)
    return tuple(a / b for a, b in zip(paid, played, strict=True))
