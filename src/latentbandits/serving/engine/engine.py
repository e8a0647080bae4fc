"""The engine: sessions, policies, models and a store, without HTTP; one call per operation."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from latentbandits.models.growing import retire
from latentbandits.serving.engine.decisions import Decisions, Waiting, answer_of
from latentbandits.serving.engine.ids import (
    OrderSequence,
    decision_id,
    milliseconds,
    parse_decision_id,
)
from latentbandits.serving.engine.library import Library, ServedModel
from latentbandits.serving.engine.live import Live, floats
from latentbandits.serving.engine.new_actions import NewAction, extended
from latentbandits.serving.engine.propensities import Propensities
from latentbandits.serving.engine.rates import Rates
from latentbandits.serving.engine.rewards import Rewards, Told
from latentbandits.serving.engine.sessions import Sessions
from latentbandits.serving.engine.settings import EngineSettings
from latentbandits.serving.engine.statistics import Changes, Statistics
from latentbandits.serving.engine.totals import STATISTICS, read_totals
from latentbandits.serving.engine.transaction import Transaction
from latentbandits.serving.engine.values import (
    Decided,
    DecisionRequest,
    Forgotten,
    Rewarded,
    RewardReport,
)
from latentbandits.serving.errors import Invalid, NotFound
from latentbandits.serving.records import (
    ActivationMode,
    ActivationRow,
    AuditRow,
    DecisionRow,
    ModelRow,
    RewardedDecision,
    SessionRow,
)
from latentbandits.serving.stores.protocol import Store

__all__ = ["Engine", "EngineSettings", "SessionDetails", "answer_of"]

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_SALT = "holdout_salt"
_STORE_ID = "store_id"
_DEFAULTS = "defaults_position"
_HISTORY = 1_000  # largest number of a session's rounds that are shown


class SessionDetails(NamedTuple):
    """A session with its belief and its latest decisions."""

    live: Live
    decisions: list[RewardedDecision]
    of_new_actions: list[bool]  # whether each chose an action that its model lacks


class Engine:
    """The decision engine, for one thread only.

    Every call is made inside `with engine.transaction():`. Its answer is valid once that block has
    ended without an error. A Refused call changed nothing.
    """

    def __init__(
        self,
        store: Store,
        settings: EngineSettings | None = None,
        clock: Callable[[], int] = milliseconds,
    ) -> None:
        self.store = store
        self.settings = settings = EngineSettings() if settings is None else settings
        settings.check()
        self.clock = clock
        self._orders = OrderSequence(store)
        self.library = Library(store, settings.policies(), settings.explore)
        self.rates = Rates()
        self.statistics = Statistics()
        self._changes = Changes()
        self._stale = True
        store.begin()
        salt = self._random_note(_SALT, 16)
        self.store_id = self._random_note(_STORE_ID, 4)
        store.commit()
        self.sessions = Sessions(
            store,
            self.library,
            self._orders,
            clock,
            self._changes,
            ttl_ms=int(settings.session_ttl * 1000),
            groups=settings.side_groups(),
            salt=salt,
            capacity=settings.cached_sessions,
            capacity_bytes=int(settings.cached_megabytes * 2**20),
        )
        self._claimed: set[int | str] = set()  # sessions and event ids of pending work
        self.decisions = Decisions(
            store,
            self.sessions,
            self.library,
            self._orders,
            clock,
            self._changes,
            self.rates,
            Propensities(settings.propensity, settings.propensity_draws),
            self._claimed,
            self.settle,
        )
        self._rewards = Rewards(
            store,
            self.sessions,
            self._orders,
            clock,
            self._changes,
            self.rates,
            settings,
            self._claimed,
            self.settle,
        )

    def _random_note(self, name: str, size: int) -> bytes:
        value = self.store.note(name)
        if value is None:
            value = secrets.token_bytes(size)
            self.store.put_note(name, value)
        return value

    # transactions

    def transaction(self) -> Transaction:
        """Return a transaction: the block is committed at its end completely, or not at all."""
        return Transaction(self)

    def begin(self) -> None:
        """Begin a transaction; read again what other processes may have changed."""
        self.store.begin()
        if self._stale:
            self.library.forget()
            self.library.refresh()
            if self.store.durable:
                self.statistics = read_totals(self.store)
            self._stale = False
        elif self.store.shared:
            self.library.refresh()

    def commit(self) -> None:
        """Settle all that waits, and commit it together with the totals."""
        self.settle()
        changed = self._changes.carry_out(self.statistics)
        if changed and self.store.durable:
            self.store.put_note(f"{STATISTICS}{self.store.node}", _encode(self.statistics))
        self.store.commit()
        self.sessions.committed()

    def rollback(self, *, certain: bool = True) -> None:
        """Undo the transaction; not `certain`: it may have been committed all the same."""
        self.store.rollback()
        self._claimed.clear()
        self.decisions.drop()
        self._rewards.drop()
        self._changes.drop()
        self._orders.forget()
        self.sessions.rolled_back(certain=certain)
        self._stale = True

    def audit(self, who: str, action: str, detail: str) -> None:
        """Add a line to the audit log."""
        self.store.add_audit(AuditRow(self._orders.next(), self.clock(), who, action, detail))

    # models

    def activate(
        self,
        row: ModelRow,
        mode: ActivationMode | None = None,
        *,
        force: bool = False,
        who: str = "",
    ) -> ServedModel:
        """Use this model from now on; Invalid, and the old one goes on, if it is no good."""
        self.settle()
        new = self.library.check(row)
        if not force:
            self.library.check_successor(new)
        self.store.put_model(msgspec.structs.replace(row, summary=_encode(new.summary())))
        floor = self.library.activations[-1].order if self.library.activations else 0
        mode = mode or self.settings.swap
        self.store.add_activation(
            ActivationRow(self._orders.next(floor), row.id, mode, self.clock(), who)
        )
        self.audit(who, "activate", f"model {row.id} ({row.name}), {mode}")
        self.library.refresh()
        return new

    def add_actions(self, actions: Sequence[NewAction], who: str = "") -> ServedModel:
        """Add actions to the catalogue of the active model, at its end.

        The model with the longer catalogue is activated. Sessions of the model go on under it:
        their rewards mean the same to it.
        """
        self.settle()
        row = self.library.changed(lambda model, catalogue: extended(model, catalogue, actions))
        served = self.activate(row, "extended", force=True, who=who)
        self._keep_tuned(row.id)
        self.audit(who, "add actions", ", ".join(action.id for action in actions))
        return served

    def retire_action(self, action: str, who: str = "") -> ServedModel:
        """Never choose an action of the active model again; NotFound if there is none."""
        self.settle()
        space = self.library.served(self.library.active.model).space
        if space.names is None or action not in space.names or action in space.retired:
            raise NotFound("action", action)
        row = self.library.changed(lambda model, catalogue: (model, retire(catalogue, [action])))
        served = self.activate(row, "extended", force=True, who=who)
        self._keep_tuned(row.id)
        self.audit(who, "retire action", action)
        return served

    def _keep_tuned(self, model_id: str) -> None:
        """Give a model with another catalogue the policy that was tuned for the one before it."""
        before = self.library.activations[-2].model
        tuned = self.library.tuned(before)
        if tuned is not None:
            self.library.keep_tuned(model_id, tuned)

    def ensure_active(self, row: ModelRow, *, force: bool = False) -> ServedModel:
        """Activate a model unless it is the active one already."""
        if self.library.activations and self.library.active.model == row.id:
            return self.library.served(row.id)
        return self.activate(row, force=force)

    def start_with(self, row: ModelRow | None, *, activate: bool = False) -> str:
        """Activate the model of the command line, unless it was before; returns why or why not.

        A model that was activated before in this store is not activated again: that would undo
        every later swap at each restart. `activate` does so all the same.
        """
        if row is None:
            return "it is the one that this store had active"
        activations = self.library.activations
        if activations and self.library.active.model == row.id:
            return "it is the one that this store had active"
        if not activate and any(one.model == row.id for one in activations):
            return (
                f"it was activated after {row.name} ({row.id}), which is on the command line: give "
                "--activate to go back to that"
            )
        self.activate(row, force=True, who="command line")
        return "--activate was given" if activate else "it is new to this store"

    # decisions

    def decide(self, request: DecisionRequest) -> Decided:
        """Choose an action for a session, and log it."""
        answer = self.ask(request)
        if isinstance(answer, Waiting):
            self.settle()
            assert answer.answer is not None
            answer = answer.answer
        return answer

    def ask(self, request: DecisionRequest) -> Decided | Waiting:
        """Ask for a decision that `settle` makes together with others that wait."""
        return self.decisions.ask(request)

    def settle(self) -> None:
        """Make the decisions and learn the rewards that wait, all of different sessions.

        The transaction's end does so too.
        """
        self._claimed.clear()
        self.decisions.settle()
        self._rewards.settle()

    def decision(self, order: int, token: int, text: str) -> DecisionRow:
        """Return the row of a decision; NotFound, with its id as `text`, where there is none."""
        row = self.store.decision(order)
        if row is None or row.token != token:
            raise NotFound("decision", text)
        return row

    # rewards

    def reward(self, report: RewardReport, who: str = "") -> Rewarded:
        """Learn the reward of a decision, once."""
        answer = self.tell(report, who)
        if isinstance(answer, Told):
            self.settle()
            return answer.result()
        return answer

    def tell(self, report: RewardReport, who: str = "") -> Rewarded | Told:
        """Take the reward of a decision, which `settle` learns together with others that wait."""
        order, token = parse_decision_id(report.decision_id)
        row = self.decision(order, token, report.decision_id)
        return self._rewards.ask(row, report, who)

    def correct(self, report: RewardReport, who: str = "") -> Rewarded:
        """Replace the reward of a decision, which its session then has learned instead."""
        self.settle()
        order, token = parse_decision_id(report.decision_id)
        row = self.decision(order, token, report.decision_id)
        answer = self._rewards.report(row, report, "correction", who)
        if answer.status != "duplicate":
            self.audit(who, "correct", f"decision {report.decision_id} to {report.value!r}")
        return answer

    # sessions

    def session(self, name: str) -> SessionDetails:
        """Return a session with its belief and its latest decisions."""
        self.settle()
        live = self._existing(name)
        rows = self.store.history(live.row.key, _HISTORY, merged=live.row.members > 0)
        new = [self.library.is_new_action(row.decision) for row in rows]
        return SessionDetails(live, rows, new)

    def delete(self, name: str, who: str = "") -> Forgotten:
        """Forget all sessions of this name, those merged with them, and all their decisions."""
        self.settle()
        rows = {row.key: row for row in self.store.generations(name)}
        if not rows:
            raise NotFound("session", name)
        waiting = list(rows.values())
        while waiting:  # all sessions of the user: follow merges in both directions
            row = waiting.pop()
            parent = None if row.merged_into is None else self.store.session(row.merged_into)
            for other in (*self.store.members(row.key), *(() if parent is None else (parent,))):
                if other.key not in rows:
                    rows[other.key] = other
                    waiting.append(other)
        for row in rows.values():
            if row.open:
                self._changes.move_share(row.model, floats(row.probabilities), [])
                self._changes.count("deleted")
            self.sessions.drop(row)
        self.store.delete_sessions(list(rows))
        self.audit(who, "forget", f"{len(rows)} sessions of one user")
        return Forgotten(name, len(rows))

    def merge(self, into: str, other: str, who: str = "") -> None:
        """Merge two sessions of one user: from now on `other` is another name of `into`."""
        self.settle()
        names = sorted((into, other))  # all processes take locks in the same order
        members = {name: self._existing(name) for name in names}
        kept, merged = members[into], members[other]
        a, b = kept.row, merged.row
        if a.key == b.key:
            return
        if kept.group.n_users is not None or merged.group.n_users is not None:
            raise Invalid(
                f"{into!r} and {other!r} are populations, each with users of its own: merging them "
                "would not merge users, and is refused"
            )
        at = self._orders.next(max(a.last_order, b.last_order))

        def change(totals: Statistics) -> None:
            totals.move_share(b.model, floats(b.probabilities), [])
            totals.group(a.group).add_session(a.reward_sum, a.rewards, sign=-1)
            totals.group(b.group).add_session(b.reward_sum, b.rewards, sign=-1)
            totals.group(a.group).add_session(a.reward_sum + b.reward_sum, a.rewards + b.rewards)
            totals.count("merged")

        self._changes.add(change)
        row = msgspec.structs.replace(
            a,
            rounds=a.rounds + b.rounds,
            rewards=a.rewards + b.rewards,
            reward_sum=a.reward_sum + b.reward_sum,
            last_order=at,
            seen=self.clock(),
            members=a.members + b.members + 1,
            revision=a.revision + 1,
            user_features=a.user_features or b.user_features,
        )
        together = self.sessions.together(kept, merged, row)
        self.store.put_session(
            msgspec.structs.replace(
                b, open=False, merged_into=a.key, merged_at=at, probabilities=b""
            )
        )
        self.store.drop_snapshot(b.key)
        self.sessions.drop(b)
        if together is None:
            self.store.put_session(row)
            self.store.drop_snapshot(a.key)
            self.sessions.drop(a)
        else:
            self.sessions.replace(together)
            if self.settings.snapshot_rounds:
                self.sessions.snapshot(together)
        self.audit(who, "merge", f"a session of {b.rounds} rounds into one of {a.rounds}")

    def _existing(self, name: str) -> Live:
        live = self.sessions.find(name)
        if live is None:
            raise NotFound("session", name)
        return live

    # time

    def sweep(self, limit: int = 500) -> int:
        """End sessions unseen for `session_ttl`, forget those unseen for `retention`, and give
        decisions without a reward the default one; returns how many there were of these.
        """
        self.settle()
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
        return len(expired) + len(gone) + self._give_defaults(now, limit)

    def _ended(self, row: SessionRow, oldest: int) -> bool:
        """Return whether a session can be deleted; a merged one stays as long as the whole."""
        if row.merged_into is None:
            return True
        parent = self.store.session(self.store.root(row.key))
        return parent is None or (not parent.open and parent.seen < oldest)

    def _give_defaults(self, now: int, limit: int) -> int:
        """Give `reward_default` to decisions without a reward for `reward_timeout`."""
        value, timeout = self.settings.reward_default, self.settings.reward_timeout
        if value is None or timeout is None:
            return 0
        kept = self.store.note(_DEFAULTS)
        begin = 0 if kept is None else int(kept)
        rows, position = self.store.unrewarded(begin, now - int(timeout * 1000), limit)
        for row in rows:
            report = RewardReport(decision_id(row.order, row.token), value)
            try:
                self._rewards.report(row, report, "default", "")
            except Invalid as refusal:
                _log.warning("decision %s got no default: %s", report.decision_id, refusal)
        if position != begin:
            self.store.put_note(_DEFAULTS, str(position).encode())
        return len(rows)
