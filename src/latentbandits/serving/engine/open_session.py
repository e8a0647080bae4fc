"""A session under way: its row, its model, its belief, and how the belief learns from the log."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from latentbandits.models.numerics.arrays import concatenate, separate
from latentbandits.policies import Decision
from latentbandits.policies.decision import ANYONE
from latentbandits.policies.protocol import AnyPolicy, after_pause, begin, gate_of
from latentbandits.serving.engine.actions import LARGE, Recalled, decode_names, visit
from latentbandits.serving.engine.models import GroupPolicy, ServedModel, stored_click_model
from latentbandits.serving.engine.values import Rewarded, RewardReport
from latentbandits.serving.errors import Conflict, Damaged, Invalid, Refused
from latentbandits.serving.records import (
    FALLBACK,
    VISITORS,
    DecisionRow,
    RewardedDecision,
    RewardKind,
    SessionRow,
    decode_observed,
    positions,
    shown_actions,
)
from latentbandits.serving.stores.protocol import Store

encode_user = msgspec.json.Encoder(order="sorted").encode
UNEXPLAINED = 20.0
"""A session counts as unexplained once its rewards are this many times likelier for a user without
a fixed state: see `likelihood_ratio`."""
PREDICTED = 16  # the reward of one decision in this many is compared with its prediction
_LEAST = 1e-300


class Live(NamedTuple):
    """A session with its belief, which has learned the first `learned` rewards.

    `served` is the session's model, or the model grown by missing actions.
    """

    row: SessionRow
    served: ServedModel
    group: GroupPolicy
    belief: Any
    probabilities: list[float]
    learned: int = 0
    learned_to: int = -1  # `applies_at` of the last learned reward
    learned_at: int | None = None  # time of the latest decision whose reward was learned
    played_new: bool = False  # some learned rewards are of actions that the model lacks
    ratio: float = 1.0  # product of `likelihood_ratio`; infinite once it reached UNEXPLAINED

    @property
    def policy(self) -> AnyPolicy:
        """The policy of the session's group."""
        return self.group.policy

    def with_belief(
        self,
        row: SessionRow,
        belief: Any,
        probabilities: list[float],
        learned: int,
        learned_to: int,
        played: Sequence[DecisionRow] = (),
    ) -> Live:
        """Return the session with this belief, which learned from the decisions `played` too."""
        new = self.served.space.new
        step = likelihood_ratio(self.group.state_prior, self.probabilities, probabilities)
        ratio = self.ratio * step
        return Live(
            row,
            self.served,
            self.group,
            belief,
            probabilities,
            learned,
            learned_to,
            latest_time(self.learned_at, played),
            self.played_new
            or (bool(new) and any(name in new for one in played for name in shown_actions(one))),
            ratio if ratio < UNEXPLAINED else math.inf,
        )

    def returned(self, time: int) -> Live:
        """Return the session at a decision of this time: its belief is moved after a pause."""
        belief = moved_to(self.group, self.belief, self.learned_at, time)
        if belief is self.belief:
            return self
        states = state_probabilities(self.policy, belief)[0]
        return self._replace(belief=belief, probabilities=states)

    def fits(self, row: SessionRow) -> bool:
        """Return whether this belief, with the rewards that came since, is that of `row`."""
        mine = self.row
        return mine.model == row.model and mine.revision == row.revision


def latest_time(learned_at: int | None, played: Iterable[DecisionRow]) -> int | None:
    """Return the time of the latest of these decisions and the ones learned before."""
    times = [one.time for one in played] + ([] if learned_at is None else [learned_at])
    return max(times, default=None)


def moved_to(group: GroupPolicy, belief: Any, learned_at: int | None, time: int) -> Any:
    """Return the belief at a decision of this time (ms): moved once if it comes after a pause."""
    gap = getattr(group.policy.model_or_none, "session_gap", None)
    if gap is None or learned_at is None or time - learned_at <= 1000 * gap:
        return belief
    return after_pause(group.policy, belief, np.ones(1, np.bool_))


