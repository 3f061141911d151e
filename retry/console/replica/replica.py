"""The replica as pages ask it: another process folds topics into SQLite, any thread here reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from sqlite3 import Connection

from retry import clock
from retry.console.replica import (
    groups_page,
    letter_rows,
    letters_page,
    lineage_page,
    new_kinds,
    other_pages,
    seen_actions,
    told_workers,
)
from retry.console.replica.folding_process import FoldingProcess
from retry.console.replica.letter_record import FoundFailure
from retry.console.replica.new_kinds import Kind, Seen
from retry.console.replica.notes import Notes
from retry.console.replica.now_page import NowQuery
from retry.console.replica.payloads import Payloads
from retry.console.replica.regrouping import Regrouping
from retry.console.replica.replica_readers import ReplicaReaders
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
from retry.operations.letter_filter.predicate import Predicate
from retry.operations.letter_filter.syntax import Filter
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.telemetry.unreadable_records import UnreadableTopic


class Replica:
    """Safe to be asked from any thread: a few connections that only read are shared.

    Args:
      settings: of the process that folds, too, which reads the policy file that they name.
      registry: gives the newest registry of that file.
      path: of the SQLite file; what it holds is deleted where it is of no use.

    Every question but `freshness` raises RebuildInProgress while the replica is built. Pages raise CursorStale where a cursor
    is of another page or another replica.
    """

    def __init__(self, settings: Settings, registry: Callable[[], Registry], path: Path) -> None:
        self._registry = registry
        self._readers = ReplicaReaders(path, self._found_corrupt)
        self._follower = FoldingProcess(settings, path, self._readers.switch_file, registry)
        self.notes = Notes(settings, self._follower, self._reading)
        self.payloads = Payloads(settings, registry, self._reading, lambda: self._readers.file_id, self.in_group)

    def start(self) -> None:
        """Begin to follow the topics, in another process; returns at once, whether brokers answer or not."""
        self._follower.start()

    def close(self) -> None:
        """Stop, and let go of the clients and the file."""
        self._follower.close()
        self._readers.switch_file("")
        self.notes.close()
        self.payloads.close()

    def freshness(self) -> Freshness:
        """How old the data is; never raises."""
        return self._follower.freshness()

    def unreadable(self) -> Sequence[UnreadableTopic]:
        """Records of the service's own topics that were passed over since the fold began."""
        return self._follower.unreadable

    def generation(self) -> int:
        """A number that grows whenever something that pages show has changed."""
        return self._follower.generation

    def load_now(self, scope: Scope) -> Now:
        """Return all that the console shows of this moment: counts, pauses, shards and workers."""
        with self._reading() as connection:
            query = NowQuery(
                connection, scope, self._registry(), self._follower.retention_ms, clock.wall_ms(), self._follower.as_of_ms
            )
            return query.load_now(self._follower.list_shard_positions())

    def open_breakers(self) -> Mapping[str, str]:
        """Return, by target, why its circuit breaker is not closed, as one worker says."""
        with self._reading() as connection:
            found = told_workers.open_breakers(connection, self._follower.as_of_ms or clock.wall_ms())
        return {target: said[0].why for target, said in found.items()}

    def list_groups(
        self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 50, *, resolved: bool = False
    ) -> Page[Group]:
        """Kinds of failures, most letters first. Of letters, only those that `meant` means are counted.

        Args:
          resolved: whether those are listed that are resolved, and no others.

        Raises:
          FilterInvalid: it asks for payloads.
        """
        with self._reading() as connection:
            id_, now_ms = self._readers.file_id, clock.wall_ms()
            return groups_page.list_groups(connection, id_, scope, meant, after, limit, now_ms, resolved=resolved)

    def find_group(self, scope: Scope, group_id: str) -> Group | None:
        """One kind of failures; also one that was merged into it is a name for it."""
        with self._reading() as connection:
            return groups_page.one(connection, scope, group_id, clock.wall_ms())

    def in_group(self, group_id: str) -> Predicate:
        """Which letters a group has as it is now, with what was merged into it and all that it was split into."""
        with self._reading() as connection:
            is_in = Regrouping.read_notes(connection).in_group(group_id)
        return lambda letter: is_in(FoundFailure(letter))

    def splits(self, scope: Scope, group_id: str) -> list[Split]:
        """Count letters of a group by what they have in common: top frames, topic, consumer group and attempt."""
        with self._reading() as connection:
            return groups_page.splits(connection, scope, group_id)

    def kinds_since(self, seen: Seen) -> tuple[Seen, list[Kind]]:
        """Kinds of failures of what came since then; of all teams. Begin with `Seen()`."""
        with self._reading() as connection:
            return new_kinds.since(connection, self._readers.file_id, seen)

    def find_reopened(self) -> Mapping[str, int]:
        """Groups that were resolved and failed later, with the moment until which they were."""
        with self._reading() as connection:
            return new_kinds.find_reopened(connection)

    def list_letters(self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 100) -> Page[LetterRow]:
        """Letters, soonest first, then those that rest, newest first.

        Raises:
          FilterInvalid: it asks for what stays in Kafka; see `retry.console.replica.payloads`.
        """
        with self._reading() as connection:
            return letters_page.list_letters(connection, self._readers.file_id, scope, meant, after, limit, clock.wall_ms())

    def find_letter(self, scope: Scope, name: str) -> LetterRow | None:
        """The letter of a name; None where it waits or rests no more, or is another team's."""
        with self._reading() as connection:
            found = letter_rows.find_letter(connection, name)
        return found[0] if found and (scope is None or found[0].team in scope) else None

    def lineage(self, scope: Scope, lineage: str) -> list[LineageEvent]:
        """List what happened to one original record, the oldest first."""
        with self._reading() as connection:
            return lineage_page.events(connection, scope, lineage)

    def list_filter_names(self, scope: Scope) -> Names:
        """List the names in letters of a scope that can complete a filter, at most 200 of each field."""
        with self._reading() as connection:
            return other_pages.list_filter_names(connection, scope)

    def named_entries(
        self, scope: Scope, kind: str, text: str = "", after: str | None = None, limit: int = 100
    ) -> Page[LetterRow]:
        """Schedules, tasks or timers that wait, soonest first; `text` is looked for in label, key, target and topic."""
        with self._reading() as connection:
            return other_pages.named_entries(connection, self._readers.file_id, scope, kind, text, after, limit)

    def list_audit_rows(
        self, scope: Scope, after: str | None = None, limit: int = 100, wanted: Mapping[str, str] | None = None
    ) -> Page[AuditRow]:
        """Return a page of the audit, newest first. A viewer of some teams sees what concerns their letters.

        Args:
          wanted: values that rows have, by field: `action`, `by`, `kind`, `team`, and `letter`, one of those that it is about.
        """
        with self._reading() as connection:
            return other_pages.load_audit_page(connection, self._readers.file_id, scope, after, limit, wanted or {})

    def controls(self) -> list[Mapping[bytes, bytes]]:
        """Pauses and actions, as `action_state.read_states` and `control_records.pauses` read them: by shard."""
        with self._reading() as connection:
            return seen_actions.controls(connection)

    def ramp_failed(self, action: bytes) -> Mapping[int, int]:
        """How many letters of each step of an action have failed again, as workers have marked them."""
        begin = FAILED + action
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT substr(mark, 10, 2), count(*) FROM ramp_failed WHERE mark >= ? AND mark < ? GROUP BY 1",
                (begin, begin + b"\xff" * 16),
            ).fetchall()
        return {int.from_bytes(step, "big"): count for step, count in rows}

    def _found_corrupt(self, file_id: str) -> None:
        self._follower.found_corrupt(file_id)

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._readers.reading(self._follower.progress)
