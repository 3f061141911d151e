"""Records → rows for `retry verify`, and what retention has left; strange records are findings and stop nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, blocks, control_records, entry_keys, envelopes, returned_offsets
from retry.delay_queue.action_records import Action
from retry.delay_queue.control_records import pause_key
from retry.delay_queue.entry_keys import Lane
from retry.delay_queue.envelopes import Entry
from retry.kafka.topics import Described
from retry.operations.verify.context import NEVER, Findings
from retry.operations.verify.deliveries import Deliveries
from retry.operations.verify.records import RecordReader
from retry.operations.verify.rows import PACK, UNKNOWN, NameTable, Returned, Row, RowKind, unpack_rows
from retry.operations.verify.topic_reading import RetainedOffsets, describe_target
from retry.policies.registry import Registry
from retry.telemetry import offset_records, outcomes
from retry.telemetry.outcomes import ActionOutcome, SharedFields
from retry.telemetry.unreadable_records import UNREADABLE
from tests.support.blocks import block_of
from tests.support.outcome_records import tell_of

NOW_MS = 1_700_000_000_000
LANE = Lane("team", "orders.DLT", "orders.retry")
OUTCOME = {"v": 1, "id": "00aa", "source": "orders.DLT/2/7", "team": "team", "topic": "orders.DLT", "attempt": 2,
           "taken_ms": NOW_MS, "decision": "retry", "due_ms": NOW_MS + 5, "target": "orders.retry", "policy": "team/orders.DLT",
           "exception": None, "first_failed_ms": NOW_MS, "failed_ms": NOW_MS, "reason": None, "cause": None,
           "fingerprint": None, "group": None, "action": None, "action_kind": None}  # fmt: skip
OURS = {"retry-id": b"00aa", "retry-attempt": b"2", "retry-source": b"orders.DLT/2/7", "retry-due-ms": b"%d" % NOW_MS}
APPEND, CREATE = 2, 1
PAUSE = control_records.encode(control_records.Pause(NOW_MS, "why"))


def count_unreadable(topic: str) -> int:
    return sum(each.records for each in UNREADABLE.list_topics() if each.topic == topic)


class Message:
    """A consumed record with what is asked of it."""

    def __init__(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes] | None = None,
        stamp: tuple[int, int] = (APPEND, NOW_MS),
    ) -> None:  # fmt: skip
        self.topic, self.partition, self.offset = (lambda: topic), (lambda: 1), (lambda: 3)
        self.key, self.value, self.timestamp = (lambda: key), (lambda: value), (lambda: stamp)
        self.headers = lambda: list(headers.items()) if headers else None


class Rows(list[Any]):
    """In place of files."""

    def add_row(self, row: Row) -> None:
        self.append(next(unpack_rows(PACK[row.kind](*row))))


class Read:
    """A reader of nothing yet; the first ten records of a partition are in scope."""

    def __init__(self, since_ms: int = 0) -> None:
        rows: Any = Rows()
        self.rows: Rows = rows
        self.findings, self.names = Findings(), NameTable()
        self.reader = RecordReader(self.names, rows, self.findings)
        self.reader.scope_ends = {(topic, 1): 10 for topic in ("outcomes", "changelog", "orders.retry")}
        self.deliveries = Deliveries(self.reader, since_ms, Registry().permits_parking)


def test_a_delivery_says_whether_it_was_returned_from_there_since() -> None:
    read, parked, topic = Read(), Message("orders.parked", b"key", b"value", OURS), returned_offsets.hash_topic_id("an id")
    block = returned_offsets.ParkedPlace(topic, 1, 3).block()
    read.deliveries.topic_ids = {"orders.parked": "an id"}
    states = []
    for bits, in_scope in ((2, True), (3, False), (3, True)):
        read.reader.scope_ends["changelog", 1] = 10 if in_scope else 0
        read.reader.read_change(Message("changelog", block, returned_offsets.mark_offset(None, bits)))
        read.deliveries.add_committed(parked)
        states.append(read.rows[-1].returned)
    assert states == [Returned.NO, Returned.OUT_OF_SCOPE, Returned.YES]
    read.deliveries.topic_ids = {"orders.parked": "the id of that topic made anew"}
    read.deliveries.add_committed(parked)
    assert read.rows[-1].returned == Returned.NO
    assert read.findings.clean()


def test_what_is_no_bitmap_goes_back_to_no_letter() -> None:
    read = Read()
    read.reader.read_change(Message("changelog", returned_offsets.ParkedPlace(b"t" * 16, 0, 0).block(), b"short"))
    assert (read.findings.counts, count_unreadable("changelog")) == ({}, 1)


def entry_key(ordered: bool = False) -> bytes:
    stem = entry_keys.build_key_stem("orders.DLT", 2)
    order = entry_keys.hash_record_key("team", "orders.DLT", b"key") if ordered else b""
    return entry_keys.build_key(NOW_MS, order + stem, 7, entry_keys.lane(*LANE, ordered))


def test_all_that_is_said_of_a_letter_is_said_under_its_coordinates() -> None:
    read = Read()
    envelope = envelopes.encode(Entry("orders.retry", b"key", b"value", [], NOW_MS, "team"))
    read.reader.add_outcome(Message("outcomes", b"00aa", orjson.dumps(tell_of(OUTCOME))))
    read.reader.read_change(Message("changelog", entry_key(), envelope))
    read.reader.read_change(Message("changelog", entry_key(), None))
    read.deliveries.add_committed(Message("orders.retry", b"key", b"value", OURS))
    read.reader.add_table_row(0, 1, entry_key(), envelope)
    assert {read.names.format_letter(row) for row in read.rows} == {"orders.DLT/2/7"}
    assert [row.kind for row in read.rows] == [RowKind.OUTCOME, RowKind.PUT, RowKind.DELETE, RowKind.DELIVERY, RowKind.TABLE]
    assert all(row.in_scope for row in read.rows[:4])
    outcome, put, delete, delivery, on_disk = read.rows
    assert (put.key_hash, put.envelope_hash, put.due_ms) == (on_disk.key_hash, on_disk.envelope_hash, NOW_MS)
    assert (delete.key_hash, read.names.lane_of(delete), delivery.appended_ms) == (put.key_hash, LANE, NOW_MS)
    assert read.names.topics[outcome.target] == "orders.retry"


def test_what_is_said_of_a_block_is_said_of_each_of_its_letters() -> None:
    read, (key, value) = Read(), block_of(3)
    read.reader.read_change(Message("changelog", key, value))
    read.reader.read_change(Message("changelog", *blocks.list_rows(key, value)[0]))
    read.reader.read_change(Message("changelog", key, None))
    puts, [alone], deletes = read.rows[:3], read.rows[3:4], read.rows[4:]
    assert [read.names.format_letter(row) for row in puts] == [read.names.format_letter(row) for row in deletes]
    assert [row.in_block for row in read.rows] == [True] * 3 + [False] + [True] * 3
    assert (alone.key_hash, alone.envelope_hash) == (puts[0].key_hash, puts[0].envelope_hash)
    assert [row.key_hash for row in puts] == [row.key_hash for row in deletes]


def test_a_parked_letter_has_the_attempt_that_its_record_has() -> None:
    read = Read()
    parked = tell_of({**OUTCOME, "decision": "park", "due_ms": None, "attempt": 3})
    read.reader.add_outcome(Message("outcomes", b"", orjson.dumps(parked)))
    [outcome] = read.rows
    assert (outcome.in_scope, outcome.attempt, outcome.due_ms) == (True, 2, NOW_MS)


def test_what_an_action_has_decided_is_evidence_of_targets_and_no_second_outcome_of_its_letter() -> None:
    read = Read()
    shared = SharedFields("team", "orders.DLT", 2, "team/orders.DLT", 2, None, "retry", None, "orders.slow", None, None, None)
    letters = {shared: [(b"00aa", 7, NOW_MS, NOW_MS, NOW_MS + 5)]}
    acted = outcomes.encode_outcomes(defaultdict(list, letters), NOW_MS + 9, ActionOutcome("0a", "redirect"))
    for value in (orjson.dumps(tell_of(OUTCOME)), *acted):
        read.reader.add_outcome(Message("outcomes", b"00aa", value))
    assert [row.taken_ms for row in read.rows] == [NOW_MS]
    assert read.reader.targets == {"orders.retry", "orders.slow"}
    slow = Lane("team", "orders.DLT", "orders.slow")
    assert read.names.lane_parts[entry_keys.lane(*slow)] == slow
    assert read.findings.clean()


def test_what_a_group_has_committed_is_no_outcome() -> None:
    read = Read()
    sampled = offset_records.to_json(offset_records.Position("shop", "orders.retry", 0, 7, NOW_MS))
    read.reader.add_outcome(Message("outcomes", offset_records.KEY, sampled))
    assert (read.rows, read.findings.counts, read.reader.count_aborted()) == ([], {}, 0)
    # But a letter's own record that is none is counted.
    read.reader.add_outcome(Message("outcomes", b"00aa", sampled))
    assert (read.findings.counts, count_unreadable("outcomes")) == ({}, 1)


def test_an_ordered_entry_says_whose_queue_it_is_in() -> None:
    read = Read()
    read.reader.read_change(Message("changelog", entry_key(ordered=True), b""))
    [put] = read.rows
    assert (put.in_scope, put.version) == (True, UNKNOWN)
    assert put.ordering_key.to_bytes(8, "big", signed=True) == entry_keys.hash_record_key("team", "orders.DLT", b"key")


def test_controls_and_nulls_of_foreign_keys_are_no_entries() -> None:
    read = Read()
    read.reader.read_change(Message("changelog", pause_key("all", ""), PAUSE))
    read.reader.read_change(Message("changelog", b"\x77", None))
    assert (read.rows, read.findings.counts) == ([], {})
    assert read.reader.controls == {(1, pause_key("all", "")): PAUSE}


def test_slices_and_controls_of_actions_are_no_entries() -> None:
    read, action = Read(), action_records.make_action_id()
    head = action_records.encode(Action("discard", "anna", NOW_MS, [1], 1))
    read.reader.read_change(
        Message("changelog", action_records.build_slice_key(action, 0, 0), action_records.encode_slice([], NOW_MS))
    )
    read.reader.read_change(Message("changelog", action_records.build_slice_key(action, 0, 0), None))
    read.reader.read_change(Message("changelog", action_records.build_head_key(action), head))
    assert (read.rows, read.findings.counts) == ([], {})
    assert read.reader.controls == {(1, action_records.build_head_key(action)): head}


def test_a_former_version_of_a_letter_is_no_delivery_and_a_discarded_letter_is_one() -> None:
    read = Read()
    marks = {names.ACTION: b"0a", names.ACTION_BEFORE: names.SUPERSEDED}
    read.deliveries.add_committed(Message("app-discarded", b"key", b"value", {**OURS, **marks}))
    read.deliveries.add_uncommitted(Message("app-discarded", b"key", b"value", {**OURS, **marks}))
    assert (read.rows, read.reader.count_aborted()) == ([], 0)
    marks[names.ACTION_BEFORE] = b"%d 0 orders.retry" % NOW_MS
    read.deliveries.add_committed(Message("app-discarded", b"key", b"value", {**OURS, **marks}))
    assert [row.kind for row in read.rows] == [RowKind.DELIVERY]


@pytest.mark.parametrize(("topic", "key", "value"), [
    ("changelog", b"\x77", b"what"),
    ("changelog", None, b"what"),
    ("changelog", b"\x01short", b"what"),
    ("outcomes", b"", b"{}"),
    ("outcomes", b"", None),
    ("outcomes", b"", b"\xff"),
    ("outcomes", b"", orjson.dumps(tell_of({**OUTCOME, "topic": "no topic"}))),
    ("outcomes", b"", orjson.dumps(tell_of({**OUTCOME, "attempt": -1}))),
    ("outcomes", b"", orjson.dumps(tell_of({**OUTCOME, "taken_ms": 1 << 63}))),
])  # fmt: skip
def test_what_no_worker_writes_is_counted_and_is_no_finding(topic: str, key: bytes | None, value: bytes | None) -> None:
    read = Read()
    take = read.reader.read_change if topic == "changelog" else read.reader.add_outcome
    take(Message(topic, key, value))
    assert (read.rows, dict(read.findings.counts), count_unreadable(topic)) == ([], {}, 1)


@pytest.mark.parametrize("headers", [None, {"x": b"y"}, {"retry-at-ms": b"5"}])
def test_records_of_others_on_a_target_are_passed_over(headers: Mapping[str, bytes] | None) -> None:
    read = Read()
    read.deliveries.add_committed(Message("orders.retry", b"", b"", headers))
    assert (read.rows, read.findings.counts) == ([], {})


@pytest.mark.parametrize("source", [b"nowhere", b"a/b/c", b"\xff/0/1", b"", b"/0/1", b"t/0/99999999999999999999999"])
def test_a_source_that_no_letter_has_is_a_phantom(source: bytes) -> None:
    read = Read()
    read.deliveries.add_committed(Message("orders.retry", b"", b"", {**OURS, "retry-source": source}))
    assert (read.rows, dict(read.findings.counts)) == ([], {"phantom": 1})


@pytest.mark.parametrize(("stamp", "wanted"), [((APPEND, 5), 5), ((CREATE, 5), UNKNOWN), ((0, -1), UNKNOWN)])
def test_only_the_brokers_time_says_when_a_record_was_sent(stamp: tuple[int, int], wanted: int) -> None:
    read = Read()
    read.deliveries.add_committed(Message("orders.retry", b"", b"", OURS, stamp))
    assert [row.appended_ms for row in read.rows] == [wanted]


def test_what_was_sent_before_the_time_asked_for_is_left_out() -> None:
    read = Read(since_ms=NOW_MS + 1)
    read.deliveries.add_committed(Message("orders.retry", b"", b"", OURS))
    read.deliveries.add_committed(Message("orders.retry", b"", b"", OURS, (CREATE, 5)))
    assert [row.appended_ms for row in read.rows] == [UNKNOWN]


def test_a_delivery_too_large_for_a_source_goes_to_the_letter_of_its_id_and_attempt() -> None:
    read = Read()
    large = {name: value for name, value in OURS.items() if name in ("retry-id", "retry-attempt")}
    read.deliveries.add_committed(Message("orders.retry", b"", b"", large))
    read.deliveries.add_committed(Message("orders.retry", b"", b"", large))
    read.reader.add_outcome(Message("outcomes", b"", orjson.dumps(tell_of(OUTCOME))))
    [outcome] = read.rows
    read.deliveries.match(outcome._replace(attempt=outcome.attempt + 1))
    assert len(read.rows) == 1
    read.deliveries.match(outcome)
    assert (read.rows[1][1:4], read.rows[1].kind) == (outcome[1:4], RowKind.DELIVERY)
    read.deliveries.end_matching(all_outcomes=False)
    assert (sum(read.findings.unchecked.values()), read.findings.counts) == (1, {})
    read.deliveries.end_matching(all_outcomes=True)
    assert dict(read.findings.counts) == {"phantom": 1}


def test_undone_is_what_only_one_of_the_readers_sees() -> None:
    read = Read()
    outcome, put = Message("outcomes", b"", orjson.dumps(tell_of(OUTCOME))), Message("changelog", entry_key(), b"")
    delivery = Message("orders.retry", b"", b"", OURS)
    takes = (read.reader.add_outcome, outcome), (read.reader.read_change, put), (read.deliveries.add_committed, delivery)
    for take, message in takes:
        take(message)
    for message in (outcome, put):
        read.reader.add_uncommitted(message)
    read.deliveries.add_uncommitted(delivery)
    assert read.reader.count_aborted() == 0
    read.deliveries.add_uncommitted(delivery)
    read.reader.add_uncommitted(put)
    assert read.reader.count_aborted() == 2


def make_retained(starts: dict[int, int], first_ms: dict[int, int], **config: str) -> RetainedOffsets:
    return RetainedOffsets(Described("", len(starts), {"message.timestamp.type": "LogAppendTime", **config}), starts, first_ms)


def test_what_is_left_of_a_topic_that_retention_has_cut() -> None:
    assert make_retained({0: 0, 1: 0}, {}).since_ms(NOW_MS) == 0
    assert make_retained({0: 0, 1: 9}, {0: 1, 1: NOW_MS}).since_ms(NOW_MS) == NOW_MS + 60_000
    # Emptied: what is gone was older than retention, where that goes by time alone.
    assert make_retained({0: 9}, {}, **{"retention.ms": "1000000"}).since_ms(NOW_MS) == NOW_MS - 1_000_000 + 60_000
    assert make_retained({0: 9}, {}, **{"retention.ms": "1000000", "retention.bytes": "5"}).since_ms(NOW_MS) == NEVER


@pytest.mark.parametrize(("about", "open_transaction", "since_ms"), [
    (make_retained({0: 0}, {}), False, 0),
    (make_retained({0: 0}, {}, **{"message.timestamp.type": "CreateTime"}), False, 0),
    (make_retained({0: 5}, {0: 7}), False, 60_007),
    (make_retained({0: 5}, {0: 7}, **{"message.timestamp.type": "CreateTime"}), False, NEVER),
    (make_retained({0: 0}, {}, **{"cleanup.policy": "compact,delete"}), False, NEVER),
    (make_retained({0: 0}, {}), True, NEVER),
])  # fmt: skip
def test_which_deliveries_can_still_be_found(about: RetainedOffsets, open_transaction: bool, since_ms: int) -> None:
    assert describe_target(about, NOW_MS, open_transaction=open_transaction).kept_from_ms == since_ms
