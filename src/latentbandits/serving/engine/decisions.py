"""Decisions: those that wait together are chosen by one call of their policy, and logged.

Each decision draws its random numbers from a stream of its own, given by its id. So it is the same
whether it is made alone, together with others, or again from the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from latentbandits.models.trees import concatenate
from latentbandits.policies import Decision
from latentbandits.serving.engine.actions import (
    LARGE,
    Named,
    PolicyInputs,
    UnknownAction,
    encode_names,
)
from latentbandits.serving.engine.ids import OrderSequence, decision_id, new_token
from latentbandits.serving.engine.open_session import Live, as_bytes, floats
from latentbandits.serving.engine.propensities import Propensities
from latentbandits.serving.engine.rates import Rates
from latentbandits.serving.engine.replay import joined
from latentbandits.serving.engine.row_generator import Streams
from latentbandits.serving.engine.served_models import Library, ServedModel
from latentbandits.serving.engine.sessions import Sessions
from latentbandits.serving.engine.statistics import Changes, Statistics
from latentbandits.serving.engine.values import Decided, DecisionRequest
from latentbandits.serving.engine.visitors import Visitors, visit
from latentbandits.serving.errors import Conflict, Invalid
from latentbandits.serving.records import FALLBACK, DecisionRow, SessionRow
from latentbandits.serving.stores.protocol import Store

_encode = msgspec.json.Encoder().encode


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """The choice of the policy for one session."""

    action: int
    state: int
    propensity: float | None
    kind: str


class Waiting:
    """A decision that was asked for; `answer` is there once the decisions are settled."""

    __slots__ = ("answer", "fingerprint", "inputs", "live", "now", "order", "request", "token")

    def __init__(
        self,
        live: Live,
        request: DecisionRequest,
        inputs: PolicyInputs | None,
        order: int,
        token: int,
        now: int,
        fingerprint: bytes | None = None,
    ) -> None:
        self.live = live
        self.request = request
        self.inputs = inputs  # None: the request's default is played
        self.order = order
        self.token = token
        self.now = now
        self.fingerprint = fingerprint
        self.answer: Decided | None = None


class Decisions:
    """Takes requests, and settles those that wait: chooses, logs and answers them.

    `claimed` has the sessions and ids of everything that waits, and `settle_all` settles it.
    """

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        library: Library,
        orders: OrderSequence,
        clock: Callable[[], int],
        changes: Changes,
        rates: Rates,
        propensities: Propensities,
        claimed: set[int | str],
        settle_all: Callable[[], None],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._library = library
        self._orders = orders
        self._clock = clock
        self._changes = changes
        self._rates = rates
        self._propensities = propensities
        self._visitors = Visitors(store)
        self._streams = Streams()
        self._waiting: list[Waiting] = []
        self._claimed = claimed
        self._settle_all = settle_all

    def ask(self, request: DecisionRequest) -> Decided | Waiting:
        """Take a request that is to be settled; or answer it, if it was answered before."""
        fingerprint = None
        if request.request_id is not None:
            fingerprint = _fingerprint(request)
            if request.request_id in self._claimed:
                self._settle_all()
            earlier = self._store.decision_by_request(request.request_id)
            if earlier is not None:
                if earlier.fingerprint != fingerprint:
                    raise Conflict(
                        f"request_id {request.request_id!r} was used for another request: give "
                        "every new decision an id of its own"
                    )
                return answer_of(earlier, is_new=self._library.is_new_action(earlier))
        if request.session in self._claimed:
            self._settle_all()
        live = self._sessions.open(request.session, request.user_features)
        if live.row.key in self._claimed:  # under another name
            self._settle_all()
            live = self._sessions.open(request.session, request.user_features)
        if request.default is not None:
            _check_default(request)
        live, inputs = self._fitted(live, request)
        inputs = self._of_user(live, request, inputs)
        order = self._orders.next(live.row.last_order)
        waiting = Waiting(live, request, inputs, order, new_token(), self._clock(), fingerprint)
        self._waiting.append(waiting)
        self._claimed.update((request.session, live.row.key))
        if request.request_id is not None:
            self._claimed.add(request.request_id)
        return waiting

    def _fitted(self, live: Live, request: DecisionRequest) -> tuple[Live, PolicyInputs | None]:
        """Return the session on the model that answers a request, and the inputs of its policy.

        That is the session's own model, unless the request names an action that it lacks, or the
        session has learned from one: then it is that model grown by such actions.
        """
        model = live.row.model
        served = self._library.grown(model) if live.played_new else self._library.served(model)
        try:
            inputs: PolicyInputs | None = _ask(served, request)
        except UnknownAction:
            served = self._library.grown(model)
            inputs = _ask_or_default(served, request)
        return self._sessions.beliefs.on(live, served), inputs

    def settle(self) -> None:
        """Choose and log all decisions that wait."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        rows = list(map(decision_row, waiting, self.choose(waiting)))
        self._store.add_decisions(rows)
        new = {one.live.row.key for one in waiting if one.live.row.rounds == 0}
        self._sessions.save(list(map(self._decided, waiting, rows)), new=new)
        self._rates.count(decisions=len(rows))
        for one, row in zip(waiting, rows, strict=True):
            is_new = row.action in one.live.served.space.new
            one.answer = answer_of(row, one.live.probabilities, is_new=is_new)

    def drop(self) -> None:
        """Discard waiting decisions, because their transaction was rolled back."""
        self._waiting = []

    def choose(self, waiting: Sequence[Waiting]) -> list[Chosen | None]:
        """Return the choice of each policy; None where a default is played."""
        chosen: list[Chosen | None] = [None] * len(waiting)
        alike: dict[Any, list[int]] = {}
        for i, one in enumerate(waiting):
            if one.inputs is not None:
                alike.setdefault(_kind(i, one.live, one.inputs), []).append(i)
        for places in alike.values():
            some = [waiting[i] for i in places]
            choices = self._one(some[0]) if len(some) == 1 else self._together(some)
            for i, choice in zip(places, choices, strict=True):
                chosen[i] = choice
        return chosen

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
        session, n_users = live.row, live.group.n_users
        return inputs._replace(
            visitor=self._visitors.row(session.key, session.name, request.user, n_users)
        )

    def again(
        self, live: Live, request: DecisionRequest, order: int, token: int, now: int
    ) -> DecisionRow:
        """Return the decision that this session, order and token gave, and log nothing."""
        inputs = self._of_user(live, request, _ask_or_default(live.served, request))
        one = Waiting(live, request, inputs, order, token, now)
        return decision_row(one, self.choose([one])[0])

    def _one(self, one: Waiting) -> list[Chosen]:
        inputs = one.inputs
        assert inputs is not None
        rng = self._streams.one(one.order, one.token)
        live, context = one.live, inputs.context
        if inputs.visitor is not None:
            context = visit(inputs.visitor, context)
        return _split(
            self._propensities.decide(live.policy, live.belief, context, inputs.eligible, rng)
        )

    def _together(self, some: Sequence[Waiting]) -> list[Chosen]:
        """Choose for several sessions of one policy, with actions of one shape."""
        inputs = [cast(PolicyInputs, one.inputs) for one in some]
        belief = concatenate([one.live.belief for one in some])
        context = None if inputs[0].context is None else joined([one.context for one in inputs])
        eligible = None if inputs[0].eligible is None else joined([one.eligible for one in inputs])
        rows = self._streams.rows([(one.order, one.token) for one in some])
        rng = cast(np.random.Generator, rows)
        policy = some[0].live.policy
        return _split(self._propensities.decide(policy, belief, context, eligible, rng))

    def _decided(self, one: Waiting, row: DecisionRow) -> Live:
        """Count a decision, and return its session after it."""
        live, session = one.live, one.live.row
        states = live.probabilities if len(live.probabilities) > 1 else []
        self._count(session, row, live.probabilities, states)
        return live.with_row(
            msgspec.structs.replace(
                session,
                rounds=row.round,
                seen=self._sessions.seen(session, one.now),
                last_order=one.order,
                activation=self._library.active.order,
                probabilities=row.probabilities if states else b"",
            )
        )

    def _count(
        self, session: SessionRow, row: DecisionRow, probabilities: list[float], states: list[float]
    ) -> None:
        def change(totals: Statistics) -> None:
            totals.move_share(session.model, floats(session.probabilities), states)
            totals.decided(row.group, row.policy, row.model, row.round, probabilities)
            if session.rounds == 0:
                totals.count("started")

        self._changes.add(change)


