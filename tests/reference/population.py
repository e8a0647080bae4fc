"""Population policies as slow loops over one population: the papers' text, line by line."""

from __future__ import annotations

import math

import numpy as np


def confidence(t):
    return math.sqrt((1 + math.log(1 + t)) / (1 + t))


class TextbookClustering:
    """Sums of every user; subclasses say which users are pooled with user i."""

    def __init__(self, n_users, n_features, alpha):
        self.gram = np.zeros((n_users, n_features, n_features))
        self.b = np.zeros((n_users, n_features))
        self.count = np.zeros(n_users)
        self.alpha, self.n_users, self.d, self.t = alpha, n_users, n_features, 0

    def members(self, i):
        raise NotImplementedError

    def pooled(self, users):
        m = np.eye(self.d) + sum(self.gram[l] for l in users) if users else np.eye(self.d)
        b = sum((self.b[l] for l in users), np.zeros(self.d))
        return m, b

    def weights(self, users):
        return np.linalg.solve(*self.pooled(users))

    def indices(self, i, x):
        m, b = self.pooled(self.members(i))
        inverse = np.linalg.inv(m)
        theta = inverse @ b
        log_t = math.log(self.t + 1)
        return np.array(
            [row @ theta + self.alpha * math.sqrt(row @ inverse @ row * log_t) for row in x]
        )

    def add(self, i, x, reward):
        self.gram[i] += np.outer(x, x)
        self.b[i] += reward * x
        self.count[i] += 1
        self.t += 1


class TextbookGrouped(TextbookClustering):
    """LinUCB per given group."""

    def __init__(self, groups, n_features, alpha):
        super().__init__(len(groups), n_features, alpha)
        self.groups = list(groups)

    def members(self, i):
        return [l for l in range(self.n_users) if self.groups[l] == self.groups[i]]

    def update(self, i, x, reward):
        self.add(i, x, reward)


class TextbookCLUB(TextbookClustering):
    def __init__(self, n_users, n_features, alpha, alpha2, pairs):
        super().__init__(n_users, n_features, alpha)
        self.alpha2 = alpha2
        self.pairs = {frozenset(pair) for pair in pairs}

    def members(self, i):
        seen, stack = {i}, [i]
        while stack:
            k = stack.pop()
            for pair in self.pairs:
                if k in pair:
                    (l,) = pair - {k}
                    if l not in seen:
                        seen.add(l)
                        stack.append(l)
        return sorted(seen)

    def update(self, i, x, reward):
        own = {l: self.weights([l]) for l in range(self.n_users)}
        for pair in list(self.pairs):
            if i in pair:
                (l,) = pair - {i}
                bound = self.alpha2 * (confidence(self.count[i]) + confidence(self.count[l]))
                if np.linalg.norm(own[i] - own[l]) > bound:
                    self.pairs.remove(pair)
        self.add(i, x, reward)


class TextbookDynUCB(TextbookClustering):
    def __init__(self, labels, n_features, n_clusters, alpha):
        super().__init__(len(labels), n_features, alpha)
        self.labels, self.k = list(labels), n_clusters

    def cluster(self, k):
        return [l for l in range(self.n_users) if self.labels[l] == k]

    def members(self, i):
        return self.cluster(self.labels[i])

    def update(self, i, x, reward):
        self.add(i, x, reward)
        own = self.weights([i])
        distances = [np.linalg.norm(own - self.weights(self.cluster(k))) for k in range(self.k)]
        self.labels[i] = int(np.argmin(distances))


