"""Planning on Bernoulli arms by recursion over single beliefs: slow, and easy to check."""

import numpy as np


def condition(alpha, beta, weights, action, reward):
    """Beta parameters `(S, K)` and P(s) after a reward; `beta` None: `alpha` are known rates."""
    if beta is None:
        likelihood = alpha[:, action] if reward else 1 - alpha[:, action]
        after = alpha, None
    else:
        ones = alpha[:, action] / (alpha[:, action] + beta[:, action])
        likelihood = ones if reward else 1 - ones
        after = alpha.copy(), beta.copy()
        after[0 if reward else 1][:, action] += 1
    joint = weights * likelihood
    return (*after, joint / joint.sum()), joint.sum()


def values(alpha, beta, weights, remaining, steps):
    """Q_k(a) of every action with `remaining` rounds left, this one included."""
    means = weights @ (alpha if beta is None else alpha / (alpha + beta))
    if steps == 0:
        return remaining * means
    results = []
    for action in range(len(means)):
        total = means[action]
        for reward in (0, 1):
            after, chance = condition(alpha, beta, weights, action, reward)
            if remaining > 1:
                total += chance * max(values(*after, remaining - 1, steps - 1))
        results.append(total)
    return np.array(results)
