"""Replay: compute the belief of a session from its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from latentbandits.policies import Decision
from latentbandits.policies.decision import ANYONE
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.serving.engine.actions import ActionSpace, Recalled, decode_names
from latentbandits.serving.engine.served_models import GroupPolicy
from latentbandits.serving.engine.visitors import visit
from latentbandits.serving.records import FALLBACK, DecisionRow, RewardedDecision


def teaches(group: GroupPolicy, model_id: str, row: DecisionRow) -> bool:
    """Return whether a group's policy, on the model of that id, can learn from this decision.

    Policies that learn from their own decisions only must have made it, with the same options;
    version 0.1.0 logged their names without options.
    """
    if row.policy == FALLBACK:
        return False
    names = (group.text, group.policy.name)
    return group.policy.learns_from == "any" or (row.policy in names and row.model == model_id)


def recall(
    group: GroupPolicy, model_id: str, space: ActionSpace, row: DecisionRow
) -> Recalled | None:
    """Return the decision of `row` as the model knows it; None where nothing is learned from it."""
    recalled = space.recall(row) if teaches(group, model_id, row) else None
    if recalled is None or group.n_users is None:
        return recalled
    visitor = decode_names(row.actions).visitor
    if visitor is None:  # decided by a policy that does not learn across users
        return None
    return recalled._replace(context=visit(visitor, recalled.context))


def learn(
    group: GroupPolicy,
    model_id: str,
    space: ActionSpace,
    belief: Any,
    row: DecisionRow,
    reward: float,
) -> Any:
    """Return the belief after `reward` for the decision of `row`."""
    recalled = recall(group, model_id, space, row)
    if recalled is None:
        return belief
    return learn_together(group.policy, belief, [recalled], [row], [reward])


def learn_together(
    policy: AnyPolicy,
    belief: Any,
    recalled: Sequence[Recalled],
    rows: Sequence[DecisionRow],
    rewards: Sequence[float],
) -> Any:
    """Return the belief of several sessions after a reward in each.

    The contexts and lists of eligible actions have one shape, and either all decisions have a
    propensity or none has.
    """
    first = recalled[0]
    known = rows[0].propensity is not None
    decision = Decision(
        np.array([one.action for one in recalled]),
        np.array([row.state for row in rows]),
        np.array([row.propensity for row in rows]) if known else None,
        "exact" if known else "none",
        ANYONE,
        None if first.eligible is None else joined([one.eligible for one in recalled]),
    )
    context = None if first.context is None else joined([one.context for one in recalled])
    return policy.update(belief, context, decision, np.array(rewards))


def joined(parts: Sequence[Any]) -> Any:
    """Return the arrays of several sessions as one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def replay(
    group: GroupPolicy,
    model_id: str,
    space: ActionSpace,
    rows: Iterable[RewardedDecision],
    belief: Any = None,
) -> Any:
    """Return the belief after these rewarded decisions, from the prior or from `belief` on."""
    if belief is None:
        belief = group.policy.init(1)
    return replay_until(never, group, model_id, space, rows, belief)[0]


def never() -> bool:
    """Return False: a replay that does not stop before its end."""
    return False


def replay_until(
    stop: Callable[[], bool],
    group: GroupPolicy,
    model_id: str,
    space: ActionSpace,
    rows: Iterable[RewardedDecision],
    belief: Any,
) -> tuple[Any, int]:
    """Return the belief after the first of these rewarded decisions, and how many they are.

    The replay stops where `stop` returns true, after one decision at least.
    """
    n = 0
    for row in rows:
        assert row.reward is not None
        # A model of another kind may reject rewards that its predecessor accepted.
        with suppress(ValueError):
            belief = learn(group, model_id, space, belief, row.decision, row.reward.value)
        n += 1
        if stop():
            break
    return belief, n