class TextbookSCLUB(TextbookClustering):
    def __init__(self, n_users, n_features, alpha, a_theta, a_p):
        super().__init__(n_users, n_features, alpha)
        self.a_theta, self.a_p = a_theta, a_p
        self.sets = [set(range(n_users))]
        self.checked = set()
        self.phase, self.left = 1, 2
        self.notes = [(np.zeros(n_features), 0)]

    def place(self, i):
        return next(j for j, users in enumerate(self.sets) if i in users)

    def members(self, i):
        return sorted(self.sets[self.place(i)])

    def rounds(self, users):
        return sum(self.count[l] for l in users)

    def frequency(self, users):
        return self.rounds(users) / (len(users) * self.t)

    def update(self, i, x, reward):
        self.add(i, x, reward)
        self.checked.add(i)
        j = self.place(i)
        users = self.sets[j]
        w0, t0 = self.notes[j]
        far = np.linalg.norm(self.weights([i]) - w0) > self.a_theta * (
            confidence(self.count[i]) + confidence(t0)
        )
        odd = abs(self.count[i] / self.t - self.frequency(users)) > self.a_p * confidence(self.t)
        changed = [frozenset(users)]
        if len(users) > 1 and (far or odd):
            users.discard(i)
            self.sets.append({i})
            self.notes.append((self.weights([i]), self.count[i]))
            changed = [frozenset({i}), frozenset(users)]
        for one in changed:
            self.merge(one)
        self.left -= 1
        if self.left == 0:
            self.phase += 1
            self.left = 2**self.phase
            self.checked = set()
            self.notes = [(self.weights(sorted(s)), self.rounds(s)) for s in self.sets]

    def merge(self, one):
        """Merge the set with sets like it, while there are any."""
        while True:
            matching = [j for j, users in enumerate(self.sets) if users >= one]
            if not matching or not self.sets[matching[0]] <= self.checked:
                return
            j = matching[0]
            mine = self.sets[j]
            for k, other in enumerate(self.sets):
                if k == j or not other <= self.checked:
                    continue
                near = np.linalg.norm(
                    self.weights(sorted(mine)) - self.weights(sorted(other))
                ) < self.a_theta / 2 * (
                    confidence(self.rounds(mine)) + confidence(self.rounds(other))
                )
                alike = abs(self.frequency(mine) - self.frequency(other)) < self.a_p / 2 * (
                    confidence(self.t)
                )
                if near and alike:
                    self.sets[j] = mine | other
                    self.notes[j] = (self.weights(sorted(self.sets[j])), self.rounds(self.sets[j]))
                    del self.sets[k], self.notes[k]
                    break
            else:
                return


def joint_gaussian(visits, n_users, d, noise, prior_spread, hyper_spread):
    """The posterior of (m, theta_0, ..., theta_n) in one large regression: mean, covariance."""
    size = (n_users + 1) * d
    precision = np.zeros((size, size))
    information = np.zeros(size)
    precision[:d, :d] += np.eye(d) / hyper_spread**2
    for i in range(n_users):
        own = slice((i + 1) * d, (i + 2) * d)
        precision[own, own] += np.eye(d) / prior_spread**2
        precision[:d, :d] += np.eye(d) / prior_spread**2
        precision[:d, own] -= np.eye(d) / prior_spread**2
        precision[own, :d] -= np.eye(d) / prior_spread**2
    for i, x, reward in visits:
        own = slice((i + 1) * d, (i + 2) * d)
        precision[own, own] += np.outer(x, x) / noise**2
        information[own] += x * reward / noise**2
    covariance = np.linalg.inv(precision)
    return covariance @ information, covariance


class TextbookParticleMF:
    """Particle Thompson sampling for matrix factorisation: a loop over particles and ratings."""

    def __init__(self, n_users, n_items, n_particles, rank, noise, rng):
        self.rng, self.noise, self.rank = rng, noise, rank
        self.particles = [
            (rng.standard_normal((n_users, rank)), rng.standard_normal((n_items, rank)))
            for _ in range(n_particles)
        ]
        self.ratings = []

    def factor(self, others, pairs):
        """Precision and information of a factor, from pairs (other side's index, reward)."""
        precision = np.eye(self.rank)
        information = np.zeros(self.rank)
        for j, reward in pairs:
            precision += np.outer(others[j], others[j]) / self.noise**2
            information += others[j] * reward / self.noise**2
        return precision, information

    def draw(self, precision, information):
        covariance = np.linalg.inv(precision)
        return self.rng.multivariate_normal(covariance @ information, covariance)

    def decide(self, user):
        _, items = self.particles[self.rng.integers(len(self.particles))]
        mine = [(j, r) for i, j, r in self.ratings if i == user]
        return int((items @ self.draw(*self.factor(items, mine))).argmax())

    def log_weight(self, particle, user, item, reward):
        _, items = self.particles[particle]
        mine = [(j, r) for i, j, r in self.ratings if i == user]
        precision, information = self.factor(items, mine)
        covariance = np.linalg.inv(precision)
        mean = items[item] @ covariance @ information
        variance = self.noise**2 + items[item] @ covariance @ items[item]
        return -0.5 * ((reward - mean) ** 2 / variance + math.log(2 * math.pi * variance))

    def update(self, user, item, reward):
        n = len(self.particles)
        logs = [self.log_weight(d, user, item, reward) for d in range(n)]
        weights = np.exp(np.array(logs) - max(logs))
        upper = np.cumsum(weights / weights.sum())
        points = (np.arange(n) + self.rng.random()) / n
        kept = [min(int(np.searchsorted(upper, p)), n - 1) for p in points]
        self.ratings.append((user, item, reward))
        moved = []
        for d in kept:
            users, items = (side.copy() for side in self.particles[d])
            mine = [(j, r) for i, j, r in self.ratings if i == user]
            users[user] = self.draw(*self.factor(items, mine))
            raters = [(i, r) for i, j, r in self.ratings if j == item]
            items[item] = self.draw(*self.factor(users, raters))
            moved.append((users, items))
        self.particles = moved
