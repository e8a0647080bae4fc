"""The folder of a command's results: checked before the work, filled at once after it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latentbandits.replacing import adding_files


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

    @contextmanager
    def replacing(self) -> Iterator[Path]:
        """Yield a folder whose files move here if the block ends without an error."""
        with adding_files(self.path) as scratch:
            yield scratch
