"""What holds of expectation-maximisation on any log."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits.learning.generate_arms import generate_arms
from latentbandits.learning.mixture import Components, MeanPrior, UserStatistics, expect, sweep

logs = st.builds(
    generate_arms,
    n_users=st.integers(2, 30),
    n_rounds=st.integers(1, 8),
    n_states=st.integers(1, 4),
    n_actions=st.integers(2, 4),
    noise=st.sampled_from([0.01, 0.5, 3.0]),
    seed=st.integers(0, 10_000),
)


@given(logs, st.integers(1, 4), st.booleans(), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_the_log_posterior_never_falls(truth, n_states, known, seed):
    statistics, prior, current = _start(truth, n_states, seed)
    heights = []
    for _ in range(15):
        current, height = sweep(statistics, prior, current, 0.25 if known else None)
        heights.append(height)
    gains = np.diff(heights, axis=0)
    assert (gains >= -1e-8 * np.abs(heights[0])).all()


@given(logs, st.integers(2, 4), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_relabelling_states_relabels_the_sweep(truth, n_states, seed):
    statistics, prior, current = _start(truth, n_states, seed)
    order = np.random.default_rng(seed).permutation(n_states)
    relabelled = Components(current.means[:, order], current.shares[:, order], current.variance)
    one, height = sweep(statistics, prior, current, None)
    other, same_height = sweep(statistics, prior, relabelled, None)
    np.testing.assert_allclose(other.means, one.means[:, order], rtol=1e-9)
    np.testing.assert_allclose(other.shares, one.shares[:, order], rtol=1e-9)
    np.testing.assert_allclose(same_height, height, rtol=1e-9)


@given(logs, st.integers(1, 4), st.floats(1e-6, 1e3), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_responsibilities_sum_to_one_at_any_noise(truth, n_states, variance, seed):
    statistics, prior, current = _start(truth, n_states, seed)
    current = current._replace(variance=np.full(2, variance))
    responsibilities, height = expect(statistics, prior, current)
    np.testing.assert_allclose(responsibilities.sum(axis=2), 1.0, atol=1e-9)
    assert np.isfinite(height).all()


def _start(truth, n_states, seed):
    rng = np.random.default_rng(seed)
    n_actions = truth.log.n_actions
    means = rng.normal(0.5, 1.0, (2, n_states, n_actions))
    shares = rng.dirichlet(np.ones(n_states) * 5, 2)
    prior = MeanPrior(np.full(n_actions, 0.5), 1.0)
    return UserStatistics.of(truth.log), prior, Components(means, shares, np.full(2, 0.25))
