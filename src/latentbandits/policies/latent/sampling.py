"""Thompson sampling, and information-directed sampling on the same beliefs.

Thompson sampling draws a state and parameters from the belief and plays the best action there.
Information-directed sampling (beyond the paper) draws from the mixture of least information ratio.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs import joint
from latentbandits.beliefs.information import (
    FEW_ACTIONS,
    best_actions,
    minimal_ratio_mixture,
    regret_and_information,
    scenario_rewards,
    supports,
)
from latentbandits.beliefs.joint import JointBelief, KnownBelief
from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.known import with_catch_all
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.numerics.arrays import blocks
from latentbandits.models.protocol import Context, FromNormals, KnownModel, Model
from latentbandits.policies import decision
from latentbandits.policies.checked import (
    Asked,
    CheckedPolicy,
    Choice,
    JointPolicy,
    KnownPolicy,
    PosteriorPolicy,
    WeightedBeliefT,
)
from latentbandits.policies.decision import ActionProbabilities, Decision


class Thompson(PosteriorPolicy[WeightedBeliefT], ABC):
    """Draw a state from its posterior, then mean rewards given the state; play the best action."""

    row_wise: ClassVar[bool] = True

    @abstractmethod
    def _draw_rewards(
        self, belief: WeightedBeliefT, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        """Draw the mean rewards given `state` (n_sessions,): `(n_sessions, n_actions)`."""

    def _choose(self, belief: WeightedBeliefT, asked: Asked, propensity: bool) -> Choice:
        state = joint.sample(self._log_weights(belief), asked.rng)
        rewards = self._draw_rewards(belief, asked.context, state, asked.rng)
        action = decision.pick_best(rewards, asked.eligible, asked.rng)
        return self._with_propensity(belief, asked, action, state, propensity)

    def _probabilities(self, belief: WeightedBeliefT, asked: Asked) -> ActionProbabilities:
        """Return sum_s P(s) 1{a is best in s}, ties split: exact if the parameters are known."""
        mask = None if asked.eligible is None else asked.eligible[:, None, :]
        best = decision.best(decision.restrict(self.model.expected_rewards(asked.context), mask))
        weights = self.state_probabilities(belief)
        return ActionProbabilities((weights[:, None, :] @ decision.shares(best))[:, 0], "exact")


@dataclass(frozen=True, eq=False)
class mTS(Thompson[KnownBelief], KnownPolicy):
    """Thompson sampling with a known model (Algorithm 2): B ~ P(s), argmax_a mu_hat(a, x, B).

    Its belief is over states only: a joint belief with known parameters decides the same, but costs
    10 to 12% more for one session.

    Args:
        model: taken as true; its uncertainty is ignored.

    >>> policy = mTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.1))
    >>> belief, rng = policy.init(), np.random.default_rng(0)
    >>> decision = policy.decide(belief, None, rng)
    >>> belief = policy.update(belief, None, decision, [0.9])
    >>> policy.state_probabilities(belief).round(3)
    array([[1., 0.]])
    """

    model: KnownModel

    def _draw_rewards(
        self, belief: KnownBelief, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        return self.model.expected_rewards(context, state)


class JointThompson(Thompson[JointBelief], JointPolicy, ABC):
    """Thompson sampling on the joint belief over state and parameters."""

    model: Model
    propensity_draws: int

    @cached_property
    def row_wise(self) -> bool:  # type: ignore[override]
        """Whether a session's draws do not depend on the other sessions of the batch.

        That holds if the draws are a function of a fixed number of normal variables per session.
        Samplers that reject proposals take a varying number of random numbers.
        """
        return self.model.is_certain or isinstance(self.model, FromNormals)

    def _draw_rewards(
        self, belief: JointBelief, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        return self.model.sample_rewards(belief.parameters, context, state[:, None], rng)[:, 0]

    def decide_counting(
        self,
        belief: JointBelief,
        context: ArrayLike | None,
        rng: np.random.Generator,
        draws: int,
        *,
        eligible: ArrayLike | None = None,
    ) -> Decision:
        """Decide for every session, with a Monte Carlo estimate of the propensity.

        The estimate is the fraction of `draws` + 1 decisions, this one included, that pick the
        same action, so it is never zero. It is quicker than `decide` where that would integrate.
        """
        asked = self._asked(belief, context, eligible, rng)
        rewards, state = self.draw_rewards(belief, asked, draws + 1)
        return decision.count_first(rewards, state, asked.eligible, self.name, rng)

    def draw_rewards(
        self, belief: JointBelief, asked: Asked, draws: int
    ) -> tuple[FloatArray, IntArray]:
        wide = belief.log_weights.repeat(draws, axis=0)
        state = joint.sample(wide, asked.rng).reshape(len(belief.log_weights), draws)
        rewards = self.model.sample_rewards(belief.parameters, asked.context, state, asked.rng)
        return rewards, state

    def sample_actions(
        self, belief: JointBelief, asked: Asked, draws: int
    ) -> tuple[IntArray, IntArray]:
        rewards, state = self.draw_rewards(belief, asked, draws)
        return decision.pick_best_of_draws(rewards, asked.eligible, asked.rng), state

    def _probabilities(self, belief: JointBelief, asked: Asked) -> ActionProbabilities:
        if self.model.is_certain:
            return super()._probabilities(belief, asked)
        weights = joint.probabilities(belief.log_weights)
        given_state = self.model.probability_best(
            belief.parameters, asked.context, asked.eligible, weights
        )
        if given_state is not None:
            return ActionProbabilities((weights[:, None, :] @ given_state)[:, 0], "quadrature")
        if self.propensity_draws < 1:
            return CheckedPolicy._probabilities(self, belief, asked)
        return self.count_probabilities(belief, asked, self.propensity_draws)

    def count_probabilities(
        self, belief: JointBelief, asked: Asked, draws: int
    ) -> ActionProbabilities:
        """Estimate P(a is best) as the fraction of `draws` posterior draws: unbiased."""
        state = joint.sample_many(belief.log_weights, draws, asked.rng)
        rewards = self.model.sample_rewards(belief.parameters, asked.context, state, asked.rng)
        return decision.count_best(rewards, asked.eligible)


@dataclass(frozen=True, eq=False)
class mmTS(JointThompson):
    """Thompson sampling with an uncertain model (Algorithm 3), exact: s, then theta_s given s.

    Propensities are found by quadrature where actions are independent given the state, else by
    `propensity_draws` counted draws; 0 draws: none. With `catch_all` the model has one more state,
    "none of these": see `with_catch_all`.

    Args:
        model: a model of latent states with uncertain parameters.
        propensity_draws: posterior draws that are counted for a propensity where it has no
            integral; 0: none.
        catch_all: whether to add a state for sessions that no state explains.

    >>> policy = mmTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity.round(2)
    array([0.5])
    """

    model: Model
    propensity_draws: int = 0
    catch_all: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("propensity_draws", self.propensity_draws)
        if not isinstance(self.catch_all, bool):
            raise ValueError(f"catch_all must be True or False; got {self.catch_all!r}")
        # dataclasses.replace passes the extended model, so start from the original one.
        original: Model = _given(self.model)
        model = original
        if self.catch_all:
            model = with_catch_all(original)
            object.__setattr__(model, _GIVEN, original)
        object.__setattr__(self, "model", model)

    @property
    def model_or_none(self) -> Model:
        """The model without the state that `catch_all` adds."""
        return _given(self.model)


_GIVEN = "_given_to_mmts"


def _given(model: Model) -> Model:
    """Return the model before `mmTS` added a catch-all state to it; else `model` itself."""
    return getattr(model, _GIVEN, model)


@dataclass(frozen=True, eq=False)
class TS(JointThompson):
    """Gaussian Thompson sampling without a latent model: mmTS with one state.

    Args:
        n_actions: number of actions.
        noise: standard deviation of a reward.
        prior_mean: mean of the normal prior of each action's mean reward.
        prior_spread: its standard deviation.
        propensity_draws: not used: propensities are by quadrature.

    >>> TS(n_actions=3, noise=0.5).init().log_weights
    array([[0.]])
    """

    for_clicks: ClassVar[bool] = True
    n_actions: int
    noise: float = 1.0
    prior_mean: float = 0.0
    prior_spread: float = 1.0
    propensity_draws: int = 0
    model: Model = field(init=False, repr=False)

    def __post_init__(self) -> None:
        means = np.full((1, self.n_actions), float(self.prior_mean))
        object.__setattr__(self, "model", GaussianArms(means, self.noise, self.prior_spread))


@dataclass(frozen=True, eq=False)
class LinTS(JointThompson):
    """Linear Thompson sampling without a latent model: mmTS with one state, prior N(0, v^2 I).

    Args:
        n_features: number of features of an action.
        noise: standard deviation of a reward.
        prior_spread: v.
        propensity_draws: posterior draws that are counted for a propensity; 0: none.

    >>> LinTS(n_features=3, noise=0.5).init().parameters.mean.shape
    (1, 1, 3)
    """

    for_clicks: ClassVar[bool] = True
    n_features: int
    noise: float = 1.0
    prior_spread: float = 1.0
    propensity_draws: int = 0
    model: Model = field(init=False, repr=False)

    def __post_init__(self) -> None:
        covariance = np.eye(self.n_features)[None] * self.prior_spread**2
        model = LinearGaussian(np.zeros((1, self.n_features)), self.noise, covariance)
        object.__setattr__(self, "model", model)


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


# Information-directed sampling on the beliefs of mTS and mmTS (beyond the paper).


class InformationDirected(PosteriorPolicy[Any], ABC):
    """Draw the action from the mixture of least information ratio over weighted scenarios."""

    @abstractmethod
    def _scenarios(self, belief: Any, context: Context) -> tuple[FloatArray, FloatArray]:
        """Return possible mean rewards and their weights.

        The rewards are `(1 or n, m, n_actions)`, the weights `(n, m)`.
        """

    def _choose(self, belief: Any, asked: Asked, propensity: bool) -> Choice:
        regret, information = self._costs_and_gains(belief, asked)
        action, chance = _draw(regret, information, asked)
        state = belief.log_weights.argmax(axis=1)
        return Choice(action, state, *((chance, "exact") if propensity else (None, "none")))

    def _probabilities(self, belief: Any, asked: Asked) -> ActionProbabilities:
        regret, information = self._costs_and_gains(belief, asked)
        mixture = minimal_ratio_mixture(regret, information, asked.eligible)
        return ActionProbabilities(mixture, "exact")

    def _costs_and_gains(self, belief: Any, asked: Asked) -> tuple[FloatArray, FloatArray]:
        """Return D and v, both `(n, n_actions)`, in blocks of sessions."""
        (rewards, weights), eligible = self._scenarios(belief, asked.context), asked.eligible
        n, (m, n_actions) = len(weights), rewards.shape[1:]
        if n == 1:
            return regret_and_information(rewards, weights, best_actions(rewards, eligible))
        regret, information = np.empty((n, n_actions)), np.empty((n, n_actions))
        for block in blocks(n, m * n_actions):
            part = rewards if len(rewards) == 1 else rewards[block]
            if n_actions <= m:
                # Contiguous scenarios of each action make operations over actions fast.
                part = np.ascontiguousarray(part.swapaxes(1, 2)).swapaxes(1, 2)
            best = best_actions(part, None if eligible is None else eligible[block])
            regret[block], information[block] = regret_and_information(part, weights[block], best)
        return regret, information


@dataclass(frozen=True, eq=False)
class mIDS(InformationDirected, KnownPolicy):
    """Information-directed sampling with a known model: the states are the scenarios, exactly.

    Args:
        model: a model of latent states, taken as true.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mIDS(GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.5])
    """

    model: KnownModel

    def _scenarios(self, belief: KnownBelief, context: Context) -> tuple[FloatArray, FloatArray]:
        return self.model.expected_rewards(context), joint.probabilities(belief.log_weights)


@dataclass(frozen=True, eq=False)
class mmIDS(InformationDirected, JointPolicy):
    """Information-directed sampling with an uncertain model: `draws` of (s, theta) are scenarios.

    The draws come from nodes that `seed` fixes, the same in every round and session
    (`beliefs/information.py`). So the action probabilities are a function of the belief:
    propensities are exact, and an action has probability zero only if this policy never plays it
    there.

    Args:
        model: a model of latent states with uncertain parameters.
        draws: number of scenarios.
        seed: seed of the nodes that the draws are made from.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mmIDS(GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.5, spread=0.1))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity_kind
    'exact'
    """

    model: Model
    draws: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_count("draws", self.draws)
        checks.count("seed", self.seed)

    def _scenarios(self, belief: JointBelief, context: Context) -> tuple[FloatArray, FloatArray]:
        rewards = scenario_rewards(self.model, belief, context, self.draws, self.seed)
        return rewards, np.full(rewards.shape[:2], 1 / self.draws)


def _draw(regret: FloatArray, information: FloatArray, asked: Asked) -> tuple[IntArray, FloatArray]:
    """Draw an action for each session: actions and their probabilities, both `(n,)`."""
    eligible, rng = asked.eligible, asked.rng
    if regret.shape[1] <= FEW_ACTIONS:
        probabilities = minimal_ratio_mixture(regret, information, eligible)
        action = decision.draw(probabilities, rng)
        return action, decision.at(probabilities, action)
    action, chance = np.empty(len(regret), np.int64), np.empty(len(regret))
    uniform = rng.random(len(regret))
    for i, (places, shares) in enumerate(supports(regret, information, eligible)):
        upper = shares.cumsum()
        chosen = int(upper.searchsorted(uniform[i] * upper[-1], side="right"))
        action[i], chance[i] = places[chosen], shares[chosen]
    return action, chance
