"""Builders of policies whose arguments follow from a model, the same for every command.

The classic policies know no latent states, but they need a scale of rewards:

- UCB1: `scale` is the noise of a reward, which makes the bonus that of sigma-sub-Gaussian rewards.
- TS: the prior of an action's mean reward is that of a uniform distribution on `reward_range` if
  the caller declares one; otherwise it has the mean and variance of the model's prior, averaged
  over states (by their prior) and actions (equally).
- EXP4: `reward_range` is the declared one; otherwise the bounds of the model's rewards if the
  family has bounds; otherwise the range of the model's mean rewards and two noises on either side.
  The log's extreme rewards are not used: a service that is given a model does not know them, and
  `simulate` must play the policy that `serve` runs.
- mmUCB: where the catalogue's items are known and the model is linear, `slack` is the largest
  prior standard deviation, over states, of the reward of the average item; that is the error that
  the sum of gaps accumulates. Otherwise it is the model's `spread_bound`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.protocol import KnownModel, Model, support_of
from latentbandits.policies.classic import EXP4, UCB1, Uniform
from latentbandits.policies.latent.thompson import TS
from latentbandits.policies.latent.ucb import mmUCB
from latentbandits.policies.registry import Inputs, build
from latentbandits.policies.wrappers import Discounted, Exploring, SlidingWindow


def build_ucb1(n_actions: int, noise: float = 1.0, scale: float | None = None) -> UCB1:
    """Build UCB1 whose bonus has the scale of the noise."""
    return UCB1(n_actions, noise if scale is None else scale)


def build_ts(
    n_actions: int,
    noise: float = 1.0,
    model: Any = None,
    reward_range: tuple[float, float] | None = None,
    prior_mean: float | None = None,
    prior_spread: float | None = None,
    propensity_draws: int = 0,
) -> TS:
    """Build TS with the prior of the declared range, or of the model."""
    mean, spread = 0.0, 1.0
    if reward_range is not None:
        low, high = reward_range
        mean, spread = (low + high) / 2, (high - low) / math.sqrt(12)
    elif model is not None:
        mean, spread = prior_moments(model)
    return TS(
        n_actions,
        noise,
        mean if prior_mean is None else prior_mean,
        (spread or noise) if prior_spread is None else prior_spread,
        propensity_draws,
    )


def build_uniform(model: KnownModel | None = None, n_actions: int | None = None) -> Uniform:
    """Build Uniform on the actions of the model; without a model, on so many actions."""
    if model is not None:
        return Uniform(model)
    if n_actions is None:
        raise ValueError("uniform needs a model or the number of actions, n_actions=...")
    return Uniform(GaussianArms(np.zeros((1, n_actions)), noise=1.0))  # it only counts the actions


def build_exp4(
    model: KnownModel,
    reward_range: tuple[float, float] | None = None,
    horizon: int | None = None,
    rate: float | None = None,
    items: FloatArray | None = None,
) -> EXP4:
    """Build EXP4, whose losses are scaled by the declared range, or by that of the model."""
    rewards = likely_rewards(model, items) if reward_range is None else reward_range
    low, high = rewards or (0.0, 1.0)
    return EXP4(model, (low, high), horizon, rate)


def build_mmucb(
    model: Model,
    slack: float | None = None,
    horizon: int | None = None,
    items: FloatArray | None = None,
) -> mmUCB:
    """Build mmUCB with the slack of the catalogue's average item."""
    covariances = getattr(model, "covariances", None)
    if slack is None and items is not None and covariances is not None:
        slack = average_item_slack(items.mean(axis=0), covariances)
    return mmUCB(model, slack, horizon)


def build_exploring(
    inputs: Inputs, policy: str = "mmTS", e: float = 0.1, draws: int = 100
) -> Exploring:
    """Return `policy`, given as text, with a share of random actions."""
    return Exploring(build(policy, inputs), e, draws)


def build_discounted(inputs: Inputs, policy: str = "mUCB", factor: float = 0.99) -> Discounted:
    """Return `policy`, given as text, with older rounds discounted."""
    inner: Any = build(policy, inputs)
    return Discounted(inner, factor)


def build_window(inputs: Inputs, policy: str = "mUCB", rounds: int = 100) -> SlidingWindow:
    """Return `policy`, given as text, on the latest rounds."""
    inner: Any = build(policy, inputs)
    return SlidingWindow(inner, rounds)


def prior_moments(model: Any) -> tuple[float, float]:
    """Return mean and standard deviation of a mean reward under the model's prior.

    The state is drawn from its prior and the action uniformly.

    >>> from latentbandits import GaussianArms
    >>> prior_moments(GaussianArms([[0.0, 1.0]], noise=0.5, spread=0.0))
    (0.5, 0.5)
    """
    n = model.n_sessions or 1
    model.check_context(None, n)
    mean, variance = model.posterior_rewards(model.parameters(n), None)
    weights = np.exp(model.log_state_prior)[:, :, None]
    weights = np.broadcast_to(weights / (len(mean) * mean.shape[2]), mean.shape)
    centre = float((weights * mean).sum())
    return centre, math.sqrt(float((weights * (variance + (mean - centre) ** 2)).sum()))


def likely_rewards(model: Any, items: FloatArray | None = None) -> tuple[float, float] | None:
    """Return a range that holds most rewards of a model; None if it depends on features.

    >>> from latentbandits import BernoulliArms, GaussianArms
    >>> likely_rewards(GaussianArms([[0.0, 1.0]], noise=0.5))
    (-1.0, 2.0)
    >>> likely_rewards(BernoulliArms([[1.0, 1.0]], 1.0))
    (0.0, 1.0)
    """
    bounds = support_of(model).bounds
    if bounds is not None:
        return bounds
    context = None
    if model.n_actions is None:
        if items is None:
            return None
        context = np.broadcast_to(items, (model.n_sessions or 1, *items.shape))
    means = model.expected_rewards(model.check_context(context, model.n_sessions or 1))
    return float(means.min() - 2 * model.noise), float(means.max() + 2 * model.noise)


def average_item_slack(item: FloatArray, covariances: FloatArray) -> float:
    """Return epsilon of mmUCB for a linear model, sqrt(max_s x' Sigma_s x) for the average item x.

    mmUCB sums (model's mean - epsilon - reward) over the rounds in which it believed a state. For
    a user theta of state s the sum grows by x'(weights[s] - theta) a round, so the deviation of
    the average item decides. A bound for the worst single item is several times as large and
    rules no state out within a session.

    Args:
        item: mean features of the items that are shown, `(n_features,)`.
        covariances: of the weights in each state, `(..., n_states, n_features, n_features)`.
    """
    return math.sqrt(float(((covariances @ item) @ item).max()))
