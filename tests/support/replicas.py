"""A replica of the console without Kafka: records are given to it, and it is asked in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retry.console.folding.folds import Folds, Sources
from retry.console.folding.replica_file import TOPIC, ReplicaFile
from retry.console.reading import letters
from retry.console.reading.group_list import OPEN, GroupPage, GroupsQuery, list_groups
from retry.console.reading.replica import ReplicaReaders
from retry.console.rows import Group, LetterRow, Page, Scope
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.kafka.topics import Described, build_topic_names
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter
from retry.policies.registry import Registry
from retry.record import Headers
from retry.telemetry.unreadable_records import UNREADABLE

OWN = build_topic_names("app")
NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
AGE_MS_MAX = 24 * HOUR_MS
PARTITIONS = 2


class GivenMessage:
    """A record as a consumer gives it."""

    def __init__(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, at_ms: int
    ) -> None:
        self._place, self._key, self._value, self._headers, self._at_ms = (topic, partition, offset), key, value, headers, at_ms

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms

    def error(self) -> None:
        return None


def _count_unreadable() -> int:
    return sum(each.records for each in UNREADABLE.list_topics())


class GivenReplica:
    """One file, folded from what it is given, each record in the order in which it comes.

    Args:
      topic_ids: of topics that were made anew.
    """

    def __init__(self, folder: Path, registry: Registry | None = None, topic_ids: dict[str, str] | None = None) -> None:
        self.file, self._registry = ReplicaFile(folder / "replica.sqlite"), registry or Registry()
        ids = topic_ids or {}
        own = (OWN.changelog, OWN.parked, OWN.discarded, OWN.outcomes, OWN.audit, OWN.notes)
        described = {topic: Described(ids.get(topic, f"id of {topic}"), PARTITIONS, {}) for topic in own}
        self.sources = Sources(OWN, described, frozenset({OWN.parked, OWN.discarded}))
        self.connection = self.file.open(self.sources.identity("cluster", TOPIC), AGE_MS_MAX)
        self._unreadable_before = _count_unreadable()
        self.folds = Folds(self.connection, self.sources, lambda: self._registry, is_live=self.file.is_live)
        self.readers = ReplicaReaders(self.file.path, self._found_corrupt)
        self.readers.switch_file(self.file.id if self.file.is_live else "")
        self._offsets: dict[tuple[str, int], int] = dict(self.folds.positions)

    @property
    def unreadable(self) -> int:
        """How many records it has passed over."""
        return _count_unreadable() - self._unreadable_before

    def fold(
        self, topic: str, *records: tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Headers],
        partition: int = 0, at_ms: int = NOW_MS,
    ) -> list[int]:
        """Take in records in one transaction; their offsets."""
        begin = self._offsets.get((topic, partition), 0)
        messages = [
            GivenMessage(topic, partition, offset, record[0], record[1], record[2] if len(record) > 2 else None, at_ms)  # type: ignore[misc]
            for offset, record in enumerate(records, begin)
        ]
        self._offsets[topic, partition] = begin + len(records)
        place = topic, partition
        self.folds.project_partitions({place: messages}, {place: begin + len(records)})  # type: ignore[dict-item]
        return list(range(begin, begin + len(records)))

    def finish(self) -> None:
        """All is there that was there at the start."""
        self.file.finish_rebuild(self.folds.count_indexed)
        self.readers.switch_file(self.file.id)

    def _found_corrupt(self, file_id: str) -> None:
        self.file.corrupt = file_id
        self.readers.switch_file("")

    def letters(
        self,
        letter_filter: str | Filter = "",
        scope: Scope = None,
        after: str | None = None,
        limit: int = 100,
        now_ms: int = NOW_MS,
    ) -> Page[LetterRow]:
        """A page of letters."""
        with self.readers.reading(0.0) as connection:
            wanted = parse(letter_filter) if isinstance(letter_filter, str) else letter_filter
            return letters.list_letters(connection, self.file.id, scope, wanted, after, limit, now_ms)

    def names(self, letter_filter: str | Filter = "", scope: Scope = None) -> list[str]:
        """List the names of the letters that a filter selects, in order."""
        return [row.name for row in self.letters(letter_filter, scope, limit=1_000).rows]

    def groups(self, letter_filter: str = "", scope: Scope = None, *, show: str = OPEN, limit: int = 100) -> Sequence[Group]:
        """List the kinds of failures that a filter selects."""
        return self.group_page(GroupsQuery(scope, parse(letter_filter, groups=True), show=show, limit=limit)).rows

    def group_page(self, query: GroupsQuery, now_ms: int | None = None) -> GroupPage:
        """A page of the list of failures."""
        with self.readers.reading(0.0) as connection:
            return list_groups(connection, self.file.id, query, NOW_MS if now_ms is None else now_ms)

    def counts_hold(self) -> bool:
        """Whether what is kept ready is what there is."""
        cells = self.connection.execute(
            "SELECT count(*) FROM cells c WHERE letters != (SELECT count(*) FROM letters WHERE cell = c.id)"
        ).fetchone()[0]
        minutes = self.connection.execute(
            "SELECT due_ms / 60000, coalesce(team, ''), count(*) FROM letters l JOIN cells c ON c.id = l.cell"
            " WHERE state = 'waiting' GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
        partitions = self.connection.execute(
            "SELECT cell, partition, count(*) FROM letters WHERE partition IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
        if partitions != self.connection.execute("SELECT * FROM cell_partitions ORDER BY cell, partition").fetchall():
            return False
        return cells == 0 and minutes == self.connection.execute("SELECT * FROM due_minutes ORDER BY minute, team").fetchall()


def failure(exception: str = "com.acme.Timeout", message: str = "order 17 is late", *more: tuple[str, bytes]) -> Headers:
    """Headers of Spring that tell of a failure."""
    return [
        ("kafka_dlt-exception-fqcn", exception.encode()), ("kafka_dlt-exception-message", message.encode()), *more,
    ]  # fmt: skip


def entry(
    offset: int, due_at_ms: int = NOW_MS + HOUR_MS, team: str = "payments", headers: Headers | None = None
) -> tuple[bytes, bytes]:
    """Key and envelope of a letter that waits."""
    lane = entry_keys.lane(team, "orders.DLT", "orders.retry")
    key = entry_keys.build_key(due_at_ms, entry_keys.build_key_stem("orders.DLT", 0), offset, lane)
    given = headers if headers is not None else failure()
    ours: Headers = [("retry-id", b"%016x" % offset), ("retry-attempt", b"1"), ("retry-first-failed-ms", b"%d" % NOW_MS)]
    return key, envelopes.encode(Entry("orders.retry", b"key %d" % offset, b"value", given + ours, NOW_MS, team, NOW_MS))


def make_parked_record(offset: int, team: str = "payments", headers: Headers | None = None) -> tuple[bytes, bytes, Headers]:
    """A record of the parking topic, of a letter that was parked."""
    ours: Headers = [
        ("retry-id", b"%016x" % offset), ("retry-attempt", b"3"), ("retry-source", b"orders.DLT/0/%d" % offset),
        ("retry-policy", f"{team}/orders.DLT".encode()), ("retry-parked-reason", b"max_attempts"),
    ]  # fmt: skip
    return b"key %d" % offset, b"value", (headers if headers is not None else failure()) + ours
