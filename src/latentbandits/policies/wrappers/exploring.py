"""A share of uniformly random actions, so that logs can be evaluated by inverse propensities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import Context
from latentbandits.models.trees import map_leaves
from latentbandits.policies import choice
from latentbandits.policies.checked import CheckedPolicy, Choice, LearnsFrom
from latentbandits.policies.decision import (
    ActionProbabilities,
    Decision,
    PropensityKind,
    check_eligible,
)
from latentbandits.policies.protocol import AnyPolicy, policy_name

_CERTAIN: tuple[PropensityKind, ...] = ("exact", "quadrature")


@dataclass(frozen=True, eq=False)
class Exploring(CheckedPolicy[Any]):
    """Play a uniformly random eligible action with probability `e`, else the action of `policy`.

    The propensity of an action a is (1 - e) p(a) + e / |eligible|. Where the policy has no closed
    form of p, p(a) is the share of its own draws that pick a; the decision is one of these draws,
    and an action that exploration chose is not added to them. So the propensity is exact given
    the draws, at least e / |eligible|, and inverse weighting with it is unbiased; its kind is
    then "explored".

    Args:
        policy: any policy. One of your own that is no `CheckedPolicy` and takes no context needs
            an attribute `n_actions`.
        e: probability of exploring, above 0 and at most 1.
        draws: how many draws estimate p where the policy has no closed form and no number of its
            own (`propensity_draws`).

    >>> from latentbandits import GaussianArms, mTS
    >>> policy = Exploring(mTS(GaussianArms([[0.9, 0.1], [0.8, 0.2]], noise=0.5)), e=0.1)
    >>> policy.action_probabilities(policy.init(), None, np.random.default_rng(0)).values
    array([[0.95, 0.05]])
    """

    policy: AnyPolicy
    e: float
    draws: int = 100

    def __post_init__(self) -> None:
        if isinstance(self.e, bool) or not isinstance(self.e, (int, float)) or not 0 < self.e <= 1:
            raise ValueError(f"e, the probability of exploring, must be in (0, 1]; got {self.e!r}")
        checks.positive_count("draws", self.draws)
        if not hasattr(self.policy, "decide"):
            raise TypeError(f"Exploring needs a policy; got {type(self.policy).__name__}")

    @property
    def name(self) -> str:
        return f"Exploring({policy_name(self.policy)})"

    @property
    def order_free(self) -> bool:  # type: ignore[override]
        """The attribute of the inner policy."""
        return bool(getattr(self.policy, "order_free", True))

    @property
    def learns_from(self) -> LearnsFrom:  # type: ignore[override]
        """The attribute of the inner policy."""
        return "own" if getattr(self.policy, "learns_from", "any") == "own" else "any"

    @property
    def n_states(self) -> int:
        return int(getattr(self.policy, "n_states", 1))

    def init(self, n_sessions: int = 1) -> Any:
        return self.policy.init(n_sessions)

    def state_probabilities(self, belief: Any) -> FloatArray:
        """Return the state probabilities of the inner policy."""
        method = getattr(self.policy, "state_probabilities", super().state_probabilities)
        probabilities: FloatArray = method(belief)
        return probabilities

    def decide_counting(
        self,
        belief: Any,
        context: ArrayLike | None,
        rng: np.random.Generator,
        draws: int,
        *,
        eligible: ArrayLike | None = None,
    ) -> Decision:
        """Decide for one session; p is estimated from `draws` + 1 draws where the inner policy can.

        Quicker than `decide` where the inner policy would integrate.
        """
        if not hasattr(self.policy, "sample_actions"):
            return self.decide(belief, context, rng, eligible=eligible)
        features, n_actions = self._check_context(context, 1)
        mask = check_eligible(eligible, 1, n_actions)
        action, state = self.policy.sample_actions(belief, features, mask, draws + 1, rng)
        inner = ActionProbabilities(_shares(action, n_actions), "counted")
        chosen = self._explore(action[:, 0], state[:, 0], inner, mask, rng)
        return Decision(*chosen, self.name, mask)

    def _check_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        if isinstance(self.policy, CheckedPolicy):
            return self.policy._check_context(context, n_sessions)
        n_actions = getattr(self.policy, "n_actions", None)
        features = None if context is None else np.asarray(context, np.float64)
        if n_actions is None and features is not None and features.ndim > 1:
            n_actions = features.shape[1]
        if n_actions is None:
            raise ValueError(
                f"Exploring cannot tell how many actions {policy_name(self.policy)} has: give the "
                "policy an attribute n_actions"
            )
        return features, int(n_actions)

    def _check_reward(self, reward: FloatArray) -> None:
        if isinstance(self.policy, CheckedPolicy):
            self.policy._check_reward(reward)

    def _choose(
        self,
        belief: Any,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        if not propensity:
            inner = self.policy.decide(belief, context, rng, eligible=eligible, propensity=False)
            n_actions = self._check_context(context, len(inner.action))[1]
            nothing = ActionProbabilities(np.zeros((len(inner.action), n_actions)), "none")
            chosen = self._explore(inner.action, inner.state, nothing, eligible, rng)
            return chosen._replace(propensity=None, kind="none")
        return self._explore(*self._inner(belief, context, eligible, rng), eligible, rng)

    def _explore(
        self,
        action: IntArray,
        state: IntArray,
        inner: ActionProbabilities,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> Choice:
        """Replace some actions by random ones, and give every action's propensity."""
        n, n_actions = inner.values.shape
        mask = np.ones((n, n_actions), np.bool_) if eligible is None else eligible
        explored = np.where(rng.random(n) < self.e, choice.pick(mask, rng), action)
        mixed = self._mixed(inner, mask)
        return Choice(explored, state, choice.at(mixed.values, explored), mixed.kind)

    def _mixed(self, inner: ActionProbabilities, mask: BoolArray) -> ActionProbabilities:
        values = (1 - self.e) * inner.values + self.e * choice.shares(mask)
        return ActionProbabilities(values, inner.kind if inner.kind in _CERTAIN else "explored")

    def _inner(
        self, belief: Any, context: Context, eligible: BoolArray | None, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray, ActionProbabilities]:
        """Return a decision of the inner policy, its believed state, and p(a) of all actions."""
        policy = self.policy
        if not isinstance(policy, CheckedPolicy):
            return self._sampled(belief, context, eligible, rng)
        exact = policy._probabilities(belief, context, eligible, rng)
        if exact.kind in _CERTAIN:
            chosen = policy._choose(belief, context, eligible, rng, False)
            return chosen.action, chosen.state, exact
        if exact.kind == "none" or hasattr(policy, "sample_actions"):
            return self._sampled(belief, context, eligible, rng)
        state = policy.state_probabilities(belief).argmax(axis=1)
        return choice.draw(exact.values, rng), state, exact

    def _sampled(
        self, belief: Any, context: Context, eligible: BoolArray | None, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray, ActionProbabilities]:
        """Estimate `_inner` by draws of the inner policy; the first draw is the decision."""
        policy: Any = self.policy
        draws = getattr(policy, "propensity_draws", 0) or self.draws
        if hasattr(policy, "sample_actions"):
            action, state = policy.sample_actions(belief, context, eligible, draws, rng)
        else:
            wide = [_repeated(value, draws) for value in (belief, context, eligible)]
            many = policy.decide(wide[0], wide[1], rng, eligible=wide[2], propensity=False)
            action, state = many.action.reshape(-1, draws), many.state.reshape(-1, draws)
        n_actions = self._check_context(context, len(action))[1]
        shares = ActionProbabilities(_shares(action, n_actions), "counted")
        return action[:, 0], state[:, 0], shares

    def _learn(
        self,
        belief: Any,
        context: Context,
        decision: Decision,
        action: IntArray,
        reward: FloatArray,
    ) -> Any:
        if isinstance(self.policy, CheckedPolicy):
            return self.policy._learn(belief, context, decision, action, reward)
        inner = replace(decision, policy=policy_name(self.policy))
        return self.policy.update(belief, context, inner, reward)

    def _probabilities(
        self,
        belief: Any,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        inner = self._inner(belief, context, eligible, rng)[2]
        mask = np.ones(inner.values.shape, np.bool_) if eligible is None else eligible
        return self._mixed(inner, mask)


def _repeated(tree: Any, times: int) -> Any:
    """Return every session of a tree of arrays `times` times, one after the other."""
    return None if tree is None else map_leaves(lambda leaf: np.repeat(leaf, times, axis=0), tree)


def _shares(action: IntArray, n_actions: int) -> FloatArray:
    """Return the share of each action among the draws `(n_sessions, n_draws)`."""
    n, draws = action.shape
    cell = action + n_actions * np.arange(n)[:, None]
    counts = np.bincount(cell.ravel(), minlength=n * n_actions)
    shares: FloatArray = counts.reshape(n, n_actions) / draws
    return shares
