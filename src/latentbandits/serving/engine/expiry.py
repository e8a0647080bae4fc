"""The effects of time: sessions end and are forgotten, decisions get a default reward."""

from __future__ import annotations

import logging
from collections.abc import Callable

from latentbandits.serving.engine.ids import decision_id
from latentbandits.serving.engine.rewards import Rewards
from latentbandits.serving.engine.served_models import Library
from latentbandits.serving.engine.sessions import Sessions
from latentbandits.serving.engine.settings import EngineSettings
from latentbandits.serving.engine.values import RewardReport
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import SessionRow
from latentbandits.serving.stores.protocol import Store

_log = logging.getLogger(__name__)
_DEFAULTS = "defaults_position"
_PRUNING = 3_600_000  # milliseconds between two prunings of the models


class Sweeping:
    """Carries out what is due by the settings' times, a limited number of rows at a time."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        rewards: Rewards,
        settings: EngineSettings,
        clock: Callable[[], int],
        library: Library,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._rewards = rewards
        self._settings = settings
        self._clock = clock
        self._library = library
        self._next_pruning = 0

    def sweep(self, limit: int) -> int:
        """End sessions unseen for `session_ttl`, forget those unseen for `retention`, and give
        decisions without a reward the default one; returns how many there were of these.

        Once an hour, former catalogues that no session can have used are forgotten too.
        """
        now = self._clock()
        expired = self._store.unseen_since(
            now - int(self._settings.session_ttl * 1000), limit, is_open=True
        )
        for row in expired:
            self._sessions.end(row, "expired")
        oldest = now - int(self._settings.retention * 1000)
        old = self._store.unseen_since(oldest, limit, is_open=False)
        gone = [row.key for row in old if self._ended(row, oldest)]
        self._store.delete_sessions(gone)
        if now >= self._next_pruning:
            self._next_pruning = now + _PRUNING
            self._library.prune(now)
        return len(expired) + len(gone) + self._give_defaults(now, limit)

    def _ended(self, row: SessionRow, oldest: int) -> bool:
        """Return whether a session can be deleted; a merged one stays as long as the whole."""
        if row.merged_into is None:
            return True
        parent = self._store.session(self._store.root(row.key))
        return parent is None or (not parent.open and parent.seen < oldest)

    def _give_defaults(self, now: int, limit: int) -> int:
        """Give `reward_default` to decisions without a reward for `reward_timeout`."""
        value, timeout = self._settings.reward_default, self._settings.reward_timeout
        if value is None or timeout is None:
            return 0
        kept = self._store.note(_DEFAULTS)
        begin = 0 if kept is None else int(kept)
        rows, position = self._store.unrewarded(begin, now - int(timeout * 1000), limit)
        for row in rows:
            report = RewardReport(decision_id(row.order, row.token), value)
            try:
                self._rewards.report(row, report, "default", "")
            except Invalid as refusal:
                _log.warning("decision %s got no default: %s", report.decision_id, refusal)
        if position != begin:
            self._store.put_note(_DEFAULTS, str(position).encode())
        return len(rows)
