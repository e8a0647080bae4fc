"""What holds of every completion, whatever the ratings."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits.learning.linear.completion import complete


@st.composite
def logs(draw):
    n_users, n_actions = draw(st.integers(2, 8)), draw(st.integers(2, 8))
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = {"n_users": n_users, "n_actions": n_actions}
    users, actions = rng.integers(n_users, size=n), rng.integers(n_actions, size=n)
    return users, actions, rng.normal(3, 2, n), sizes


fits = st.fixed_dictionaries(
    {
        "rank": st.integers(1, 2),
        "reg": st.floats(0.01, 10),
        "weighting": st.sampled_from(["plain", "counts"]),
        "biases": st.booleans(),
        "seed": st.integers(0, 100),
    }
)


@given(logs(), fits)
@settings(max_examples=60, deadline=None)
def test_the_objective_never_rises_and_the_same_seed_gives_the_same_numbers(log, how):
    users, actions, rewards, sizes = log
    fit = complete(users, actions, rewards, **sizes, **how, sweeps=8)
    objectives = np.array([sweep.objective for sweep in fit.history])
    assert (np.diff(objectives) <= 1e-9 * objectives[:-1]).all()
    again = complete(users, actions, rewards, **sizes, **how, sweeps=8)
    np.testing.assert_array_equal(again.users, fit.users)
    assert np.isfinite(fit.noise)


@given(logs(), fits, st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_order_of_ratings_and_names_of_users_do_not_matter(log, how, seed):
    users, actions, rewards, sizes = log
    fit = complete(users, actions, rewards, **sizes, **how, sweeps=3)
    rng = np.random.default_rng(seed)
    order, names = rng.permutation(len(rewards)), rng.permutation(sizes["n_users"])
    renamed = names[users]
    other = complete(renamed[order], actions[order], rewards[order], **sizes, **how, sweeps=3)
    np.testing.assert_allclose(
        other.users[names] @ other.actions.T, fit.users @ fit.actions.T, atol=1e-7
    )
