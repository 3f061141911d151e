"""What a record says of itself, however it says it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import NO_TIME, Letter, fill_pointer, parse_integer, parse_moment, read
from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks import KNOWN
from retry.delay_queue.envelopes import Entry
from retry.record import Headers
from retry.testing.kafka import MemoryRecord

NOW_MS = 1_700_000_000_000
CREATE_TIME, APPEND_TIME = 1, 2


def record(headers: Headers | None = None, *, topic: str = "orders.DLT", stamp_ms: int = NOW_MS) -> MemoryRecord:
    return MemoryRecord(Entry(topic, b"k", b"v", headers or [], None, ""), 3, 42, stamp_ms)


def letter(*headers: tuple[str, bytes | None], **changed: object) -> Letter:
    return read(record(list(headers), **changed))  # type: ignore[arg-type]


def test_a_plain_record_is_a_first_failure() -> None:
    found = letter()
    assert (found.topic, found.partition, found.offset, found.key, found.value) == ("orders.DLT", 3, 42, b"k", b"v")
    assert (found.source, found.id) == (b"orders.DLT/3/42", None)
    assert (found.retries_made, found.first_failed_at_ms, found.sent_at_ms, found.retry_at_ms) == (0, None, None, None)
    assert (found.original_headers, found.failure, found.timestamp_ms) == ([], Failure(origin_topic="orders"), NOW_MS)


def test_our_headers_are_taken_out_and_all_others_kept() -> None:
    theirs: Headers = [("a", None), ("", b""), ("a", b"1"), ("Retry-Id", b"x"), ("a", None), ("retry-idx", b"")]
    ours: Headers = [(name, b"1") for name in names.OURS]
    mixed = [header for pair in zip(theirs, ours, strict=False) for header in pair] + ours[len(theirs) :]
    assert letter(*mixed).original_headers == theirs


def test_what_a_retried_letter_brings_back() -> None:
    found = letter(
        (names.ID, b"orders.DLT/0/1"), (names.ATTEMPT, b"3"), (names.FIRST_FAILED_MS, b"1600000000000"),
        (names.DUE_MS, b"1700000000500"), (names.SOURCE, b"orders.DLT/0/9"),
    )  # fmt: skip
    assert (found.id, found.source, found.retries_made) == (b"orders.DLT/0/1", b"orders.DLT/3/42", 3)
    assert (found.first_failed_at_ms, found.sent_at_ms) == (1_600_000_000_000, NOW_MS + 500)


@pytest.mark.parametrize(
    ("raw", "made"),
    [
        (b"0", 0), (b"1", 1), (b"007", 7), (b"2147483648", 2_147_483_648), (b"9999999999", 9_999_999_999),
        (b"10000000000", None), (b"9" * 5_000, None), (b"", None), (None, None), (b"-1", None), (b"+1", None),
        (b" 3 ", None), (b"3\n", None), (b"1e9", None), (b"NaN", None), (b"0x1", None), (b"1_0", None),
        ("٣".encode(), None), (b"\xff", None),
    ],
)  # fmt: skip
def test_the_attempt_is_a_strict_number_or_none(raw: bytes | None, made: int | None) -> None:
    assert letter((names.ATTEMPT, raw)).retries_made == made


def test_of_duplicates_of_ours_the_last_counts() -> None:
    assert letter((names.ATTEMPT, b"x"), (names.ATTEMPT, b"2")).retries_made == 2
    assert letter((names.ATTEMPT, b"2"), (names.ATTEMPT, None)).retries_made is None


@pytest.mark.parametrize("raw", [b"", None, b"x" * 513, b"\xff", "ключ".encode()])
def test_what_cannot_be_a_lineage_is_none(raw: bytes | None) -> None:
    assert letter((names.ID, raw)).id is None


@pytest.mark.parametrize(
    ("raw", "asked_ms"),
    [
        (b"1700000000000", NOW_MS), (b"1000000000000", 1_000_000_000_000), (b"253402300799999", 253_402_300_799_999),
        (b"999999999999", NO_TIME), (b"253402300800000", NO_TIME), (b"1700000000", NO_TIME),
        (b"1700000000000000", NO_TIME), (b"9223372036854775807", NO_TIME), (b"-1", NO_TIME), (b"", NO_TIME),
        (b"1700000000000.0", NO_TIME), (None, NO_TIME), (b"2026-11-21T12:00:00Z", NO_TIME), (b"0", NO_TIME),
        (b"1" * 100_000, NO_TIME),
    ],
)  # fmt: skip
def test_a_wish_is_a_plausible_moment_or_no_time(raw: bytes | None, asked_ms: int) -> None:
    assert letter((names.RETRY_AT_MS, raw)).retry_at_ms == asked_ms


@pytest.mark.parametrize("stamp_ms", [0, -1, -5, -(1 << 63)])
def test_a_timestamp_before_1970_is_none(stamp_ms: int) -> None:
    found = letter(stamp_ms=stamp_ms)
    assert found.timestamp_ms is None
    assert found.failed_at_ms(NOW_MS) == NOW_MS


@pytest.mark.parametrize(("stamp_ms", "failed_ms"), [(999_999_999_999, NOW_MS), (1_000_000_000_000, 1_000_000_000_000)])
def test_an_unlikely_timestamp_is_kept_and_not_counted_from(stamp_ms: int, failed_ms: int) -> None:
    found = letter(stamp_ms=stamp_ms)
    assert (found.timestamp_ms, found.failed_at_ms(NOW_MS)) == (stamp_ms, failed_ms)


def test_headers_that_the_client_cannot_tell_make_a_letter_that_is_not_copied() -> None:
    broken = record()

    def headers() -> Headers:
        raise SystemError("returned a result with an exception set")

    broken.headers = headers  # type: ignore[assignment]
    assert not read(broken).copyable()
    assert all(read(each).copyable() for each in (record(), record([("", None)])))


def test_a_failure_is_never_before_the_retry_that_failed() -> None:
    copied = letter((names.DUE_MS, b"1700000000500"), stamp_ms=NOW_MS - 86_400_000)
    assert copied.failed_at_ms(NOW_MS + 900) == NOW_MS + 500
    own = letter((names.DUE_MS, b"1700000000500"), stamp_ms=NOW_MS + 700)
    assert own.failed_at_ms(NOW_MS + 900) == NOW_MS + 700


@pytest.mark.parametrize(
    ("header", "kind", "stamped"),
    [
        ("__connect.errors.topic", CREATE_TIME, False), ("__connect.errors.topic", APPEND_TIME, True),
        ("__streams.errors.topic", CREATE_TIME, False), ("__streams.errors.topic", APPEND_TIME, True),
        ("__dlq.errors.topic", CREATE_TIME, True), ("kafka_dlt-original-topic", CREATE_TIME, True), ("x", CREATE_TIME, True),
    ],
)  # fmt: skip
def test_a_timestamp_that_its_framework_copied_from_the_origin_says_nothing_of_the_failure(
    header: str, kind: int, stamped: bool
) -> None:
    written = record([(header, b"orders")], stamp_ms=NOW_MS - 86_400_000)
    written.timestamp = lambda: (kind, NOW_MS - 86_400_000)
    found = read(written)
    assert found.timestamp_ms == NOW_MS - 86_400_000
    assert found.stamped_ms == (found.timestamp_ms if stamped else None)
    assert found.failed_at_ms(NOW_MS) == (NOW_MS - 86_400_000 if stamped else NOW_MS)


def test_a_copied_timestamp_does_not_make_a_failure_earlier_than_the_retry_that_failed() -> None:
    found = letter(("__connect.errors.topic", b"orders"), (names.DUE_MS, b"1700000000500"))
    assert found.failed_at_ms(NOW_MS) == NOW_MS + 500


@pytest.mark.parametrize(("family", "failed_ms"), [("__dlq", NOW_MS), ("__streams", NOW_MS + 5_000)])
def test_a_pointer_that_is_filled_failed_when_the_pointer_was_written(family: str, failed_ms: int) -> None:
    said: Headers = [(f"{family}.errors.{n}", raw) for n, raw in (("topic", b"orders"), ("partition", b"1"), ("offset", b"7"))]
    pointer = read(MemoryRecord(Entry("dlq.orders", None, None, said, None, ""), 0, 1, NOW_MS))
    theirs: Headers = [("a", b"1"), (f"{family}.errors.topic", b"earlier"), ("a", None)]
    source = MemoryRecord(Entry("orders", b"k", b"v", theirs, None, ""), 1, 7, NOW_MS - 86_400_000)
    whole = fill_pointer(pointer, source)
    assert whole is not None
    assert (whole.key, whole.value, whole.original_headers) == (b"k", b"v", [("a", b"1"), ("a", None), *said])
    assert (whole.source, whole.failure) == (pointer.source, pointer.failure)
    assert (whole.timestamp_ms, whole.failed_at_ms(NOW_MS + 5_000)) == (NOW_MS - 86_400_000, failed_ms)


def test_what_a_framework_says_is_read_and_kept() -> None:
    headers: Headers = [("kafka_dlt-exception-fqcn", b"Wrapper"), ("kafka_dlt-exception-cause-fqcn", b"Cause")]
    found = letter(*headers)
    assert (found.failure.exception, found.failure.cause, found.failure.origin_topic) == ("Wrapper", "Cause", "orders")
    assert found.original_headers == headers


def test_aliases_read_any_header() -> None:
    found = read(record([("a", b"1"), ("x-err", b"Mine"), (names.ID, b"i")]), {"exception": ("x-err",)})
    assert (found.failure.exception, found.original_headers, found.id) == ("Mine", [("a", b"1"), ("x-err", b"Mine")], b"i")


_NAMES = st.sampled_from(sorted(names.OURS | KNOWN)) | st.text(max_size=10)


_HEADERS = st.lists(st.tuples(_NAMES, st.none() | st.binary(max_size=40)), max_size=12)


@given(_HEADERS, st.integers(-(1 << 63), (1 << 63) - 1))
def test_there_is_no_record_that_is_refused(headers: Headers, stamp_ms: int) -> None:
    found = read(record(headers, stamp_ms=stamp_ms))
    assert found.original_headers == [header for header in headers if header[0] not in names.OURS]
    assert found.retries_made is None or found.retries_made >= 0
    assert found.id is None or found.id.isascii()


@given(st.binary(max_size=25))
def test_numbers_are_ascii_digits_and_nothing_else(raw: bytes) -> None:
    strict = 0 < len(raw) <= 18 and all(48 <= byte <= 57 for byte in raw)
    assert parse_integer(raw, 18) == (int(raw) if strict else None)
    assert parse_moment(raw) is None or 1_000_000_000_000 <= int(raw) <= 253_402_300_799_999


def test_spring_names_the_class_that_was_thrown_between_its_wrapper_and_the_root() -> None:
    trace = b"Wrapper: failed\n\tat a.B(C.java:1)\nCaused by: a.Refused: no\nCaused by: java.io.IOException: reset\n"
    headers: Headers = [
        ("kafka_dlt-exception-fqcn", b"Wrapper"), ("kafka_dlt-exception-cause-fqcn", b"a.Refused"),
        ("kafka_dlt-exception-stacktrace", trace),
    ]  # fmt: skip
    failure = letter(*headers).failure
    assert (failure.exception, failure.thrown, failure.cause) == ("Wrapper", "a.Refused", "java.io.IOException")
