"""Records of `<app>-notes` → the newest of each key; where merges or splits change, groups change with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from retry.console.replica import note_records
from retry.console.replica.regrouping import CHANGE, Regrouping, changes
from retry.kafka.interface import Message
from retry.telemetry.unreadable_records import UNREADABLE


class NotesFold:
    """The fold of the topic `<app>-notes` into the table `notes`; only for the thread that folds.

    Args:
      regroup: functions that are called when merges or splits have changed.
    """

    def __init__(
        self, connection: sqlite3.Connection, grouping: Regrouping, regroup: Sequence[Callable[[], None]]
    ) -> None:
        self._connection, self._grouping, self._regroup = connection, grouping, regroup

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
        # Of each key the last that can be read.
        newest: dict[str, bytes | None] = {}
        for message in messages:
            key, value = (message.key() or b"").decode("utf-8", "replace"), message.value()
            if value is not None and (fault := note_records.fault(key, value)) is not None:
                UNREADABLE.pass_over(message.topic(), partition, message.offset(), fault)
            else:
                newest[key] = value
        for key, value in newest.items():
            if value is None:
                self._connection.execute("DELETE FROM notes WHERE key = ?", (key,))
            else:
                self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, value))
        if any(key.startswith(CHANGE) for key in newest):
            self._grouping.replace(changes(self._connection))
            for regroup in self._regroup:
                regroup()
