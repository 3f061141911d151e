"""One shard for a test of its sweep: a changelog partition, its table, its producer, a gate, and topics to deliver to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from retry.delay_queue import blocks, entry_keys, envelopes
from retry.delay_queue.entry_keys import Lane
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry, Named
from retry.delay_queue.table.interface import Table
from retry.delivery.admission import Admission, RefusedEntries
from retry.delivery.due_batch import DueRow, give_back
from retry.delivery.hold import Holding
from retry.delivery.movers import MoveContext, explode_blocks
from retry.delivery.sweep import (
    NOTHING,
    ChangelogPartition,
    SweepContext,
    SweepResult,
    deliver,
    finish_sweep,
    select,
)
from retry.intake.gather_blocks import encode_block
from retry.kafka.interface import SweepProducer
from retry.kafka.record_limits import RecordLimits
from retry.record import Header
from retry.testing.kafka import MemoryLog, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable
from tests.support.acted import entry_actions, move_context
from tests.support.blocks import SHARED, letters_of, seal_letters

NOW_MS = 1_700_000_000_000
CHANGELOG = ChangelogPartition("changelog", 1)


def sweep(
    table: Table, writer: SweepProducer, changelog: ChangelogPartition, admission: Admission, now_ms: int, rows_max: int,
    bytes_max: int, codec: EnvelopeCodec = PLAIN, hold: Callable[[Sequence[DueRow]], None] | None = None,
) -> SweepResult:  # fmt: skip
    """Sweep one shard, as a worker does that has no other."""
    context = SweepContext(writer, admission, now_ms, codec)
    selected = select(table, changelog, admission, now_ms, rows_max, bytes_max, codec)
    if selected is not None and selected.unopened:
        assert hold is not None
        hold(selected.unopened)
        return NOTHING
    if selected is not None and selected.to_explode:
        give_back(admission, selected.batch.rows)
        explode_blocks(writer, table, changelog, selected.to_explode)
        return NOTHING
    return NOTHING if selected is None else finish_sweep(deliver([selected], context)[0], context)


class Door:
    """An admission that is open but to some destinations, and for so many entries of a team."""

    def __init__(self) -> None:
        self.lanes: dict[bytes, Lane] = {}
        self.record_limits, self.refused_entries = RecordLimits(), RefusedEntries()
        self.keeps_timestamps = False
        self.closed: dict[str, str] = {}
        self.allowed: dict[str, int] = {}
        self.asked: list[Lane] = []
        self.took: set[str] = set()
        self.doubted = False

    def acquire_permits(self, lane: Lane, wanted: int, now_ms: int, controls: Mapping[bytes, bytes]) -> int:
        self.asked.append(lane)
        allowed = 0 if lane.destination in self.closed else min(wanted, self.allowed.get(lane.team, wanted))
        if lane.team in self.allowed:
            self.allowed[lane.team] -= allowed
        return allowed

    def give_back(self, lane: Lane, entries: int) -> None:
        if lane.team in self.allowed:
            self.allowed[lane.team] += entries

    def renews_timestamp(self, lane: Lane) -> bool:
        return not self.keeps_timestamps or "parked" in lane.destination

    def probe_targets(self, destinations: set[str]) -> dict[str, str]:
        return {}

    def note_doubt(self, now_ms: int) -> None:
        self.doubted = True

    def has_doubts(self, now_ms: int) -> bool:
        return self.doubted

    def note_refused(self, destination: str, why: str, now_ms: int) -> None:
        self.closed[destination] = why

    def note_delivered(self, destinations: Iterable[str]) -> None:
        self.took |= set(destinations)


class Bench:
    """One shard: a changelog partition, its table, its producer, and topics to deliver to."""

    def __init__(self, table: Table | None = None, codec: EnvelopeCodec = PLAIN) -> None:
        self.log, self.table, self.codec = MemoryLog(), table or MemoryTable(), codec
        self.log.create("changelog", 2)
        self.log.create("retry", 3)
        self.log.create("slow", 1)
        self.log.create("narrow", 1, bytes_max=120)
        self.admission = Door()
        self.admission.record_limits = RecordLimits(self.log.limits)
        self.open()

    def open(self) -> None:
        """Take over from whoever had the shard."""
        self.writer, self.holding = MemoryTransactionalProducer(self.log, "shard-1"), Holding(CHANGELOG, self.table)
        self.writer.open()

    def put(
        self, due_at_ms: int, value: bytes = b"v", to: str = "retry", envelope: bytes | None = None,
        team: str = "team", ordered: bool = False,
    ) -> bytes:  # fmt: skip
        """Put an entry into the changelog and the table; its key."""
        stem = entry_keys.hash_record_key(team, "orders.DLT", b"k") * ordered + entry_keys.build_key_stem("orders.DLT", 0)
        offset, lane = len(self.log.read("changelog")), entry_keys.lane(team, "orders.DLT", to, ordered)
        key = entry_keys.build_key(due_at_ms, stem, offset, lane)
        entry = Entry(to, b"k", value, [("retry-id", b"1")], None, team)
        self.write([(key, envelope or self.codec.encode(key, entry))])
        return key

    def named(
        self, due_at_ms: int, version: int, value: bytes = b"v", to: str = "retry", name: bytes = b"n", fold: bool = True,
        headers: Sequence[Header] = (), **also: Any,
    ) -> bytes:  # fmt: skip
        """Put an entry with a name; its key."""
        lane, stem = entry_keys.build_named_lane("door", "schedules", to), entry_keys.build_key_stem("schedules", 0)
        key = entry_keys.build_named_key(due_at_ms, entry_keys.hash_name("door", "schedules", name), version, stem, version, lane)
        entry = Named(to, b"k", value, [*headers], None, "door", **also)
        self.write([(key, self.codec.encode(key, entry))], fold=fold)
        return key

    def block(self, due_at_ms: int, values: Sequence[bytes], to: str = "retry", team: str = "team") -> tuple[bytes, bytes]:
        """Put a block of entries with these values; its record."""
        first = len(self.log.read("changelog"))
        shared = SHARED._replace(lane=entry_keys.lane(team, "orders.DLT", to), destination=to, team=team)
        letters = letters_of(len(values), first, due_at_ms - len(values) + 1)
        letters = [each._replace(value=value) for each, value in zip(letters, values, strict=True)]
        row = encode_block(shared, letters if self.codec.is_plain else seal_letters(self.codec, shared, letters))
        self.write([row])
        return row

    def cancel(self, version: int, name: bytes = b"n") -> bytes:
        """Cancel a name; the key of the cancel."""
        of, stem = entry_keys.hash_name("door", "schedules", name), entry_keys.build_key_stem("schedules", 0)
        row = envelopes.build_cancel(of, version, stem, version)
        self.write([row])
        return row[0]

    def write(self, rows: Sequence[tuple[bytes, bytes]], fold: bool = True) -> None:
        """Put records into the changelog, and into the table if it is to know."""
        self.writer.begin()
        self.writer.write(*CHANGELOG, [{"key": key, "value": value} for key, value in rows])
        self.writer.commit()
        if fold:
            self.fold()

    def fold(self) -> None:
        """Bring the table up to the changelog, as the table agent does."""
        new = [r for r in self.log.read("changelog") if r.partition() == 1 and r.offset() >= self.table.next_offset]
        rows = [(r.key() or b"", r.value()) for r in new]
        self.table.apply_records(rows, new[-1].offset() + 1 if new else self.table.next_offset, NOW_MS)

    def sweep(self, now_ms: int = NOW_MS, rows_max: int = 100, bytes_max: int = 1 << 20) -> SweepResult:
        """Sweep one batch of entries."""
        return sweep(
            self.table, self.writer, CHANGELOG, self.admission, now_ms, rows_max, bytes_max, self.codec, self.hold
        )  # fmt: skip

    def hold(self, rows: Sequence[DueRow]) -> None:
        """Move those that cannot be opened out of the way."""
        self.holding.quarantine_entries(rows, self.context())

    def end(self) -> int:
        """Return where the partition ends, with undecided records, but no marks of transactions, which `fold` does not pass."""
        partition = self.log.topics["changelog"][1]
        if partition.stable < partition.end:
            return partition.end
        return max((r.offset() + 1 for r in self.log.read("changelog") if r.partition() == 1), default=0)

    def release(self, now_ms: int = NOW_MS, rows_max: int = 100) -> int:
        """Look at one batch of what is held; how many entries of it are held no more."""
        return self.holding.move_batch(self.context(now_ms, rows_max)).entries

    def context(self, now_ms: int = NOW_MS, rows_max: int = 100) -> MoveContext:
        redecider = entry_actions(codec=self.codec).redecider
        return move_context(self.writer, redecider, now_ms, admission=self.admission, rows_max=rows_max, end=self.end)

    def delivered(self, topic: str = "retry") -> list[bytes | None]:
        """Values that a reader sees, in the order of their offsets (all have one key)."""
        return [record.value() for record in self.log.read(topic)]

    def live(self) -> dict[bytes, bytes]:
        """The fold of the changelog from its beginning: what a new owner would find."""
        folded = {record.key() or b"": record.value() for record in self.log.read("changelog")}
        return {key: value for key, value in folded.items() if value is not None}

    def agrees(self) -> bool:
        """Whether the table is the changelog's fold."""
        self.fold()
        behind = {key: envelope for _, key, envelope in self.table.page_behind(b"", 1_000)}
        live = {key: envelope for row in self.live().items() for key, envelope in blocks.list_rows(*row)}
        return dict(row[1:] for row in self.table.scan_entries(b"", 1_000)) | behind == live
