"""What people do in the console, written to the audit before it takes effect: who was shown which payload, who paused what.

What an action does to letters is written by the workers, with the effect. The records here have the same form; see
`retry.operations.act.audit`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import TimeoutError as NotInTime

from retry import clock
from retry.errors import RecordUnwritten
from retry.kafka import client_config, topics
from retry.kafka.record_producer import Records
from retry.operations.act import audit
from retry.settings import Settings

REVEAL = "reveal"
_WITHIN_S = 15.0
# All in one partition, so they are read in the order in which they were done.
_PARTITION = 0


class AuditTrail:
    """Writes records of the audit topic, one at a time; connects when the first is written. For any thread."""

    def __init__(self, settings: Settings, records: Records | None = None) -> None:
        self._settings, self._topic = settings, topics.build_topic_names(settings.app_id).audit
        self._records, self._opening = records, threading.Lock()

    def reveal(self, by: str, letters: Sequence[str], teams: Iterable[str] = ()) -> None:
        """Say that somebody is going to be shown payloads; nothing may be shown where this raises.

        Raises:
          RecordUnwritten: it is not known to be written down.
        """
        self.write(REVEAL, by, "", letters, teams)

    def write(self, kind: str, by: str, reason: str, letters: Sequence[str] = (), teams: Iterable[str] = ()) -> None:
        """Say that somebody is going to do something.

        Args:
          letters: names, as `retry letters` prints them.
          teams: whose letters they are.

        Raises:
          RecordUnwritten: it is not known to be written down.
        """
        value = audit.by_person(kind, by, reason, clock.wall_ms(), letters, teams)
        written = self._producer().write(self._topic, _PARTITION, audit.PERSON_KEY, value)
        try:
            written.result(_WITHIN_S)
        except NotInTime:
            raise RecordUnwritten(f"nobody has acknowledged within {_WITHIN_S:.0f} s what is done here; it is not done") from None

    def _producer(self) -> Records:
        with self._opening:
            if self._records is None:
                self._records = Records(client_config.records_config(self._settings))
            return self._records

    def close(self) -> None:
        """Let go of the client."""
        with self._opening:
            if self._records is not None:
                self._records.close()
