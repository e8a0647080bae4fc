"""Replay: the belief of a session is computed from its log, which alone is the truth."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from latentbandits.policies import Decision
from latentbandits.policies.decision import ANYONE
from latentbandits.policies.protocol import AnyPolicy, learns_from_any, policy_name
from latentbandits.serving.engine.actions import ActionSpace
from latentbandits.serving.engine.library import GroupPolicy
from latentbandits.serving.records import DecisionRow, RewardedDecision

FALLBACK = "default"
"""The policy of a decision that the caller's default made."""


def teaches(group: GroupPolicy, model_id: str, row: DecisionRow) -> bool:
    """Return whether a group's policy, on the model of that id, can learn from this decision.

    Policies that learn from their own decisions only must have made it, with the same options;
    version 0.1.0 logged their names without options.
    """
    if row.policy == FALLBACK:
        return False
    own = (group.text, policy_name(group.policy))
    return learns_from_any(group.policy) or (row.policy in own and row.model == model_id)


def learn(
    group: GroupPolicy,
    model_id: str,
    space: ActionSpace,
    belief: Any,
    row: DecisionRow,
    reward: float,
) -> Any:
    """Return the belief after `reward` for the decision of `row`."""
    recalled = space.recall(row) if teaches(group, model_id, row) else None
    if recalled is None:
        return belief
    decision = Decision(
        np.array([recalled.action]),
        np.array([row.state]),
        None if row.propensity is None else np.array([row.propensity]),
        "none" if row.propensity is None else "exact",
        ANYONE,
        recalled.eligible,
    )
    return group.policy.update(belief, recalled.context, decision, np.array([reward]))


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
    for row in rows:
        assert row.reward is not None
        # A model of another kind may not take every reward of its predecessor's log.
        with suppress(ValueError):
            belief = learn(group, model_id, space, belief, row.decision, row.reward.value)
    return belief


_EXACT = ("latentbandits.models.arms.", "latentbandits.models.linear.gaussian")


def is_order_free(policy: AnyPolicy, model: Any) -> bool:
    """Return whether the order of a session's rewards does not matter to its belief, to rounding.

    That holds for conjugate models, whose posteriors are exact.
    """
    exact = type(model).__module__.startswith(_EXACT)
    return exact and getattr(policy, "order_free", False) and learns_from_any(policy)
