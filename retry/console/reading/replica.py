"""The replica as pages ask it: another process folds topics into SQLite, any thread here reads."""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection

from retry import clock
from retry.console.folding import sql
from retry.console.folding.folding_process import FoldingProcess
from retry.console.folding.letter_record import FoundFailure
from retry.console.folding.regrouping import Regrouping
from retry.console.folding.replica_file import LIVE
from retry.console.reading import action_outcomes, groups, letters, lists, now, urgent_failures
from retry.console.reading.action_outcomes import ActionOutcome
from retry.console.reading.group_details import DetailsQuery, GroupDetails, Period
from retry.console.reading.group_list import OPEN, GroupPage, GroupsQuery, list_groups
from retry.console.reading.group_order import MOST_LETTERS, Order
from retry.console.reading.lists import AuditedAction, load_audited_actions
from retry.console.reading.notes import Notes, ToldEvents
from retry.console.reading.payloads import Payloads
from retry.console.reading.urgent_failures import FadingLetters, OverdueLetters, UrgentFailures, load_urgent_failures
from retry.console.rows import AuditRow, DepartedLetter, Freshness, Group, LetterRow, LineageEvent, Names, Now, Page, Scope
from retry.delay_queue.ramp_records import FAILED
from retry.errors import RebuildInProgress
from retry.operations.act.overview import ActionOverview
from retry.operations.letter_filter.fields import FAILED_AGAIN
from retry.operations.letter_filter.predicate import Predicate
from retry.operations.letter_filter.syntax import Filter
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.telemetry.unreadable_records import UnreadableTopic

# Connections that only read the replica's file, shared by the threads that answer, while another process writes to it.

log = logging.getLogger(__name__)

_READERS_MAX, _CACHE_KB, _BUSY_S = 8, 2 << 10, 10.0


class ReplicaReaders:
    """A few readers; more threads than that wait for each other. `found_corrupt` gets the id of a file that is found to be so."""

    def __init__(self, path: Path, found_corrupt: Callable[[str], None]) -> None:
        self._path, self._found_corrupt = path, found_corrupt
        # Each with the id of its file: who reads may give one back when another file is shown by then.
        self._idle: queue.LifoQueue[tuple[str, sqlite3.Connection]] = queue.LifoQueue()
        self._permits = threading.BoundedSemaphore(_READERS_MAX)
        self.file_id = ""

    def switch_file(self, file_id: str) -> None:
        """Switch to another replica file for all reads from now on; an empty id is no file. Running reads may finish."""
        if file_id == self.file_id:
            return
        self.file_id = file_id
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait()[1].close()

    @contextmanager
    def reading(self, progress: float) -> Iterator[sqlite3.Connection]:
        """Yield a read-only connection that sees one state of the replica file.

        Raises RebuildInProgress while the file is built, and where the file is corrupt.
        """
        if not self.file_id:
            raise RebuildInProgress(progress)
        self._permits.acquire()
        file_id, connection = self.file_id, None
        try:
            connection = self._reader(file_id, progress)
            connection.execute("BEGIN")
            yield connection
        except sqlite3.OperationalError as error:
            if self.file_id != file_id:
                raise RebuildInProgress(progress) from error
            raise
        except sqlite3.DatabaseError as error:
            log.error("%s is corrupt and is built anew: %s", self._path, error)
            self._found_corrupt(file_id)
            raise RebuildInProgress(0.0) from error
        finally:
            if connection is not None:
                self._give_back(connection, file_id)
            self._permits.release()

    def _reader(self, file_id: str, progress: float) -> sqlite3.Connection:
        with suppress(queue.Empty):
            while True:
                of, connection = self._idle.get_nowait()
                if of == file_id:
                    return connection
                connection.close()
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
            is_shown = _is_of(connection, file_id)
        except sqlite3.OperationalError as error:
            # It has just been thrown away, or begun again.
            raise RebuildInProgress(progress) from error
        if not is_shown:
            connection.close()
            raise RebuildInProgress(progress)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        sql.register_functions(connection)
        return connection

    def _give_back(self, connection: sqlite3.Connection, file_id: str) -> None:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        if self.file_id == file_id:
            self._idle.put((file_id, connection))
        else:
            connection.close()


def _is_of(connection: sqlite3.Connection, file_id: str) -> bool:
    about = dict(connection.execute("SELECT name, value FROM about WHERE name IN ('id', ?)", (LIVE,)))
    return about == {"id": file_id, LIVE: "1"}


