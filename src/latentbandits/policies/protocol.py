"""The protocol of a policy: a frozen value with three pure methods, and optional members.

`Policy` is the base class: every member but `init`, `decide` and `update` has a default. A class of
another package needs only these three methods and need not inherit: functions that receive a policy
call `adopt` once, which adds the defaults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs.encoding import StandsFor
from latentbandits.lazy import cached_property
from latentbandits.models.attributes.columns import Row
from latentbandits.models.attributes.parts import Gate, part
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.laws import BINARY
from latentbandits.models.protocol import KnownModel, with_defaults
from latentbandits.policies.decision import ActionProbabilities, Decision

BeliefT = TypeVar("BeliefT")
LearnsFrom = Literal["any", "own"]


class Asked(NamedTuple):
    """A request to decide for a batch of sessions, checked."""

    context: Any  # None, features (n_sessions, n_actions, n_features), or a Visit
    eligible: BoolArray | None
    rng: np.random.Generator


class ThreeMethods(Protocol[BeliefT]):
    """The methods that every policy must have; `Policy` documents them."""

    def init(self, n_sessions: int = 1) -> BeliefT: ...

    def decide(
        self,
        belief: BeliefT,
        context: Any,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
        propensity: bool = True,
    ) -> Decision: ...

    def update(
        self, belief: BeliefT, context: Any, decision: Decision, reward: ArrayLike
    ) -> BeliefT: ...


class Policy(ABC, Generic[BeliefT]):
    """A policy: beliefs are data and randomness is an argument, so no method changes anything.

    A policy of your own needs `init`, `decide` and `update`; check it with
    `latentbandits.testing.check_policy`. The other members have defaults.
    """

    order_free: ClassVar[bool | None] = None
    """Whether the order in which a session's rewards arrive does not matter (for a model whose
    state stands still). None: unknown. `check_policy` then expects that it does not matter, and a
    service acts as if it did."""
    learns_from: ClassVar[LearnsFrom] = "any"
    """"own" for a policy that can learn only from its own decisions, because `update` uses the
    believed state or the propensity of a decision."""
    row_wise: ClassVar[bool] = False
    """Whether a session is decided alone as in a batch: with a generator that has one stream of
    random numbers per session, its decision does not depend on the other sessions of the batch."""
    propensity_draws: int = 0
    """Posterior draws that are counted for a propensity without a closed form; 0: none."""

    @cached_property
    def name(self) -> str:
        """The name that its decisions carry."""
        return type(self).__name__

    @cached_property
    def n_states(self) -> int:
        """The number of latent states that `state_probabilities` tells apart."""
        return 1

    @cached_property
    def model_or_none(self) -> KnownModel | None:
        """The policy's model, given or made by the policy; None if it has none."""
        return None

    @cached_property
    def for_clicks(self) -> bool:
        """Whether it can learn from clicks: it has no model, or one with rewards of 0 and 1."""
        model = self.model_or_none
        return model is None or with_defaults(model).support == BINARY

    @cached_property
    def learns_unseen(self) -> bool:
        """Whether it learns from positions that the user may not have looked at."""
        return False

    @cached_property
    def population_size(self) -> int | None:
        """The number of users that share a belief; None if each session has a belief of its own."""
        return None

    @abstractmethod
    def init(self, n_sessions: int = 1) -> BeliefT:
        """Return the belief of `n_sessions` sessions without rewards: a tree of arrays."""

    @abstractmethod
    def decide(
        self,
        belief: BeliefT,
        context: Any,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
        propensity: bool = True,
    ) -> Decision:
        """Choose an eligible action for every session.

        Args:
            belief: belief of n sessions.
            context: None, or features `(n, n_actions, n_features)`; a `Visit` for a policy that
                learns across users.
            rng: the source of all randomness.
            eligible: mask of the actions that may be chosen, `(n, n_actions)`; None: all.
            propensity: whether the decision needs the probability of its action.
        """

    @abstractmethod
    def update(
        self, belief: BeliefT, context: Any, decision: Decision, reward: ArrayLike
    ) -> BeliefT:
        """Return the belief after the rewards `(n,)`; ValueError if an input is impossible."""

    def update_position(
        self,
        belief: BeliefT,
        context: Any,
        decision: Decision,
        reward: ArrayLike,
        *,
        last: bool,
        looked: FloatArray | None = None,
    ) -> BeliefT:
        """Return the belief after the rewards `(n,)` of one position of a list.

        Within a list time stands still: a state that moves, a discount and a number of rounds
        advance with the last position alone. The default, `update`, is right for policies without
        any of these.

        Args:
            belief: of n sessions.
            context: as in `update`.
            decision: the action of this position, and the actions that were eligible for it.
            reward: of this position.
            last: whether no other position of this list follows.
            looked: P(the user looked at this position), `(n,)`, where that is unknown; None: they
                did.
        """
        if looked is not None:
            raise ValueError(hidden_looks(self.name))
        return self.update(belief, context, decision, reward)

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        """Return the checked context and the number of actions.

        Here the features say how many actions there are; ValueError without them.
        """
        features = None if context is None else np.asarray(context, np.float64)
        if features is None or features.ndim < 2:
            raise ValueError(
                f"cannot tell how many actions {self.name} has: give the policy an attribute "
                "n_actions"
            )
        return features, features.shape[1]

    def shift_state_prior(self, belief: BeliefT, shift: FloatArray) -> BeliefT:
        """Return a belief without rewards whose log P1(s) is larger by `shift` (n, S or fewer).

        A policy without a posterior over states keeps its belief.
        """
        return belief

    def state_probabilities(self, belief: BeliefT) -> FloatArray | None:
        """Return P(s) given the session's rewards, `(n, n_states)`; None: it keeps none."""
        return None

    def mean_rewards(self, belief: BeliefT, context: Any) -> FloatArray | None:
        """Return the posterior mean reward of every action, `(n, n_actions)`; None: unknown.

        `context` is taken as checked.
        """
        return None

    def action_probabilities(
        self,
        belief: BeliefT,
        context: Any,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
    ) -> ActionProbabilities | None:
        """Return the distribution over actions that `decide` draws from; None: it is unknown."""
        return None

    def decide_counting(
        self,
        belief: BeliefT,
        context: Any,
        rng: np.random.Generator,
        draws: int,
        *,
        eligible: ArrayLike | None = None,
    ) -> Decision:
        """Decide with propensities counted from `draws` draws, if that is quicker than `decide`."""
        return self.decide(belief, context, rng, eligible=eligible)

    def draw_rewards(
        self, belief: BeliefT, asked: Asked, draws: int
    ) -> tuple[FloatArray, IntArray] | None:
        """Draw mean rewards `(n, draws, n_actions)` from the posterior, and states `(n, draws)`.

        None: `decide` does not play the best action of such a draw.
        """
        return None

    def sample_actions(
        self, belief: BeliefT, asked: Asked, draws: int
    ) -> tuple[IntArray, IntArray] | None:
        """Draw independent decisions from one belief, and their states: `(n, draws)` both.

        None: repeated calls of `decide` are as good.
        """
        return None

    def count_probabilities(
        self, belief: BeliefT, asked: Asked, draws: int
    ) -> ActionProbabilities | None:
        """Estimate `action_probabilities` from `draws` posterior draws: unbiased.

        None: `action_probabilities` is as quick.
        """
        return None


