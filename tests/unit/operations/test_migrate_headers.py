"""A record that waits in another service → the headers of the letter, and whose group counts."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters.dead_letter import read
from retry.errors import MigrationStopped
from retry.operations.migrate.plan import Conversion, Plan, convert_cronsumer_headers, convert_spring_headers, find_readers
from retry.record import Headers, Record
from tests.fixtures import make_letters

CAPTURED = Path(make_letters.__file__).parent / "captured" / "spring-kafka.jsonl"
CRONSUMER = CAPTURED.with_name("kafka-cronsumer.jsonl")
PLACE = b"orders-retry-200/1/0"
DUE_MS = 1_795_284_665_206


def on_its_way(topic: str) -> Headers:
    """Headers that Spring wrote to a retry topic."""
    letters = map(json.loads, CAPTURED.read_text().splitlines())
    headers = next(letter["headers"] for letter in letters if letter["topic"] == topic)
    return [(name, None if coded is None else base64.b64decode(coded)) for name, coded in headers]


def spring(attempts: bytes | None, backoff: bytes | None) -> Headers:
    told = [("retry_topic-attempts", attempts), ("retry_topic-backoff-timestamp", backoff)]
    return [(name, value) for name, value in told if value is not None]


@pytest.mark.parametrize(("topic", "made"), [("orders-retry-200", 0), ("orders-retry-400", 1)])
def test_what_spring_wrote_keeps_its_headers_its_count_and_its_time(topic: str, made: int) -> None:
    headers = on_its_way(topic)
    told = convert_spring_headers(headers, PLACE)
    assert told is not None and told[: len(headers)] == headers
    letter = read(Record(("orders-dlt", 1, 0), b"k", b"v", told, (1, DUE_MS)))
    last = int.from_bytes([value for name, value in headers if name == "retry_topic-backoff-timestamp"][-1] or b"", "big")
    assert (letter.retries_made, letter.retry_at_ms) == (made, last)
    assert (letter.failure.family, letter.failure.origin_topic, letter.failure.attempts) == ("spring-kafka", "orders", made + 1)
    assert dict(told)["retry-migrated-from"] == PLACE


@pytest.mark.parametrize(
    ("attempts", "backoff", "made", "due_ms"),
    [
        (b"\x00\x00\x00\x05", DUE_MS.to_bytes(6, "big"), 3, DUE_MS),
        (b"\x03", DUE_MS.to_bytes(8, "big"), 1, DUE_MS),  # as older ones count
        (b"\x00\x00\x00\x02", None, 0, None),
        (None, DUE_MS.to_bytes(6, "big"), 0, DUE_MS),
        (b"many", b"", 0, None),
        (b"\x00\x01\x00\x00", b"\xff" * 6, 0, None),  # beyond Spring's cap, and before 1970
        (b"\x00\x00\x00\x02", b"\x05", 0, None),  # 5 ms after 1970: no time at which anything is due
    ],
)
def test_what_spring_would_make_of_odd_values(
    attempts: bytes | None, backoff: bytes | None, made: int, due_ms: int | None
) -> None:
    told = convert_spring_headers(spring(attempts, backoff), PLACE)
    assert told is not None
    letter = read(Record(("orders-dlt", 1, 0), None, b"v", told, (1, DUE_MS)))
    assert (letter.retries_made, letter.retry_at_ms) == (made, due_ms)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("written by the application", 0), ("failed once", 1), ("failed once, two counts of the application", 1),
        ("came to too early", 1), ("linear strategy, failed once and waits", 1), ("stopped before it was processed", 1),
        ("failed twice", 2), ("exponential strategy, failed twice and waits", 2),
    ],
)  # fmt: skip
def test_what_cronsumer_wrote_keeps_its_headers_and_its_count(name: str, made: int) -> None:
    letters = map(json.loads, CRONSUMER.read_text().splitlines())
    coded = next(letter["headers"] for letter in letters if letter["name"] == name)
    headers: Headers = [(header, None if value is None else base64.b64decode(value)) for header, value in coded]
    told = convert_cronsumer_headers(headers, PLACE)
    assert told is not None and told[: len(headers)] == headers
    letter = read(Record(("orders-dlt", 1, 0), b"k", b"v", told, (1, DUE_MS)))
    assert (letter.retries_made, letter.retry_at_ms, dict(told)["retry-migrated-from"]) == (made, None, PLACE)


@pytest.mark.parametrize(
    ("values", "made"), [([b"3"], 3), ([b"2", b"9"], 2), ([b"x", b"9"], 0), ([b"-1"], 0), ([b"0"], 0), ([], 0)]
)
def test_cronsumer_counts_by_its_first_header_and_takes_any_record(values: list[bytes], made: int) -> None:
    headers: Headers = [("trace", b"t"), *(("x-retry-count", value) for value in values)]
    told = convert_cronsumer_headers(headers, PLACE)
    assert told is not None and told[: len(headers)] == headers
    letter = read(Record(("orders-dlt", 1, 0), None, b"v", told, (1, DUE_MS)))
    assert (letter.retries_made, letter.retry_at_ms) == (made, None)


@given(st.lists(st.tuples(st.sampled_from(["a", "x-retry-count", "retry_topic-attempts", "retry_topic-backoff-timestamp"]),
                          st.none() | st.binary(max_size=12))))  # fmt: skip
def test_no_headers_are_refused_changed_or_lost(headers: Headers) -> None:
    for convert in (convert_spring_headers, convert_cronsumer_headers):
        told = convert(headers, PLACE)
        ours = any(name.startswith("retry_topic-") for name, _ in headers)
        assert (told is None) == (convert is convert_spring_headers and not ours)
        assert told is None or (told[: len(headers)] == headers and read(Record(("d", 0, 0), None, None, told, (1, 1))))


def test_a_record_that_came_back_from_here_keeps_the_higher_count_and_is_moved_from_where_it_lies_now() -> None:
    before = convert_spring_headers(
        [*spring(b"\x00\x00\x00\x05", None), ("retry-id", b"00000000deadbeef")], b"orders-retry-1/0/7"
    )
    assert before is not None
    told = convert_spring_headers([*before, *spring(b"\x00\x00\x00\x02", None)], PLACE)
    assert told is not None
    assert [value for name, value in told if name == "retry-migrated-from"] == [PLACE]
    assert (dict(told)["retry-attempt"], dict(told)["retry-id"]) == (b"3", b"00000000deadbeef")


class Garbled(Record):
    """A record whose headers the client cannot read."""

    def headers(self) -> Headers:
        raise SystemError


def test_others_are_left_with_their_place_or_moved_as_they_are() -> None:
    stranger, place = Record(("orders-retry-200", 1, 9), b"k", b"v", [("a", b"1")], (1, DUE_MS)), b"orders-retry-200/1/9"
    assert Conversion(convert_spring_headers, "orders-dlt", others=False).convert_record(stranger) == (place, None, False)
    conversion = Conversion(convert_spring_headers, "orders-dlt", others=True)
    assert conversion.convert_record(Garbled(("t", 0, 1), None, None, [], (1, 1))) == (
        b"t/0/1", None, True,
    )  # fmt: skip
    _, letter, _ = Conversion(convert_spring_headers, "orders-dlt", others=True).convert_record(stranger)
    assert letter is not None and letter.topic() == "orders-dlt"
    assert letter.headers() == [("a", b"1"), ("retry-migrated-from", place)]
    plan = Plan()
    for n in range(30):
        plan.count_non_letter(b"t/0/%d" % n, "t", unreadable=n == 0)
    assert (plan.others["t"], plan.unreadable, len(plan.places)) == (30, 1, 20)


def test_the_group_that_reads_a_topic_is_the_one_that_has_committed_there() -> None:
    committed = {"shop-retry-0": {("a-retry-0", 0): 5}, "shop-retry-1": {("a-retry-1", 0): 7, ("a-retry-1", 1): 8}}
    found = find_readers(committed, ["a-retry-0", "a-retry-1"], None)
    assert {topic: group for topic, (group, _) in found.items()} == {"a-retry-0": "shop-retry-0", "a-retry-1": "shop-retry-1"}
    with pytest.raises(MigrationStopped, match=r"no group shop-\* has read a-retry-2"):
        find_readers(committed, ["a-retry-2"], "shop-*")
    with pytest.raises(MigrationStopped, match=r"no group shp-retry-0 has read a-retry-0 \(shop-retry-0 did\)"):
        find_readers(committed, ["a-retry-0"], "shp-retry-0")
    with pytest.raises(MigrationStopped, match=r"no group has read a-retry-2.*brokers have forgotten"):
        find_readers(committed, ["a-retry-2"], None)
    assert find_readers({"shop": {}}, ["a-retry-2"], "shop") == {"a-retry-2": ("shop", {})}
    with pytest.raises(MigrationStopped, match=r"bill, shop have read a-retry-0.*--group"):
        find_readers({"shop": {("a-retry-0", 0): 1}, "bill": {("a-retry-0", 0): 1}}, ["a-retry-0"], None)