def state_probabilities(policy: AnyPolicy, belief: Any, n: int = 1) -> list[list[float]]:
    """Return P(s) of `n` sessions; one certain state where the policy does not give them."""
    probabilities = policy.state_probabilities(belief)
    if probabilities is None:
        return [[1.0]] * n
    rows: list[list[float]] = probabilities.tolist()
    return rows


def likelihood_ratio(
    prior: Sequence[float], before: Sequence[float], after: Sequence[float]
) -> float:
    """Return how many times likelier new rewards are for a user without a fixed state.

    That user's state is drawn anew from the `prior` P1(s), which gives the rewards the density
    q = sum_s P1(s) p(r | s). The session's belief gives them p = sum_s P(s) p(r | s). By Bayes'
    rule p(r | s) / p is P(s) `after` the rewards over P(s) `before` them: no density is needed.

    If the model is right, the expectation of q / p is 1 whatever happened before. So the product
    over a session is a nonnegative martingale, and reaches c with probability 1 / c at most
    (Ville's inequality): of all sessions, at most one in twenty reaches UNEXPLAINED.

    An empty prior (a single state, a state that moves, no posterior over states) gives 1.

    >>> likelihood_ratio([0.5, 0.5], [0.9, 0.1], [0.1, 0.9])  # the believed state was wrong
    4.555555555555555
    """
    if not prior or len(prior) != len(before) or len(before) != len(after):
        return 1.0
    return sum(p * a / max(b, _LEAST) for p, b, a in zip(prior, before, after, strict=True))


def first_belief(policy: AnyPolicy, row: SessionRow) -> Any:
    """Return the belief of a session without rewards: the prior given its user's attributes.

    Attributes that this model's gate lacks, after a change of models, are left out.
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


def check_same_user(row: SessionRow, user: Mapping[str, Any]) -> None:
    """Refuse attributes of the user that differ from the attributes at the session's start."""
    if row.user_features != encode_user(user):
        began = row.user_features.decode() if row.user_features else "none"
        raise Conflict(
            f"session {row.name!r} began with the user_features {began}, which hold for the whole "
            "session: send the same ones, or leave them out"
        )


def too_short(row: SessionRow) -> Damaged:
    """Return the error of a session whose log has fewer or more rewards than its row says."""
    return Damaged(
        f"session {row.name!r} states {row.rewards} rewards, but its log has others: rows of it "
        "are lost or damaged (`latentbandits check` tells more)"
    )


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
    # Only the log holds the id itself; the hash here has a fixed length.
    mine = place + hashlib.blake2b(user.encode(), digest_size=16).hexdigest()
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
    """Return the decision of `row` as the model knows it; None where nothing is learned from it."""
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
    """Return the belief after the reward of the decision of `row`: `observed` of a list."""
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
    """Return a position of a list whose eligible actions are none of those above it."""
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


def replay(
    group: GroupPolicy,
    served: ServedModel,
    rows: Iterable[RewardedDecision],
    belief: Any = None,
    learned_at: int | None = None,
) -> Any:
    """Return the belief after these rewarded decisions, from the prior or from `belief` on."""
    if belief is None:
        belief = group.policy.init(1)
    for row in rows:
        assert row.reward is not None
        belief = moved_to(group, belief, learned_at, row.decision.time)
        learned_at = latest_time(learned_at, [row.decision])
        # A model of another kind may reject rewards that its predecessor accepted.
        with suppress(ValueError):
            reward = row.reward
            belief = learn(group, served, belief, row.decision, reward.value, reward.observed)
    return belief


def never() -> bool:
    """Return False: a replay that does not stop before its end."""
    return False


class Told(NamedTuple):
    """A reward that was reported of the decision of `row`, and by whom."""

    row: DecisionRow
    report: RewardReport
    value: float
    kind: RewardKind
    who: str
    observed: bytes | None = None  # the rewards of a list


@dataclass(slots=True, eq=False)
class PendingReward:
    """A reward that is to be learned; `answer` is there once the rewards are settled."""

    live: Live
    told: Told
    answer: Rewarded | Refused | None = None

    def result(self) -> Rewarded:
        """Return the answer, or raise the refusal."""
        assert self.answer is not None
        if isinstance(self.answer, Refused):
            raise self.answer
        return self.answer


