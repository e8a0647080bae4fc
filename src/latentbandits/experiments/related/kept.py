"""Finished rows of the tables on disk, so that an interrupted run can be resumed."""

from __future__ import annotations

import re
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from latentbandits.replacing import replace_file
from latentbandits.simulation.results import PolicyResult, Windows

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