AnyPolicy = Policy[Any]


def hidden_looks(policy: str) -> str:
    """Return the error of a policy that cannot learn from positions that may not be looked at."""
    return (
        f"{policy} cannot learn where nobody knows which positions were looked at: take a model "
        "PositionClicks(alpha, beta, examination=...), mTS or another policy that takes the "
        'model as known, or the click model "cascade"'
    )


_METHODS = ("init", "decide", "update")


class Adopted(Policy[Any], StandsFor):
    """The wrapper of a policy that does not inherit from `Policy`: it adds the missing members.

    Members that the wrapped policy defines itself are passed on. If it has fields `model` and
    `n_actions`, these are its model and its number of actions.
    """

    def __init__(self, policy: ThreeMethods[Any]) -> None:
        self.stands_for: Any = policy
        for member in vars(Policy):
            if not member.startswith("_") and hasattr(policy, member):
                vars(self)[member] = getattr(policy, member)

    def __repr__(self) -> str:
        return repr(self.stands_for)

    @property
    def name(self) -> str:
        return str(getattr(self.stands_for, "name", type(self.stands_for).__name__))

    @property
    def model_or_none(self) -> KnownModel | None:
        return getattr(self.stands_for, "model", None)

    def init(self, n_sessions: int = 1) -> Any:
        return self.stands_for.init(n_sessions)

    def decide(self, *arguments: Any, **options: Any) -> Decision:
        decision: Decision = self.stands_for.decide(*arguments, **options)
        return decision

    def update(self, *arguments: Any) -> Any:
        return self.stands_for.update(*arguments)

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        n_actions = getattr(self.stands_for, "n_actions", None)
        if n_actions is None:
            return super().checked_context(context, n_sessions)
        return (None if context is None else np.asarray(context, np.float64)), int(n_actions)


