"""The engine: sessions, policies, models and a store, without HTTP; one call per operation."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from latentbandits.policies.registry import AUTO
from latentbandits.serving.engine.actions import decode_features, decode_names
from latentbandits.serving.engine.batch import Batch
from latentbandits.serving.engine.choosing import answer_of
from latentbandits.serving.engine.idempotency import drop_ids
from latentbandits.serving.engine.models import (
    CatalogueChange,
    Library,
    ServedModel,
    extended,
    read_click_model,
)
from latentbandits.serving.engine.sessions import Live, OrderSequence, Sessions, milliseconds
from latentbandits.serving.engine.statistics import Statistics
from latentbandits.serving.engine.values import (
    Answer,
    Decided,
    DecisionRequest,
    NewAction,
    Pending,
    Rewarded,
    RewardReport,
)
from latentbandits.serving.errors import Conflict, Invalid, NotFound
from latentbandits.serving.records import (
    FALLBACK,
    ActivationMode,
    ActivationRow,
    AuditRow,
    ModelRow,
    RewardedDecision,
    SessionRow,
    decision_id,
    shown_actions,
)
from latentbandits.serving.settings import TRIAL, EngineSettings
from latentbandits.serving.stores.protocol import STORE_ID, Store

__all__ = ["Engine", "EngineSettings"]

DEFAULTS = EngineSettings()
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_SALT = "holdout_salt"
_JUDGING = b"sessions that relearning judges on"
_TOKENS = b"tokens of rewards from browsers"
_DEFAULTS = "defaults_position"
_PRUNING = 3_600_000  # milliseconds between two prunings of the models
_HISTORY = 1_000  # largest number of a session's rounds that are shown


class Engine:
    """The decision engine, for one thread only.

    Every call is made inside `with engine.transaction():`. Its answer is valid once that block has
    ended without an error. A Refused call changed nothing.
    """

    def __init__(
        self,
        store: Store,
        settings: EngineSettings = DEFAULTS,
        clock: Callable[[], int] = milliseconds,
    ) -> None:
        self.store = store
        self.settings = settings
        settings.check()
        self.clock = clock
        self._orders = OrderSequence(store)
        self.library = Library(store, settings)
        store.begin()
        store.lock_activations()  # of two processes that start at once, one draws the notes
        salt = self._random_note(_SALT, 16)
        self._random_note(STORE_ID, 4)
        self.judging_salt = hashlib.blake2b(_JUDGING, digest_size=16, key=salt).digest()
        self.token_secret = hashlib.blake2b(_TOKENS, digest_size=32, key=salt).digest()
        drop_ids(store)
        store.commit()
        self.sessions = Sessions(store, self.library, self._orders, clock, settings, salt)
        self.batch = Batch(self.sessions)
        self.transaction = self.batch.transaction
        self._next_pruning = 0

    @property
    def statistics(self) -> Statistics:
        """The totals."""
        return self.sessions.statistics

    def _random_note(self, name: str, size: int) -> bytes:
        value = self.store.note(name)
        if value is None:
            value = secrets.token_bytes(size)
            self.store.put_note(name, value)
        return value

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
        if_active: str | None = None,
        click_model: str | None = None,
    ) -> ServedModel:
        """Use this model from now on. If it cannot be served, raise Invalid and keep the old one.

        In the mode "trial" half of the new sessions use it, until the next activation. `if_active`
        is the id of a model: Conflict where another model is active. `click_model` is for lists;
        None means the setting, and "auto" the click model that the model's fit noted.
        """
        self._lock_models()
        if if_active is not None and self.library.active.model != if_active:
            active = self.library.active
            raise Conflict(
                f"the active model is {active.model}, which {active.who or 'somebody'} activated, "
                f"not {if_active}: compare the new model with it, or leave if_active out"
            )
        if mode == "trial":
            self._check_trial(row)
        new = self.library.check(row)
        if not force:
            self.library.check_successor(new)
        text = click_model or self.settings.click_model
        clicks = None if text == AUTO else self.library.check_click_model(text, new)
        self.store.put_model(msgspec.structs.replace(row, summary=_encode(new.summary())))
        floor = self.library.activations[-1].order if self.library.activations else 0
        mode = mode or self.settings.swap
        self.store.add_activation(
            ActivationRow(self._orders.next(floor), row.id, mode, self.clock(), who, clicks)
        )
        self.audit(who, "activate", f"model {row.id} ({row.name}), {mode}")
        self.library.refresh()
        self.library.keep(new)
        return new

    def _check_trial(self, row: ModelRow) -> None:
        """Refuse a trial whose sessions could not be told apart from the others."""
        if row.id == self.library.active.model:
            raise Invalid(f"{row.name} is the active model: there is nothing to try")
        if TRIAL in self.settings.shares():
            raise Conflict(
                f"a group of this service is named {TRIAL!r}, which is the group of sessions with "
                "a model on trial: give that group another name"
            )

    def add_actions(self, actions: Sequence[NewAction], who: str = "") -> ServedModel:
        """Add actions to the catalogue of the active model, at its end.

        The model with the longer catalogue is activated. Sessions of the active model continue with
        it, because their rewards mean the same to both models.
        """
        self._lock_models()
        served = self._change(lambda model, catalogue: extended(model, catalogue, actions), who)
        self.audit(who, "add actions", ", ".join(action.id for action in actions))
        return served

    def retire_action(self, action: str, who: str = "") -> ServedModel:
        """Never choose an action of the active model again; NotFound if there is none."""
        self._lock_models()
        space = self.library.served(self.library.active.model).space
        if space.names is None or action not in space.names or action in space.retired:
            raise NotFound("action", action)
        served = self._change(lambda model, catalogue: (model, catalogue.retire([action])), who)
        self.audit(who, "retire action", action)
        return served

    def _lock_models(self) -> None:
        """Let no other process change the active model until this transaction ends.

        Without the lock, two processes that add an action at once would both extend the same
        catalogue, and one of the actions would be lost.
        """
        self.batch.settle()
        self.store.lock_activations()
        self.library.refresh()

    def _change(self, change: CatalogueChange, who: str) -> ServedModel:
        """Activate the active model with another catalogue; keep its policy and click model."""
        row, active = self.library.changed(change), self.library.active
        tuned = self.library.tuned(active.model)
        if tuned is not None:
            self.library.keep_tuned(row.id, tuned)
        click_model = active.click_model or AUTO
        return self.activate(row, "extended", force=True, who=who, click_model=click_model)

    def start_with(self, row: ModelRow | None, *, activate: bool = False) -> str:
        """Activate the model of the command line, unless it was active before; return the reason.

        A model that was activated before in this store is not activated again, because each restart
        would undo later swaps; `activate=True` does it all the same.
        """
        activations = self.library.activations
        if row is None or (activations and self.library.active.model == row.id):
            return self._keep_active()
        if not activate and any(one.model == row.id and one.mode != "trial" for one in activations):
            return (
                f"it was activated after {row.name} ({row.id}), which is on the command line: give "
                "--activate to go back to that"
            )
        self.activate(row, force=True, who="command line")
        return "--activate was given" if activate else "it is new to this store"

    def _keep_active(self) -> str:
        """Keep the active model; activate it again if the settings name another click model."""
        active, text = self.library.active, self.settings.click_model
        known = "it is the one that this store had active"
        if text == AUTO or read_click_model(text, active.model).text == active.click_model:
            return known
        self.activate(self.library.row(active.model), "pinned", force=True, who="command line")
        return f"{known}, now with the click model {text}"

    # decisions

    def decide(self, request: DecisionRequest) -> Decided:
        """Choose an action for a session, and log it."""
        return self._settled(self.batch.ask(request))

    def _settled(self, answer: Answer | Pending[Answer]) -> Answer:
        if not isinstance(answer, Pending):
            return answer
        self.batch.settle()
        return answer.result()

    def recompute(self, text: str) -> Decided:
        """Make a logged decision again and return the same action, propensity and states.

        Floats agree to 1e-12: rewards of merged sessions may be learned in another order.

        Needs the policy and the propensity settings of that time.
        """
        row = self.batch.decision(text)
        session = self.store.session(row.session)
        served = self.library.served(row.model)
        group = served.of_group(row.group)
        if session is None or row.policy not in (group.text, group.policy.name, FALLBACK):
            raise Invalid(f"{text} was decided by {row.policy}; this engine has {group.text}")
        known = self.store.applied(row.session, merged=session.members > 0, before=row.order)
        features: Any = decode_features(row)
        named = decode_names(row.actions)
        actions = (named.actions or ()) if features is None else ()
        if any(served.lacks(one.decision) for one in known) or not all(
            map(served.space.has, actions)
        ):
            served = self.library.grown(row.model, before=row.order)
        then = msgspec.structs.replace(
            session, rounds=row.round - 1, model=row.model, group=row.group
        )
        live = self.sessions.restoring.replayed(then, served, known).returned(row.time)
        request = DecisionRequest(
            session.name,
            named.actions,
            features,
            default=row.action if row.policy == FALLBACK else None,
            exclude=named.exclude,
            user=named.user,
            length=None if row.click_model is None else len(shown_actions(row)),
        )
        recomputed = self.batch.recompute(live, request, row)
        is_new = any(name in served.space.new for name in shown_actions(recomputed))
        return answer_of(recomputed, live.probabilities, is_new=is_new)

    # rewards

    def reward(self, report: RewardReport, who: str = "") -> Rewarded:
        """Learn the reward of a decision, once."""
        return self._settled(self.batch.tell(report, who))

    def correct(self, report: RewardReport, who: str = "") -> Rewarded:
        """Replace the reward of a decision; the session then has learned the new one instead."""
        self.batch.settle()
        row = self.batch.decision(report.decision_id)
        answer = self.batch.report(row, report, "correction", who)
        if answer.status != "duplicate":
            self.audit(who, "correct", f"decision {report.decision_id} to {report.told()}")
        return answer

    # sessions

    def latest(self, name: str, most: int = _HISTORY) -> tuple[Live, list[int]]:
        """Return a session and the orders of its latest decisions, `most` at most."""
        self.batch.settle()
        live = self._existing(name)
        return live, self.store.latest(live.row.key, most, merged=live.row.members > 0)

    def history(self, orders: Sequence[int]) -> list[tuple[RewardedDecision, bool]]:
        """Return the decisions of these orders, and whether each chose an action that is new."""
        rows = self.store.history(orders)
        return [(row, self.library.is_new_action(row.decision)) for row in rows]

    def delete(self, name: str, who: str = "") -> int:
        """Forget all sessions of this name, the sessions merged with them, and all their decisions.

        Returns how many sessions there were.
        """
        self.batch.settle()
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
                self.statistics.left(row)
                self.statistics.count("deleted")
            self.sessions.drop(row)
        self.batch.forget(list(rows))
        self.audit(who, "forget", f"{len(rows)} sessions of one user")
        return len(rows)

    def merge(self, into: str, other: str, who: str = "") -> None:
        """Merge two sessions of one user: from now on `other` is another name of `into`."""
        self.batch.settle()
        names = sorted((into, other))  # all processes take locks in the same order
        members = {name: self._existing(name) for name in names}
        kept, merged = members[into], members[other]
        a, b = kept.row, merged.row
        if a.key == b.key:
            return
        self.sessions.merge(kept, merged)
        self.audit(who, "merge", f"a session of {b.rounds} rounds into one of {a.rounds}")

    def _existing(self, name: str) -> Live:
        live = self.sessions.find(name)
        if live is None:
            raise NotFound("session", name)
        return live

    # time

    def sweep(self, limit: int = 500) -> int:
        """End sessions unseen for `session_ttl`, forget sessions unseen for `retention`, and give
        decisions without a reward the default reward.

        Make at most `limit` changes of each kind, and return their number. Once an hour, also
        forget former catalogues that no session can have used.
        """
        self.batch.settle()
        now = self.clock()
        expired = self.sessions.end_expired(limit)
        oldest = now - int(self.settings.retention * 1000)
        old = self.store.unseen_since(oldest, limit, is_open=False)
        gone = [row.key for row in old if self._ended(row, oldest)]
        self.batch.forget(gone)
        if now >= self._next_pruning:
            self._next_pruning = now + _PRUNING
            self.library.prune(now)
        return expired + len(gone) + self._give_defaults(now, limit)

    def _ended(self, row: SessionRow, oldest: int) -> bool:
        """Return whether a session can be deleted; the parts of a merged session stay together."""
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
                self.batch.report(row, report, "default", "")
            except Invalid as refusal:
                _log.warning("decision %s got no default: %s", report.decision_id, refusal)
        if position != begin:
            self.store.put_note(_DEFAULTS, str(position).encode())
        return len(rows)
