"""Learn beliefs from rewards: from one logged reward, from several at once, or from a whole log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from latentbandits.policies import Decision
from latentbandits.policies.decision import ANYONE
from latentbandits.policies.protocol import AnyPolicy, after_pause, begin, gate_of
from latentbandits.serving.engine.actions import Recalled, decode_names, visit
from latentbandits.serving.engine.idempotency import digest
from latentbandits.serving.engine.models import GroupPolicy, ServedModel, stored_click_model
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import (
    FALLBACK,
    VISITORS,
    DecisionRow,
    RewardedDecision,
    SessionRow,
    decode_observed,
    positions,
)
from latentbandits.serving.stores.protocol import Store


def moved_to(group: GroupPolicy, belief: Any, learned_at: int | None, time: int) -> Any:
    """Return the belief at a decision at this time (ms), moved once if a pause precedes it."""
    gap = group.session_gap
    if gap is None or learned_at is None or time - learned_at <= 1000 * gap:
        return belief
    return after_pause(group.policy, belief, np.ones(1, np.bool_))


def state_probabilities(policy: AnyPolicy, belief: Any, n: int = 1) -> list[list[float]]:
    """Return P(s) of `n` sessions; one certain state where the policy has no P(s)."""
    probabilities = policy.state_probabilities(belief)
    if probabilities is None:
        return [[1.0]] * n
    rows: list[list[float]] = probabilities.tolist()
    return rows


def first_belief(policy: AnyPolicy, row: SessionRow) -> Any:
    """Return the belief of a session without rewards: the prior given its user's attributes.

    Attributes that this model's gate does not know are left out.
    """
    user = decode_user(row.user_features)
    gate = None if user is None else gate_of(policy)
    if user is None or gate is None:
        return policy.init(1)
    known = {name: value for name, value in user.items() if name in gate.names}
    try:
        return begin(policy, [known])
    except ValueError:  # a value has another type than this gate expects
        return policy.init(1)


def decode_user(data: bytes | None) -> dict[str, Any] | None:
    """Return the attributes of a session's user, by name."""
    return None if data is None else msgspec.json.decode(data, type=dict[str, Any])


def visitor_row(store: Store, session: SessionRow, user: str | None, n_users: int) -> int:
    """Return the row of a user in the population of a session, a new one for a new user.

    Where a policy learns across users, a session is a population: all its users share one belief.
    A user's id gets the next free row at its first decision. The row is kept in the store, and
    logged with each decision, so that a replay needs nothing but the log.
    """
    if user is None:
        raise Invalid(
            f"{session.name!r} is a population, whose users share what is learned: say in `user` "
            "for whom the decision is"
        )
    place = f"{VISITORS}{session.key}/"
    mine = place + digest(user)  # only the log holds the id itself
    note = store.note(mine)
    if note is not None:
        return int(note)
    taken = int(store.note(place) or 0)
    if taken >= n_users:
        raise Invalid(
            f"the population {session.name!r} has {taken} users, and the policy was made for "
            f"n_users={n_users}: start the service with a larger number"
        )
    store.put_note(mine, str(taken).encode())
    store.put_note(place, str(taken + 1).encode())
    return taken


def teaches(group: GroupPolicy, served: ServedModel, row: DecisionRow) -> bool:
    """Return whether a group's policy, on this model, can learn from this decision.

    A policy that learns only from its own decisions must have made the decision, with the same
    options. Version 0.1.0 logged the names of policies without options.
    """
    if row.policy == FALLBACK:
        return False
    if group.policy.learns_from == "any":
        return True
    return row.policy in (group.text, group.policy.name) and row.model == served.id


def recall(group: GroupPolicy, served: ServedModel, row: DecisionRow) -> Recalled | None:
    """Return the decision of `row` in the model's terms; None where it teaches nothing."""
    recalled = served.space.recall(row) if teaches(group, served, row) else None
    if recalled is None or group.n_users is None:
        return recalled
    visitor = decode_names(row.actions).visitor
    if visitor is None:  # decided by a policy that does not learn across users
        return None
    return recalled._replace(context=visit(visitor, recalled.context))


def learn(
    group: GroupPolicy,
    served: ServedModel,
    belief: Any,
    row: DecisionRow,
    value: float,
    observed: bytes | None = None,
) -> Any:
    """Return the belief after the reward of the decision `row`; for a list, after `observed`."""
    if observed is not None:
        return _learn_list(group, served, belief, row, observed)
    recalled = recall(group, served, row)
    if recalled is None:
        return belief
    return learn_together(group.policy, belief, [recalled], [row], [value])


def _learn_list(
    group: GroupPolicy, served: ServedModel, belief: Any, row: DecisionRow, observed: bytes
) -> Any:
    """Return the belief after the observed positions of a list, as `update_list` does.

    A position whose action the model lacks teaches nothing.
    """
    assert row.click_model is not None
    policy, rewards = group.policy, decode_observed(observed)
    looked = stored_click_model(row.click_model).looked(len(rewards))
    seen: list[tuple[int, Recalled, Decision]] = []
    above: list[int] = []
    for position, one in enumerate(positions(row)):
        recalled = recall(group, served, one)
        if recalled is not None:
            if rewards[position] is not None:
                recalled = _without(policy, recalled, above)
                seen.append((position, recalled, _logged([recalled], [one])))
            above.append(recalled.action)
    for step, (position, recalled, decision) in enumerate(seen, 1):
        belief = policy.update_position(
            belief,
            recalled.context,
            decision,
            np.array([rewards[position]]),
            last=step == len(seen),
            looked=None if looked is None else looked[position : position + 1],
        )
    return belief


def _without(policy: AnyPolicy, recalled: Recalled, above: Sequence[int]) -> Recalled:
    """Return a position of a list, without the actions above it among its eligible actions."""
    if not above or recalled.action in above:  # it was recalled without the other actions
        return recalled
    n_actions = policy.checked_context(recalled.context, 1)[1]
    mask = recalled.eligible
    mask = np.ones((1, n_actions), np.bool_) if mask is None else mask.copy()
    mask[0, above] = False
    return recalled._replace(eligible=mask)


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
    context = None if first.context is None else joined([one.context for one in recalled])
    return policy.update(belief, context, _logged(recalled, rows), np.array(rewards))


def _logged(recalled: Sequence[Recalled], rows: Sequence[DecisionRow]) -> Decision:
    """Return logged decisions of several sessions as one."""
    known = rows[0].propensity is not None
    return Decision(
        np.array([one.action for one in recalled]),
        np.array([row.state for row in rows]),
        np.array([row.propensity for row in rows]) if known else None,
        "exact" if known else "none",
        ANYONE,
        None if recalled[0].eligible is None else joined([one.eligible for one in recalled]),
    )


def joined(parts: Sequence[Any]) -> Any:
    """Return the arrays of several sessions as one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def replay_rewards(
    group: GroupPolicy,
    served: ServedModel,
    rows: Iterable[RewardedDecision],
    belief: Any,
    learned_at: int | None = None,
) -> Any:
    """Return the belief after these rewarded decisions, which came after `belief`."""
    for row in rows:
        assert row.reward is not None
        time = row.decision.time
        belief = moved_to(group, belief, learned_at, time)
        learned_at = time if learned_at is None else max(learned_at, time)
        # A model of another kind may reject rewards that its predecessor accepted.
        with suppress(ValueError):
            reward = row.reward
            belief = learn(group, served, belief, row.decision, reward.value, reward.observed)
    return belief
