"""What is waiting, read from the changelog by any process, whether a worker runs or not; and what rescheduling would make of it.

The changelog is folded into a table of its own in a temporary directory, so memory stays bounded however much waits,
and nothing that a worker holds is touched. An entry that cannot be opened, since its key is not given, is an `Unopened`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from pathlib import Path
from typing import NamedTuple

from retry.delay_queue import action_records, entry_keys, envelopes
from retry.delay_queue.action_records import SLICE
from retry.delay_queue.blocks import WITHIN_MS
from retry.delay_queue.control_records import Reschedule
from retry.delay_queue.entry_keys import HELD_LANES, LANE_BYTES, Source, due_at_ms, lane_of, read_source
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec, make_codec
from retry.delay_queue.envelopes import Entry, SealedEnvelope
from retry.delay_queue.table import ordered_entries
from retry.delay_queue.table.interface import Identity, Table
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable
from retry.delivery.redecide import Move, Redecider
from retry.errors import EntryForeign, TopicsInvalid
from retry.intake.attempts import LineageTopic
from retry.intake.build_entry import EntryBuilder
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.offset_ranges import Span
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.telemetry.unreadable_records import UNREADABLE

_PAGE = 1_000
_MEMORY_BYTES = 32 << 20
_DUE_BYTES = 8


@contextmanager
def open_changelog_table(settings: Settings) -> Iterator[Table]:
    """Read the changelog as it is committed now into one table; raises `TopicsInvalid` where that is not possible."""
    yield from _fold_spans(settings, _read_spans(settings).values())


def load_shard_tables(settings: Settings) -> Iterator[tuple[int, Table]]:
    """Read each partition into a table of its own, as `open_changelog_table` does; it lasts until the next is asked for."""
    for partition, span in _read_spans(settings).items():
        for table in _fold_spans(settings, [span]):
            yield partition, table


def _read_spans(settings: Settings) -> dict[int, Span]:
    name, admin = topics.build_topic_names(settings.app_id).changelog, client_config.connect_admin(settings)
    described = topics.describe(admin, [name]).get(name)
    if described is None:
        raise TopicsInvalid([f"{name} is missing"], "retry topics create")
    return offset_ranges.find_readable_spans(admin, name, range(described.partitions))


def _fold_spans(settings: Settings, spans: Collection[Span]) -> Iterator[Table]:
    with (
        tempfile.TemporaryDirectory(prefix="retry-letters-") as scratch,
        closing(RocksTable(Path(scratch) / "table", Identity("", "", 0), Memory(_MEMORY_BYTES))) as table,
    ):
        for records in offset_ranges.read_batches(client_config.build_reader_config(settings), spans):
            unreadable = table.apply_records([(record.key(), record.value()) for record in records], 0, 0)  # type: ignore[misc]
            if unreadable:
                at = {record.key(): record for record in records}
                for key, why in unreadable:
                    UNREADABLE.pass_over(at[key].topic(), at[key].partition(), at[key].offset(), why)
        yield table


def scan_rows(table: Table) -> Iterator[tuple[bytes, bytes]]:
    """Read keys and envelopes of all waiting entries: first those that wait behind another, which may come forward meanwhile."""
    at = b""
    while behind := table.page_behind(at, _PAGE):
        yield from ((key, envelope) for _, key, envelope in behind)
        at = behind[-1][0]
    at = b""
    while page := table.scan_entries(at, _PAGE):
        yield from ((key, envelope) for _, key, envelope in page)
        at = page[-1][0]


def iterate_entries(table: Table, codec: EnvelopeCodec = PLAIN) -> Iterator[tuple[Source, Entry]]:
    return ((where, entry) for _, where, entry in iterate_waiting(table, b"", codec))


def iterate_waiting(table: Table, after: bytes, codec: EnvelopeCodec = PLAIN) -> Iterator[tuple[bytes, Source, Entry]]:
    """Read waiting entries in due order, each with its place in that order; only those behind the place `after`."""
    lanes = (_in_due_order(_of_lane(table, lane, lane + after[:_DUE_BYTES])) for lane in table.list_lanes())
    rows = merge(*lanes, _iterate_behind(table), key=lambda row: row[0][LANE_BYTES:])
    for key, envelope in rows:
        if key[LANE_BYTES:] > after:
            yield key[LANE_BYTES:], read_source(key), codec.decode_to_show(key, envelope)


def find(table: Table, wanted: Source, codec: EnvelopeCodec = PLAIN) -> Entry | None:
    """Find the entry that was made from a letter and is due at that moment."""
    for lane in table.list_lanes():
        for cursor, key, envelope in _of_lane(table, lane, entry_keys.build_due_bound(wanted.due_at_ms, lane)):
            if due_at_ms(cursor) >= wanted.due_at_ms + WITHIN_MS:
                break
            if read_source(key) == wanted:
                return codec.decode_to_show(key, envelope)
    return next(
        (codec.decode_to_show(key, envelope) for key, envelope in _iterate_behind(table) if read_source(key) == wanted), None
    )


class WaitingEntry(NamedTuple):
    """An entry that waits; `head` is the key of the earlier entry that it waits behind, if it does not wait for its own time."""

    key: bytes
    entry: Entry
    head: bytes | None


def find_entry(table: Table, topic: str, partition: int, offset: int, codec: EnvelopeCodec = PLAIN) -> WaitingEntry | None:
    """Find the entry that was made from a letter, whenever it is due; reads only lanes of its topic, then what waits behind.

    Where the topic was deleted and made anew, several letters have these coordinates; this is the newest one.
    """
    stem, found = entry_keys.build_key_stem(topic, partition), list[tuple[bytes, bytes, bytes | None]]()
    for lane in table.list_lanes():
        first = table.scan_entries(lane, 1)
        if not first or lane_of(first[0][0]) != lane or (lane not in HELD_LANES and read_source(first[0][1]).topic != topic):
            continue
        found += [(key, row, None) for _, key, row in _of_lane(table, lane, lane) if _is_from(key, stem, offset)]
    after = b""
    while page := table.page_behind(after, _PAGE):
        here = [(key, row) for _, key, row in page if _is_from(key, stem, offset)]
        found += [(key, row, ordered_entries.find_head(table, key)) for key, row in here]
        after = page[-1][0]
    if not found:
        return None
    key, envelope, head = max(found, key=lambda each: entry_keys.read_letter_number(each[0]))
    return WaitingEntry(key, codec.decode_to_show(key, envelope), head)


def _is_from(entry_key: bytes, stem: bytes, offset: int) -> bool:
    return entry_keys.extract_letter(entry_key)[:-8] == stem and read_source(entry_key).offset == offset


def _of_lane(table: Table, lane: bytes, after: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Read cursor, key and envelope of each entry of a lane, from a key on."""
    while page := table.scan_entries(after, _PAGE):
        for row in page:
            if lane_of(row[0]) != lane:
                return
            yield row
        after = page[-1][0]


