"""Records of relearning: one JSON file a run, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from latentbandits.replacing import replace_file

Decision = Literal["activate", "keep", "nothing new", "pool", "roll back", "try"]
Outcome = Literal["planned", "done", "dry run", "overridden", "failed"]


@dataclass(frozen=True)
class Run:
    """One run of the loop: when, from which data, what was estimated, decided and done.

    Attributes:
        number: counts the runs of a work folder, from 1.
        started: UTC, ISO 8601.
        decision, outcome: what was decided, and whether it was carried out. "pool": a start model
            gets the rewards of all users into its prior. "try": half of the new sessions begin
            with the candidate. "overridden": another model was
            activated meanwhile, by hand. "planned": the run has not ended.
        why: one sentence.
        current, candidate: ids of the two models.
        current_path: the folder of the current model, by its name on the service.
        candidate_path: the candidate's folder.
        active_since: when the current model was activated, in seconds by the service's clock.
        options: settings of the run, apart from its folders.
        data: counts of decisions, sessions, held-out sessions, unrewarded decisions.
        verdict: the numbers of the comparison.
        groups: differences of the live groups since the last activation.
        warnings: warnings of the fit.
        request_id: makes the activation idempotent.
        activated: when the candidate was activated, UTC; empty where it was not.
        cursor: where the log ended.
        seconds: how long it took.
    """

    number: int
    started: str
    decision: Decision = "keep"
    outcome: Outcome = "planned"
    why: str = ""
    current: str = ""
    candidate: str = ""
    current_path: str = ""
    candidate_path: str = ""
    active_since: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    request_id: str = ""
    activated: str = ""
    cursor: str = ""
    seconds: float = 0.0


class Records:
    """The runs of a work folder, in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "runs"
        self._folder.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Run]:
        """Return every run that was recorded; files that are no records are passed over."""
        return list(read_runs(self._folder))

    def write(self, run: Run) -> None:
        """Write a run's record; a crash leaves the old one, or the new one, never half of it."""
        path = self._folder / f"{run.number:06d}.json"
        text = json.dumps(asdict(run), indent=2, allow_nan=False)
        replace_file(path, f"{text}\n".encode())

    def latest(self, run: Run) -> Run:
        """Return the last written record of this run."""
        return next((r for r in reversed(self.all()) if r.number == run.number), run)

    def finish(self, run: Run, **changes: Any) -> Run:
        """Record the outcome of a run."""
        done = replace(run, **changes)
        self.write(done)
        return done


def read_runs(folder: Path) -> Iterator[Run]:
    """Yield the records in `folder` that can be read, the oldest first."""
    for path in sorted(folder.glob("*.json")):
        try:
            yield Run(**json.loads(path.read_bytes()))
        except (OSError, TypeError, ValueError):
            continue


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the work folder's lock; ValueError where another process has it.

    The lock is the operating system's: it goes when the process does. The file holds the number of
    the process.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        file.seek(0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"{folder} is in use by another relearn process (number {file.read().strip()}): "
                "wait until it ends, or stop it. One relearn process is enough for a service; a "
                "second --work is for another service"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
