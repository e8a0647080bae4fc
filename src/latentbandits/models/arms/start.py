"""Models for a service that has no log yet: one state, with a wide prior for every action."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from latentbandits.models import artefacts, checks
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import ArmStatistics, GaussianArms
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.registry import reward_families
from latentbandits.names import one_of

PLAIN_NAMES = {"clicks": "bernoulli", "stars": "categorical", "counts": "poisson"}
"""Plain words for some reward families."""

_VALUES = {"categorical": (1.0, 2.0, 3.0, 4.0, 5.0), "exponential": (0.5, 1.5)}
_OTHER_VALUES = (0.0, 1.0)
_WORTH = 2.0  # rewards that the default prior is worth: that of clicks is uniform
_LARGEST = 1e100  # products of rewards must be finite
_SAME = 0.01  # relative difference up to which a spread is the requested one


def reward_names() -> tuple[str, ...]:
    """Return the names of rewards that `start_model` takes."""
    return (*PLAIN_NAMES, *reward_families())


def start_model(
    rewards: str,
    n_actions: int,
    *,
    values: Sequence[float] | None = None,
    mean: float | None = None,
    spread: float | None = None,
) -> Any:
    """Return a model of one state in which all actions have the same wide prior.

    Args:
        rewards: a reward family, or a plain word for it (`reward_names`).
        n_actions: the number of actions.
        values: rewards that occur; by default 0 and 1, or 1 to 5 for stars. Their deviation is the
            noise of gaussian rewards.
        mean: the expected reward; None: the mean of `values`.
        spread: standard deviation of the prior of an action's mean reward; None: a prior worth two
            rewards.

    >>> model = start_model("clicks", 2)
    >>> model.alpha.round(6).tolist(), model.beta.round(6).tolist()
    ([[1.0, 1.0]], [[1.0, 1.0]])
    """
    name = one_of("kind of rewards", rewards, reward_names())
    family = PLAIN_NAMES.get(name, name)
    typical = _VALUES.get(family, _OTHER_VALUES) if values is None else values
    examples = checks.finite_array("values", typical, (1,))
    if len(np.unique(examples)) < 2:
        raise ValueError(f"values must be two different rewards or more; got {examples.tolist()}")
    centre = float(examples.mean()) if mean is None else mean
    if not np.isfinite(centre):
        raise ValueError(f"the expected reward must be a finite number; got {centre}")
    largest = max(abs(centre), float(np.abs(examples).max()))
    if largest > _LARGEST:
        raise ValueError(f"rewards must be at most {_LARGEST:g} in size; got {largest:g}")
    deviation = None if spread is None else checks.positive_number("spread", spread)
    means = np.full((1, checks.positive_count("n_actions", n_actions)), centre)
    if family == "gaussian":
        noise = float(examples.std())
        if not float(examples.min()) <= centre <= float(examples.max()):
            raise ValueError(
                f"values must lie around the expected reward, as their deviation is the noise of "
                f"{name} rewards; got {examples.tolist()} with {centre:g}"
            )
        return GaussianArms(means, noise, noise / np.sqrt(_WORTH) if spread is None else spread)
    base = reward_families()[family].for_rewards(examples)
    if not isinstance(base, ConjugateArms):
        raise ValueError(f"{family} rewards have no conjugate prior to start with: fit a log")
    if not float(examples.min()) < centre < float(examples.max()) and base.reward_bounds:
        raise ValueError(
            f"the expected reward of {name} must lie between {examples.min():g} and "
            f"{examples.max():g}; got {centre:g}"
        )
    if centre <= 0 and float(examples.min()) >= 0:
        raise ValueError(f"the expected reward of {name} must be above zero; got {centre:g}")
    known = base.with_prior(means, np.full(means.shape, 1e-6 * centre**2 + 1e-12))
    widest = known.within(known.prior_hyperparameters[0], _WORTH)
    variance = widest if deviation is None else np.full(means.shape, deviation**2)
    model = base.with_prior(means, variance)
    largest = model.spread_bound
    if deviation is not None and abs(largest - deviation) > _SAME * deviation:
        raise ValueError(
            f"{name} with this expected reward cannot have a spread of {deviation:g}; the nearest "
            f"possible one is {largest:.3g}"
        )
    return model


NOTE = "start"
"""The note of a saved start model, also after `relearn` has pooled rewards into it. It holds the
arguments of `start_model`, from which every pooled posterior starts."""

POLICY = "mmTS"
"""Thompson sampling, the policy of start models."""


def save_start(
    path: str | os.PathLike[str], catalogue: Catalogue, rewards: str, **settings: Any
) -> Any:
    """Save the start model of these actions with its notes, and return it.

    `settings` are further arguments of `start_model`.
    """
    model = start_model(rewards, len(catalogue), **settings)
    notes = {"recommended_policy": POLICY, NOTE: {"rewards": rewards, **settings}}
    with artefacts.replacing(path) as folder:
        artefacts.write(model, folder, catalogue, notes)
    return model


def pooled_posterior(model: Any, actions: IntArray, rewards: FloatArray) -> Any:
    """Return the start model after the rewards of all users, as if they were one user's.

    A session that starts from it plays Thompson sampling on the pooled rewards. Mean and variance
    of each action's mean reward are exact; they determine the prior of families with two
    hyperparameters.

    Args:
        model: what `start_model` returned.
        actions: the action of each reward, `(n,)`.
        rewards: `(n,)`.

    >>> start = start_model("clicks", 2)
    >>> later = pooled_posterior(start, np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 0.0, 0.0]))
    >>> later.alpha.round(6).tolist(), later.beta.round(6).tolist()
    ([[3.0, 1.0]], [[2.0, 2.0]])
    """
    n_actions = model.n_actions
    if isinstance(model, GaussianArms):
        counts, sums = np.zeros((2, 1, n_actions))
        np.add.at(counts[0], actions, 1.0)
        np.add.at(sums[0], actions, rewards)
        means, variances = model.posterior_rewards(ArmStatistics(counts, sums), None)
        return GaussianArms(means[0], model.noise, np.sqrt(variances[0]))
    phi = np.array(model.prior_hyperparameters[0])
    np.add.at(phi[0], actions, model.statistic(rewards))
    return model.learned(phi, model.moments(phi)[1], model.state_prior)