def _in_due_order(of_lane: Iterable[tuple[bytes, bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Sort keys and envelopes of a lane; those of a block wait for blocks that may have earlier ones."""
    early: list[tuple[bytes, bytes, bytes]] = []
    for cursor, key, envelope in of_lane:
        while early and due_at_ms(early[0][1]) <= due_at_ms(cursor) - WITHIN_MS:
            yield heappop(early)[1:]
        heappush(early, (key[LANE_BYTES:], key, envelope))
    while early:
        yield heappop(early)[1:]


def _iterate_behind(table: Table) -> Iterator[tuple[bytes, bytes]]:
    """Read entries that wait behind another, in due order; only their keys are held in memory."""
    after, keys = b"", []
    while page := table.page_behind(after, _PAGE):
        keys += [key for _, key, _ in page]
        after = page[-1][0]
    return ((key, table.get(key) or b"") for key in sorted(keys, key=lambda key: key[LANE_BYTES:]))


# Under which keys something waits that is sealed: read from the changelog, without any key.

_SLICES_AT_ONCE = 100


@dataclass(slots=True)
class KeyUse:
    """The number of entries and edits that wait, sealed under one key or in clear.

    Attributes:
      held: entries that workers could not open.
      edits: of letters, in actions that are not done.
    """

    entries: int = 0
    held: int = 0
    edits: int = 0


def count_by_key(settings: Settings) -> dict[str | None, KeyUse]:
    """Count what waits under each key, by the id of the key; by None, what waits in clear.

    Raises:
      TopicsInvalid: there is no changelog, or it cannot be read.
      EntryNewer: something waits that a newer version wrote.
    """
    found: dict[str | None, KeyUse] = {}
    for _, table in load_shard_tables(settings):
        _count(table, found)
    return found


def _count(table: Table, found: dict[str | None, KeyUse]) -> None:
    for key, envelope in scan_rows(table):
        use = found.setdefault(_key_id(envelope), KeyUse())
        use.entries += 1
        use.held += entry_keys.is_held(key)
    after = b""
    while slices := table.list_slices(SLICE, _SLICES_AT_ONCE, after):
        after = slices[-1][0]
        for _, value in slices:
            for member in action_records.decode_slice(value).members:
                if member.envelope:
                    found.setdefault(_key_id(member.envelope), KeyUse()).edits += 1


def _key_id(envelope: bytes) -> str | None:
    try:
        of = envelopes.decode_routing(envelope)
    except EntryForeign as error:
        return error.key_id
    return of.key_id if isinstance(of, SealedEnvelope) else None


_EXAMPLES = 3
# Nothing is moved.
_NOWHERE = LineageTopic("", 1)

Group = tuple[str, str]


class Example(NamedTuple):
    """One entry that would move: what it is, when it would be due, and where it would go."""

    was: Source
    due_at_ms: int
    target: str
    reason: str | None


class Rehearsed(NamedTuple):
    """The changes that rescheduling would make to entries that wait.

    Attributes:
      counts: entries by team and new policy, then by what changes.
      examples: a few of each kind of change.
      left_alone: entries that are not asked for, parked already, or sealed under a key that is not given.
    """

    counts: dict[Group, Counter[Move]]
    examples: dict[Move, list[Example]]
    left_alone: int


def make_redecider(settings: Settings, registry: Registry) -> Redecider:
    """Decide on entries as a worker with these policies would; raises `TopicsInvalid` where topics are not as they should be."""
    admin, names = client_config.connect_admin(settings), topics.build_topic_names(settings.app_id)
    limits = topics.read_record_limits(admin, topics.check(admin, settings.app_id), registry.list_targets())
    return Redecider(registry, EntryBuilder(names.changelog, names.parked, limits, make_codec(settings)), _NOWHERE)


def rehearse_request(table: Table, redecider: Redecider, request: Reschedule) -> Rehearsed:
    """Compute what `request` would do to the entries of a table."""
    counts: dict[Group, Counter[Move]] = {}
    examples: dict[Move, list[Example]] = {}
    left_alone = 0
    for key, envelope in scan_rows(table):
        anew = redecider.redecide_entry(key, envelope, request)
        if anew is None:
            left_alone += 1
            continue
        counts.setdefault((anew.entry.team, anew.policy), Counter())[anew.move] += 1
        some = examples.setdefault(anew.move, [])
        if anew.move is not Move.UNCHANGED and len(some) < _EXAMPLES:
            packed = anew.packed
            some.append(Example(read_source(key), due_at_ms(packed.key), packed.destination, packed.reason))
    return Rehearsed(counts, {move: some for move, some in examples.items() if some}, left_alone)
