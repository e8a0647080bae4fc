"""Choosing: decisions that wait together are chosen by one call of their policy.

The id of a decision seeds its random numbers. So the decision is the same whether it is made alone,
in a batch, or again from the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.clicks import ClickModel
from latentbandits.models.numerics.arrays import concatenate
from latentbandits.policies import Decision
from latentbandits.policies.decision import StreamPerSession
from latentbandits.policies.lists import CountedDraws, unroll
from latentbandits.policies.protocol import Asked
from latentbandits.serving.engine.actions import LARGE, Named, PolicyInputs, encode_names, visit
from latentbandits.serving.engine.replay import joined
from latentbandits.serving.engine.sessions import Live
from latentbandits.serving.engine.values import Decided, DecisionRequest, Pending
from latentbandits.serving.records import (
    FALLBACK,
    DecisionRow,
    Shown,
    as_bytes,
    decision_id,
    floats,
    positions,
)
from latentbandits.serving.settings import PropensityMode


@dataclass(slots=True, eq=False)
class PendingDecision(Pending[Decided]):
    """A decision that was asked for."""

    live: Live
    stored: Live  # the session to be kept: before its belief moved after a pause
    request: DecisionRequest
    inputs: PolicyInputs | None  # None: the request's default is played
    order: int
    token: int
    now: int
    fingerprint: bytes | None = None
    clicks: ClickModel | None = None  # of a list; None: the request is for one action


class Stream:
    """A generator that is reseeded for every decision, ten times as fast as making a new one."""

    def __init__(self) -> None:
        self._bits = np.random.PCG64(0)
        self.generator = np.random.Generator(self._bits)

    def start(self, order: int, token: int) -> np.random.Generator:
        """Return the generator, at the beginning of the decision's numbers."""
        name = order.to_bytes(8, "big") + token.to_bytes(8, "big")
        digest = hashlib.blake2b(name, digest_size=32, person=b"latentbandits").digest()
        self._bits.state = {
            "bit_generator": "PCG64",
            "state": {
                "state": int.from_bytes(digest[:16], "big"),
                "inc": int.from_bytes(digest[16:], "big") | 1,
            },
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self.generator


class RowGenerator(StreamPerSession):
    """Draws arrays of `n` sessions, the rows of session i from generator i.

    It has the methods of `numpy.random.Generator` whose draws do not depend on each other's
    values. The length of the first axis of an array must be a multiple of n: each session has the
    same number of rows, and its numbers are the same as in a batch of one. A policy that needs
    other methods or shapes (AttributeError, ValueError) must decide one session at a time.
    """

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self._generators = generators

    def standard_normal(self, size: int | tuple[int, ...]) -> FloatArray:
        """Draw from N(0, 1)."""
        return self._drawn(np.random.Generator.standard_normal, size)

    def standard_exponential(self, size: int | tuple[int, ...]) -> FloatArray:
        """Draw from the exponential distribution of mean 1."""
        return self._drawn(np.random.Generator.standard_exponential, size)

    def random(self, size: int | tuple[int, ...]) -> FloatArray:
        """Draw from the uniform distribution on [0, 1)."""
        return self._drawn(np.random.Generator.random, size)

    def random_where(self, tied: BoolArray, size: tuple[int, ...]) -> FloatArray:
        """Draw for sessions with a tied row, the same numbers as in a batch of one; 0 elsewhere."""
        values, rows = self._empty(size)
        values[...] = 0.0
        for i in np.flatnonzero(tied.reshape(len(self._generators), -1).any(axis=1)).tolist():
            self._generators[i].random(out=values[i * rows : (i + 1) * rows])
        return values

    def _drawn(self, draw: Callable[..., Any], size: int | tuple[int, ...]) -> FloatArray:
        values, rows = self._empty(size)
        for i, generator in enumerate(self._generators):
            draw(generator, out=values[i * rows : (i + 1) * rows])
        return values

    def _empty(self, size: int | tuple[int, ...]) -> tuple[FloatArray, int]:
        shape = (size,) if isinstance(size, int) else tuple(size)
        n = len(self._generators)
        if not shape or shape[0] % n:
            raise ValueError(f"an array of shape {shape} has no equal parts for {n} sessions")
        return np.empty(shape), shape[0] // n


class Chooser:
    """Asks policies for decisions, with the probability of each chosen action.

    Args:
        mode: how propensities are found. counted: in closed form where there is one, else by
            `draws` more decisions of the same belief. policy: by the policy itself, which for mmTS
            without features is an integral, exact to 1e-6, that takes milliseconds. none: not at
            all.
        draws: number of decisions that are counted.
    """

    def __init__(self, mode: PropensityMode, draws: int) -> None:
        self._mode = mode
        self._draws = draws
        self._streams: list[Stream] = []

    def choose(self, waiting: Sequence[PendingDecision]) -> list[tuple[Shown, ...]]:
        """Return what each session is shown: one action, or those of its list from the top."""
        chosen: list[tuple[Shown, ...]] = [()] * len(waiting)
        alike: dict[Any, list[int]] = {}
        for i, one in enumerate(waiting):
            if one.inputs is None:
                chosen[i] = (_default(one.request),)
            else:
                alike.setdefault(_kind(i, one, one.inputs), []).append(i)
        for places in alike.values():
            choices = self._choose_alike([waiting[i] for i in places])
            for i, choice in zip(places, choices, strict=True):
                chosen[i] = choice
        return chosen

    def _choose_alike(self, some: Sequence[PendingDecision]) -> list[tuple[Shown, ...]]:
        """Choose for sessions of one policy, with actions of one shape."""
        one, policy = some[0], some[0].live.group.policy
        inputs = [cast(PolicyInputs, each.inputs) for each in some]
        first = inputs[0]
        rng = self._generator(some)
        beliefs = [each.live.belief for each in some]
        belief = beliefs[0] if len(some) == 1 else concatenate(beliefs)
        context = None if first.context is None else joined([each.context for each in inputs])
        if first.visitor is not None:
            context = visit(first.visitor, context)
        eligible = None if first.eligible is None else joined([each.eligible for each in inputs])

        def decide(belief: Any, eligible: Any) -> Decision:
            if self._mode == "counted":
                return policy.decide_counting(belief, context, rng, self._draws, eligible=eligible)
            exact = self._mode != "none"
            return policy.decide(belief, context, rng, eligible=eligible, propensity=exact)

        if one.clicks is None:
            return [(shown,) for shown in _split(decide(belief, eligible), inputs)]
        length = one.request.length
        assert length is not None
        exact = one.live.group.order_free or not one.clicks.unrolled
        if self._mode == "counted" and exact:  # where weighted draws are those of the later beliefs
            features = policy.checked_context(context, len(some))[0]
            drawn = policy.draw_rewards(belief, Asked(features, None, rng), self._draws + 1)
            if drawn is not None:
                decide = CountedDraws(policy, context, rng, drawn, one.clicks).decide
        lists = unroll(policy, belief, context, decide, length, one.clicks, eligible)
        by_position = [_split(decision, inputs) for decision in lists.positions]
        return list(zip(*by_position, strict=True))

    def _generator(self, some: Sequence[PendingDecision]) -> np.random.Generator:
        """Return a generator that draws each decision's numbers from the decision's stream."""
        while len(self._streams) < len(some):
            self._streams.append(Stream())
        generators = [
            stream.start(one.order, one.token)
            for stream, one in zip(self._streams, some, strict=False)
        ]
        if len(generators) == 1:
            return generators[0]
        return cast(np.random.Generator, RowGenerator(generators))


def _kind(place: int, one: PendingDecision, inputs: PolicyInputs) -> Any:
    """Return the key by which decisions are batched; `place` if the decision must be made alone."""
    policy = one.live.group.policy
    if not policy.row_wise or inputs.visitor is not None:
        return place
    if inputs.context is not None and inputs.context.size > LARGE:  # a large catalogue is copied
        return place
    shape = None if inputs.context is None else inputs.context.shape
    mask = None if inputs.eligible is None else inputs.eligible.shape
    return id(policy), shape, mask, one.request.length, one.clicks


def _default(request: DecisionRequest) -> Shown:
    """Return the default of a request, which no policy chose."""
    assert request.actions is not None
    assert request.default is not None
    return Shown(request.default, request.actions.index(request.default), 0, 1.0, "exact")


def _split(decision: Decision, inputs: Sequence[PolicyInputs]) -> list[Shown]:
    n = len(decision.action)
    chances = [None] * n if decision.propensity is None else decision.propensity.tolist()
    kind = "none" if decision.propensity is None else decision.propensity_kind
    return [
        Shown(*one.answer(action), state, chance, kind)
        for one, action, state, chance in zip(
            inputs, decision.action.tolist(), decision.state.tolist(), chances, strict=True
        )
    ]


def decision_row(one: PendingDecision, shown: Sequence[Shown]) -> DecisionRow:
    """Return the decision as the log keeps it."""
    live, request, session, inputs = one.live, one.request, one.live.row, one.inputs
    visitor = None if inputs is None else inputs.visitor
    named = Named(request.actions, request.exclude, request.user, visitor)
    top, *below = shown
    return DecisionRow(
        order=one.order,
        token=one.token,
        session=session.key,
        round=session.rounds + 1,
        time=one.now,
        model=session.model,
        group=session.group,
        policy=FALLBACK if inputs is None else live.group.text,
        action=top.action,
        index=top.index,
        n_actions=len(request.actions or ()) if inputs is None else inputs.n_actions,
        actions=encode_names(named),
        features=None if inputs is None else inputs.brought,
        state=top.state,
        propensity=top.propensity,
        propensity_kind=top.propensity_kind,
        probabilities=as_bytes(live.probabilities),
        request_id=request.request_id,
        fingerprint=one.fingerprint,
        click_model=None if one.clicks is None else one.clicks.text,
        below=msgspec.json.encode(below) if below else None,
    )


def answer_of(
    row: DecisionRow, probabilities: list[float] | None = None, *, is_new: bool = False
) -> Decided:
    """Return the answer to a decision's caller; `is_new`: the model lacks its action."""
    answer = Decided(
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
    return answer if row.click_model is None else _with_list(answer, row, row.click_model)


def _with_list(answer: Decided, row: DecisionRow, click_model: str) -> Decided:
    shown = positions(row)
    kinds = [one.propensity_kind for one in shown]
    return msgspec.structs.replace(
        answer,
        propensity_kind=next((kind for kind in kinds if kind != "exact"), "exact"),
        actions=[one.action for one in shown],
        indices=[one.index for one in shown],
        propensities=[one.propensity for one in shown],
        click_model=click_model,
    )