class Learned(NamedTuple):
    """A reward with the belief of its session after it.

    `predicted` is the mean of the reward under the belief before it, where it was computed.
    """

    pending: PendingReward
    belief: Any
    probabilities: list[float]
    predicted: float | None = None


def learn_all(waiting: Sequence[PendingReward]) -> list[Learned]:
    """Return the beliefs after these rewards, one of each session.

    A reward that is invalid for the model, or after which no state can be believed, gets its answer
    instead.
    """
    alike: dict[Any, list[tuple[PendingReward, Recalled | None]]] = {}
    learned: list[Learned] = []
    for i, one in enumerate(waiting):
        live = one.live
        if one.told.observed is not None:  # the number of observed positions differs
            alike[i] = [(one, None)]
            continue
        recalled = recall(live.group, live.served, one.told.row)
        if recalled is None:
            learned.append(Learned(one, live.belief, live.probabilities))
        else:
            alike.setdefault(_kind(i, one, recalled), []).append((one, recalled))
    for some in alike.values():
        learned += _learn_alike(some)
    return [one for one in learned if _is_believable(one)]


def _learn_alike(some: Sequence[tuple[PendingReward, Recalled | None]]) -> list[Learned]:
    """Learn rewards of sessions of one policy, whose contexts have one shape; or of one list."""
    pending = [one for one, _ in some]
    policy = pending[0].live.group.policy
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # _is_believable checks for it
            learned = _learn_pending(policy, pending, [recalled for _, recalled in some])
            states = state_probabilities(policy, learned, len(some))
    except ValueError as error:  # one reward is invalid for the model
        if len(some) > 1:
            return [one for pair in some for one in _learn_alike([pair])]
        pending[0].answer = Invalid(f"value {pending[0].told.value}: {error}")
        return []
    predicted = [_predict(*pair) for pair in some]
    return list(map(Learned, pending, separate(learned, len(some)), states, predicted))


def _learn_pending(
    policy: AnyPolicy, pending: Sequence[PendingReward], recalled: Sequence[Recalled | None]
) -> Any:
    if pending[0].told.observed is not None:  # of a list, which is alone
        live, told = pending[0].live, pending[0].told
        return learn(live.group, live.served, live.belief, told.row, told.value, told.observed)
    return learn_together(
        policy,
        concatenate([one.live.belief for one in pending]),
        cast(Sequence[Recalled], recalled),
        [one.told.row for one in pending],
        [one.told.value for one in pending],
    )


def _predict(pending: PendingReward, recalled: Recalled | None) -> float | None:
    """Return the mean of a reward under its session's belief, for some of the decisions.

    It takes about as long as learning the reward, so one decision in PREDICTED is chosen by its
    token. A decision of a former model has no prediction of the session's model, a list none.
    """
    live, row = pending.live, pending.told.row
    if (
        recalled is None
        or row.token % PREDICTED
        or row.model != live.row.model
        or live.group.n_users is not None
    ):
        return None
    context, action = recalled.context, recalled.action
    if context is not None and live.served.model.n_actions is None:
        context, action = context[:, action : action + 1], 0
    means = live.policy.mean_rewards(live.belief, context)
    if means is None or not math.isfinite(means[0, action]):
        return None
    return float(means[0, action])


def _is_believable(learned: Learned) -> bool:
    """Return whether states have probabilities after a reward; if not, it is refused."""
    pending = learned.pending
    if math.isfinite(sum(learned.probabilities)):
        return True
    pending.answer = Invalid(
        f"value {pending.told.value} is so far from anything the model {pending.live.served.name} "
        "expects that no state could be believed after it: check its unit"
    )
    return False


def _kind(place: int, pending: PendingReward, recalled: Recalled) -> Any:
    """Return the key by which rewards are batched; `place` if one must be learned alone."""
    context, eligible = recalled.context, recalled.eligible
    group = pending.live.group
    if not group.order_free or group.n_users is not None:
        return place
    if context is not None and context.size > LARGE:
        return place
    return (
        id(group.policy),
        None if context is None else context.shape,
        None if eligible is None else eligible.shape,
        pending.told.row.propensity is None,
    )
