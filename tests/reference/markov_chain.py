"""A long Markov chain Monte Carlo run over (state, theta) of a logistic-linear session.

In z with theta = w_s + L_s z all states have the same prior N(0, I), so that the chain can step
from state to state at the same z. Many chains side by side; their means give the error.
"""

import numpy as np


def state_probabilities(weights, covariances, features, rewards, n_chains, n_steps, seed=0):
    """P(s | rewards) and its standard error, both `(n_states,)`."""
    rng = np.random.default_rng(seed)
    n_states, d = weights.shape
    factors = np.linalg.cholesky(covariances)
    sign = 2 * rewards - 1

    def log_posterior(state, z):
        theta = weights[state] + np.einsum("cij,cj->ci", factors[state], z)
        margins = (theta @ features.T) * sign
        return -np.logaddexp(0, -margins).sum(axis=1) - 0.5 * np.square(z).sum(axis=1)

    state = rng.integers(n_states, size=n_chains)
    z = rng.standard_normal((n_chains, d))
    current = log_posterior(state, z)
    visits = np.zeros((n_chains, n_states))
    for step in range(n_steps):
        if step % 2:
            proposal = rng.integers(n_states, size=n_chains), z
        else:
            length = rng.choice([0.3, 1.0, 2.0], size=(n_chains, 1))
            proposal = state, z + length * rng.standard_normal(z.shape)
        proposed = log_posterior(*proposal)
        accepted = np.log(rng.random(n_chains)) < proposed - current
        state = np.where(accepted, proposal[0], state)
        z = np.where(accepted[:, None], proposal[1], z)
        current = np.where(accepted, proposed, current)
        if step >= n_steps // 5:
            visits[np.arange(n_chains), state] += 1
    shares = visits / visits.sum(axis=1, keepdims=True)
    return shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(n_chains)
