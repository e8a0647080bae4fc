"""Records of `latentbandits relearn`, for the page: read from its work folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from latentbandits.serving.http.messages import Relearning

_LAST = 20
_MOST_BYTES = 64 * 2**10


def relearnings(work: str | None) -> list[Relearning]:
    """Return the last runs in the work folder, the latest first; none where there is no folder.

    A file that is no record, or is larger than a record can be, is passed over.
    """
    if work is None:
        return []
    runs = []
    try:
        paths = sorted(Path(work, "runs").glob("*.json"))[-_LAST:]
    except OSError:
        return []
    for path in reversed(paths):
        try:
            if path.stat().st_size <= _MOST_BYTES:
                runs.append(msgspec.json.decode(path.read_bytes(), type=Relearning))
        except (OSError, msgspec.MsgspecError):
            continue
    return runs