def is_policy(value: object) -> bool:
    """Tell whether a value has the three methods of a policy; a class has not."""
    return isinstance(value, Policy) or (
        not isinstance(value, type) and all(hasattr(value, name) for name in _METHODS)
    )


def adopt(policy: AnyPolicy | ThreeMethods[Any], taker: str = "this") -> AnyPolicy:
    """Return a policy with all members of `Policy`; TypeError naming `taker` if it is no policy.

    >>> from latentbandits import UCB1
    >>> adopt(UCB1(3)).name
    'UCB1'
    """
    if isinstance(policy, Policy):
        return policy
    if not is_policy(policy):
        raise TypeError(f"{taker} needs a policy, such as mmTS(model); got {policy!r}")
    return Adopted(policy)


# The belief of sessions whose users have attributes: P1(s | z) in place of P1(s). Attributes change
# the prior of the state alone, and the posterior is prior times likelihood. So log weights of the
# states are shifted by log P1(s | z) - log P1(s), once, when the session begins.


def begin(policy: AnyPolicy, users: Sequence[Row | None]) -> Any:
    """Return the belief of new sessions, given each user's attributes; None: none are known.

    Policies that keep no posterior over states (mUCB, UCB1, LinTS, ...) and models without a gate
    begin with `policy.init`.

    >>> import numpy as np
    >>> from latentbandits import GaussianArms, mTS
    >>> from latentbandits.models.attributes.columns import Category
    >>> from latentbandits.models.attributes.columns import Encoder
    >>> from latentbandits.models.attributes.parts import with_parts
    >>> encoder = Encoder((Category("country", ("AT", "DE"), (0.5, 0.5)),))
    >>> gate = Gate(encoder, np.array([[0.0, 2.0], [0.0, -2.0]]), ())
    >>> model = with_parts(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), gate=gate)
    >>> belief = begin(mTS(model), [{"country": "DE"}, None])
    >>> mTS(model).state_probabilities(belief).round(2)
    array([[0.88, 0.12],
           [0.5 , 0.5 ]])
    """
    belief = policy.init(len(users))
    model, gate = policy.model_or_none, gate_of(policy)
    if model is None or gate is None or not any(users):
        return belief
    average = model.log_state_prior
    return policy.shift_state_prior(belief, gate.log_prior(users, average) - average)


def after_pause(policy: AnyPolicy, belief: Any, returned: BoolArray) -> Any:
    """Return the belief of sessions, moved across a pause where the user `returned` (n,).

    A model whose state moves across pauses has a matrix `returning`. Other models, and policies
    that keep no posterior over states, keep their belief.

    >>> import numpy as np
    >>> from latentbandits import GaussianArms, Markov, mTS
    >>> stays = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.3, state_prior=[0.9, 0.1])
    >>> model = Markov(stays, [[0.9, 0.1], [0.1, 0.9]], 0, None, [[0.5, 0.5], [0.5, 0.5]], 1800.0)
    >>> belief = after_pause(mTS(model), mTS(model).init(2), np.array([False, True]))
    >>> mTS(model).state_probabilities(belief).round(2)
    array([[0.9, 0.1],
           [0.5, 0.5]])
    """
    returning = with_defaults(policy.model_or_none).returning
    before = policy.state_probabilities(belief)
    if returning is None or before is None or before.shape[1] != len(returning):
        return belief
    with np.errstate(divide="ignore"):
        shift = np.log(before @ returning) - np.log(before)
    return policy.shift_state_prior(belief, np.where(returned[:, None], shift, 0.0))


def gate_of(policy: AnyPolicy) -> Gate | None:
    """Return the gate of a policy's model; None if there is none."""
    gate: Gate | None = part(policy.model_or_none, "gate")
    return gate
