"""Convert logs with features of rows to logs with features of actions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latentbandits.learning.learners import Learned
from latentbandits.learning.logs import Log


def rows_as_actions(learned: Learned, log: Log) -> tuple[Learned, Log]:
    """Return model and log with every row as a separate action that has the row's features."""
    assert log.features is not None
    rows_log = replace(
        log,
        actions=np.arange(log.n_events),
        action_ids=tuple(str(row) for row in range(log.n_events)),
    )
    counts = np.ones(log.n_events, np.int64)
    return replace(learned, features=log.features, counts=counts), rows_log
