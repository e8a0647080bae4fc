"""Sessions, policies, models and a store, and no HTTP: what the service does, one call each."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from latentbandits.policies.protocol import policy_name
from latentbandits.serving.engine.actions import UnknownAction
from latentbandits.serving.engine.library import Library, ServedModel
from latentbandits.serving.engine.orders import (
    Orders,
    Randomness,
    decision_id,
    milliseconds,
    new_token,
    parse_decision_id,
)
from latentbandits.serving.engine.propensities import Propensities, PropensityMode
from latentbandits.serving.engine.rates import Rates
from latentbandits.serving.engine.replay import FALLBACK, learn
from latentbandits.serving.engine.sessions import Live, Sessions, as_bytes, floats
from latentbandits.serving.engine.statistics import Statistics
from latentbandits.serving.engine.transaction import Transaction
from latentbandits.serving.engine.values import (
    Decided,
    DecisionRequest,
    Forgotten,
    Rewarded,
    RewardReport,
)
from latentbandits.serving.errors import Conflict, Invalid, NotFound
from latentbandits.serving.records import ActivationRow, DecisionRow, ModelRow, SessionRow, SwapMode
from latentbandits.serving.stores.protocol import Store

_encode = msgspec.json.Encoder().encode
_SALT = "holdout_salt"
STATISTICS = "statistics/"
_HISTORY = 1_000  # rounds of a session that are shown


class EngineSettings(msgspec.Struct, frozen=True):
    """How an engine decides and how long it remembers; times in seconds."""

    policy: str = "auto"
    holdout_policy: str = "uniform"
    holdout_share: float = 0.0
    swap: SwapMode = "pinned"
    propensity: PropensityMode = "counted"
    propensity_draws: int = 100
    session_ttl: float = 30 * 86400.0
    retention: float = 90 * 86400.0
    cached_sessions: int = 10_000


class SessionDetails(NamedTuple):
    """A session with its belief and its latest decisions."""

    live: Live
    decisions: list[DecisionRow]


class Engine:
    """Not for several threads. Every call is made inside `with engine.transaction():`, and what
    it answers holds once that block has ended without an error. A Refused call changed nothing.
    """

    def __init__(
        self,
        store: Store,
        settings: EngineSettings | None = None,
        clock: Callable[[], int] = milliseconds,
    ) -> None:
        self.store = store
        self.settings = settings = EngineSettings() if settings is None else settings
        self.clock = clock
        self._orders = Orders(store.node, clock)
        self.library = Library(store, settings.policy, settings.holdout_policy)
        self._propensities = Propensities(settings.propensity, settings.propensity_draws)
        self._randomness = Randomness()
        self.rates = Rates()
        self.statistics = Statistics()
        self._stale = True
        self._dirty = False
        store.begin()
        salt = store.note(_SALT)
        if salt is None:
            salt = secrets.token_bytes(16)
            store.put_note(_SALT, salt)
        store.commit()
        self.sessions = Sessions(
            store,
            self.library,
            self._orders,
            clock,
            ttl_ms=int(settings.session_ttl * 1000),
            holdout_share=settings.holdout_share,
            salt=salt,
            capacity=settings.cached_sessions,
        )

    def transaction(self) -> Transaction:
        """All that is done in the block is committed at its end, or none of it."""
        return Transaction(self)

    def begin(self) -> None:
        self.store.begin()
        self._orders.node = self.store.node
        if self._stale:
            self._reload()
        if self.store.shared:
            self.library.refresh()

    def commit(self) -> None:
        if self._dirty and self.store.durable:
            self.store.put_note(f"{STATISTICS}{self.store.node}", _encode(self.statistics))
        self._dirty = False
        self.store.commit()

    def rollback(self) -> None:
        self.store.rollback()
        self._stale = True

    def _reload(self) -> None:
        """Nothing in memory is to be trusted but what the store says."""
        self.sessions.clear()
        self.library.forget()
        self.library.refresh()
        if self.store.durable:
            kept = self.store.note(f"{STATISTICS}{self.store.node}")
            self.statistics = (
                Statistics() if kept is None else msgspec.json.decode(kept, type=Statistics)
            )
        self.sessions.statistics = self.statistics
        self._dirty = self._stale = False

    # models

    def activate(
        self, row: ModelRow, mode: SwapMode | None = None, *, force: bool = False
    ) -> ServedModel:
        """Use this model from now on; Invalid, and the old one goes on, if it is no good."""
        new = self.library.check(row)
        if not force:
            self.library.check_successor(new)
        self.store.put_model(row)
        floor = self.library.activations[-1].order if self.library.activations else 0
        activation = ActivationRow(self._orders.next(floor), row.id, mode or self.settings.swap)
        self.store.add_activation(activation)
        self.library.refresh()
        return new

    def ensure_active(self, row: ModelRow, *, force: bool = False) -> ServedModel:
        """`activate` unless it is the active model already."""
        if self.library.activations and self.library.active.model == row.id:
            return self.library.served(row.id)
        return self.activate(row, force=force)

    # decisions

    def decide(self, request: DecisionRequest) -> Decided:
        fingerprint = None
        if request.request_id is not None:
            fingerprint = hashlib.blake2b(_encode(request), digest_size=16).digest()
            earlier = self.store.decision_by_request(request.request_id)
            if earlier is not None:
                if earlier.fingerprint != fingerprint:
                    raise Conflict(
                        f"request_id {request.request_id!r} was used for another request: give "
                        "every new decision an id of its own"
                    )
                return answer_of(earlier)
        live = self.sessions.open(request.session)
        if request.default is not None:
            _check_default(request)
        order = self._orders.next(live.row.last_order)
        row = self.choose(live, request, order, new_token())
        if fingerprint is not None:
            row = msgspec.structs.replace(
                row, request_id=request.request_id, fingerprint=fingerprint
            )
        self.store.add_decision(row)
        session = live.row
        states = live.probabilities if len(live.probabilities) > 1 else []
        self.statistics.move_share(session.model, floats(session.probabilities), states)
        self.statistics.decided(row.group, row.policy, row.model, row.round, live.probabilities)
        if session.rounds == 0:
            self.statistics.count("started")
        self.rates.count(decisions=1)
        self._dirty = True
        decided = msgspec.structs.replace(
            session,
            rounds=row.round,
            seen=self.clock(),
            last_order=order,
            activation=self.library.active.order,
            probabilities=row.probabilities if states else b"",
        )
        self.sessions.save(live.noted(decided), new=session.rounds == 0)
        return answer_of(row, live.probabilities)

    def choose(self, live: Live, request: DecisionRequest, order: int, token: int) -> DecisionRow:
        """The decision of this order and token: the same whenever it is made again."""
        policy, session = live.policy, live.row
        chance: float | None
        state, chance, kind, name, features = 0, 1.0, "exact", policy_name(policy), None
        actions = None if request.actions is None else _encode(request.actions)
        try:
            asked = live.served.space.ask(request.actions, request.features)
        except UnknownAction:
            if request.default is None:
                raise
            assert request.actions is not None
            action, index, name = request.default, request.actions.index(request.default), FALLBACK
            n_actions = len(request.actions)
        else:
            decision, chance_, kind = self._propensities.decide(
                policy,
                live.belief,
                asked.context,
                asked.eligible,
                self._randomness.of(order, token),
            )
            chance = chance_
            state, n_actions = int(decision.state[0]), asked.n_actions
            action, index = asked.answer(int(decision.action[0]))
            if request.features is not None:
                assert asked.context is not None
                features = asked.context.tobytes()
        return DecisionRow(
            order=order,
            token=token,
            session=session.key,
            round=session.rounds + 1,
            model=session.model,
            group=session.group,
            policy=name,
            action=action,
            index=index,
            n_actions=n_actions,
            actions=actions,
            features=features,
            state=state,
            propensity=chance,
            propensity_kind=kind,
            probabilities=as_bytes(live.probabilities),
        )

    def reward(self, request: RewardReport) -> Rewarded:
        order, token = parse_decision_id(request.decision_id)
        row = self.decision(order, token, request.decision_id)
        live = self.sessions.get(row.session)
        if self.store.shared:  # the session is locked now: see what others did until then
            row = self.decision(order, token, request.decision_id)
        if row.reward is not None:
            if row.reward != request.value:
                raise Conflict(
                    f"decision {request.decision_id} was rewarded with {row.reward}, not "
                    f"{request.value}: a decision has one reward"
                )
            self.statistics.count("duplicate")
            self._dirty = True
            return Rewarded(request.decision_id, "duplicate")
        if request.event_id is not None:
            other = self.store.decision_by_event(request.event_id)
            if other is not None:
                raise Conflict(
                    f"event_id {request.event_id!r} is the reward of another decision: give "
                    "every reward an id of its own"
                )
        self._dirty = True
        if live is None:
            at = self._orders.next(order)
            self.store.set_reward(order, request.value, at, "late", request.event_id)
            self.statistics.count("late")
            return Rewarded(request.decision_id, "late")
        self._apply(live, row, request)
        return Rewarded(request.decision_id, "applied")

    def decision(self, order: int, token: int, text: str) -> DecisionRow:
        row = self.store.decision(order)
        if row is None or row.token != token:
            raise NotFound("decision", text)
        return row

    def _apply(self, live: Live, row: DecisionRow, request: RewardReport) -> None:
        served, session = live.served, live.row
        at = self._orders.next(max(session.last_order, row.order))
        told = msgspec.structs.replace(
            session,
            seen=self.clock(),
            last_order=at,
            rewards=session.rewards + 1,
            reward_sum=session.reward_sum + request.value,
        )
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # looked for below
                learned = live.learned(
                    told,
                    learn(live.policy, served.id, served.space, live.belief, row, request.value),
                )
        except ValueError as error:  # this kind of reward is not one of the model's
            raise Invalid(f"value {request.value}: {error}") from None
        if not math.isfinite(sum(learned.probabilities)):
            raise Invalid(
                f"value {request.value} is so far from anything the model {served.name} expects "
                "that no state could be believed after it: check its unit"
            )
        self.store.set_reward(row.order, request.value, at, "applied", request.event_id)
        self.rates.count(rewards=1)
        self.statistics.rewarded(
            session.group,
            row.policy,
            row.model,
            row.round,
            request.value,
            (session.reward_sum, session.rewards),
        )
        self.sessions.save(learned)

    # sessions

    def session(self, name: str) -> SessionDetails:
        live = self._found(name)
        keys = self.sessions.keys(live.row.key)
        return SessionDetails(live, self.store.decisions(keys, _HISTORY))

    def delete(self, name: str) -> Forgotten:
        """Forget all sessions of this name, those merged with them, and all their decisions."""
        rows = {row.key: row for row in self.store.generations(name)}
        if not rows:
            raise NotFound("session", name)
        waiting = list(rows.values())
        while waiting:  # one user: up to the session it was merged into, and down to all members
            row = waiting.pop()
            parent = None if row.merged_into is None else self.store.session(row.merged_into)
            for other in (*self.store.members(row.key), *(() if parent is None else (parent,))):
                if other.key not in rows:
                    rows[other.key] = other
                    waiting.append(other)
        for row in rows.values():
            if row.open:
                self.statistics.move_share(row.model, floats(row.probabilities), [])
                self.statistics.count("deleted")
            self.sessions.drop(row)
        self.store.delete_sessions(list(rows))
        self._dirty = True
        return Forgotten(name, len(rows))

    def merge(self, into: str, other: str) -> SessionDetails:
        """Two ids are one user: from now on `other` is another name of `into`."""
        names = sorted((into, other))  # locks are taken in one order by all processes
        found = {name: self._found(name) for name in names}
        kept, merged = found[into], found[other]
        if kept.row.key == merged.row.key:
            return self.session(into)
        a, b = kept.row, merged.row
        at = self._orders.next(max(a.last_order, b.last_order))
        self.statistics.move_share(b.model, floats(b.probabilities), [])
        self.statistics.group(a.group).add_session(a.reward_sum, a.rewards, sign=-1)
        self.statistics.group(b.group).add_session(b.reward_sum, b.rewards, sign=-1)
        self.statistics.group(a.group).add_session(
            a.reward_sum + b.reward_sum, a.rewards + b.rewards
        )
        self.statistics.count("merged")
        self._dirty = True
        self.store.put_session(
            msgspec.structs.replace(
                b, open=False, merged_into=a.key, merged_at=at, probabilities=b""
            )
        )
        self.store.put_session(
            msgspec.structs.replace(
                a,
                rounds=a.rounds + b.rounds,
                rewards=a.rewards + b.rewards,
                reward_sum=a.reward_sum + b.reward_sum,
                last_order=at,
                seen=self.clock(),
            )
        )
        self.sessions.drop(a)
        self.sessions.drop(b)
        return self.session(into)

    def _found(self, name: str) -> Live:
        live = self.sessions.find(name)
        if live is None:
            raise NotFound("session", name)
        return live

    def sweep(self, limit: int = 500) -> int:
        """End sessions unseen for `session_ttl`, forget those unseen for `retention`."""
        now = self.clock()
        expired = self.store.unseen_since(
            now - int(self.settings.session_ttl * 1000), limit, is_open=True
        )
        for row in expired:
            self.sessions.end(row, "expired")
        oldest = now - int(self.settings.retention * 1000)
        old = self.store.unseen_since(oldest, limit, is_open=False)
        gone = [row.key for row in old if self._ended(row, oldest)]
        self.store.delete_sessions(gone)
        self._dirty = self._dirty or bool(expired)
        return len(expired) + len(gone)

    def _ended(self, row: SessionRow, oldest: int) -> bool:
        """A merged session is part of another, and stays as long as that."""
        if row.merged_into is None:
            return True
        parent = self.store.session(row.merged_into)
        return parent is None or (not parent.open and parent.seen < oldest)


def _check_default(request: DecisionRequest) -> None:
    if request.actions is None or request.default not in request.actions:
        raise Invalid(f"default {request.default!r} must be one of `actions`")


def answer_of(row: DecisionRow, probabilities: list[float] | None = None) -> Decided:
    return Decided(
        decision_id=decision_id(row.order, row.token),
        action=row.action,
        index=row.index,
        propensity=row.propensity,
        propensity_kind=row.propensity_kind,
        state_probabilities=floats(row.probabilities) if probabilities is None else probabilities,
        model=row.model,
        policy=row.policy,
        round=row.round,
        fallback=row.policy == FALLBACK,
    )
