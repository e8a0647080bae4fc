"""A batch of requests: what is claimed, decided, learned and committed together."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from latentbandits.models.numerics.arrays import concatenate, separate
from latentbandits.serving.engine.actions import LARGE, PolicyInputs, Recalled, UnknownAction
from latentbandits.serving.engine.choosing import Chooser, PendingDecision, answer_of, decision_row
from latentbandits.serving.engine.lists import click_model_for, observed_rewards
from latentbandits.serving.engine.models import ServedModel, stored_click_model
from latentbandits.serving.engine.replay import (
    learn,
    learn_together,
    recall,
    state_probabilities,
    visitor_row,
)
from latentbandits.serving.engine.sessions import UNEXPLAINED, Live, Sessions
from latentbandits.serving.engine.statistics import STATISTICS, Rates, encode_totals, read_totals
from latentbandits.serving.engine.values import (
    Decided,
    DecisionRequest,
    Pending,
    Rewarded,
    RewardReport,
)
from latentbandits.serving.errors import Conflict, Invalid, NotFound
from latentbandits.serving.records import (
    DecisionRow,
    RewardKind,
    RewardRow,
    RewardStatus,
    decode_observed,
    parse_decision_id,
    rewards_by_position,
    shown_actions,
)

_RECENT = 2_000  # decisions that are kept in memory
_RECENT_BYTES = 4_000  # largest features of a decision that is kept in memory
PREDICTED = 16  # the reward of one decision in this many is compared with its prediction
_encode = msgspec.json.Encoder().encode


class ReportedReward(NamedTuple):
    """A reward that was reported for the decision `row`, and who reported it."""

    row: DecisionRow
    report: RewardReport
    value: float
    kind: RewardKind
    who: str
    observed: bytes | None = None  # the rewards of a list


@dataclass(slots=True, eq=False)
class PendingReward(Pending[Rewarded]):
    """A reward that waits to be learned.

    `recalled` is the decision in the model's terms; None for a list, and where nothing is learned.
    """

    live: Live
    reported: ReportedReward
    recalled: Recalled | None = None


class LearnedReward(NamedTuple):
    """A reward with the belief of its session after it.

    `predicted` is the mean of the reward under the belief before it, where it was computed.
    """

    pending: PendingReward
    belief: Any
    probabilities: list[float]
    predicted: float | None = None


class Batch:
    """A transaction: pending decisions and rewards of different sessions, committed together.

    `settle` makes and learns what is pending, and so does the end of the transaction. The batch
    claims the sessions, request ids and event ids of everything pending. An operation that needs a
    claimed session or id settles the batch first.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._library = sessions.library
        self._orders = sessions.orders
        self._clock = sessions.clock
        self._settings = sessions.settings
        self.chooser = Chooser(self._settings.propensity, self._settings.propensity_draws)
        self._claimed: set[int | str] = set()
        self._decisions: list[PendingDecision] = []
        self._rewards: list[PendingReward] = []
        # Most rewards come soon after their decision, so decisions are kept with their rewards for
        # a while: only where no other process writes to the store.
        self._recent: OrderedDict[int, tuple[DecisionRow, RewardRow | None]] = OrderedDict()
        self.rates = Rates()
        self._stale = True  # whether the totals and activations must be read from the store
        self._kept = (b"", 0, 0)  # the totals of the last commit, its decisions and rewards

    # transactions

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block at its end, or none."""
        try:
            self.begin()
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def begin(self) -> None:
        """Begin a transaction; reread whatever other processes may have changed."""
        self._store.begin()
        if self._stale:
            self._library.forget()
            self._library.refresh()
            self._sessions.statistics = read_totals(self._store)
            self._kept = self._totals()
            self._stale = False
        elif self._store.shared:
            self._library.refresh()

    def commit(self) -> None:
        """Settle all that waits, and commit it together with the totals."""
        self.settle()
        totals, decisions, rewards = self._totals()
        before, decided, rewarded = self._kept
        if totals != before:
            self._store.put_note(f"{STATISTICS}{self._store.node}", totals)
        self._store.commit()
        self._sessions.committed()
        self._kept = totals, decisions, rewards
        if decisions > decided or rewards > rewarded:
            self.rates.count(decisions - decided, rewards - rewarded)

    def _totals(self) -> tuple[bytes, int, int]:
        """Return the totals as the store keeps them, and the decisions and rewards in them."""
        statistics = self._sessions.statistics
        counts, totals = statistics.counts, encode_totals(statistics)
        return totals, counts.get("decisions", 0), counts.get("applied", 0)

    def rollback(self) -> None:
        """Undo the transaction. If the store failed, it may have been committed all the same."""
        self._store.rollback()
        self._claimed.clear()
        self._decisions = []
        self._rewards = []
        self._recent.clear()
        self._orders.forget()
        self._sessions.rolled_back()
        self._stale = True

    def settle(self) -> None:
        """Make the decisions and learn the rewards that wait."""
        self._claimed.clear()
        if self._decisions:
            self._decide()
        if self._rewards:
            rewards, self._rewards = self._rewards, []
            self._keep(learn_all(rewards))

    def forget(self, sessions: Sequence[int]) -> None:
        """Delete sessions and their log."""
        self._recent.clear()
        self._store.delete_sessions(sessions)

    # decisions

    def ask(self, request: DecisionRequest) -> Decided | PendingDecision:
        """Queue a request for `settle`, or answer it if it was answered before."""
        fingerprint = None
        if request.request_id is not None:
            fingerprint = _fingerprint(request)
            if request.request_id in self._claimed:
                self.settle()
            earlier = self._store.decision_by_request(request.request_id)
            if earlier is not None:
                if earlier.fingerprint != fingerprint:
                    raise Conflict(
                        f"request_id {request.request_id!r} was used for another request: give "
                        "every new decision an id of its own"
                    )
                return answer_of(earlier, is_new=self._library.is_new_action(earlier))
        if request.session in self._claimed:
            self.settle()
        live = self._sessions.open(request.session, request.user_features)
        if live.row.key in self._claimed:  # under another name
            self.settle()
            live = self._sessions.open(request.session, request.user_features)
        order = self._orders.next(live.row.last_order)
        if request.default is not None:
            _check_default(request)
        stored, inputs = self._fitted(live, request)
        now = self._clock()
        live = stored.returned(now)
        inputs = self._of_user(live, request, inputs)
        clicks = None
        if request.length is not None:
            clicks = click_model_for(self._library, live, request.length, inputs)
        token = secrets.randbits(63)  # keeps the id and the draws from being guessed
        waiting = PendingDecision(
            live, stored, request, inputs, order, token, now, fingerprint, clicks
        )
        self._decisions.append(waiting)
        self._claimed.update((request.session, live.row.key))
        if request.request_id is not None:
            self._claimed.add(request.request_id)
        return waiting

    def _fitted(self, live: Live, request: DecisionRequest) -> tuple[Live, PolicyInputs | None]:
        """Return the session on the model that answers a request, and the inputs of its policy.

        It is the session's model, grown by missing actions if the request names such an action or
        the session has learned from one.
        """
        model, served = live.row.model, live.served
        if live.played_new:
            served = self._library.grown(model)
        elif served.is_grown:
            served = self._library.served(model)
        try:
            inputs: PolicyInputs | None = served.space.ask(request)
        except UnknownAction:
            served = self._library.grown(model)
            inputs = _ask_or_default(served, request)
        if live.served is not served:
            live = self._sessions.restoring.on(live, served)
        return live, inputs

    def _of_user(
        self, live: Live, request: DecisionRequest, inputs: PolicyInputs | None
    ) -> PolicyInputs | None:
        """Add the row of the user who asks, where the policy learns across users."""
        if request.user is not None and not live.served.has_population:
            raise Invalid(
                f"{live.group.text} does not learn across users: leave `user` out, and give every "
                "user a session"
            )
        if inputs is None or live.group.n_users is None:
            return inputs
        visitor = visitor_row(self._store, live.row, request.user, live.group.n_users)
        return inputs._replace(visitor=visitor)

    def _decide(self) -> None:
        """Choose and log all decisions that wait."""
        waiting, self._decisions = self._decisions, []
        rows = list(map(decision_row, waiting, self.chooser.choose(waiting)))
        self._store.add_decisions(rows)
        self._remember(rows)
        lives, new = [], set()
        for one, row in zip(waiting, rows, strict=True):
            live, session = one.live, one.live.row
            self._sessions.statistics.session_decided(session, row, live.probabilities)
            if session.rounds == 0:
                new.add(session.key)
            saved = msgspec.structs.replace(
                session,
                rounds=row.round,
                seen=one.now,
                last_order=one.order,
                activation=self._library.order,
                probabilities=row.probabilities if len(live.probabilities) > 1 else b"",
            )
            lives.append(one.stored._replace(row=saved))
        self._sessions.save(lives, new=new)
        for one, row in zip(waiting, rows, strict=True):
            added = one.live.served.space.new
            is_new = bool(added) and any(name in added for name in shown_actions(row))
            one.answer = answer_of(row, one.live.probabilities, is_new=is_new)

    def recompute(self, live: Live, request: DecisionRequest, row: DecisionRow) -> DecisionRow:
        """Make the decision of `row` again, with its order and token, from this session."""
        inputs = self._of_user(live, request, _ask_or_default(live.served, request))
        clicks = None if row.click_model is None else stored_click_model(row.click_model)
        one = PendingDecision(
            live, live, request, inputs, row.order, row.token, row.time, clicks=clicks
        )
        return decision_row(one, self.chooser.choose([one])[0])

    # rewards

    def decision(self, text: str) -> DecisionRow:
        """Return the decision of an id; NotFound where there is none."""
        order, token = parse_decision_id(text)
        recent = self._recent.get(order)
        row = self._store.decision(order) if recent is None else recent[0]
        if row is None or row.token != token:
            raise NotFound("decision", text)
        return row

    def _remember(self, rows: Sequence[DecisionRow]) -> None:
        """Keep decisions that were just made, unless their features are large."""
        if self._store.shared:
            return
        for row in rows:
            if row.features is None or len(row.features) <= _RECENT_BYTES:
                self._recent[row.order] = (row, None)
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def _log_rewards(self, rows: Sequence[RewardRow]) -> None:
        self._store.add_rewards(rows)
        for row in rows:
            recent = self._recent.get(row.decision)
            if recent is not None:
                self._recent[row.decision] = (recent[0], row)

    def tell(self, report: RewardReport, who: str = "") -> Rewarded | PendingReward:
        """Queue a reward for `settle`, or answer it at once."""
        row = self.decision(report.decision_id)
        if row.session in self._claimed or report.event_id in self._claimed:
            self.settle()
        taken = self._take(row, report, "reward", who)
        if isinstance(taken, PendingReward):
            key = taken.live.row.key
            if key in self._claimed:  # a merged session with pending work under its other name
                self.settle()
                taken = self._take(row, report, "reward", who)
                if not isinstance(taken, PendingReward):
                    return taken
            self._rewards.append(taken)
            self._claimed.update((row.session, key, taken.live.row.name))
            if report.event_id is not None:
                self._claimed.add(report.event_id)
        return taken

    def report(
        self, row: DecisionRow, report: RewardReport, kind: RewardKind, who: str
    ) -> Rewarded:
        """Apply a reward of this kind to the decision of `row`, at once."""
        taken = self._take(row, report, kind, who)
        if isinstance(taken, Rewarded):
            return taken
        self._keep(learn_all([taken]))
        return taken.result()

    def _take(
        self, row: DecisionRow, report: RewardReport, kind: RewardKind, who: str
    ) -> Rewarded | PendingReward:
        """Check a reward; answer it, unless it is its decision's first and must be learned."""
        live = self._sessions.get(row.session)  # locks the session in a shared store
        recent = self._recent.get(row.order)
        current = self._store.reward_of(row.order) if recent is None else recent[1]
        observed = None
        if row.click_model is None:
            value = _single_value(row, report) + 0.0  # removes negative zero: SQLite stores none
            self._check_range(value, live, row)
        else:
            by_position = observed_rewards(row, report, kind, current)
            seen = [reward for reward in by_position if reward is not None]
            for reward in seen:
                self._check_range(reward, live, row)
            value, observed = sum(seen), _encode(by_position)
        if current is None and kind == "correction":
            raise NotFound("reward of decision", report.decision_id)
        if current is not None and kind == "default":
            return Rewarded(report.decision_id, "duplicate")
        if (
            current is not None
            and current.value == value
            and current.observed == observed
            and current.kind != "default"
        ):
            self._sessions.statistics.count("duplicate")
            return Rewarded(report.decision_id, "duplicate")
        replaces = current is not None and (kind == "correction" or current.kind == "default")
        if current is not None and not replaces and observed is None:
            raise Conflict(
                f"decision {report.decision_id} was rewarded with {current.value}, not "
                f"{value}: a decision has one reward (PUT corrects it)"
            )
        if report.event_id is not None:
            other = self._store.reward_by_event(report.event_id)
            if other is not None:
                raise Conflict(
                    f"event_id {report.event_id!r} is the reward of another decision: give "
                    "every reward an id of its own"
                )
        reported = ReportedReward(row, report, value, kind, who, observed)
        if live is None:
            at = self._orders.next(row.order)
            self._log_rewards([_reward_row(reported, "late", at, self._clock(), current)])
            self._sessions.statistics.count("late")
            return Rewarded(report.decision_id, "late")
        live = live.returned(row.time)
        recalled = None if observed is not None else recall(live.group, live.served, row)
        if recalled is None:  # perhaps the model lacks the action
            able = self._sessions.able(live, row)
            if able is not live:
                live = able.returned(row.time)
                recalled = None if observed is not None else recall(live.group, live.served, row)
        if current is None or current.status == "late":
            return PendingReward(live, reported, recalled)
        self._replace(live, reported, current)
        return Rewarded(report.decision_id, "applied")

    def _check_range(self, value: float, live: Live | None, row: DecisionRow) -> None:
        served = self._library.served(row.model) if live is None else live.served
        if not served.rewards.low <= value <= served.rewards.high:
            refused = self._settings.out_of_range(value, served.rewards)
            if refused is not None:
                raise Invalid(f"value {refused}")

    def _keep(self, learned: Sequence[LearnedReward]) -> None:
        """Log rewards that were learned, save their sessions, and answer them."""
        logged: list[RewardRow] = []
        lives: list[Live] = []
        statistics = self._sessions.statistics
        for pending, belief, probabilities, predicted in learned:
            live, reported, row = pending.live, pending.reported, pending.reported.row
            session = live.row
            at = self._orders.next(max(session.last_order, row.order))
            now = self._clock()
            saved = msgspec.structs.replace(
                session,
                seen=session.seen if reported.kind == "default" else now,
                last_order=at,
                rewards=session.rewards + 1,
                reward_sum=session.reward_sum + reported.value,
            )
            after = live.with_belief(saved, belief, probabilities, live.learned + 1, at, [row])
            lives.append(after)
            if after.ratio >= UNEXPLAINED > live.ratio:
                statistics.count("unexplained")
            logged.append(_reward_row(reported, "applied", at, now, None))
            statistics.rewarded(session, row, reported.value, predicted=predicted)
            if reported.observed is not None:
                statistics.clicked(decode_observed(reported.observed))
            pending.answer = Rewarded(reported.report.decision_id, "applied")
        if not logged:
            return
        self._log_rewards(logged)
        self._sessions.save(lives)
        every = self._settings.snapshot_rounds
        for live in lives:
            if every and live.row.rewards % every == 0:
                self._sessions.restoring.snapshot(live)

    def _replace(self, live: Live, reported: ReportedReward, current: RewardRow) -> None:
        """Learn another reward in place of `current`: the session is replayed with it."""
        row, value = reported.row, reported.value
        session, prior = live.row, live.group.policy.init(1)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                learn(live.group, live.served, prior, row, value, reported.observed)
        except ValueError as error:  # the reward is invalid for the model
            raise Invalid(f"value {value}: {error}") from None
        at = self._orders.next(max(session.last_order, row.order))
        changed = msgspec.structs.replace(
            session,
            last_order=at,
            reward_sum=session.reward_sum + value - current.value + 0.0,
            revision=session.revision + 1,
        )
        self._log_rewards([_reward_row(reported, "applied", at, self._clock(), current)])
        self._sessions.statistics.rewarded(session, row, value, current.value)
        if reported.observed is not None:
            before = rewards_by_position(row, current)
            self._sessions.statistics.clicked(decode_observed(reported.observed), before)
        self._store.put_session(changed)
        self._store.drop_snapshot(session.key)
        self._sessions.drop(session)


