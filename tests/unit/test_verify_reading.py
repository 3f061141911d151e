"""Records → rows for `retry verify`, and what retention has left; strange records are findings and stop nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from retry.delay_queue import entry as entries
from retry.delay_queue.control_records import pause_key
from retry.delay_queue.entry import Entry
from retry.delay_queue.lane import Lane
from retry.kafka.topics import Described
from retry.telemetry import offset_records
from retry.operations.verify.deliveries import Deliveries
from retry.operations.verify.findings import Findings
from retry.operations.verify.retention import Kept, target
from retry.operations.verify.context import NEVER
from retry.operations.verify.records import Reading
from retry.operations.verify.rows import JUDGED, ORDERED, PARKED, UNKNOWN, Kind, Row, Words, pack, unpacked

NOW_MS = 1_700_000_000_000
LANE = Lane("team", "orders.DLT", "orders.retry")
OUTCOME = {"v": 1, "id": "00aa", "source": "orders.DLT/2/7", "team": "team", "topic": "orders.DLT", "attempt": 2,
           "taken_ms": NOW_MS, "decision": "retry", "due_ms": NOW_MS + 5, "target": "orders.retry"}  # fmt: skip
OURS = {"retry-id": b"00aa", "retry-attempt": b"2", "retry-source": b"orders.DLT/2/7", "retry-due-ms": b"%d" % NOW_MS}
APPEND, CREATE = 2, 1


class Message:
    """A consumed record."""

    def __init__(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes] | None = None,
        stamp: tuple[int, int] = (APPEND, NOW_MS),
    ) -> None:  # fmt: skip
        self.topic, self.partition, self.offset = (lambda: topic), (lambda: 1), (lambda: 3)
        self.key, self.value, self.timestamp = (lambda: key), (lambda: value), (lambda: stamp)
        self.headers = lambda: list(headers.items()) if headers else None


class Rows(list[Row]):
    """In place of files."""

    def add(self, row: tuple[int, ...]) -> None:
        self.append(next(unpacked(pack(*row))))


class Read:
    """A reading of nothing yet, of which the first ten records of a partition are judged."""

    def __init__(self, since_ms: int = 0) -> None:
        rows: Any = Rows()
        self.rows: Rows = rows
        self.found, self.words = Findings(), Words()
        self.reading = Reading(self.words, rows, self.found)
        self.reading.judged = {(topic, 1): 10 for topic in ("outcomes", "changelog", "orders.retry")}
        self.sent = Deliveries(self.reading, since_ms)


def entry_key(ordered: bool = False) -> bytes:
    stem = entries.key_stem("orders.DLT", 2)
    order = entries.order("team", "orders.DLT", b"key") if ordered else b""
    return entries.key(NOW_MS, order + stem, 7, entries.lane(*LANE, ordered))


def test_all_that_is_said_of_a_letter_is_said_under_its_coordinates() -> None:
    read = Read()
    envelope = entries.encode(Entry("orders.retry", b"key", b"value", [], NOW_MS, "team"))
    read.reading.outcome(Message("outcomes", b"00aa", orjson.dumps(OUTCOME)))
    read.reading.change(Message("changelog", entry_key(), envelope))
    read.reading.change(Message("changelog", entry_key(), None))
    read.sent.sent(Message("orders.retry", b"key", b"value", OURS))
    read.reading.stored(0, 1, entry_key(), envelope)
    assert {read.words.letter(row) for row in read.rows} == {"orders.DLT/2/7"}
    assert [row.kind for row in read.rows] == [Kind.OUTCOME, Kind.PUT, Kind.DELETE, Kind.SENT, Kind.STORED]
    assert {row.flags for row in read.rows[:4]} == {JUDGED}
    told, put, delete, sent, stored = read.rows
    assert (told.name, told.value) == (sent.name, sent.value)
    assert (put.name, put.value, put.number) == (stored.name, stored.value, NOW_MS)
    assert (delete.name, read.words.whose(delete), sent.stamp) == (put.name, LANE, NOW_MS)
    assert read.words.topics[told.extra] == "orders.retry"


def test_a_parked_letter_has_the_attempt_that_its_record_has() -> None:
    read = Read()
    read.reading.outcome(Message("outcomes", b"", orjson.dumps({**OUTCOME, "decision": "park", "due_ms": None, "attempt": 3})))
    [told] = read.rows
    assert (told.flags, told.value, told.number) == (JUDGED | PARKED, 2, NOW_MS)


def test_what_a_group_has_committed_is_no_outcome() -> None:
    read = Read()
    sampled = offset_records.to_json(offset_records.Position("shop", "orders.retry", 0, 7, NOW_MS))
    read.reading.outcome(Message("outcomes", offset_records.KEY, sampled))
    assert (read.rows, read.found.counts, read.reading.undone()) == ([], {}, 0)
    # But a letter's own record that is none is said to be.
    read.reading.outcome(Message("outcomes", b"00aa", sampled))
    assert read.found.counts == {"phantom": 1}


def test_an_ordered_entry_says_whose_queue_it_is_in() -> None:
    read = Read()
    read.reading.change(Message("changelog", entry_key(ordered=True), b""))
    [put] = read.rows
    assert put.flags == JUDGED | ORDERED
    assert put.stamp.to_bytes(8, "big", signed=True) == entries.order("team", "orders.DLT", b"key")


def test_controls_and_nulls_of_foreign_keys_are_no_entries() -> None:
    read = Read()
    read.reading.change(Message("changelog", pause_key("all", ""), b"{}"))
    read.reading.change(Message("changelog", b"\x77", None))
    assert (read.rows, read.found.counts) == ([], {})
    assert read.reading.controls == {(1, pause_key("all", "")): b"{}"}


@pytest.mark.parametrize(("topic", "key", "value"), [
    ("changelog", b"\x77", b"what"),
    ("changelog", None, b"what"),
    ("changelog", b"\x01short", b"what"),
    ("outcomes", b"", b"{}"),
    ("outcomes", b"", None),
    ("outcomes", b"", b"\xff"),
    ("outcomes", b"", orjson.dumps({**OUTCOME, "source": "nowhere"})),
    ("outcomes", b"", orjson.dumps({**OUTCOME, "attempt": -1})),
    ("outcomes", b"", orjson.dumps({**OUTCOME, "taken_ms": 1 << 63})),
])  # fmt: skip
def test_what_no_worker_writes_is_a_phantom(topic: str, key: bytes | None, value: bytes | None) -> None:
    read = Read()
    take = read.reading.change if topic == "changelog" else read.reading.outcome
    take(Message(topic, key, value))
    assert (read.rows, dict(read.found.counts)) == ([], {"phantom": 1})


@pytest.mark.parametrize("headers", [None, {"x": b"y"}, {"retry-at-ms": b"5"}])
def test_records_of_others_on_a_target_are_passed_over(headers: Mapping[str, bytes] | None) -> None:
    read = Read()
    read.sent.sent(Message("orders.retry", b"", b"", headers))
    assert (read.rows, read.found.counts) == ([], {})


@pytest.mark.parametrize("source", [b"nowhere", b"a/b/c", b"\xff/0/1", b"", b"/0/1", b"t/0/99999999999999999999999"])
def test_a_source_that_no_letter_has_is_a_phantom(source: bytes) -> None:
    read = Read()
    read.sent.sent(Message("orders.retry", b"", b"", {**OURS, "retry-source": source}))
    assert (read.rows, dict(read.found.counts)) == ([], {"phantom": 1})


@pytest.mark.parametrize(("stamp", "wanted"), [((APPEND, 5), 5), ((CREATE, 5), UNKNOWN), ((0, -1), UNKNOWN)])
def test_only_the_brokers_time_says_when_a_record_was_sent(stamp: tuple[int, int], wanted: int) -> None:
    read = Read()
    read.sent.sent(Message("orders.retry", b"", b"", OURS, stamp))
    assert [row.stamp for row in read.rows] == [wanted]


def test_what_was_sent_before_the_time_asked_for_is_left_out() -> None:
    read = Read(since_ms=NOW_MS + 1)
    read.sent.sent(Message("orders.retry", b"", b"", OURS))
    read.sent.sent(Message("orders.retry", b"", b"", OURS, (CREATE, 5)))
    assert [row.stamp for row in read.rows] == [UNKNOWN]


def test_a_delivery_too_large_for_a_source_goes_to_the_letter_of_its_id_and_attempt() -> None:
    read = Read()
    large = {name: value for name, value in OURS.items() if name in ("retry-id", "retry-attempt")}
    read.sent.sent(Message("orders.retry", b"", b"", large))
    read.sent.sent(Message("orders.retry", b"", b"", large))
    read.reading.outcome(Message("outcomes", b"", orjson.dumps(OUTCOME)))
    [told] = read.rows
    read.sent.name(told._replace(value=told.value + 1))
    assert len(read.rows) == 1
    read.sent.name(told)
    assert (read.rows[1][:3], read.rows[1].kind) == (told[:3], Kind.SENT)
    read.sent.end_nameless(whole=False)
    assert (sum(read.found.unjudged.values()), read.found.counts) == (1, {})
    read.sent.end_nameless(whole=True)
    assert dict(read.found.counts) == {"phantom": 1}


def test_undone_is_what_only_one_of_the_readers_sees() -> None:
    read = Read()
    told, put = Message("outcomes", b"", orjson.dumps(OUTCOME)), Message("changelog", entry_key(), b"")
    delivery = Message("orders.retry", b"", b"", OURS)
    for take, message in ((read.reading.outcome, told), (read.reading.change, put), (read.sent.sent, delivery)):
        take(message)
    for message in (told, put):
        read.reading.count(message)
    read.sent.seen(delivery)
    assert read.reading.undone() == 0
    read.sent.seen(delivery)
    read.reading.count(put)
    assert read.reading.undone() == 2


def kept(starts: dict[int, int], first_ms: dict[int, int], **config: str) -> Kept:
    return Kept(Described("", len(starts), {"message.timestamp.type": "LogAppendTime", **config}), starts, first_ms)


def test_what_is_left_of_a_topic_that_retention_has_cut() -> None:
    assert kept({0: 0, 1: 0}, {}).since_ms(NOW_MS) == 0
    assert kept({0: 0, 1: 9}, {0: 1, 1: NOW_MS}).since_ms(NOW_MS) == NOW_MS + 60_000
    # Emptied: what is gone was older than retention, where that goes by time alone.
    assert kept({0: 9}, {}, **{"retention.ms": "1000000"}).since_ms(NOW_MS) == NOW_MS - 1_000_000 + 60_000
    assert kept({0: 9}, {}, **{"retention.ms": "1000000", "retention.bytes": "5"}).since_ms(NOW_MS) == NEVER


@pytest.mark.parametrize(("about", "held_back", "since_ms"), [
    (kept({0: 0}, {}), False, 0),
    (kept({0: 0}, {}, **{"message.timestamp.type": "CreateTime"}), False, 0),
    (kept({0: 5}, {0: 7}), False, 60_007),
    (kept({0: 5}, {0: 7}, **{"message.timestamp.type": "CreateTime"}), False, NEVER),
    (kept({0: 0}, {}, **{"cleanup.policy": "compact,delete"}), False, NEVER),
    (kept({0: 0}, {}), True, NEVER),
])  # fmt: skip
def test_which_deliveries_can_still_be_found(about: Kept, held_back: bool, since_ms: int) -> None:
    assert target(about, NOW_MS, held_back=held_back).kept_from_ms == since_ms
