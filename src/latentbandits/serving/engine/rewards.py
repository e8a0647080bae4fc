"""Rewards: learned once, those that wait together in one call; corrected, late, or by default."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from latentbandits.models.trees import concatenate, separate
from latentbandits.serving.engine.actions import LARGE, Recalled
from latentbandits.serving.engine.ids import OrderSequence
from latentbandits.serving.engine.open_session import Live, state_probabilities
from latentbandits.serving.engine.rates import Rates
from latentbandits.serving.engine.replay import learn, learn_together, recall
from latentbandits.serving.engine.sessions import Sessions
from latentbandits.serving.engine.settings import EngineSettings
from latentbandits.serving.engine.statistics import Changes
from latentbandits.serving.engine.values import Rewarded, RewardReport
from latentbandits.serving.errors import Conflict, Invalid, NotFound, Refused
from latentbandits.serving.records import (
    DecisionRow,
    RewardKind,
    RewardRow,
    RewardStatus,
    SessionRow,
)
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


class Learned(NamedTuple):
    """A reward with the belief of its session after it."""

    told: Told
    belief: Any
    probabilities: list[float]


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
            at = self._orders.next(row.order)
            logged = self._row(row, report, value, kind, who, "late", at, current)
            self._store.add_rewards([logged])
            self._changes.count("late")
            return Rewarded(report.decision_id, "late")
        live = self._sessions.beliefs.able(live, row)
        if current is None or current.status == "late":
            return Told(live, row, report, value, kind, who)
        self._replace(live, row, report, value, kind, who, current)
        return Rewarded(report.decision_id, "applied")

    def _row(
        self,
        row: DecisionRow,
        report: RewardReport,
        value: float,
        kind: RewardKind,
        who: str,
        status: RewardStatus,
        order: int,
        current: RewardRow | None,
    ) -> RewardRow:
        """Return a reward as the log keeps it; `current` is the one that it replaces."""
        return RewardRow(
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

    def _apply(self, waiting: Sequence[Told]) -> None:
        """Learn the first rewards of decisions of different sessions, and answer them."""
        alike: dict[Any, list[tuple[Told, Recalled]]] = {}
        learned: list[Learned] = []
        for i, told in enumerate(waiting):
            live = told.live
            recalled = recall(live.group, live.served.id, live.served.space, told.row)
            if recalled is None:
                learned.append(Learned(told, live.belief, live.probabilities))
            else:
                alike.setdefault(_kind(i, told, recalled), []).append((told, recalled))
        for some in alike.values():
            learned += self._learn_alike(some)
        self._keep([one for one in learned if _is_believable(one)])

    def _learn_alike(self, some: Sequence[tuple[Told, Recalled]]) -> list[Learned]:
        """Learn rewards of sessions of one policy, whose contexts have one shape.

        A reward that is invalid for the model gets its answer here.
        """
        told = [one for one, _ in some]
        policy = told[0].live.policy
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # _is_believable checks for it
                learned = learn_together(
                    policy,
                    concatenate([one.live.belief for one in told]),
                    [recalled for _, recalled in some],
                    [one.row for one in told],
                    [one.value for one in told],
                )
                states = state_probabilities(policy, learned, len(some))
        except ValueError as error:  # one reward is invalid for the model
            if len(some) > 1:
                return [one for pair in some for one in self._learn_alike([pair])]
            told[0].answer = Invalid(f"value {told[0].value}: {error}")
            return []
        return list(map(Learned, told, separate(learned, len(some)), states))

    def _keep(self, learned: Sequence[Learned]) -> None:
        """Log rewards that were learned, save their sessions, and answer them."""
        logged: list[RewardRow] = []
        lives: list[Live] = []
        for told, belief, probabilities in learned:
            live, row = told.live, told.row
            session = live.row
            at = self._orders.next(max(session.last_order, row.order))
            now = session.seen if told.kind == "default" else self._clock()
            saved = msgspec.structs.replace(
                session,
                seen=self._sessions.seen(session, now),
                last_order=at,
                rewards=session.rewards + 1,
                reward_sum=session.reward_sum + told.value,
            )
            lives.append(
                live.with_belief(saved, belief, probabilities, live.learned + 1, at, [row])
            )
            logged.append(
                self._row(row, told.report, told.value, told.kind, told.who, "applied", at, None)
            )
            self._count(session, row, told.value)
            told.answer = Rewarded(told.report.decision_id, "applied")
        if not logged:
            return
        self._store.add_rewards(logged)
        self._sessions.save(lives)
        self._rates.count(rewards=len(logged))
        every = self._settings.snapshot_rounds
        for live in lives:
            if every and live.row.rewards % every == 0:
                self._sessions.beliefs.snapshot(live)

    def _count(
        self, session: SessionRow, row: DecisionRow, value: float, replaced: float | None = None
    ) -> None:
        before = (session.reward_sum, session.rewards)
        self._changes.add(
            lambda totals: totals.rewarded(
                session.group, row.policy, row.model, row.round, value, before, replaced
            )
        )

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
        logged = self._row(row, report, value, kind, who, "applied", at, current)
        self._store.add_rewards([logged])
        self._count(session, row, value, current.value)
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


def _is_believable(learned: Learned) -> bool:
    """Return whether states have probabilities after a reward; if not, it is refused."""
    told = learned.told
    if math.isfinite(sum(learned.probabilities)):
        return True
    told.answer = Invalid(
        f"value {told.value} is so far from anything the model {told.live.served.name} expects "
        "that no state could be believed after it: check its unit"
    )
    return False


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
