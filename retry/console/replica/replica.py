"""The replica as pages ask it: one thread folds topics into SQLite, any thread reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from sqlite3 import Connection

from retry import clock
from retry.console.replica import groups_page, letter_rows, letters_page, lineage_page, other_pages
from retry.console.replica.follower import Follower
from retry.console.replica.notes import Notes
from retry.console.replica.now_page import NowQuery
from retry.console.replica.payloads import Payloads
from retry.console.replica.replica_file import ReplicaFile
from retry.console.replica.rows import (
    AuditRow,
    Freshness,
    Group,
    LetterRow,
    LineageEvent,
    Names,
    Now,
    Page,
    Scope,
    Split,
)  # fmt: skip
from retry.delay_queue.ramp_records import FAILED
from retry.operations.letter_filter.syntax import Filter
from retry.policies.registry import Registry
from retry.settings import Settings


class Replica:
    """Safe to be asked from any thread: a few connections that only read are shared.

    Args:
      registry: gives the newest registry of the policy file.
      path: of the SQLite file; what it holds is deleted where it is of no use.

    Every question but `freshness` raises RebuildInProgress while the replica is built. Pages raise CursorStale where a cursor
    is of another page or another replica.
    """

    def __init__(self, settings: Settings, registry: Callable[[], Registry], path: Path) -> None:
        self._registry, self._file = registry, ReplicaFile(path)
        self._follower = Follower(settings, registry, self._file)
        self.notes = Notes(settings, self._follower, self._reading)
        self.payloads = Payloads(settings, registry, self._reading, lambda: self._file.id)

    def start(self) -> None:
        """Begin to follow the topics, in a thread; returns at once, whether brokers answer or not."""
        self._follower.start()

    def close(self) -> None:
        """Stop, and let go of the clients and the file."""
        self._follower.close()
        self.notes.close()
        self.payloads.close()

    def freshness(self) -> Freshness:
        """How old the data is; never raises."""
        return self._follower.freshness()

    def generation(self) -> int:
        """A number that grows whenever something that pages show has changed."""
        return self._follower.generation

    def now(self, scope: Scope) -> Now:
        """What there is to be seen now."""
        with self._reading() as connection:
            query = NowQuery(connection, scope, self._registry(), self._follower.retention_ms, clock.wall_ms())
            return query.answer(self._follower.shards())

    def groups(
        self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 50, *, resolved: bool = False
    ) -> Page[Group]:
        """Kinds of failures, most letters first. Of letters, only those that `meant` means are counted.

        Args:
          resolved: whether those are listed that are resolved, and no others.

        Raises:
          FilterInvalid: it asks for payloads.
        """
        with self._reading() as connection:
            return groups_page.page(connection, self._file.id, scope, meant, after, limit, clock.wall_ms(), resolved=resolved)

    def group(self, scope: Scope, group_id: str) -> Group | None:
        """One kind of failures; also one that was merged into it is a name for it."""
        with self._reading() as connection:
            return groups_page.one(connection, scope, group_id, clock.wall_ms())

    def splits(self, scope: Scope, group_id: str) -> list[Split]:
        """What letters of a group have in common: by top frames, topic, consumer group and attempt."""
        with self._reading() as connection:
            return groups_page.splits(connection, scope, group_id)

    def letters(self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 100) -> Page[LetterRow]:
        """Letters, soonest first, then those that rest, newest first.

        Raises:
          FilterInvalid: it asks for what stays in Kafka; see `retry.console.replica.payloads`.
        """
        with self._reading() as connection:
            return letters_page.page(connection, self._file.id, scope, meant, after, limit, clock.wall_ms())

    def letter(self, scope: Scope, name: str) -> LetterRow | None:
        """The letter of a name; None where it waits or rests no more, or is another team's."""
        with self._reading() as connection:
            found = letter_rows.named(connection, name)
        return found[0] if found and (scope is None or found[0].team in scope) else None

    def lineage(self, scope: Scope, lineage: str) -> list[LineageEvent]:
        """What happened to one original record, the oldest first."""
        with self._reading() as connection:
            return lineage_page.events(connection, scope, lineage)

    def names(self, scope: Scope) -> Names:
        """What there is to complete a filter with."""
        with self._reading() as connection:
            return other_pages.names(connection, scope)

    def named_entries(
        self, scope: Scope, kind: str, text: str = "", after: str | None = None, limit: int = 100
    ) -> Page[LetterRow]:
        """Schedules, tasks or timers that wait, soonest first; `text` is looked for in label, key, target and topic."""
        with self._reading() as connection:
            return other_pages.named_entries(connection, self._file.id, scope, kind, text, after, limit)

    def audit(self, scope: Scope, after: str | None = None, limit: int = 100, *, action: str = "") -> Page[AuditRow]:
        """What was done, newest first; of one action, or of all. A viewer of some teams sees what concerns their letters."""
        with self._reading() as connection:
            return other_pages.audit(connection, self._file.id, scope, after, limit, action)

    def controls(self) -> list[Mapping[bytes, bytes]]:
        """Pauses and actions, as `action_state.states` and `control_records.pauses` read them: by shard."""
        by_shard: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
        with self._reading() as connection:
            for shard, key, value in connection.execute("SELECT shard, key, value FROM controls"):
                by_shard[shard][key] = value
        # What is asked of one shard is asked of all; right after a start the follower does not know yet how many there are.
        return [by_shard[shard] for shard in range(max(by_shard, default=-1) + 1)]

    def ramp_failed(self, action: bytes) -> Mapping[int, int]:
        """How many letters of each step of an action have failed again, as workers have marked them."""
        begin = FAILED + action
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT substr(mark, 10, 2), count(*) FROM ramp_failed WHERE mark >= ? AND mark < ? GROUP BY 1",
                (begin, begin + b"\xff" * 16),
            ).fetchall()
        return {int.from_bytes(step, "big"): count for step, count in rows}

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._file.reading(self._follower.progress)
