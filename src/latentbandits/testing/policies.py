"""`check_policy`: check what simulation, serving and evaluation require of any policy."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.beliefs.encoding import can_encode, decode, encode
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics.arrays import leaves
from latentbandits.models.protocol import is_order_free
from latentbandits.models.visit import Visit
from latentbandits.policies.decision import Decision
from latentbandits.policies.protocol import AnyPolicy, ThreeMethods, adopt
from latentbandits.testing.lists import lists, same_decisions
from latentbandits.testing.trees import assert_same, context_of, rows

N_SESSIONS = 5
N_ROUNDS = 6
N_FREQUENCY = 20_000
FREQUENCY_ERRORS = 6.0  # standard errors: a correct policy fails with probability below 1e-7

Draw = Callable[[int, np.random.Generator], Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A policy and a source of contexts and rewards for it."""

    policy: AnyPolicy
    n_actions: int
    context: Draw
    reward: Draw

    def rng(self, seed: int = 0) -> np.random.Generator:
        return np.random.default_rng([17, seed])

    def play(self, n_sessions: int, n_rounds: int) -> tuple[Any, list[tuple[Any, Decision, Any]]]:
        """Play some rounds from the start; return the belief after them, and the rounds."""
        rng = self.rng()
        belief = self.policy.init(n_sessions)
        history = []
        for _ in range(n_rounds):
            context = self.context(n_sessions, rng)
            decision = self.policy.decide(belief, context, rng)
            reward = self.reward(n_sessions, rng)
            belief = self.policy.update(belief, context, decision, reward)
            history.append((context, decision, reward))
        return belief, history


def check_policy(
    policy: AnyPolicy | ThreeMethods[Any],
    n_actions: int,
    context: Draw | None = None,
    reward: Draw | None = None,
    order_free: bool | None = None,
) -> None:
    """Raise AssertionError, which names the broken promise, unless `policy` keeps them all.

    Probabilities of actions and states are checked where the policy gives them.

    Args:
        policy: the policy to check.
        n_actions: number of its actions.
        context: a function (n_sessions, rng) that draws contexts that the policy takes; None: no
            context. For a population policy it draws a `Visit`; sessions are then populations.
        reward: a function (n_sessions, rng) that draws rewards `(n_sessions,)`; None: standard
            normal.
        order_free: whether the order of rewards does not matter; it does where states move, for
            policies that forget and for particles. None asks the policy and its model.

    >>> from latentbandits import LinUCB
    >>> check_policy(LinUCB(2), 4, context=lambda n, rng: rng.normal(size=(n, 4, 2)))
    """
    case = Case(
        adopt(policy, "check_policy"),
        n_actions,
        context or (lambda n, rng: None),
        reward or (lambda n, rng: rng.standard_normal(n)),
    )
    if order_free is None:
        model = case.policy.model_or_none
        moving = model is not None and not is_order_free(model)
        order_free = case.policy.order_free is not False and not moving
    for check in CHECKS:
        if order_free or check is not _order_of_rewards:
            check(case)


def _shapes(case: Case) -> None:
    """Every field of a decision is `(n_sessions,)`, every array of a belief has sessions first."""
    belief, history = case.play(N_SESSIONS, N_ROUNDS)
    for leaf in leaves(belief):
        assert leaf.shape[:1] == (N_SESSIONS,), f"a belief's array has shape {leaf.shape}"
    for _, decision, _ in history:
        assert decision.action.shape == decision.state.shape == (N_SESSIONS,), "decision's shape"
        assert decision.action.dtype.kind == "i", f"actions are {decision.action.dtype}"
        assert (decision.action >= 0).all(), f"actions {decision.action}"
        assert (decision.action < case.n_actions).all(), f"actions {decision.action}"
        if decision.propensity is not None:
            assert decision.propensity.shape == (N_SESSIONS,), "propensity's shape"
            assert (decision.propensity > 0).all(), "a chosen action has propensity zero"
            assert (decision.propensity <= 1 + 1e-9).all(), "a propensity above one"


def _deterministic(case: Case) -> None:
    """The same generator gives the same decisions; the policy keeps no hidden randomness."""
    first, second = case.play(N_SESSIONS, N_ROUNDS), case.play(N_SESSIONS, N_ROUNDS)
    assert_same(first[0], second[0], "the same rng, another belief")
    for (_, a, _), (_, b, _) in zip(first[1], second[1], strict=True):
        assert_same(a.action, b.action, "the same rng, other actions")


def _pure(case: Case) -> None:
    """`decide` and `update` change nothing that they are given."""
    belief, _ = case.play(N_SESSIONS, N_ROUNDS)
    rng = case.rng(1)
    context, reward = case.context(N_SESSIONS, rng), case.reward(N_SESSIONS, rng)
    before = deepcopy((belief, _arrays(context), reward))
    decision = case.policy.decide(belief, context, rng)
    action = decision.action.copy()
    case.policy.update(belief, context, decision, reward)
    assert_same((belief, _arrays(context), reward), before, "an input was changed")
    assert_same(decision.action, action, "the decision was changed")


def _sessions_are_independent(case: Case) -> None:
    """Learning in a batch is learning session by session, in any order of sessions."""
    belief, history = case.play(N_SESSIONS, N_ROUNDS)
    subsets: list[NDArray[np.int64]] = [np.array([i]) for i in range(N_SESSIONS)]
    for order in [*subsets, np.arange(N_SESSIONS)[::-1]]:
        alone = case.policy.init(len(order))
        for context, decision, reward in history:
            here = context_of(context, order)
            alone = case.policy.update(alone, here, decision.take(order), reward[order])
        assert_same(alone, rows(belief, order), f"sessions {order} learn otherwise alone", 1e-9)