def _reward_row(
    reported: ReportedReward, status: RewardStatus, order: int, now: int, current: RewardRow | None
) -> RewardRow:
    """Return a reward as a row of the log; `current` is the row that the reward replaces."""
    return RewardRow(
        order=order,
        decision=reported.row.order,
        session=reported.row.session,
        applies_at=order if current is None else current.applies_at,
        value=reported.value,
        kind=reported.kind,
        status=status,
        time=now,
        event_id=reported.report.event_id,
        who=reported.who,
        observed=reported.observed,
    )


def _single_value(row: DecisionRow, report: RewardReport) -> float:
    """Return the reward of a decision of one action."""
    if (
        isinstance(report.value, msgspec.UnsetType)
        or report.values is not None
        or report.clicked is not msgspec.UNSET
    ):
        raise Invalid(
            f"decision {report.decision_id} is the one action {row.action!r}, not a list: send its "
            "reward as `value`, and nothing else"
        )
    return report.value


def _ask_or_default(served: ServedModel, request: DecisionRequest) -> PolicyInputs | None:
    """Return the inputs of the policy; None where no model ever had one of the actions, and a
    default is played.
    """
    try:
        return served.space.ask(request)
    except UnknownAction:
        if request.default is None:
            raise
        return None


def _fingerprint(request: DecisionRequest) -> bytes:
    """Return a hash of a request. Without newer fields it equals the hash of version 0.1.0."""
    fields = msgspec.structs.asdict(request)
    fields.pop("reward_token", None)  # HTTP's own: it asks for nothing of the decision
    for newer in ("exclude", "user_features", "user", "length"):
        if fields[newer] is None:
            del fields[newer]
    return hashlib.blake2b(_encode(fields), digest_size=16).digest()


