"""`check_environment`: check the properties that simulation relies on, for any environment."""

from __future__ import annotations

import numpy as np

from latentbandits.environments.protocol import Environment, Round
from latentbandits.testing.trees import assert_same

N_RUNS = 6
HORIZON = 8


def check_environment(environment: Environment) -> None:
    """Raise AssertionError, which names the broken promise, unless `environment` keeps them all.

    >>> from latentbandits.environments import Synthetic
    >>> check_environment(Synthetic(model_noise=0.1))
    """
    first, again = _play(environment, seed=0), _play(environment, seed=0)
    for t, (one, other) in enumerate(zip(first, again, strict=True)):
        _check_round(t, one)
        assert_same(tuple(one), tuple(other), f"round {t}: the same rng, another round")
    other_seed = _play(environment, seed=1)
    same = all(np.array_equal(a.rewards, b.rewards) for a, b in zip(first, other_seed, strict=True))
    assert not same, "another rng gives the same rewards: nothing is drawn from it"


def _play(environment: Environment, seed: int) -> list[Round]:
    rng = np.random.default_rng([41, seed])
    instances = environment.start(N_RUNS, HORIZON, rng)
    return [instances.round(t, rng) for t in range(HORIZON)]


def _check_round(t: int, outcome: Round) -> None:
    shape = outcome.means.shape
    assert len(shape) == 2, f"round {t}: means of shape {shape}, not (n_runs, n_actions)"
    assert shape[0] == N_RUNS, f"round {t}: means for {shape[0]} runs of {N_RUNS}"
    assert outcome.rewards.shape == shape, f"round {t}: rewards of shape {outcome.rewards.shape}"
    assert np.isfinite(outcome.means).all(), f"round {t}: means that are not finite"
    assert np.isfinite(outcome.rewards).all(), f"round {t}: rewards that are not finite"
    if outcome.context is not None:
        actual = outcome.context.shape[:2]
        assert actual == shape, f"round {t}: a context for {actual} (runs, actions), not {shape}"
    if outcome.eligible is not None:
        assert outcome.eligible.shape == shape, f"round {t}: eligible {outcome.eligible.shape}"
        assert outcome.eligible.any(axis=1).all(), f"round {t}: a run without eligible actions"