def _order_of_rewards(case: Case) -> None:
    """A belief does not depend on the order in which the rewards of a session arrive."""
    belief, history = case.play(N_SESSIONS, N_ROUNDS)
    shuffled = case.policy.init(N_SESSIONS)
    for context, decision, reward in reversed(history):
        shuffled = case.policy.update(shuffled, context, decision, reward)
    context = case.context(N_SESSIONS, case.rng(2))
    same_decisions(case, belief, shuffled, context, "rewards in another order lead to", 1e-9)


def _eligible(case: Case) -> None:
    """An action that is not eligible is never chosen, and has probability zero."""
    belief, _ = case.play(N_SESSIONS, N_ROUNDS)
    rng = case.rng(4)
    for trial in range(20):
        context = case.context(N_SESSIONS, rng)
        mask = rng.random((N_SESSIONS, case.n_actions)) < 0.5
        mask[np.arange(N_SESSIONS), rng.integers(case.n_actions, size=N_SESSIONS)] = True
        decision = case.policy.decide(belief, context, rng, eligible=mask)
        chosen = mask[np.arange(N_SESSIONS), decision.action]
        assert chosen.all(), f"trial {trial}: an action that was not eligible was chosen"
        _probabilities_add_up(case, belief, context, mask)
    _probabilities_add_up(case, belief, context, None)


def _probabilities_add_up(case: Case, belief: Any, context: Any, mask: BoolArray | None) -> None:
    probabilities = case.policy.action_probabilities(belief, context, case.rng(5), eligible=mask)
    if probabilities is None or probabilities.kind == "none":
        return
    np.testing.assert_allclose(
        probabilities.values.sum(axis=1), 1, atol=1e-6, err_msg="propensities"
    )
    if mask is not None:
        assert (probabilities.values[~mask] == 0).all(), (
            "an ineligible action has a positive propensity"
        )


def _states(case: Case) -> None:
    """Probabilities of states are probabilities."""
    belief, _ = case.play(N_SESSIONS, N_ROUNDS)
    states = case.policy.state_probabilities(belief)
    if states is None:
        return
    assert states.shape[0] == N_SESSIONS, f"state probabilities of shape {states.shape}"
    np.testing.assert_allclose(states.sum(axis=1), 1, atol=1e-9, err_msg="state probabilities")
    assert (states >= 0).all(), "a negative state probability"


def _frequencies(case: Case) -> None:
    """Actions are chosen as often as their propensities say, where these claim to be known."""
    belief, _ = case.play(1, 3)
    context = case.context(1, case.rng(6))
    probabilities = case.policy.action_probabilities(belief, context, case.rng(7))
    if probabilities is None or probabilities.kind not in ("exact", "quadrature"):
        return
    many = np.zeros(N_FREQUENCY, np.int64)
    beliefs, wide = rows(belief, many), context_of(context, many)
    decision = case.policy.decide(beliefs, wide, case.rng(8), propensity=False)
    counts = np.bincount(decision.action, minlength=case.n_actions)
    expected: FloatArray = probabilities.values[0] * N_FREQUENCY
    spread = np.sqrt(expected * (1 - probabilities.values[0])) + 0.5
    worst = np.abs((counts - expected) / spread).max()
    assert worst < FREQUENCY_ERRORS, (
        f"actions {counts} against expected {expected.round()}: {worst:.1f} standard errors"
    )


def _bad_input(case: Case) -> None:
    """Impossible input is refused with a ValueError, and the belief stays as it was."""
    belief, history = case.play(N_SESSIONS, N_ROUNDS)
    context, decision, reward = history[-1]
    before = deepcopy(belief)
    spoiled = np.array(reward, np.float64)
    spoiled[1] = np.nan
    attempts: dict[str, tuple[Any, Decision, Any]] = {
        "a reward of NaN": (context, decision, spoiled),
        "rewards for other sessions": (context, decision, reward[:-1]),
        "an action out of range": (
            context,
            Decision.logged(
                np.full(N_SESSIONS, case.n_actions), decision.state, decision.propensity
            ),
            reward,
        ),
        "a context of the wrong shape": (np.zeros((N_SESSIONS, 1)), decision, reward),
    }
    if isinstance(context, Visit):
        for user in (-1, np.iinfo(np.int64).max):
            stranger = Visit(np.full(N_SESSIONS, user), context.features)
            attempts[f"user {user}, who is out of range,"] = (stranger, decision, reward)
    for what, attempt in attempts.items():
        try:
            case.policy.update(belief, *attempt)
        except ValueError:
            assert_same(belief, before, f"{what} changed the belief")
        else:
            raise AssertionError(f"{what} was taken without a ValueError")


def _arrays(context: Any) -> Any:
    return (context.user, context.features) if isinstance(context, Visit) else context


def _belief_is_data(case: Case) -> None:
    """A belief survives its encoding to the last bit, if it is a tree of arrays at all."""
    if not can_encode(case.policy):
        return
    for n_rounds in (0, N_ROUNDS):
        belief, _ = case.play(N_SESSIONS, n_rounds)
        data = encode(case.policy, belief)
        restored = decode(case.policy, data)
        assert_same(restored, belief, "a restored belief differs")
        assert encode(case.policy, restored) == data, "a restored belief is encoded otherwise"


CHECKS: tuple[Callable[[Case], None], ...] = (
    _shapes,
    _deterministic,
    _pure,
    _sessions_are_independent,
    _order_of_rewards,
    _eligible,
    _states,
    _frequencies,
    _bad_input,
    _belief_is_data,
    lists,
)
