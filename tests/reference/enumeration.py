"""The joint posterior P(s, theta) of two-armed problems by enumerating a fine grid of theta.

Straight from Algorithm 3: prior times the product over all rounds of the likelihood, nothing
about Gaussians assumed beyond their densities.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm


def joint_on_grid(means, spread, noise, state_prior, actions, rewards, n_points=401, reach=8.0):
    """P(s), and E[theta | s] and Var[theta | s] of each of two arms."""
    n_states = len(means)
    totals = np.zeros(n_states)
    expectation, second = np.zeros((n_states, 2)), np.zeros((n_states, 2))
    for s in range(n_states):
        axes = [means[s][a] + spread * np.linspace(-reach, reach, n_points) for a in range(2)]
        theta = np.meshgrid(*axes, indexing="ij")
        density = norm.pdf(theta[0], means[s][0], spread) * norm.pdf(theta[1], means[s][1], spread)
        for action, reward in zip(actions, rewards, strict=True):
            density = density * norm.pdf(reward, theta[action], noise)
        cell = np.prod([axis[1] - axis[0] for axis in axes])
        mass = density.sum() * cell
        totals[s] = state_prior[s] * mass
        for a in range(2):
            expectation[s, a] = (density * theta[a]).sum() * cell / mass
            second[s, a] = (density * theta[a] ** 2).sum() * cell / mass
    return totals / totals.sum(), expectation, second - expectation**2
