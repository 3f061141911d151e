"""Records of `<app>-notes` → the newest of each key; where merges or splits change, groups change with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from retry.console.replica import note_records
from retry.console.replica.regrouping import CHANGE, Regrouping, changes
from retry.kafka.interface import Message


class NotesFold:
    """For the thread that folds.

    Args:
      regroup: called when groups have changed.
    """

    def __init__(
        self, connection: sqlite3.Connection, grouping: Regrouping, regroup: Sequence[Callable[[], None]],
        trouble: Callable[[str], None],
    ) -> None:
        self._connection, self._grouping, self._regroup, self._trouble = connection, grouping, regroup, trouble

    def fold(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
        # Of each key the last.
        newest = {(message.key() or b"").decode("utf-8", "replace"): message for message in messages}
        for key, message in newest.items():
            value = message.value()
            if value is None:
                self._connection.execute("DELETE FROM notes WHERE key = ?", (key,))
            elif (fault := note_records.fault(key, value)) is not None:
                self._trouble(f"{message.topic()}/{partition}/{message.offset()}: {fault}")
            else:
                self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, value))
        if any(key.startswith(CHANGE) for key in newest):
            self._grouping.replace(changes(self._connection))
            for regroup in self._regroup:
                regroup()
