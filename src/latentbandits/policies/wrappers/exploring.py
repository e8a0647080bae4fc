"""A share of uniformly random actions, so that logs can be evaluated by inverse propensities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.trees import map_leaves
from latentbandits.policies import choice
from latentbandits.policies.checked import Asked, Choice, Outcome, Wrapper
from latentbandits.policies.decision import (
    ActionProbabilities,
    Decision,
    PropensityKind,
    check_eligible,
)
from latentbandits.policies.protocol import AnyPolicy, ThreeMethods, adopt

_CERTAIN: tuple[PropensityKind, ...] = ("exact", "quadrature")


@dataclass(frozen=True, eq=False)
class Exploring(Wrapper[Any]):
    """Play a uniformly random eligible action with probability `e`, else the action of `policy`.

    The propensity of an action a is (1 - e) p(a) + e / |eligible|. Where the policy has no closed
    form of p, p(a) is the share of its own draws that pick a; the decision is one of these draws,
    and an action that exploration chose is not added to them. So the propensity is exact given
    the draws, at least e / |eligible|, and inverse weighting with it is unbiased; its kind is
    then "explored".

    Args:
        policy: any policy. One of your own that has three methods only and takes no context needs
            an attribute `n_actions`.
        e: probability of exploring, above 0 and at most 1.
        draws: how many draws estimate p where the policy has no closed form and no number of its
            own (`propensity_draws`).

    >>> from latentbandits import GaussianArms, mTS
    >>> policy = Exploring(mTS(GaussianArms([[0.9, 0.1], [0.8, 0.2]], noise=0.5)), e=0.1)
    >>> policy.action_probabilities(policy.init(), None, np.random.default_rng(0)).values
    array([[0.95, 0.05]])
    """

    policy: AnyPolicy | ThreeMethods[Any]
    e: float
    draws: int = 100

    def __post_init__(self) -> None:
        if isinstance(self.e, bool) or not isinstance(self.e, (int, float)) or not 0 < self.e <= 1:
            raise ValueError(f"e, the probability of exploring, must be in (0, 1]; got {self.e!r}")
        checks.positive_count("draws", self.draws)
        object.__setattr__(self, "policy", adopt(self.policy, "Exploring"))

    @property
    def _inner(self) -> AnyPolicy:
        return cast("AnyPolicy", self.policy)

    @property
    def name(self) -> str:
        return f"Exploring({self._inner.name})"

    @property
    def order_free(self) -> bool | None:  # type: ignore[override]
        """The attribute of the inner policy."""
        return self._inner.order_free

    def init(self, n_sessions: int = 1) -> Any:
        return self._inner.init(n_sessions)

    def shift_state_prior(self, belief: Any, shift: FloatArray) -> Any:
        return self._inner.shift_state_prior(belief, shift)

    def state_probabilities(self, belief: Any) -> FloatArray:
        """Return the state probabilities of the inner policy."""
        probabilities = self._inner.state_probabilities(belief)
        return super().state_probabilities(belief) if probabilities is None else probabilities

    def decide_counting(
        self,
        belief: Any,
        context: Any,
        rng: np.random.Generator,
        draws: int,
        *,
        eligible: ArrayLike | None = None,
    ) -> Decision:
        """Decide for one session; p is estimated from `draws` + 1 draws where the inner policy can.

        Quicker than `decide` where the inner policy would integrate.
        """
        features, n_actions = self.checked_context(context, 1)
        mask = check_eligible(eligible, 1, n_actions)
        drawn = self._inner.sample_actions(belief, features, mask, draws + 1, rng)
        if drawn is None:
            return self.decide(belief, context, rng, eligible=eligible)
        inner = _from_draws(*drawn, n_actions)
        return Decision(*self._explore(inner, Asked(features, mask, rng)), self.name, mask)

    def _choose(self, belief: Any, asked: Asked, propensity: bool) -> Choice:
        if propensity:
            return self._explore(self._decided(belief, asked), asked)
        inner = self._inner.decide(
            belief, asked.context, asked.rng, eligible=asked.eligible, propensity=False
        )
        n = len(inner.action)
        n_actions = self.checked_context(asked.context, n)[1]
        nothing = ActionProbabilities(np.zeros((n, n_actions)), "none")
        chosen = self._explore(_Decided(inner.action, inner.state, nothing), asked)
        return chosen._replace(propensity=None, kind="none")

    def _explore(self, inner: _Decided, asked: Asked) -> Choice:
        """Replace some actions by random ones, and give every action's propensity."""
        n, n_actions = inner.chances.values.shape
        mask = np.ones((n, n_actions), np.bool_) if asked.eligible is None else asked.eligible
        explores = asked.rng.random(n) < self.e
        explored = np.where(explores, choice.pick(mask, asked.rng), inner.action)
        mixed = self._mixed(inner.chances, mask)
        return Choice(explored, inner.state, choice.at(mixed.values, explored), mixed.kind)

    def _mixed(self, inner: ActionProbabilities, mask: BoolArray) -> ActionProbabilities:
        values = (1 - self.e) * inner.values + self.e * choice.shares(mask)
        return ActionProbabilities(values, inner.kind if inner.kind in _CERTAIN else "explored")

    def _decided(self, belief: Any, asked: Asked) -> _Decided:
        """Decide by the inner policy, with p(a) of all actions."""
        policy, (context, eligible, rng) = self._inner, asked
        known = policy.action_probabilities(belief, context, rng, eligible=eligible)
        if known is None or known.kind in ("none", "counted"):
            return self._sampled(belief, asked)
        if known.kind in _CERTAIN:
            made = policy.decide(belief, context, rng, eligible=eligible, propensity=False)
            return _Decided(made.action, made.state, known)
        state = self.state_probabilities(belief).argmax(axis=1)
        return _Decided(choice.draw(known.values, rng), state, known)

    def _sampled(self, belief: Any, asked: Asked) -> _Decided:
        """Estimate p(a) by draws of the inner policy; the first draw is the decision."""
        policy, (context, eligible, rng) = self._inner, asked
        draws = policy.propensity_draws or self.draws
        drawn = policy.sample_actions(belief, context, eligible, draws, rng)
        if drawn is None:
            wide = [_repeated(value, draws) for value in (belief, context, eligible)]
            many = policy.decide(wide[0], wide[1], rng, eligible=wide[2], propensity=False)
            drawn = many.action.reshape(-1, draws), many.state.reshape(-1, draws)
        return _from_draws(*drawn, self.checked_context(context, len(drawn[0]))[1])

    def count_probabilities(
        self,
        belief: Any,
        context: Any,
        eligible: BoolArray | None,
        draws: int,
        rng: np.random.Generator,
    ) -> ActionProbabilities | None:
        inner = self._inner.count_probabilities(belief, context, eligible, draws, rng)
        if inner is None:
            return None
        mask = np.ones(inner.values.shape, np.bool_) if eligible is None else eligible
        return self._mixed(inner, mask)

    def _learn(self, belief: Any, outcome: Outcome) -> Any:
        decision = replace(outcome.decision, policy=self._inner.name)
        context, reward = outcome.context, outcome.reward
        if outcome.moves and outcome.looked is None:
            return self._inner.update(belief, context, decision, reward)
        return self._inner.update_position(
            belief, context, decision, reward, last=outcome.moves, looked=outcome.looked
        )

    @property
    def _learns_unseen(self) -> bool:
        return True  # the inner policy refuses if it cannot

    def _probabilities(self, belief: Any, asked: Asked) -> ActionProbabilities:
        inner = self._decided(belief, asked).chances
        mask = np.ones(inner.values.shape, np.bool_) if asked.eligible is None else asked.eligible
        return self._mixed(inner, mask)


class _Decided(NamedTuple):
    """A decision of the inner policy, its believed state, and p(a) of all actions."""

    action: IntArray
    state: IntArray
    chances: ActionProbabilities


def _from_draws(action: IntArray, state: IntArray, n_actions: int) -> _Decided:
    """Return the first of the draws `(n_sessions, n_draws)`, and the share of each action."""
    n, draws = action.shape
    cell = action + n_actions * np.arange(n)[:, None]
    counts = np.bincount(cell.ravel(), minlength=n * n_actions).reshape(n, n_actions)
    return _Decided(action[:, 0], state[:, 0], ActionProbabilities(counts / draws, "counted"))


def _repeated(tree: Any, times: int) -> Any:
    """Return every session of a tree of arrays `times` times, one after the other."""
    return None if tree is None else map_leaves(lambda leaf: np.repeat(leaf, times, axis=0), tree)