def _check_default(request: DecisionRequest) -> None:
    if request.actions is None or request.default not in request.actions:
        raise Invalid(f"default {request.default!r} must be one of `actions`")


def learn_all(waiting: Sequence[PendingReward]) -> list[LearnedReward]:
    """Return the beliefs after these rewards, one of each session.

    A reward that is invalid for the model, or after which no state can be believed, gets its answer
    instead.
    """
    alike: dict[Any, list[PendingReward]] = {}
    learned: list[LearnedReward] = []
    for i, one in enumerate(waiting):
        if one.reported.observed is not None:  # the number of observed positions differs
            alike[i] = [one]
        elif one.recalled is None:
            learned.append(LearnedReward(one, one.live.belief, one.live.probabilities))
        else:
            alike.setdefault(_kind(i, one, one.recalled), []).append(one)
    for some in alike.values():
        learned += _learn_alike(some)
    return [one for one in learned if _is_believable(one)]


def _learn_alike(some: Sequence[PendingReward]) -> list[LearnedReward]:
    """Learn the rewards of sessions with one policy and contexts of one shape, or of one list."""
    live, reported = some[0].live, some[0].reported
    policy = live.group.policy
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # _is_believable checks for it
            if reported.observed is not None:
                row, value = reported.row, reported.value
                belief = learn(live.group, live.served, live.belief, row, value, reported.observed)
            else:
                beliefs = [one.live.belief for one in some]
                belief = learn_together(
                    policy,
                    beliefs[0] if len(some) == 1 else concatenate(beliefs),
                    [cast(Recalled, one.recalled) for one in some],
                    [one.reported.row for one in some],
                    [one.reported.value for one in some],
                )
            states = state_probabilities(policy, belief, len(some))
    except ValueError as error:  # one reward is invalid for the model
        if len(some) > 1:
            return [one for each in some for one in _learn_alike([each])]
        some[0].answer = Invalid(f"value {reported.value}: {error}")
        return []
    after = [belief] if len(some) == 1 else separate(belief, len(some))
    return list(map(LearnedReward, some, after, states, map(_predict, some)))


def _predict(pending: PendingReward) -> float | None:
    """Return the mean of a reward under its session's belief, for some of the decisions.

    It takes about as long as learning the reward, so one decision in PREDICTED is chosen by its
    token. Lists, and decisions that a former model made, have no prediction.
    """
    live, row, recalled = pending.live, pending.reported.row, pending.recalled
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


def _is_believable(learned: LearnedReward) -> bool:
    """Return whether states have probabilities after a reward; if not, it is refused."""
    pending = learned.pending
    if math.isfinite(sum(learned.probabilities)):
        return True
    value, name = pending.reported.value, pending.live.served.name
    pending.answer = Invalid(
        f"value {value} is so far from anything the model {name} expects that no state could be "
        "believed after it: check its unit"
    )
    return False


def _kind(place: int, pending: PendingReward, recalled: Recalled) -> Any:
    """Return the key by which rewards are batched; `place` if the reward must be learned alone."""
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
        pending.reported.row.propensity is None,
    )
