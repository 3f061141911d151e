"""Every topic's fold, over one connection; what they have folded is written together with how far they have come."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Protocol

from retry import clock
from retry.console.replica.attempts import Attempts
from retry.console.replica.audit_fold import AuditFold
from retry.console.replica.cells import Cells
from retry.console.replica.changelog_fold import ChangelogFold
from retry.console.replica.letter_table import LetterTable
from retry.console.replica.notes_fold import NotesFold
from retry.console.replica.outcomes_fold import OutcomesFold
from retry.console.replica.regrouping import Regrouping
from retry.console.replica.resting_fold import RestingFold, ReturnedLetters
from retry.console.replica.settled import Settled
from retry.console.replica.sources import Sources
from retry.delay_queue import returned_offsets
from retry.kafka.interface import Message, Partition
from retry.policies.registry import Registry

_PRUNE_EVERY = 200


class Fold(Protocol):
    """The fold of one topic into the replica."""

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
        ...


class Folds:
    """The folds of all topics, over one connection that writes; only for the thread that folds.

    Args:
      is_live: whether all indexes are there.
    """

    def __init__(
        self, connection: sqlite3.Connection, sources: Sources, registry: Callable[[], Registry], *, is_live: bool
    ) -> None:
        self._connection, self._batches = connection, 0
        self.positions: dict[Partition, int] = {
            (topic, partition): offset for topic, partition, offset in connection.execute("SELECT * FROM positions")
        }
        connection.executemany("INSERT OR IGNORE INTO topics (name) VALUES (?)", ((topic,) for topic in sources.described))
        self._numbers: dict[str, int] = dict(connection.execute("SELECT name, number FROM topics"))
        own, grouping = sources.own, Regrouping.read_notes(connection)
        cells = self._cells = Cells(connection, grouping.group_of)
        letters = self._letters = LetterTable(connection, cells, is_indexed=is_live)
        hashes = {topic: returned_offsets.topic_hash(sources.described[topic].topic_id) for topic in sources.resting}
        returned = ReturnedLetters(connection, {hashes[topic]: self._numbers[topic] for topic in sources.resting})
        attempts, settled = Attempts(connection, is_live=is_live), Settled(connection)
        self._attempts, self._settled = attempts, settled
        changelog = ChangelogFold(
            connection, cells, letters, returned=returned, attempts=attempts, log=self._numbers[own.changelog],
            resting=sources.resting, registry=registry,
        )  # fmt: skip
        outcomes = OutcomesFold(connection, grouping, attempts, settled)
        self.resting = {
            topic: RestingFold(
                letters, returned, self._numbers[topic], hashes[topic], registry, is_discarded=topic == own.discarded
            )
            for topic in sources.resting
        }
        notes = NotesFold(connection, grouping, [cells.regroup, outcomes.regroup])
        self._prunes = [attempts.prune, lambda: settled.prune(clock.wall_ms()), outcomes.prune, cells.prune]
        self._of_topic: dict[str, Fold] = {
            own.changelog: changelog, own.outcomes: outcomes, own.notes: notes,
            own.audit: AuditFold(connection, registry), **self.resting,
        }  # fmt: skip

    def project_partitions(self, of_partition: dict[Partition, list[Message]], next_offsets: dict[Partition, int]) -> None:
        """Take in records, and how far their partitions are read with them, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for (topic, partition), messages in of_partition.items():
                known = self.positions.get((topic, partition), 0)
                if fresh := [each for each in messages if (each.offset() or 0) >= known]:
                    self._of_topic[topic].project_records(partition, fresh)
            self._cells.write()
            self._attempts.write()
            self._batches += 1
            if self._batches % _PRUNE_EVERY == 0:
                for prune in self._prunes:
                    prune()
            self._connection.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", ((*place, offset) for place, offset in next_offsets.items())
            )
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self.positions.update(next_offsets)

    def drop_deleted(self, starts: dict[Partition, int]) -> None:
        """Kafka has deleted what rests before these offsets."""
        self._connection.execute("BEGIN IMMEDIATE")
        for (topic, partition), first in starts.items():
            self.resting[topic].drop_before(partition, first)
        self._cells.write()
        self._connection.execute("COMMIT")

    def count_recoveries(self, now_ms: int) -> bool:
        """Count of which retries it is known by now whether they recovered; says whether there are more than before."""
        self._connection.execute("BEGIN IMMEDIATE")
        moved = self._settled.roll_up_slots(now_ms)
        self._connection.execute("COMMIT")
        return moved

    def count_indexed(self) -> None:
        """The indexes were built: from now on they are kept up to date, and what retries came to is counted."""
        self._letters.is_indexed = True
        self._connection.execute("BEGIN IMMEDIATE")
        self._attempts.count_indexed()
        self._settled.roll_up_slots(clock.wall_ms())
        self._connection.execute("COMMIT")