def _kind(place: int, live: Live, inputs: PolicyInputs) -> Any:
    """Return the key by which decisions are batched; `place` if one must be made alone."""
    if not live.policy.row_wise:
        return place
    if (
        inputs.context is not None and inputs.context.size > LARGE
    ):  # avoids copying a large catalogue
        return place
    shape = None if inputs.context is None else inputs.context.shape
    mask = None if inputs.eligible is None else inputs.eligible.shape
    return id(live.policy), shape, mask


def _split(decision: Decision) -> list[Chosen]:
    n = len(decision.action)
    chances = [None] * n if decision.propensity is None else decision.propensity.tolist()
    kind = "none" if decision.propensity is None else decision.propensity_kind
    return [
        Chosen(action, state, chance, kind)
        for action, state, chance in zip(
            decision.action.tolist(), decision.state.tolist(), chances, strict=True
        )
    ]


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


def decision_row(one: Waiting, chosen: Chosen | None) -> DecisionRow:
    """Return the decision as the log keeps it; None: the request's default is played."""
    live, request, session = one.live, one.request, one.live.row
    features = visitor = None
    if chosen is None:
        assert request.actions is not None
        assert request.default is not None
        action, index = request.default, request.actions.index(request.default)
        n_actions, name = len(request.actions), FALLBACK
        chosen = Chosen(index, 0, 1.0, "exact")
    else:
        inputs = one.inputs
        assert inputs is not None
        action, index = inputs.answer(chosen.action)
        n_actions, name, visitor = inputs.n_actions, live.group.text, inputs.visitor
        features = inputs.brought
    return DecisionRow(
        order=one.order,
        token=one.token,
        session=session.key,
        round=session.rounds + 1,
        time=one.now,
        model=session.model,
        group=session.group,
        policy=name,
        action=action,
        index=index,
        n_actions=n_actions,
        actions=encode_names(Named(request.actions, request.exclude, request.user, visitor)),
        features=features,
        state=chosen.state,
        propensity=chosen.propensity,
        propensity_kind=chosen.kind,
        probabilities=as_bytes(live.probabilities),
        request_id=request.request_id,
        fingerprint=one.fingerprint,
    )


def _fingerprint(request: DecisionRequest) -> bytes:
    """Return a hash of a request: that of version 0.1.0 where it has none of the newer fields."""
    fields = msgspec.structs.asdict(request)
    for newer in ("exclude", "user_features", "user"):
        if fields[newer] is None:
            del fields[newer]
    return hashlib.blake2b(_encode(fields), digest_size=16).digest()


def _check_default(request: DecisionRequest) -> None:
    if request.actions is None or request.default not in request.actions:
        raise Invalid(f"default {request.default!r} must be one of `actions`")


def answer_of(
    row: DecisionRow, probabilities: list[float] | None = None, *, is_new: bool = False
) -> Decided:
    """Return a decision as its caller is told of it; `is_new`: the model lacks its action."""
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
        fallback=is_new or row.policy == FALLBACK,
    )