class Replica:
    """Safe to be asked from any thread: a few connections that only read are shared.

    Every question but `freshness` raises RebuildInProgress while the replica is built. Pages raise CursorStale where a cursor
    is of another page or another replica. What the file at `path` holds is deleted where it is of no use.
    """

    def __init__(self, settings: Settings, registry: Callable[[], Registry], path: Path) -> None:
        self._registry = registry
        self._readers = ReplicaReaders(path, self._found_corrupt)
        self._follower = FoldingProcess(settings, path, self._readers.switch_file, registry)
        self.notes = Notes(settings, self._follower, self._reading)
        self.told = ToldEvents(self.notes.write_records, self._reading)
        self.payloads = Payloads(settings, registry, self._reading, lambda: self._readers.file_id, self.in_group)

    def start(self) -> None:
        self._follower.start()

    def close(self) -> None:
        self._follower.close()
        self._readers.switch_file("")
        self.notes.close()
        self.payloads.close()

    def freshness(self) -> Freshness:
        return self._follower.freshness()

    def unreadable(self) -> Sequence[UnreadableTopic]:
        return self._follower.report.unreadable

    def generation(self) -> int:
        return self._follower.generation

    def load_now(self, scope: Scope) -> Now:
        """Return all that the console shows of this moment: counts, pauses, shards and workers."""
        with self._reading() as connection:
            report = self._follower.report
            query = now.NowQuery(connection, scope, self._registry(), report.retention_ms, clock.wall_ms(), report.as_of_ms)
            return query.load_now(self._follower.list_shard_positions())

    def load_urgent_failures(self, scope: Scope) -> UrgentFailures:
        with self._reading() as connection:
            now_ms = clock.wall_ms()
            return load_urgent_failures(connection, scope, now_ms, self._follower.report.as_of_ms or now_ms)

    def open_breakers(self) -> Mapping[str, str]:
        """Return, by target, why its circuit breaker is not closed, as one worker says."""
        with self._reading() as connection:
            found = now.list_open_breakers(connection, self._follower.report.as_of_ms or clock.wall_ms())
        return {target: said[0].why for target, said in found.items()}

    def list_groups(
        self,
        scope: Scope,
        letter_filter: Filter,
        after: str | None = None,
        limit: int = 50,
        *,
        show: str = OPEN,
        order: Order = MOST_LETTERS,
        counts_beside: bool = True,
    ) -> GroupPage:
        """List groups (kinds) of failures and the counts beside them; only letters that `letter_filter` selects count.

        `show` is one of `retry.console.reading.group_list.SHOWN`. Raises FilterInvalid where it asks for payloads.
        """
        with self._reading() as connection:
            query = GroupsQuery(scope, letter_filter, show, order=order, after=after, limit=limit, counts_beside=counts_beside)
            return list_groups(connection, self._readers.file_id, query, clock.wall_ms())

    def find_group(self, scope: Scope, group_id: str) -> Group | None:
        """Find a group of failures by its id, or by the id of a group that was merged into it; None where there is none."""
        with self._reading() as connection:
            return groups.find_group(connection, scope, group_id, clock.wall_ms())

    def in_group(self, field: str, name: str) -> Predicate:
        """Build the test whether a letter is in a group as it is now, with what was merged into it and all its split parts.

        Where `field` is `failed-again`, test whether the action `name` had sent the letter and the letter failed again.
        """
        with self._reading() as connection:
            if field == FAILED_AGAIN:
                query, parameters = action_outcomes.select_failed_lineages(name)
                lineages = frozenset(lineage for (lineage,) in connection.execute(query, parameters))
                return lambda letter: letter.lineage in lineages
            is_in = Regrouping.read_notes(connection).in_group(name)
        return lambda letter: is_in(FoundFailure(letter))

    def load_outcome(self, about: ActionOverview) -> ActionOutcome:
        """Count what became of the letters that an action has sent; `about` has what failed again of a ramp."""
        with self._reading() as connection:
            return action_outcomes.count_outcomes(connection, about, self._registry().list_group_topics(), clock.wall_ms())

    def load_group_details(self, scope: Scope, group_id: str, period: Period) -> GroupDetails:
        with self._reading() as connection:
            return DetailsQuery(connection, scope, group_id, clock.wall_ms()).load(period)

    def groups_since(self, since_ms: int) -> Mapping[str, groups.FailureTimes]:
        with self._reading() as connection:
            times = groups.read_times(connection, None)
        return {group: each for group, each in times.items() if each.first_ms is not None and each.first_ms >= since_ms}

    def list_overdue(self, before_ms: int) -> list[OverdueLetters]:
        """List by team the letters that were due before a moment and that nobody has paused."""
        with self._reading() as connection:
            return urgent_failures.list_overdue(connection, before_ms, clock.wall_ms())

    def list_fading(self) -> list[FadingLetters]:
        with self._reading() as connection:
            return urgent_failures.list_fading(connection, self._follower.report.retention_ms, clock.wall_ms())

    def find_reopened(self) -> Mapping[str, int]:
        """List the groups that were resolved and failed later, each with the time (ms) until which it was resolved."""
        with self._reading() as connection:
            return groups.read_resolutions(connection).failed_later

    def list_letters(self, scope: Scope, letter_filter: Filter, after: str | None = None, limit: int = 100) -> Page[LetterRow]:
        """List a page of waiting letters, soonest due first, then of resting (parked, discarded) ones, newest first.

        Raises FilterInvalid where the filter asks for what stays in Kafka.
        """
        with self._reading() as connection:
            return letters.list_letters(connection, self._readers.file_id, scope, letter_filter, after, limit, clock.wall_ms())

    def find_letter(self, scope: Scope, name: str) -> LetterRow | None:
        """Find a letter by its name; None where the letter waits or rests no more, or is another team's."""
        with self._reading() as connection:
            found = letters.find_letter(connection, name)
        return found[0] if found and (scope is None or found[0].team in scope) else None

    def find_departed(self, scope: Scope, name: str) -> DepartedLetter | None:
        """Find what is known of a letter by a name that it had; None where nothing is, or it is another team's."""
        with self._reading() as connection:
            if (departed := letters.find_departed(connection, scope, name)) is not None:
                return departed
        # Its record stays in the parking topic after it was returned, and says where it had failed.
        rested = self.payloads.find_rested(scope, name)
        if rested is None or rested.source is None or rested.lineage is None:
            return None
        with self._reading() as connection:
            if (departed := letters.find_departed(connection, scope, str(rested.source))) is not None:
                return departed
            present = letters.read_lineage_letters(connection, scope, rested.lineage)
        return DepartedLetter(str(rested.source), rested.lineage, rested.failure.root[0], None, present)

    def lineage(self, scope: Scope, lineage: str) -> list[LineageEvent]:
        """List what happened to one original record, the oldest first."""
        with self._reading() as connection:
            return letters.list_events(connection, scope, lineage)

    def list_filter_names(self, scope: Scope) -> Names:
        with self._reading() as connection:
            return lists.list_filter_names(connection, scope)

    def named_entries(self, scope: Scope, kind: str, after: str | None = None, limit: int = 100) -> Page[LetterRow]:
        """List a page of the schedules, tasks or timers that wait, the soonest due first."""
        with self._reading() as connection:
            return lists.list_named_entries(connection, self._readers.file_id, scope, kind, after, limit)

    def list_audit_rows(
        self, scope: Scope, after: str | None = None, limit: int = 100, wanted: Mapping[str, str] | None = None
    ) -> Page[AuditRow]:
        """Return a page of the audit, newest first, as far as it concerns letters of a viewer's teams.

        `wanted` are values that rows have, by field: `action`, `by`, `kind`, `team`, and `letter`, one of those that it is about.
        """
        with self._reading() as connection:
            return lists.load_audit_page(connection, self._readers.file_id, scope, after, limit, wanted or {})

    def list_audited_actions(
        self, scope: Scope, after: str | None = None, limit: int = 100, wanted: Mapping[str, str] | None = None
    ) -> Page[AuditedAction]:
        """Return the same page as `list_audit_rows` does, with all rows of an action as one."""
        with self._reading() as connection:
            return load_audited_actions(connection, self._readers.file_id, scope, after, limit, wanted or {})

    def controls(self) -> list[Mapping[bytes, bytes]]:
        """Read the records of pauses and actions: one mapping of keys to values for each shard, from shard 0 on.

        `action_state.read_states` and `control_records.read_pauses` read the mappings. A shard is a partition of the changelog.
        """
        with self._reading() as connection:
            return lists.read_controls(connection)

    def ramp_failed(self, action: bytes) -> Mapping[int, int]:
        begin = FAILED + action
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT substr(mark, 10, 2), count(*) FROM ramp_failed WHERE mark >= ? AND mark < ? GROUP BY 1",
                (begin, begin + b"\xff" * 16),
            ).fetchall()
        return {int.from_bytes(step, "big"): count for step, count in rows}

    def _found_corrupt(self, file_id: str) -> None:
        self._follower.report_corrupt(file_id)

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._readers.reading(self._follower.progress)
