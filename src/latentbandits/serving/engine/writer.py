"""One writer thread for all requests: requests that wait together are committed together."""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.sessions import Rebuilding
from latentbandits.serving.engine.values import Pending
from latentbandits.serving.errors import (
    Busy,
    Contention,
    Damaged,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreUnavailable,
)
from latentbandits.serving.records import parse_decision_id

Answer = TypeVar("Answer")
Operation = Callable[[Engine], Answer]

_log = logging.getLogger(__name__)
MAX_BATCH = 256
_MOST_LOCKED = 256  # sessions that a transaction locks in a shared store, but for larger requests
_RETRY_SECONDS = 0.1  # longest pause before work that another process was in the way of
_ATTEMPTS = 3
_SLICE_SECONDS = 0.0005  # longest part of a replay between two looks at the requests that wait
_PAUSE_SECONDS = 0.0001  # after each part, so that the event loop gets the interpreter
_ENDS = "the service ends: nothing was done"


@dataclass(slots=True, eq=False)
class _Job:
    """An operation that waits for the writer, or is being carried out by it."""

    operation: Operation[Any]
    future: asyncio.Future[Any]
    work: int
    sessions: Sequence[str]
    decisions: Sequence[str]
    since: float = field(default_factory=time.monotonic)
    taken: bool = False
    parked: bool = False  # it waits for the replay of a long session

    def answer(self, answer: Any) -> None:
        """Give the result, or the exception, to the request, unless that was cancelled."""
        if self.future.done():
            return
        if isinstance(answer, BaseException):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class Writer:
    """Runs operations on an engine; an answer is given after the commit that holds it.

    While one batch is being committed the next one gathers, so that under load one fsync serves
    many requests and a lone request waits for no other. At most `capacity` units of work wait:
    decisions and rewards, also inside a batch, count one each. An operation that waits longer than
    `patience` seconds is refused: with Busy if it has not begun, else with OutcomeUnknown.
    """

    def __init__(self, engine: Engine, capacity: int, patience: float = 10.0) -> None:
        self.engine = engine
        self._patience = patience
        self._taking = threading.Lock()  # held while jobs are taken from the queue or abandoned
        self._unanswered: dict[int, _Job] = {}  # in order of arrival
        self._parked: dict[int, list[_Job]] = {}  # by the session that is being rebuilt
        self.waiting = 0  # this and the next are changed by the event loop only
        self.most_waiting = 0
        self._capacity = capacity
        self.store_works = True
        self._closed = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Send answers to the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self.engine.sessions.restoring.deferring = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="writer", daemon=True)
            self._thread.start()

    def run(
        self,
        operation: Operation[Answer],
        *,
        work: int = 1,
        urgent: bool = False,
        sessions: Sequence[str] = (),
        decisions: Sequence[str] = (),
    ) -> asyncio.Future[Answer]:
        """Return the answer of `operation` once it is committed.

        Raises Busy if `work` more units would exceed the capacity, unless the operation is `urgent`
        or alone. An operation declares the names of the sessions that it uses, and ids of decisions
        of further sessions: where processes share a store, all sessions of a batch are locked
        before any is used.
        """
        assert self._loop is not None
        if self._closed:
            raise Busy(_ENDS)
        if self.waiting > 0 and self.waiting + work > self._capacity and not urgent:
            raise Busy(
                f"{self.waiting} decisions and rewards are waiting already: try again shortly"
            )
        self.waiting += work
        if self.waiting > self.most_waiting:
            self.most_waiting = self.waiting
        future: asyncio.Future[Answer] = self._loop.create_future()
        job = _Job(operation, future, work, sessions, decisions)
        self._unanswered[id(job)] = job
        self._jobs.put(job)
        return future

    def oldest(self) -> float:
        """Return for how many seconds the store has kept an operation waiting."""
        begun = next((job.since for job in self._unanswered.values() if not job.parked), None)
        return 0.0 if begun is None else time.monotonic() - begun

    def give_up(self) -> None:
        """Refuse operations that waited too long; called by the event loop from time to time."""
        last = time.monotonic() - self._patience
        for job in list(self._unanswered.values()):
            if job.since > last:
                break
            if not self._withdraw(job, f"not begun within {self._patience:g} s: nothing was done"):
                self._answer_one(
                    job,
                    OutcomeUnknown(
                        f"the store has not answered for {self._patience:g} s: whether this was "
                        "done is not known; ask again with the same request id"
                    ),
                )

    def refuse_unbegun(self) -> None:
        """Refuse operations that have not begun, and all later ones; begun operations are answered.

        An operation that waits for a replay has not begun: its changes were rolled back.
        """
        self._closed = True
        for job in list(self._unanswered.values()):
            self._withdraw(job, _ENDS)

    def _withdraw(self, job: _Job, reason: str) -> bool:
        """Refuse a job if it was not begun; return whether that is so."""
        with self._taking:
            begun, job.taken = job.taken, True
        if not begun:
            self._answer_one(job, Busy(reason))
        return not begun

    async def close(self) -> None:
        """Finish what waits, then end the thread and close the store."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self.refuse_unbegun()  # those that wait for a replay
        self.engine.store.close()

    def _work(self) -> None:
        assert self._loop is not None
        more = True
        while more:
            batch, more = self._gather()
            for part in self._parts(batch):
                self._carry_out(part)
            if self._parked and more:
                key, jobs = next(iter(self._parked.items()))
                del self._parked[key]
                if self._rebuild(key, lambda: not self._jobs.empty()):
                    self._carry_out(jobs)
                else:
                    self._parked[key] = jobs  # at the end, so that sessions take turns
                    time.sleep(_PAUSE_SECONDS)

    def _gather(self) -> tuple[list[_Job], bool]:
        """Return the jobs that wait, and whether more may come; waits for one if none does."""
        batch: list[_Job] = []
        try:
            job = self._jobs.get(block=not self._parked)
            while job is not None:
                batch.append(job)
                job = self._jobs.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _parts(self, batch: list[_Job]) -> list[list[_Job]]:
        """Divide a batch into transactions; in a shared store each locks its sessions."""
        parts: list[list[_Job]] = []
        work = 0
        for job in batch:
            locked = work + job.work if self.engine.store.shared else 0
            if not parts or len(parts[-1]) == MAX_BATCH or locked > _MOST_LOCKED:
                parts.append([])
                work = 0
            parts[-1].append(job)
            work += job.work
        return parts

    def _carry_out(self, batch: list[_Job]) -> None:
        """Run and answer these jobs."""
        assert self._loop is not None
        with self._taking:
            batch = [job for job in batch if not job.taken]
            for job in batch:
                job.taken, job.parked = True, False
        answers = self._commit(batch) if batch else []
        answered = []
        for job, answer in zip(batch, answers, strict=True):
            if not isinstance(answer, Rebuilding):
                answered.append((job, answer))
            elif self._closed:
                answered.append((job, Busy(_ENDS)))
            else:
                with self._taking:
                    job.taken, job.parked = False, True
                self._parked.setdefault(answer.key, []).append(job)
        with suppress(RuntimeError):  # the loop has ended, and no request is waiting
            self._loop.call_soon_threadsafe(self._answer, answered)

    def _rebuild(self, key: int, interrupted: Callable[[], bool]) -> bool:
        """Replay a part of a long session, until a request waits; returns whether the session's
        own requests can be tried again.
        """
        try:
            with self.engine.transaction():
                return self.engine.sessions.rebuild(key, _SLICE_SECONDS, interrupted)
        except StoreUnavailable:
            return True  # the retried requests get the error

    def _commit(self, batch: list[_Job], *, again: bool = False) -> list[Any]:
        """Return an answer or an exception for each job, after one commit for all."""
        place = 0
        try:
            with self.engine.transaction():
                answers = []
                self._lock_sessions(batch)
                for place, job in enumerate(batch):  # noqa: B007 - read in a handler
                    answers.append(_attempt(job.operation, self.engine))
            self.store_works = True
            answers = list(map(_settled, answers))
        except Rebuilding as rebuilding:  # nothing was changed: commit the others
            others = [*batch[:place], *batch[place + 1 :]]
            answers = self._commit(others) if others else []
            return [*answers[:place], rebuilding, *answers[place:]]
        except (Contention, Damaged) as error:
            if isinstance(error, Contention) and not again:
                time.sleep(random.uniform(0, _RETRY_SECONDS))  # processes must not retry in step
                return self._commit(batch, again=True)
            if len(batch) == 1:
                return [error]
            return list(map(self._alone, batch))
        except StoreUnavailable as error:
            if self.store_works:
                _log.warning("%s", error)
            self.store_works = False
            return [error] * len(batch)
        except Exception as error:
            _log.exception("a batch of %d failed", len(batch))
            if len(batch) == 1:
                return [error]
            return list(map(self._alone, batch))
        return answers

    def _lock_sessions(self, batch: list[_Job]) -> None:
        """Lock the sessions that the batch declares, if there are several."""
        if not self.engine.store.shared:
            return
        names = [name for job in batch for name in job.sessions]
        orders = [order for job in batch for order in _orders(job.decisions)]
        if len(names) + len(orders) > 1:
            self.engine.store.lock_sessions(names, orders)

    def _alone(self, job: _Job) -> Any:
        for _ in range(_ATTEMPTS):
            (answer,) = self._commit([job])
            if not isinstance(answer, Contention):
                break
        return answer

    def _answer(self, answered: list[tuple[_Job, Any]]) -> None:
        for job, answer in answered:
            self._answer_one(job, answer)

    def _answer_one(self, job: _Job, answer: Any) -> None:
        if self._unanswered.pop(id(job), None) is not None:  # else it was abandoned
            self.waiting -= job.work
            job.answer(answer)


def _orders(decisions: Sequence[str]) -> Iterator[int]:
    """Yield the orders of these decisions; skip ids that no decision can have."""
    for text in decisions:
        with suppress(NotFound):
            yield parse_decision_id(text)[0]


def _settled(answer: Any) -> Any:
    """Return the answer, or a list of answers; the batch has answered pending requests."""
    if isinstance(answer, Pending):
        return answer.answer
    return list(map(_settled, answer)) if isinstance(answer, list) else answer


def _attempt(operation: Operation[Any], engine: Engine) -> Any:
    """Return the answer, or the refusal; a refusal leaves the rest of the batch as it is."""
    try:
        return operation(engine)
    except StoreUnavailable:
        raise
    except Refused as refusal:
        return refusal
