"""Rewards: learned once, those that wait together in one call; corrected, late, or by default."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from latentbandits.models.trees import concatenate, separate
from latentbandits.serving.engine.actions import LARGE, Recalled
from latentbandits.serving.engine.ids import OrderSequence
from latentbandits.serving.engine.live import Live, state_probabilities
from latentbandits.serving.engine.rates import Rates
from latentbandits.serving.engine.replay import learn, learn_together, recall
from latentbandits.serving.engine.sessions import Sessions
from latentbandits.serving.engine.settings import EngineSettings
from latentbandits.serving.engine.statistics import Changes
from latentbandits.serving.engine.values import Rewarded, RewardReport
from latentbandits.serving.errors import Conflict, Invalid, NotFound, Refused
from latentbandits.serving.records import DecisionRow, RewardKind, RewardRow, RewardStatus
from latentbandits.serving.stores.protocol import Store


class Told:
    """A reward that is to be learned; `answer` is there once the rewards are settled."""

    __slots__ = ("answer", "kind", "live", "report", "row", "value", "who")

    def __init__(
        self,
        live: Live,
        row: DecisionRow,
        report: RewardReport,
        value: float,
        kind: RewardKind,
        who: str,
    ) -> None:
        self.live = live
        self.row = row
        self.report = report
        self.value = value
        self.kind: RewardKind = kind
        self.who = who
        self.answer: Rewarded | Refused | None = None

    def result(self) -> Rewarded:
        """Return the answer, or raise the refusal."""
        assert self.answer is not None
        if isinstance(self.answer, Refused):
            raise self.answer
        return self.answer


class Rewards:
    """Takes rewards, learns those that wait together, and logs them.

    `claimed` has the sessions and ids of everything that waits, and `settle_all` settles it.
    """

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        orders: OrderSequence,
        clock: Callable[[], int],
        changes: Changes,
        rates: Rates,
        settings: EngineSettings,
        claimed: set[int | str],
        settle_all: Callable[[], None],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._orders = orders
        self._clock = clock
        self._changes = changes
        self._rates = rates
        self._settings = settings
        self._claimed = claimed
        self._settle_all = settle_all
        self._waiting: list[Told] = []

    def ask(self, row: DecisionRow, report: RewardReport, who: str) -> Rewarded | Told:
        """Take a reward that is learned by `settle`, together with others that wait."""
        if row.session in self._claimed or report.event_id in self._claimed:
            self._settle_all()
        taken = self._take(row, report, "reward", who)
        if isinstance(taken, Told):
            key = taken.live.row.key
            if key in self._claimed:  # a merged session with pending work under its other name
                self._settle_all()
                taken = self._take(row, report, "reward", who)
                if not isinstance(taken, Told):
                    return taken
            self._waiting.append(taken)
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
        self._apply([taken])
        return taken.result()

    def settle(self) -> None:
        """Learn all rewards that wait."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._apply(waiting)

    def drop(self) -> None:
        """Discard waiting rewards, because their transaction was rolled back."""
        self._waiting = []

    def _take(
        self, row: DecisionRow, report: RewardReport, kind: RewardKind, who: str
    ) -> Rewarded | Told:
        """Check a reward; answer it, unless it is the first of its decision and to be learned."""
        value = report.value + 0.0  # removes negative zero, which SQLite does not store
        live = self._sessions.get(row.session)  # locks the session in a shared store
        refused = self._settings.out_of_range(value, self._sessions.reward_range(live, row))
        if refused is not None:
            raise Invalid(f"value {refused}")
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
        live = self._sessions.able(live, row)
        if current is None or current.status == "late":
            return Told(live, row, report, value, kind, who)
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

    def _apply(self, waiting: Sequence[Told]) -> None:
        """Learn the first rewards of decisions of different sessions, and answer them."""
        alike: dict[Any, list[tuple[Told, Recalled]]] = {}
        for i, told in enumerate(waiting):
            live = told.live
            recalled = recall(live.group, live.served.id, live.served.space, told.row)
            if recalled is None:
                self._keep(told, live.belief, live.probabilities)
            else:
                alike.setdefault(_kind(i, told, recalled), []).append((told, recalled))
        for some in alike.values():
            self._learn_alike(some)

    def _learn_alike(self, some: Sequence[tuple[Told, Recalled]]) -> None:
        """Learn rewards of sessions of one policy, whose contexts have one shape."""
        told = [one for one, _ in some]
        policy = told[0].live.policy
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # _keep checks for overflow
                learned = learn_together(
                    policy,
                    concatenate([one.live.belief for one in told]),
                    [recalled for _, recalled in some],
                    [one.row for one in told],
                    [one.value for one in told],
                )
                states = state_probabilities(policy, learned, len(some))
        except ValueError as error:  # one reward is invalid for the model
            if len(some) == 1:
                told[0].answer = Invalid(f"value {told[0].value}: {error}")
            else:
                for pair in some:
                    self._learn_alike([pair])
            return
        for one, belief, probabilities in zip(
            told, separate(learned, len(some)), states, strict=True
        ):
            self._keep(one, belief, probabilities)

    def _keep(self, told: Told, belief: Any, probabilities: list[float]) -> None:
        """Log a reward that was learned, and save its session."""
        live, row, value = told.live, told.row, told.value
        if not math.isfinite(sum(probabilities)):
            told.answer = Invalid(
                f"value {value} is so far from anything the model {live.served.name} expects "
                "that no state could be believed after it: check its unit"
            )
            return
        session = live.row
        at = self._orders.next(max(session.last_order, row.order))
        saved = msgspec.structs.replace(
            session,
            seen=session.seen if told.kind == "default" else self._clock(),
            last_order=at,
            rewards=session.rewards + 1,
            reward_sum=session.reward_sum + value,
        )
        learned = live.with_belief(saved, belief, probabilities, live.learned + 1, at, [row])
        self._log(row, told.report, value, told.kind, told.who, "applied", at, None)
        self._rates.count(rewards=1)
        before = (session.reward_sum, session.rewards)
        self._changes.add(
            lambda totals: totals.rewarded(
                session.group, row.policy, row.model, row.round, value, before
            )
        )
        self._sessions.save(learned)
        every = self._settings.snapshot_rounds
        if every and saved.rewards % every == 0:
            self._sessions.snapshot(learned)
        told.answer = Rewarded(told.report.decision_id, "applied")

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
            with np.errstate(over="ignore", invalid="ignore"):
                return learn(live.group, served.id, served.space, belief, row, value)
        except ValueError as error:  # the reward is invalid for the model
            raise Invalid(f"value {value}: {error}") from None


def _kind(place: int, told: Told, recalled: Recalled) -> Any:
    """Return the key by which rewards are batched; `place` if one must be learned alone."""
    context, eligible = recalled.context, recalled.eligible
    group = told.live.group
    if not group.order_free or group.n_users is not None:
        return place
    if context is not None and context.size > LARGE:
        return place
    return (
        id(told.live.policy),
        None if context is None else context.shape,
        None if eligible is None else eligible.shape,
        told.row.propensity is None,
    )
