"""One run of `retry verify`: everything is read into rows by letter, then each letter is checked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from retry import clock
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import Stored, open_stored
from retry.errors import EntryUnreadable, TableUnreadable
from retry.kafka import topics
from retry.kafka.record_writers import RecordWriters
from retry.kafka.target_probe import TargetProbe
from retry.kafka.topics import DELETE_RETENTION_MS, matches
from retry.operations.blocked_lanes import add_limits_check, build_control_check, build_policy_check
from retry.operations.cluster import Cluster
from retry.operations.read_positions import find_read_offsets
from retry.operations.verify import checks, context, topic_reading
from retry.operations.verify.context import STUCK_MS, TABLE, Finding, Findings, VerifiableLetters, VerifyContext
from retry.operations.verify.deliveries import Deliveries
from retry.operations.verify.records import RecordReader
from retry.operations.verify.rows import NameTable, Spill
from retry.operations.verify.topic_reading import ProgressBar, TopicReading, show_no_progress
from retry.policies.registry import Registry
from retry.settings import Settings

_SLACK_MS = 60_000
# A letter, its outcome, its entry, the delete, and the delivery twice.
_ROWS_A_LETTER = 6


class VerifyRequest(NamedTuple):
    """The options of one verification.

    Attributes:
      data_dirs: of workers, whose tables are compared.
      since_ms: only letters that were taken in since then are checked.
      skew_ms: by how much the clocks of workers and brokers may differ.
      shown: how many findings of each kind are put in words.
      schedules: topics, and patterns that begin with `^`, of which a scheduler reads: what lies there is no letter.
    """

    data_dirs: list[Path]
    since_ms: int = 0
    skew_ms: int = 0
    shown: int = 5
    schedules: Sequence[str] = ()


def verify_deployment(
    settings: Settings, registry: Registry, request: VerifyRequest, bar: ProgressBar = show_no_progress
) -> Findings:
    """Check a deployment for what is wrong with it; raises `BrokersUnreachable` or `TopicsInvalid` where it cannot be read."""
    with tempfile.TemporaryDirectory(prefix="retry-verify-") as scratch:
        return _Run(Cluster(settings), registry, request, bar, Path(scratch)).verify()


class _Run:
    def __init__(self, cluster: Cluster, registry: Registry, request: VerifyRequest, bar: ProgressBar, scratch: Path) -> None:
        self._cluster, self._registry, self._request, self._bar, self._scratch = cluster, registry, request, bar, scratch
        self._findings, self._names, self._now_ms = Findings(request.shown), NameTable(), clock.wall_ms()

    def verify(self) -> Findings:
        """Read tables, outcomes, changelog, deliveries and letters, in this order; then check."""
        cluster, request, findings = self._cluster, self._request, self._findings
        reading = TopicReading(cluster, self._registry.list_targets(), self._bar)
        spill = Spill(self._scratch / "letters", reading.letter_count() * _ROWS_A_LETTER)
        reader = RecordReader(self._names, spill, findings)
        deliveries = Deliveries(reader, request.since_ms, self._registry.permits_parking)
        tables = self._read_tables(reader, reading)

        # Anew, since partitions may have been added meanwhile.
        reading = TopicReading(cluster, self._registry.list_targets(), self._bar)
        offsets = find_read_offsets(cluster)
        bounds = reading.find_read_bounds()
        reader.scope_ends = bounds.scope_ends
        tables.leave_out_beyond({span.partition: span.stop for span in bounds.spans[cluster.names.changelog]})

        outcomes = reading.read_own(reader, bounds, request.since_ms)
        targets = reading.read_targets(reader, deliveries, bounds, self._now_ms)
        dead_letters = reading.read_letters(reader, offsets, self._is_entry_source)
        findings.aborted = reader.count_aborted()

        since_ms = max(request.since_ms, outcomes.since_ms(self._now_ms))
        if since_ms or deliveries.without_source:
            dead_letters = topic_reading.add_oldest_outcomes(dead_letters, spill, deliveries, since_ms)
        controls = {key: value for (_, key), value in reader.controls.items() if value}
        changelog_config = reading.described[cluster.names.changelog].config
        self._check(self._context(not since_ms, dead_letters, targets, changelog_config, controls, tables), spill, tables)
        return findings

    def _read_tables(self, reader: RecordReader, reading: TopicReading) -> DiskTables:
        changelog = self._cluster.names.changelog
        cluster_id, topic_id = topics.read_cluster_id(self._cluster.admin), reading.described[changelog].topic_id
        tables = DiskTables(self._request.data_dirs, changelog, cluster_id, topic_id, self._scratch, self._findings)
        tables.read(reader)
        return tables

    def _is_entry_source(self, topic: str) -> bool:
        # Compaction may have left nothing in the changelog that says where an entry with a name came from.
        return self._registry.defines(topic) or matches(topic, self._request.schedules)

    def _context(
        self, all_outcomes: bool, dead_letters: dict[Any, VerifiableLetters], targets: dict[int, context.Target],
        changelog_config: Mapping[str, str], controls: Mapping[bytes, bytes], tables: DiskTables,
    ) -> VerifyContext:  # fmt: skip
        registry, own, probe = self._registry, self._cluster.names, TargetProbe(self._cluster.admin, writes=False)
        deletes_kept_ms = int(changelog_config.get("delete.retention.ms", DELETE_RETENTION_MS)) - _SLACK_MS
        return VerifyContext(
            self._names, all_outcomes, dead_letters, targets, deletes_kept_from_ms=self._now_ms - deletes_kept_ms,
            stuck_before_ms=self._now_ms - STUCK_MS, skew_ms=self._request.skew_ms,
            blocked=cache(add_limits_check(build_policy_check(registry, own, probe, controls), registry)),
            # No policy file limits entries with a name.
            named_blocked=cache(add_limits_check(build_control_check(probe, controls), Registry())),
            permitted=cache(lambda topic: registry.route(topic).list_permitted() | {own.parked, own.discarded}),
            tables=tables.compared, find_writer=RecordWriters(self._cluster.reader).find,
        )  # fmt: skip

    def _check(self, known: VerifyContext, spill: Spill, tables: DiskTables) -> None:
        findings, ordered = self._findings, Spill(self._scratch / "ordered", spill.rows)
        with self._bar("checking", spill.rows) as advance:
            for file in spill.files():
                rows = list(file)
                for letter in context.group_rows(rows):
                    if checks.is_named(known, letter):
                        findings.waiting += checks.find_waiting(known, letter) is not None
                        self._add_findings(checks.check_name(known, letter), tables)
                        continue
                    findings.letters += bool(letter.outcomes)
                    findings.waiting += len(letter.waiting)
                    self._add_findings(checks.check_letter(known, letter), tables)
                    for entry in checks.list_waiting_ordered(letter):
                        ordered.add_row(entry, entry.ordering_key)
                advance(len(rows))
        for entries in ordered.files():
            self._add_findings(checks.find_stuck_first(known, entries), tables)

    def _add_findings(self, found: Iterable[Finding], tables: DiskTables) -> None:
        for kind, sentence in found:
            if kind == TABLE:
                number, differs = sentence.split(": ", 1)
                tables.add_finding(int(number), differs)
            else:
                self._findings.add_finding(kind, sentence)


_MEMORY_BYTES = 32 << 20


class DiskTables:
    """The tables of data directories; `compared` has number and next offset of each that is, by changelog partition."""

    def __init__(
        self, folders: list[Path], changelog: str, cluster_id: str, topic_id: str, scratch: Path, findings: Findings
    ) -> None:
        self._cluster_id, self._topic_id, self._scratch, self._findings = cluster_id, topic_id, scratch, findings
        self.compared: dict[int, list[tuple[int, int]]] = {}
        paths = [path for folder in folders for path in sorted((folder / "tables").glob(f"{changelog}-*"))]
        self._paths = [path for path in paths if path.is_dir() and path.name.rsplit("-", 1)[1].isdigit()]

    def read(self, reader: RecordReader) -> None:
        """Take in the rows of all tables that can be compared."""
        memory = Memory(_MEMORY_BYTES)
        for number, path in enumerate(self._paths):
            partition = int(path.name.rsplit("-", 1)[1])
            try:
                with open_stored(path, self._scratch / f"table-{number}", memory) as table:
                    why = self._why_not_used(table, partition)
                    if table is None or why:
                        self._findings.uncompared[str(path)] = why or "empty"
                        continue
                    self.compared.setdefault(partition, []).append((number, table.next_offset))
                    self._findings.tables += 1
                    for sentence in _read_rows(table, number, partition, reader):
                        self.add_finding(number, sentence)
            except TableUnreadable as error:
                self._findings.uncompared[str(path)] = f"cannot be read, and would be restored: {error}"

    def leave_out_beyond(self, changelog_ends: dict[int, int]) -> None:
        """Leave out tables that reach further than the changelog does."""
        for partition, tables in self.compared.items():
            for number, next_offset in list(tables):
                if next_offset > changelog_ends.get(partition, 0):
                    tables.remove((number, next_offset))
                    self._findings.tables -= 1
                    self._findings.uncompared[str(self._paths[number])] = "reaches beyond the changelog, and would be restored"

    def add_finding(self, number: int, sentence: str) -> None:
        self._findings.differing.add(str(self._paths[number]))
        self._findings.add_finding(TABLE, f"{self._paths[number]}: {sentence}")

    def _why_not_used(self, table: Stored | None, partition: int) -> str | None:
        """Why a worker would not use this table but restore it."""
        if table is None:
            return "empty"
        reasons = {
            "has another format": not table.usable,
            "is of another changelog": table.identity != Identity(self._cluster_id, self._topic_id, partition),
            "was last current too long ago": clock.wall_ms() - table.current_at_ms > DELETE_RETENTION_MS // 2,
        }
        return next((f"{why}, and would be restored" for why, holds in reasons.items() if holds), None)


def _read_rows(table: Stored, number: int, partition: int, reader: RecordReader) -> Iterator[str]:
    """Take in the rows, and say what is wrong with them by themselves."""
    count = 0
    for key, envelope in table.rows:
        count += 1
        try:
            reader.add_table_row(number, partition, key, envelope)
        except EntryUnreadable as error:
            yield str(error)
    for key in table.strange:
        yield f"has a row of no kind: {key.hex()[:100]}"
    if count != table.waiting:
        yield f"counts {table.waiting} entries and has {count}"
