"""Rewards: learned once, corrected, late, or given by default."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from latentbandits.serving.engine.ids import OrderSequence
from latentbandits.serving.engine.rates import Rates
from latentbandits.serving.engine.replay import learn
from latentbandits.serving.engine.sessions import Live, Sessions
from latentbandits.serving.engine.settings import EngineSettings
from latentbandits.serving.engine.statistics import Changes
from latentbandits.serving.engine.values import Rewarded, RewardReport
from latentbandits.serving.errors import Conflict, Invalid, NotFound
from latentbandits.serving.records import DecisionRow, RewardKind, RewardRow, RewardStatus
from latentbandits.serving.stores.protocol import Store


class Rewards:
    """Applies rewards to sessions and logs them."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        orders: OrderSequence,
        clock: Callable[[], int],
        changes: Changes,
        rates: Rates,
        settings: EngineSettings,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._orders = orders
        self._clock = clock
        self._changes = changes
        self._rates = rates
        self._settings = settings

    def report(
        self, row: DecisionRow, report: RewardReport, kind: RewardKind, who: str
    ) -> Rewarded:
        """Apply a reward of this kind to the decision of `row`."""
        value = report.value + 0.0  # no negative zero: SQLite does not keep it
        refused = self._settings.out_of_range(value)
        if refused is not None:
            raise Invalid(f"value {refused}")
        live = self._sessions.get(row.session)  # locks the session in a shared store
        current = self._store.reward_of(row.order)
        if current is None and kind == "correction":
            raise NotFound("reward of decision", report.decision_id)
        if current is not None and kind == "default":
            return Rewarded(report.decision_id, "duplicate")
        replaces = current is not None and (kind == "correction" or current.kind == "default")
        if current is not None and current.value == value and current.kind != "default":
            self._changes.count("duplicate")
            return Rewarded(report.decision_id, "duplicate")
        if current is not None and not replaces:
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
        if live is None:
            self._log(row, report, value, kind, who, "late", self._orders.next(row.order), current)
            self._changes.count("late")
            return Rewarded(report.decision_id, "late")
        if current is None or current.status == "late":
            self._apply(live, row, report, value, kind, who)
        else:
            self._replace(live, row, report, value, kind, who, current)
        return Rewarded(report.decision_id, "applied")

    def _log(
        self,
        row: DecisionRow,
        report: RewardReport,
        value: float,
        kind: RewardKind,
        who: str,
        status: RewardStatus,
        order: int,
        current: RewardRow | None,
    ) -> None:
        self._store.add_reward(
            RewardRow(
                order=order,
                decision=row.order,
                session=row.session,
                applies_at=order if current is None else current.applies_at,
                value=value,
                kind=kind,
                status=status,
                time=self._clock(),
                event_id=report.event_id,
                who=who,
            )
        )

    def _apply(
        self,
        live: Live,
        row: DecisionRow,
        report: RewardReport,
        value: float,
        kind: RewardKind,
        who: str,
    ) -> None:
        """Learn the first reward of a decision."""
        session = live.row
        belief = self._learn(live, live.belief, row, value)
        at = self._orders.next(max(session.last_order, row.order))
        told = msgspec.structs.replace(
            session,
            seen=session.seen if kind == "default" else self._clock(),
            last_order=at,
            rewards=session.rewards + 1,
            reward_sum=session.reward_sum + value,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # looked for next
            learned = live.with_belief(told, belief, live.learned + 1, at)
        _check_finite(live, learned, value)
        self._log(row, report, value, kind, who, "applied", at, None)
        self._rates.count(rewards=1)
        before = (session.reward_sum, session.rewards)
        self._changes.add(
            lambda totals: totals.rewarded(
                session.group, row.policy, row.model, row.round, value, before
            )
        )
        self._sessions.save(learned)
        every = self._settings.snapshot_rounds
        if every and told.rewards % every == 0:
            self._sessions.snapshot(learned)

    def _replace(
        self,
        live: Live,
        row: DecisionRow,
        report: RewardReport,
        value: float,
        kind: RewardKind,
        who: str,
        current: RewardRow,
    ) -> None:
        """Learn another reward in place of `current`: the session is replayed with it."""
        session = live.row
        self._learn(live, live.policy.init(1), row, value)
        at = self._orders.next(max(session.last_order, row.order))
        changed = msgspec.structs.replace(
            session,
            last_order=at,
            reward_sum=session.reward_sum + value - current.value + 0.0,
            revision=session.revision + 1,
        )
        self._log(row, report, value, kind, who, "applied", at, current)
        before = (session.reward_sum, session.rewards)
        self._changes.add(
            lambda totals: totals.rewarded(
                session.group, row.policy, row.model, row.round, value, before, current.value
            )
        )
        self._store.put_session(changed)
        self._store.drop_snapshot(session.key)
        self._sessions.drop(session)

    def _learn(self, live: Live, belief: Any, row: DecisionRow, value: float) -> Any:
        served = live.served
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # looked for by _check_finite
                return learn(live.group, served.id, served.space, belief, row, value)
        except ValueError as error:  # this kind of reward is not one of the model's
            raise Invalid(f"value {value}: {error}") from None


def _check_finite(live: Live, learned: Live, value: float) -> None:
    if not math.isfinite(sum(learned.probabilities)):
        raise Invalid(
            f"value {value} is so far from anything the model {live.served.name} expects "
            "that no state could be believed after it: check its unit"
        )
