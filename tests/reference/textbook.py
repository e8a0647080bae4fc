"""The paper's policies and baselines as slow loops over one session: the text, line by line."""

from __future__ import annotations

import math

import numpy as np


class TextbookMUCB:
    """Algorithm 1; with epsilon, mmUCB."""

    def __init__(self, means, noise, horizon, epsilon=0.0):
        self.means, self.noise, self.horizon, self.epsilon = means, noise, horizon, epsilon
        self.rounds = []

    def decide(self):
        n_states = len(self.means)
        count = [sum(b == s for b, _, _ in self.rounds) for s in range(n_states)]
        gap = [
            sum(self.means[s][a] - self.epsilon - r for b, a, r in self.rounds if b == s)
            for s in range(n_states)
        ]
        log_n = math.log(self.horizon if self.horizon else len(self.rounds) + 1)
        consistent = [
            s for s in range(n_states) if gap[s] <= self.noise * math.sqrt(6 * count[s] * log_n)
        ]
        if not consistent:
            consistent = [min(range(n_states), key=lambda s: gap[s] / count[s])]
        best = max((self.means[s][a], s, a) for s in consistent for a in range(len(self.means[s])))
        return best[1], best[2]

    def update(self, state, action, reward):
        self.rounds.append((state, action, reward))


class TextbookEXP4:
    """Exponential weights on importance-weighted losses."""

    def __init__(self, means, horizon, low=0.0, high=1.0):
        self.means, self.low, self.high = means, low, high
        n_states, n_actions = len(means), len(means[0])
        self.horizon = horizon
        self.n_actions = n_actions
        self.losses = [0.0] * n_states
        self.rounds = 0

    def probabilities(self):
        n_states = len(self.means)
        n = self.horizon if self.horizon else self.rounds + 1
        rate = math.sqrt(2 * math.log(n_states) / (n * self.n_actions))
        weights = [math.exp(-rate * loss) for loss in self.losses]
        chances = [0.0] * self.n_actions
        for s in range(n_states):
            chances[int(np.argmax(self.means[s]))] += weights[s] / sum(weights)
        return chances

    def update(self, action, reward):
        chance = self.probabilities()[action]
        loss = 1 - (reward - self.low) / (self.high - self.low)
        for s in range(len(self.means)):
            if int(np.argmax(self.means[s])) == action:
                self.losses[s] += loss / chance
        self.rounds += 1


class TextbookUCB1:
    def __init__(self, n_actions, scale):
        self.rewards = [[] for _ in range(n_actions)]
        self.scale = scale

    def indices(self):
        t = sum(len(r) for r in self.rewards)
        return [
            sum(r) / len(r) + self.scale * math.sqrt(2 * math.log(t) / len(r)) if r else math.inf
            for r in self.rewards
        ]

    def update(self, action, reward):
        self.rewards[action].append(reward)


class TextbookLinUCB:
    def __init__(self, n_features, alpha, ridge):
        self.a = ridge * np.eye(n_features)
        self.b = np.zeros(n_features)
        self.alpha = alpha

    def indices(self, x):
        inverse = np.linalg.inv(self.a)
        theta = inverse @ self.b
        return [row @ theta + self.alpha * math.sqrt(row @ inverse @ row) for row in x]

    def update(self, x, reward):
        self.a += np.outer(x, x)
        self.b += reward * x


def information_ratio_by_grid(regret, information, n_points=201):
    """The smallest D^2 / v over mixtures of any two actions, on a grid of their chances."""
    best = math.inf
    for a in range(len(regret)):
        for b in range(len(regret)):
            for q in np.linspace(0, 1, n_points):
                d = q * regret[a] + (1 - q) * regret[b]
                v = q * information[a] + (1 - q) * information[b]
                best = min(best, 0.0 if d == 0 else d * d / v if v > 0 else math.inf)
    return best
