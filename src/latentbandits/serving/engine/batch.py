"""A batch of requests: what is claimed, decided, learned and committed together."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

import msgspec
import numpy as np

from latentbandits.serving.engine.actions import PolicyInputs, UnknownAction
from latentbandits.serving.engine.choosing import Chooser, PendingDecision, answer_of, decision_row
from latentbandits.serving.engine.lists import (
    click_model_for,
    encode_observed,
    observed_rewards,
    single_value,
)
from latentbandits.serving.engine.models import ServedModel, stored_click_model
from latentbandits.serving.engine.open_session import (
    UNEXPLAINED,
    Learned,
    Live,
    PendingReward,
    Told,
    learn,
    learn_all,
    visitor_row,
)
from latentbandits.serving.engine.sessions import Sessions
from latentbandits.serving.engine.values import (
    Decided,
    DecisionRequest,
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
    rewards_by_position,
    shown_actions,
)

_encode = msgspec.json.Encoder().encode


class Batch:
    """Pending decisions and rewards of different sessions; `settle` makes and learns them.

    The batch claims the sessions, request ids and event ids of all that is pending. An operation
    that needs one of them settles the batch first.
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

    def settle(self) -> None:
        """Make the decisions and learn the rewards that wait."""
        self._claimed.clear()
        if self._decisions:
            self._decide()
        if self._rewards:
            rewards, self._rewards = self._rewards, []
            self._keep(learn_all(rewards))

    def drop(self) -> None:
        """Discard all that waits, because the transaction was rolled back."""
        self._claimed.clear()
        self._decisions = []
        self._rewards = []

    # decisions

    def ask(self, request: DecisionRequest) -> Decided | PendingDecision:
        """Take a request that is to be settled; or answer it, if it was answered before."""
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
        token = _new_token()
        waiting = PendingDecision(
            live, request, inputs, order, token, now, fingerprint, clicks, stored
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
            inputs: PolicyInputs | None = _ask(served, request)
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
            kept = live if one.stored is None else one.stored
            lives.append(kept._replace(row=saved))
        self._sessions.save(lives, new=new)
        for one, row in zip(waiting, rows, strict=True):
            added = one.live.served.space.new
            is_new = bool(added) and any(name in added for name in shown_actions(row))
            one.answer = answer_of(row, one.live.probabilities, is_new=is_new)

    def again(self, live: Live, request: DecisionRequest, row: DecisionRow) -> DecisionRow:
        """Return the decision that this session made with the order and token of `row` again."""
        inputs = self._of_user(live, request, _ask_or_default(live.served, request))
        clicks = None if row.click_model is None else stored_click_model(row.click_model)
        one = PendingDecision(live, request, inputs, row.order, row.token, row.time, None, clicks)
        return decision_row(one, self.chooser.choose([one])[0])

    # rewards

    def tell(self, row: DecisionRow, report: RewardReport, who: str) -> Rewarded | PendingReward:
        """Take a reward of the decision `row` that is to be settled; or answer it at once."""
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
        """Check a reward; answer it, unless it is the first of its decision and to be learned."""
        live = self._sessions.get(row.session)  # locks the session in a shared store
        current = self._store.reward_of(row.order)
        observed = None
        if row.click_model is None:
            value = single_value(row, report) + 0.0  # removes negative zero: SQLite stores none
            self._check_range(value, live, row)
        else:
            by_position = observed_rewards(row, report, kind, current)
            seen = [reward for reward in by_position if reward is not None]
            for reward in seen:
                self._check_range(reward, live, row)
            value, observed = sum(seen), encode_observed(by_position)
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
        told = Told(row, report, value, kind, who, observed)
        if live is None:
            at = self._orders.next(row.order)
            self._store.add_rewards([self._row(told, "late", at, current)])
            self._sessions.statistics.count("late")
            return Rewarded(report.decision_id, "late")
        live = self._sessions.able(live, row)
        pending = PendingReward(live.returned(row.time), told)
        if current is None or current.status == "late":
            return pending
        self._replace(pending, current)
        return Rewarded(report.decision_id, "applied")

    def _check_range(self, value: float, live: Live | None, row: DecisionRow) -> None:
        served = self._library.served(row.model) if live is None else live.served
        refused = self._settings.out_of_range(value, served.rewards)
        if refused is not None:
            raise Invalid(f"value {refused}")

    def _row(
        self, told: Told, status: RewardStatus, order: int, current: RewardRow | None
    ) -> RewardRow:
        """Return a reward as a row of the log; `current` is the row that the reward replaces."""
        return RewardRow(
            order=order,
            decision=told.row.order,
            session=told.row.session,
            applies_at=order if current is None else current.applies_at,
            value=told.value,
            kind=told.kind,
            status=status,
            time=self._clock(),
            event_id=told.report.event_id,
            who=told.who,
            observed=told.observed,
        )

    def _keep(self, learned: Sequence[Learned]) -> None:
        """Log rewards that were learned, save their sessions, and answer them."""
        logged: list[RewardRow] = []
        lives: list[Live] = []
        statistics = self._sessions.statistics
        for pending, belief, probabilities, predicted in learned:
            live, told, row = pending.live, pending.told, pending.told.row
            session = live.row
            at = self._orders.next(max(session.last_order, row.order))
            now = session.seen if told.kind == "default" else self._clock()
            saved = msgspec.structs.replace(
                session,
                seen=now,
                last_order=at,
                rewards=session.rewards + 1,
                reward_sum=session.reward_sum + told.value,
            )
            after = live.with_belief(saved, belief, probabilities, live.learned + 1, at, [row])
            lives.append(after)
            if after.ratio >= UNEXPLAINED > live.ratio:
                statistics.count("unexplained")
            logged.append(self._row(told, "applied", at, None))
            statistics.rewarded(session, row, told.value, predicted=predicted)
            if told.observed is not None:
                statistics.clicked(decode_observed(told.observed))
            pending.answer = Rewarded(told.report.decision_id, "applied")
        if not logged:
            return
        self._store.add_rewards(logged)
        self._sessions.save(lives)
        every = self._settings.snapshot_rounds
        for live in lives:
            if every and live.row.rewards % every == 0:
                self._sessions.restoring.snapshot(live)

    def _replace(self, pending: PendingReward, current: RewardRow) -> None:
        """Learn another reward in place of `current`: the session is replayed with it."""
        live, told = pending.live, pending.told
        row, value = told.row, told.value
        session, prior = live.row, live.group.policy.init(1)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                learn(live.group, live.served, prior, row, value, told.observed)
        except ValueError as error:  # the reward is invalid for the model
            raise Invalid(f"value {value}: {error}") from None
        at = self._orders.next(max(session.last_order, row.order))
        changed = msgspec.structs.replace(
            session,
            last_order=at,
            reward_sum=session.reward_sum + value - current.value + 0.0,
            revision=session.revision + 1,
        )
        self._store.add_rewards([self._row(told, "applied", at, current)])
        self._sessions.statistics.rewarded(session, row, value, current.value)
        if told.observed is not None:
            before = rewards_by_position(row, current)
            self._sessions.statistics.clicked(decode_observed(told.observed), before)
        self._store.put_session(changed)
        self._store.drop_snapshot(session.key)
        self._sessions.drop(session)


def _new_token() -> int:
    """Return 63 random bits: they keep a decision's id and its draws from being guessed."""
    return secrets.randbits(63)


def _ask(served: ServedModel, request: DecisionRequest) -> PolicyInputs:
    return served.space.ask(request.actions, request.features, request.exclude)


def _ask_or_default(served: ServedModel, request: DecisionRequest) -> PolicyInputs | None:
    """Return the inputs of the policy; None where no model ever had one of the actions, and a
    default is played.
    """
    try:
        return _ask(served, request)
    except UnknownAction:
        if request.default is None:
            raise
        return None


def _fingerprint(request: DecisionRequest) -> bytes:
    """Return a hash of a request: that of version 0.1.0 where it has none of the newer fields."""
    fields = msgspec.structs.asdict(request)
    fields.pop("reward_token", None)  # HTTP's own: it asks for nothing of the decision
    for newer in ("exclude", "user_features", "user", "length"):
        if fields[newer] is None:
            del fields[newer]
    return hashlib.blake2b(_encode(fields), digest_size=16).digest()


def _check_default(request: DecisionRequest) -> None:
    if request.actions is None or request.default not in request.actions:
        raise Invalid(f"default {request.default!r} must be one of `actions`")
