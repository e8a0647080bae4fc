"""Information-directed sampling by all actions and all pairs: slow, and easy to check."""

import numpy as np


def regret_and_information_by_action(rewards, weights, best):
    """D and v with one group of scenarios for every action, tied ones split."""
    membership = weights[:, :, None] * best / best.sum(axis=2, keepdims=True)
    chance = membership.sum(axis=1)
    arguments = membership.swapaxes(1, 2) @ rewards
    mean = arguments.sum(axis=1)
    regret = np.einsum("naa->n", arguments)[:, None] - mean
    regret[regret < 1e-12 * np.abs(mean).max(axis=1, keepdims=True)] = 0.0
    arguments = arguments - chance[:, :, None] * mean[:, None, :]
    return regret, ((arguments**2) / np.maximum(chance, 1e-300)[:, :, None]).sum(axis=1)


def all_pairs(regret, information, eligible):
    """The mixture of least D^2 / v among all single actions and all pairs; ties share equally."""
    mixtures = np.zeros(regret.shape)
    for i, (D, v) in enumerate(zip(regret, information, strict=True)):
        places = np.flatnonzero(eligible[i])
        results = []
        for a in places:
            alone = 0.0 if D[a] == 0 else D[a] * D[a] / v[a] if v[a] > 0 else np.inf
            results.append((alone, {a: 1.0}))
            for b in places[places > a]:
                if D[a] == D[b] or v[a] == v[b]:
                    continue
                slope = (D[a] - D[b]) / (v[a] - v[b])
                optimum = (D[b] * v[a] - D[a] * v[b]) / (D[a] - D[b])
                if (optimum - v[a]) * (optimum - v[b]) < 0:
                    share = (optimum - v[b]) / (v[a] - v[b])
                    results.append((4 * slope * slope * optimum, {a: share, b: 1 - share}))
        least = min(ratio for ratio, _ in results)
        for ratio, mixture in results:
            if ratio == least:
                for action, share in mixture.items():
                    mixtures[i, action] += share
        mixtures[i] /= mixtures[i].sum()
    return mixtures
