"""The folder of a command's results: checked before the work, filled at once after it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from latentbandits.models import registry as models
from latentbandits.policies import registry as policies
from latentbandits.replacing import adding_files
from latentbandits.report.files import results_of, write
from latentbandits.report.report import Report, Table
from latentbandits.report.terminal import print_json, say, show, show_tables


class OutputFolder:
    """A folder that exists and can be written, or ValueError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise ValueError(f"cannot write to --out {self.path}: {reason}") from None

    def keep(self, report: Report, *, json: bool = False) -> None:
        """Write all files of a report here, or none of them, and show its tables.

        With `json`, results.json is printed, and the tables go to standard error.
        """
        with adding_files(self.path) as scratch:
            write(report, scratch)
        show(report, self.path, stderr=json)
        if json:
            print_json(results_of(report))


# A progress bar on a terminal; a line every few seconds elsewhere.

_SECONDS = 5.0  # between printed lines if there is no terminal


class Progress:
    """Counts steps of a task: `start(description, total)`, then `advance(n)`."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=None)
        self._title, self._silent = title, not console.is_terminal
        self._description, self._total, self._done = title, 0, 0
        self._last = time.monotonic()

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def start(self, description: str, total: int) -> None:
        """Begin a bar of `total` steps."""
        self._bar.reset(self._task, total=total, description=description)
        self._description, self._total, self._done = description, total, 0
        self._say()

    def advance(self, steps: int) -> None:
        """Move the bar on by so many steps."""
        self._bar.advance(self._task, steps)
        self._done += steps
        self._say()

    def _say(self) -> None:
        """Print a line to standard error every few seconds, if there is no terminal."""
        now = time.monotonic()
        if self._silent and now - self._last >= _SECONDS:
            self._last = now
            line = f"{self._title}: {self._description}, {self._done} of {self._total}\n"
            sys.stderr.write(line)
            sys.stderr.flush()


# The report of a fit.


def show_fit(
    console: Console, report: Mapping[str, Any], more: Iterable[Table] = (), *, verbose: bool
) -> None:
    """Print the verdict and the states; if `verbose`, then `more` and all tables of the report."""
    from latentbandits.learning.assess.report_tables import (
        dynamics_sentence,
        one_state_sentence,
        summary_table,
        tables,
    )

    judged = report.get("judgement")  # None: not assessed, or by version 0.1
    verdict = judged["sentence"] if judged else ""
    sentences = [verdict, one_state_sentence(report)]
    if verbose or (report.get("dynamics") or {}).get("chosen") == "markov":
        sentences.append(dynamics_sentence(report))
    for sentence in filter(None, sentences):
        say(console, sentence)
    show_tables([summary_table(report)], console)
    if verbose:
        show_tables([*more, *tables(report)], console)


# Worker processes for commands that compute.


@contextmanager
def executor(jobs: int) -> Iterator[Executor | None]:
    """Yield an executor of `jobs` worker processes; None if all work is done in this one.

    One job needs no other process. A policy or model that was registered here and cannot be sent to
    another process (such as a class defined inside a function) rules others out.
    """
    additions = (policies.added(), models.added())
    if jobs == 1 or not _can_be_sent(additions):
        yield None
        return
    # Forking a process that has threads (polars, BLAS) can deadlock, so processes are spawned.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_register, initargs=additions)
    with _environment(_ONE_THREAD):
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _register(entries: tuple[policies.Entry, ...], kinds: tuple[models.ModelClass, ...]) -> None:
    """Register in a worker process what was registered in the process that started it."""
    for entry in entries:
        policies.register(entry)
    for kind in kinds:
        models.register(kind)


def _can_be_sent(value: object) -> bool:
    """Return whether another process can import the classes and functions of `value`."""
    try:
        content = pickle.dumps(value)
    except (AttributeError, TypeError, pickle.PicklingError):
        return False
    return b"__main__" not in content or hasattr(sys.modules["__main__"], "__file__")


# Each worker uses one core; several BLAS threads per worker would oversubscribe the cores.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, unless they are set, for processes that start meanwhile."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


# The advice that a fit left with its model: which policy to use, and whether the model harms.

_SHORT = 0.1  # effort of the short tuning before a command
_HORIZON = 100  # rounds of its sessions


def tuned_policy(model: Any, items: Any) -> str:
    """Return the policy that a short tuning finds for a model without a recommended one.

    Says on standard error which policy it is.
    """
    from latentbandits.simulation.tune import tune

    contexts = items if model.n_features is not None else None
    tuning = tune(model, _HORIZON, contexts, effort=_SHORT)
    sys.stderr.write(f"latentbandits: the model has no recommended policy; {tuning.summary}\n")
    return tuning.winner


def harm_warnings(notes: Mapping[str, Any], name: str) -> list[str]:
    """Return the warning of every command that uses a model that harms."""
    if notes.get("verdict") != "harms":
        return []
    return [
        f"{name} harms: its policies earned less on held-out users than the best average action; "
        f"its fit recommends {notes.get('recommended_policy')} (see its report.html)"
    ]


def warn_of_harm(path: str | os.PathLike[str]) -> list[str]:
    """Print the warning of a saved model that harms to standard error, and return it."""
    from latentbandits.models.artefacts import load_notes

    harms = harm_warnings(load_notes(path), os.fspath(path))
    print_warnings(harms)
    return harms


def print_warnings(warnings: list[str]) -> None:
    """Print each warning on a line of standard error."""
    for warning in warnings:
        sys.stderr.write(f"latentbandits: warning: {warning}\n")
