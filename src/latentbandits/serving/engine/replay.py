"""Replay: the belief of a session is computed from its log, which alone is the truth."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from latentbandits.policies import Decision
from latentbandits.policies.decision import ANYONE
from latentbandits.policies.protocol import AnyPolicy, learns_from_any, policy_name
from latentbandits.policies.specification import PolicySpec
from latentbandits.serving.engine.actions import ActionSpace
from latentbandits.serving.records import DecisionRow, RewardedDecision

FALLBACK = "default"
"""The policy of a decision that the caller's default made."""


def teaches(policy: AnyPolicy, model_id: str, row: DecisionRow) -> bool:
    """Return whether `policy`, on the model of that id, can learn from this decision."""
    if row.policy == FALLBACK:
        return False
    if learns_from_any(policy):
        return True
    return row.model == model_id and short_name(row.policy) == policy_name(policy)


def short_name(text: str) -> str:
    """Return a logged policy without its options, as the policy names itself.

    >>> short_name("mUCB(horizon=100)"), short_name("Exploring(policy='mUCB', e=0.1)")
    ('mUCB', 'Exploring(mUCB)')
    """
    try:
        spec = PolicySpec.from_text(text)
    except ValueError:  # logged by version 0.1.0, or a name that no text can have
        return text
    inner = spec.options.get("policy")
    return f"{spec.name}({short_name(inner)})" if isinstance(inner, str) else spec.name


def learn(
    policy: AnyPolicy,
    model_id: str,
    space: ActionSpace,
    belief: Any,
    row: DecisionRow,
    reward: float,
) -> Any:
    """Return the belief after `reward` for the decision of `row`."""
    recalled = space.recall(row) if teaches(policy, model_id, row) else None
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
    return policy.update(belief, recalled.context, decision, np.array([reward]))


def replay(
    policy: AnyPolicy,
    model_id: str,
    space: ActionSpace,
    rows: Iterable[RewardedDecision],
    belief: Any = None,
) -> Any:
    """Return the belief after these rewarded decisions, from the prior or from `belief` on."""
    if belief is None:
        belief = policy.init(1)
    for row in rows:
        assert row.reward is not None
        # A model of another kind may not take every reward of its predecessor's log.
        with suppress(ValueError):
            belief = learn(policy, model_id, space, belief, row.decision, row.reward.value)
    return belief


_EXACT = ("latentbandits.models.arms.", "latentbandits.models.linear.gaussian")


def is_order_free(policy: AnyPolicy, model: Any) -> bool:
    """Return whether the order of a session's rewards does not matter to its belief, to rounding.

    That holds for conjugate models, whose posteriors are exact.
    """
    exact = type(model).__module__.startswith(_EXACT)
    return exact and getattr(policy, "order_free", False) and learns_from_any(policy)
