"""What holds of the variational mixture on any log, for every reward family."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.mixture import Problem
from latentbandits.models.registry import reward_families
from tests.unit.test_mixture import problem_of, small_log, start_of

problems = st.builds(
    lambda rewards, **size: problem_of(small_log(rewards, **size), rewards),
    st.sampled_from(list(reward_families())),
    n_users=st.integers(2, 30),
    n_rounds=st.integers(1, 8),
    n_actions=st.integers(2, 4),
    seed=st.integers(0, 10_000),
)


@given(problems, st.integers(1, 4), st.booleans(), st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_the_elbo_never_falls(problem, n_states, known, seed):
    if problem.family.family_name == "gaussian" and not known:
        family = problem.family.with_noise(None)
        if seed % 2:
            family = family.with_noise_by_action()
        problem = Problem.from_log(family, problem.engine)
    mixture = start_of(problem, n_states, seed=seed)
    bounds = []
    for _ in range(15):
        sums = problem.sums(mixture)
        bounds.append(problem.elbo(mixture, sums))
        mixture = problem.step(mixture, sums)
    assert (np.diff(bounds, axis=0) >= -1e-7 * np.abs(bounds[0])).all()


@given(problems, st.integers(2, 4), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_relabelling_states_relabels_the_step(problem, n_states, seed):
    mixture = start_of(problem, n_states, seed=seed)
    order = np.random.default_rng(seed).permutation(n_states)
    other = mixture._replace(phi=mixture.phi[:, order], shares=mixture.shares[:, order])
    sums, relabelled = problem.sums(mixture), problem.sums(other)
    one, two = problem.step(mixture, sums), problem.step(other, relabelled)
    np.testing.assert_allclose(two.phi, one.phi[:, order], rtol=1e-9)
    np.testing.assert_allclose(two.shares, one.shares[:, order], rtol=1e-9)
    bounds = problem.elbo(mixture, sums), problem.elbo(other, relabelled)
    np.testing.assert_allclose(*bounds, rtol=1e-9)


@given(problems, st.integers(1, 4), st.floats(1e-2, 1e6), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_responsibilities_sum_to_one_at_any_strength(problem, n_states, kappa, seed):
    current = vb.broadcast(problem.family, start_of(problem, n_states, kappa, seed))
    part = problem.prepare(problem.engine.sample(problem.engine.n_users, 0))
    taken, log_normaliser = vb.responsibilities(part, current)
    np.testing.assert_allclose(taken.sum(axis=2), 1.0, atol=1e-9)
    assert np.isfinite(log_normaliser).all()
