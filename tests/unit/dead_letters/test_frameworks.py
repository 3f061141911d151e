"""Who wrote a letter and what it says: over letters as frameworks write them, and over what nobody would write."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters.dead_letter import Letter, read
from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks import ALIASABLE, KNOWN, Aliases, make_unknown_failure, recognise
from retry.dead_letters.frameworks.detection import DIALECTS, infer_from_name
from retry.delay_queue.envelopes import Entry
from retry.record import Headers
from retry.testing.kafka import MemoryRecord
from tests.fixtures import make_letters

_FIXTURES = Path(make_letters.__file__).parent
_FILES = sorted(_FIXTURES.glob("letters/*.jsonl")) + sorted(_FIXTURES.glob("captured/*.jsonl"))
_LETTERS = [
    pytest.param(letter, id=f"{file.parent.name}/{file.stem}: {letter['name']}")
    for file in _FILES
    for letter in map(json.loads, file.read_text().splitlines())
]
CONNECT = ("__connect.errors.topic", b"orders.connect")
STREAMS = ("__streams.errors.topic", b"orders.streams")
SPRING = ("kafka_dlt-original-topic", b"orders.spring")
ETF1 = ("retry-original-timestamp", b"1700000000")
SMALLRYE = ("dead-letter-topic", b"orders.smallrye")


def _raw(coded: str | None) -> bytes | None:
    return None if coded is None else base64.b64decode(coded)


def found_in(letter: dict[str, Any], aliases: Aliases | None = None) -> Letter:
    headers: Headers = [(name, _raw(coded)) for name, coded in letter["headers"]]
    entry = Entry(letter["topic"], _raw(letter["key"]), _raw(letter["value"]), headers, None, "")
    return read(MemoryRecord(entry, letter["partition"], letter["offset"], letter["timestamp"]), aliases)


@pytest.mark.parametrize("letter", _LETTERS)
def test_a_letter_says_what_its_framework_meant(letter: dict[str, Any]) -> None:
    failure = found_in(letter).failure
    expected = {"attempts" if name == "attempt" else name: told for name, told in letter["expect"].items()}
    if expected["family"] == "unknown" and expected["origin_topic"] is None:
        expected["origin_topic"] = infer_from_name(letter["topic"]).topic
    assert {name: getattr(failure, name) for name in expected} == expected


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_headers_that_aliases_do_not_name_are_read_as_ever(file: Path) -> None:
    for letter in map(json.loads, file.read_text().splitlines()):
        assert found_in(letter, {"stage": ("no-such-header",)}).failure == found_in(letter).failure


def test_every_family_has_letters() -> None:
    written = {json.loads(line)["expect"]["family"] for file in _FILES for line in file.read_text().splitlines()}
    assert written >= {dialect.family for dialect in DIALECTS} | {"celery", "dramatiq", "unknown"}


def test_the_letters_are_those_that_the_script_writes() -> None:
    made = {file.name: file.read_text() for file in _FILES if file.parent.name == "letters"}
    assert made == make_letters.files()


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ((CONNECT, STREAMS), "orders.streams"), ((STREAMS, CONNECT), "orders.connect"),
        ((SPRING, STREAMS), "orders.streams"), ((CONNECT, SPRING), "orders.spring"),
        ((SMALLRYE, SPRING), "orders.spring"), ((SPRING, SMALLRYE), "orders.spring"),
        ((("original-topic", b"by.hand"), SPRING), "orders.spring"), ((SPRING, ("original-topic", b"by.hand")), "orders.spring"),
        ((SPRING, ("retry-id", b"1"), ("retry-source", b"orders.DLT/0/1")), "orders.spring"),
        ((CONNECT, STREAMS, CONNECT), "orders.connect"),
        ((ETF1, SPRING, ("retry-attempt", b"4")), "orders.spring"), ((SPRING, ETF1, ("retry-attempt", b"4")), None),
    ],
)  # fmt: skip
def test_of_several_frameworks_the_one_that_wrote_last_is_believed(headers: Headers, origin: str | None) -> None:
    assert recognise(headers, "dead").origin_topic == origin


def test_of_smallryes_headers_those_in_front_are_the_newest() -> None:
    late = ("delayed-retry-topic", b"orders.late")
    assert recognise([SMALLRYE, late], "dead").origin_topic == "orders.smallrye"
    assert recognise([late, SMALLRYE], "dead").origin_topic == "orders.late"


def test_what_the_last_one_does_not_tell_is_not_taken_from_another() -> None:
    failure = recognise([("kafka_dlt-original-topic", b"a"), ("kafka_dlt-original-consumer-group", b"g"), CONNECT], "dead")
    assert (failure.family, failure.consumer_group) == ("kafka-connect", None)


def test_our_own_count_stands_in_where_the_framework_counts_nothing() -> None:
    ours: Headers = [("retry-id", b"x"), ("retry-attempt", b"4")]
    assert recognise([CONNECT, *ours], "dead").attempts == 5
    assert recognise([("source_topic", b"a"), ("source_offset", b"1"), ("source_attempts", b"2"), *ours], "dead").attempts == 2


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("failure-count", ()),
        ("x-retry-count", ()),
        ("source_attempts", ("source_topic", "source_offset")),
        ("retry-attempt", ("retry-id",)),
    ],
)
def test_attempts_that_make_no_sense_are_one(name: str, beside: tuple[str, ...]) -> None:
    for raw in (b"0", b"-3", b"", None, b"x", b"9" * 1_000_000, b" 3", b"3.0", "٣".encode(), b"2147483648"):
        failure = recognise([*((other, b"1") for other in beside), (name, raw)], "dead")
        assert (failure.family == "unknown", failure.attempts) == (False, 1)


def test_deliveries_that_spring_cannot_have_counted_are_one() -> None:
    for raw in (b"\x01", b"\0", b"\xff", b"\0\0\0\1", b"\xff\xff\xff\xff", b"", None, b"12", b"12345", b"9" * 1_000_000):
        assert recognise([("retry_topic-attempts", raw)], "dead").attempts == 1
        assert recognise([("kafka_deliveryAttempt", raw), SPRING], "dead").attempts == 1


def test_values_are_bounded() -> None:
    failure = recognise(
        [("exception-class", b"x" * 100_000), ("original-topic", b"\xff\x00" * 400), ("failure-reason", "é".encode() * 9_000)],
        "dead",
    )
    assert failure.exception == "x" * 512
    assert failure.origin_topic == "\ufffd\0" * 256
    assert failure.message == "é" * 4_096


def test_an_empty_value_gives_way_to_the_next_name() -> None:
    assert recognise([("exception-class", b""), ("dlq-error-class", b"Second")], "dead").exception == "Second"
    assert recognise([("exception-class", None)], "dead") == Failure(family="ad-hoc")


def test_letters_that_tell_nothing_share_one_failure() -> None:
    first, second = (read(MemoryRecord(Entry("orders.DLT", b"k", b"v", [], None, ""), 0, n, 1)).failure for n in (1, 2))
    assert first is second is make_unknown_failure("orders.DLT")
    assert first == Failure(origin_topic="orders")


def test_a_header_that_names_no_origin_says_that_there_is_none() -> None:
    assert recognise([("__streams.errors.topic", None)], "orders-dlq").origin_topic is None
    assert recognise([("__streams.errors.message", b"x")], "orders-dlq").origin_topic == "orders"


@pytest.mark.parametrize(
    ("family", "key", "value", "offset", "pointer"),
    [
        ("__dlq", None, None, b"5", True), ("_dlq", None, None, b"0", True), ("__streams", None, None, b"5", True),
        ("__connect", None, None, b"5", False), ("__dlq", b"k", None, b"5", False), ("__dlq", None, b"", b"5", False),
        ("__streams", None, None, b"-1", False), ("__dlq", None, None, None, False),
    ],
)  # fmt: skip
def test_a_pointer_has_no_payload_and_says_where_it_lies(
    family: str, key: bytes | None, value: bytes | None, offset: bytes | None, pointer: bool
) -> None:
    said = {"topic": b"orders", "partition": b"0", "offset": offset}
    headers: Headers = [(f"{family}.errors.{name}", raw) for name, raw in said.items()]
    assert read(MemoryRecord(Entry("dlq.orders", key, value, headers, None, ""), 0, 1, 1)).is_pointer() is pointer


def test_aliases_take_precedence() -> None:
    aliases = {
        "exception": ("x-err", "my-error"),
        "attempts": ("x-tries",),
        "origin_offset": ("x-offset",),
        "message": ("x-why",),
    }
    headers: Headers = [CONNECT, ("my-error", b"Mine"), ("x-tries", b"7"), ("x-offset", b"9"), ("x-why", b"why")]
    failure = recognise(headers, "dead", None, aliases)
    assert (failure.family, failure.origin_topic, failure.exception) == ("kafka-connect", "orders.connect", "Mine")
    assert (failure.attempts, failure.origin_offset, failure.message) == (7, 9, "why")
    both = recognise([("my-error", b"Second"), ("x-err", b"Old"), ("x-err", b"First")], "dead", None, aliases)
    assert (both.family, both.exception) == ("ad-hoc", "First")


def test_aliases_that_make_no_sense_change_nothing() -> None:
    aliases = {"attempts": ("x-tries",), "origin_partition": ("x-partition",)}
    for raw in (b"-1", b"", None, b"x", b"9" * 30):
        headers = [("x-tries", raw), ("x-partition", raw)]
        assert recognise(headers, "orders.DLT", None, aliases) is make_unknown_failure("orders.DLT")
    assert recognise([("x-tries", b"0")], "dead", None, aliases).attempts == 1


def test_a_letter_that_only_we_and_aliases_know_is_ad_hoc() -> None:
    ours: Headers = [("retry-id", b"x"), ("retry-attempt", b"2")]
    failure = recognise([("x-err", b"Mine"), *ours], "dead", None, {"exception": ("x-err",)})
    assert (failure.family, failure.attempts, failure.exception) == ("ad-hoc", 3, "Mine")


def test_an_alias_may_name_a_header_of_a_framework_or_of_ours() -> None:
    aliases = {"stage": ("retry-source", "traceparent"), "exception": ("kafka_dlt-original-topic",)}
    record = MemoryRecord(Entry("dead", None, None, [SPRING, ("traceparent", b"t"), ("retry-source", b"s")], None, ""), 0, 1, 1)
    failure = read(record, aliases).failure
    assert (failure.stage, failure.exception, failure.origin_topic) == ("s", "orders.spring", "orders.spring")


def test_every_field_but_the_family_may_have_aliases() -> None:
    assert set(Failure.__struct_fields__) - {"family", "thrown", "cause_message"} == ALIASABLE
    for field in ALIASABLE:
        failure = recognise([("x", b"5")], "dead", None, {field: ("x",)})
        assert getattr(failure, field) in ("5", 5)


_NAMES = st.sampled_from(sorted(KNOWN)) | st.text(max_size=10)
_VALUES = (
    st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | st.just(b"\nCaused by: a.B") | st.just(b"9" * 19)
)
_HEADERS = st.lists(st.tuples(_NAMES, _VALUES), max_size=12)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["body", "headers", "id", "task", "retries", "content-type", "options", "queue_name"]), inner
        )
    ),
)
_BODIES = st.none() | st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode())
_ALIASES = st.none() | st.dictionaries(st.sampled_from(sorted(ALIASABLE)), st.lists(_NAMES, max_size=2).map(tuple), max_size=3)


@given(_HEADERS, st.text(max_size=30), _BODIES, _ALIASES)
def test_nothing_is_refused(headers: Headers, topic: str, value: bytes | None, aliases: Aliases | None) -> None:
    failure = recognise(headers, topic, value, aliases)
    assert failure.attempts >= 1
    assert all(number is None or number >= 0 for number in (failure.origin_partition, failure.origin_offset))
    assert failure.message is None or 0 < len(failure.message) <= 4_096
    assert all(name is None or len(name) <= 512 + 8 for name in (failure.exception, failure.cause, failure.stage))


@pytest.mark.parametrize(
    "raw",
    [b"9" * 1_000_000, b"\0" * 10, b"\xff\xfe\x00", b"", None, b"\nCaused by: " * 100_000],
    ids=["nines", "zeros", "no text", "empty", "null", "causes"],
)
def test_hostile_values_are_not_refused(raw: bytes | None) -> None:
    failure = recognise([(name, raw) for name in sorted(KNOWN)] * 3, "orders.DLT", raw)
    assert failure.family != "unknown"
    for name in sorted(KNOWN):
        assert recognise([(name, raw)], "orders.DLT", raw).attempts >= 1
