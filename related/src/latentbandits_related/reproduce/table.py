"""A table of the experiment as data: columns of problems, rows of policies, reference values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from latentbandits.environments.protocol import Environment
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.replacing import replace_file
from latentbandits.simulation.simulate import PolicyResult, Windows


class Reference(NamedTuple):
    """A result of an independent implementation: mean, standard error, and number of runs."""

    mean: float
    stderr: float
    runs: int


@dataclass(frozen=True, eq=False)
class Row:
    """A policy and its problem; all rows of a column have the same users and noise."""

    environment: Environment
    policy: Callable[[Any], AnyPolicy]  # makes the policy from the environment's model
    reference: Reference | None = None
    runs: int | None = None  # fewer than the column's, if the row is slow


def always(policy: AnyPolicy) -> Callable[[Any], AnyPolicy]:
    """Return a maker of a policy that does not depend on the environment's model."""
    return lambda model: policy


@dataclass(frozen=True, eq=False)
class Column:
    """One problem, with its rows, number of runs and horizon."""

    name: str
    rows: Mapping[str, Row]
    runs: int
    horizon: int

    def runs_of(self, name: str) -> int:
        """Return the number of runs of a row."""
        return min(self.runs, self.rows[name].runs or self.runs)

    def only(self, names: Collection[str]) -> Column:
        """Return this problem with only the rows in `names`."""
        rows = {name: row for name, row in self.rows.items() if name in names}
        return Column(self.name, rows, self.runs, self.horizon)


@dataclass(frozen=True, eq=False)
class RelatedTable:
    """One of the five tables. `columns(quick)` builds its problems; quick ones take seconds."""

    name: str
    title: str
    columns: Callable[[bool], list[Column]]
    quarters: bool = False  # show the regret up to each quarter of the rounds


# Finished rows of the tables on disk, so that an interrupted run can be resumed.

_ARRAYS = tuple(
    field.name
    for field in fields(PolicyResult)
    if field.name not in ("policy", "windows", "n_groups")
)


class KeptRows:
    """A folder with one file per finished row; None stores nothing.

    A file is used only for the same row, number of runs, horizon and seed. The version of the code
    is not recorded: empty the folder after a change of a policy.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def load(self, row: tuple[str, ...], numbers: tuple[int, ...]) -> PolicyResult | None:
        """Return the stored result of this row; None if there is none or it is unreadable."""
        path = self._path(row)
        if path is None or not path.exists():
            return None
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if tuple(file["numbers"]) != numbers or tuple(file["row"]) != row:
                    return None
                arrays = {name: file[name] for name in _ARRAYS}
                windows = Windows(*(int(size) for size in file["windows"]))
        except (OSError, KeyError, ValueError, BadZipFile):  # incomplete or foreign file
            return None
        return PolicyResult(policy=row[-1], windows=windows, **arrays)

    def save(self, row: tuple[str, ...], numbers: tuple[int, ...], result: PolicyResult) -> None:
        """Store the result of this row; the file is written atomically."""
        path = self._path(row)
        if path is None:
            return
        arrays = {name: getattr(result, name) for name in _ARRAYS}
        content = BytesIO()
        np.savez(content, row=row, numbers=numbers, windows=tuple(result.windows), **arrays)
        replace_file(path, content.getvalue())

    def _path(self, row: tuple[str, ...]) -> Path | None:
        words = re.sub(r"[^A-Za-z0-9.=]+", "-", " ".join(row)).strip("-")
        return None if self._folder is None else self._folder / f"{words}.npz"
