"""Header values: strict numbers, bounded text, the root of a stack trace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters.frameworks import header_values


@pytest.mark.parametrize(
    ("raw", "number"),
    [(b"0", 0), (b"007", 7), (b"9223372036854775807", (1 << 63) - 1), (b"9223372036854775808", None), (b"9" * 20, None),
     (b"-1", None), (b"+1", None), (b" 1", None), (b"1\n", None), (b"1_0", None), (b"1e9", None), (b"", None), (b"\xff", None),
     (b"9" * 1_000_000, None)],
)  # fmt: skip
def test_digits_are_a_strict_number_or_none(raw: bytes, number: int | None) -> None:
    assert header_values.parse_digits(raw) == number


def test_partitions_and_counts_are_smaller() -> None:
    assert (header_values.parse_digits_int32(b"2147483647"), header_values.parse_digits_int32(b"2147483648")) == (
        (1 << 31) - 1,
        None,
    )


@given(st.binary(max_size=12))
def test_binary_numbers_have_their_size_and_no_sign(raw: bytes) -> None:
    number = int.from_bytes(raw, "big", signed=True)
    sane = number if number >= 0 else None
    assert header_values.parse_int32(raw) == (sane if len(raw) == 4 else None)
    assert header_values.parse_int64(raw) == (sane if len(raw) == 8 else None)
    assert header_values.parse_byte_or_int32(raw) == (sane if len(raw) in (1, 4) else None)
    assert header_values.parse_big_integer(raw) == (sane if 1 <= len(raw) <= 8 else None)


_HEAD = b"a.Wrapper: failed\n\tat a.B.c(B.java:1)\n"


@pytest.mark.parametrize(
    ("trace", "root"),
    [
        (_HEAD + b"Caused by: a.b.C: message\n\tat x\n\t... 23 more\n", "a.b.C"),
        (_HEAD + b"Caused by: a.b.C\n\tat x\n", "a.b.C"),
        (_HEAD + b"Caused by: a.b.C", "a.b.C"),
        (_HEAD + b"Caused by: a.b.C$Inner: x\r\n\tat x\r\n", "a.b.C$Inner"),
        (_HEAD.replace(b"\n", b"\r\n") + b"Caused by: a.First: x\r\n\tat x\r\nCaused by: a.Root\r\n\tat y\r\n", "a.Root"),
        (_HEAD + b"Caused by: a.Root: x\n\tat x\n\tSuppressed: a.S: y\n\t\tat z\n\tCaused by: a.T: z\n", "a.Root"),
        (_HEAD + b"Caused by: a.Root: said\nCaused by: a loose tongue\n", "a.Root"),
        (_HEAD + b"Caused by: a.Root: x\nCaused by: [CIRCULAR REFERENCE: a.Root: x]\n", "a.Root"),
        (_HEAD, None), (b"", None), (b"Caused by: a.B", None), (_HEAD + b"Caused by: ", None), (_HEAD + b"Caused by: : x", None),
        (_HEAD + b"Caused by: " + b"x" * 600, None),
        (_HEAD + b"Caused by: a.Far: x\n" + b"\tat x\n" * 20_000, None),
        (b"\tat x\n" * 200_000 + _HEAD + b"Caused by: a.Near: x\n" + b"\tat x\n" * 5_000, "a.Near"),
        (_HEAD + b"Caused by: \xff\xfe: x", "\ufffd\ufffd"),
    ],
)  # fmt: skip
def test_the_root_is_the_last_cause_of_a_java_stack_trace(trace: bytes, root: str | None) -> None:
    assert header_values.find_java_root(trace) == root


@pytest.mark.parametrize(
    ("trace", "root"),
    [
        (b"A.Outer: x\r\n ---> A.Inner: y\r\n ---> A.Root`1: z\r\n   at A.B()\r\n", "A.Root`1"),
        (b"A.Agg: x\n ---> A.Inner: y\n   at A\n ---> (Inner Exception #0) A.Other: z<---\n", "A.Inner"),
        (b"A.Outer: x ---> y\n   at A.B()\n", None),
    ],
)  # fmt: skip
def test_the_root_is_the_innermost_of_a_dotnet_exception(trace: bytes, root: str | None) -> None:
    assert header_values.find_dotnet_root(trace) == root


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (_HEAD + b"Caused by: a.b.C: said: twice\n\tat x\n\t... 23 more\n", "said: twice"),
        (_HEAD + b"Caused by: a.First: no\n\tat x\nCaused by: a.Root: in\n  two lines\r\n\tat y\n", "in\n  two lines"),
        (_HEAD + b"Caused by: a.Root: said\nCaused by: a loose tongue: x\n", "said\nCaused by: a loose tongue: x"),
        (_HEAD + b"Caused by: a.Root: \xff", "\ufffd"),
        (_HEAD + b"Caused by: a.Root: said", "said"),
        (_HEAD + b"Caused by: a.Root: " + b"x" * 100_000 + b"\n\tat x\n", None),
        (_HEAD + b"Caused by: a.Root: " + b"x" * 20_000 + b"\n\tat x\n", "x" * 4_096),
        (_HEAD + b"Caused by: a.Root: said\n\tat x(A.java:1)\n" + b"\tat x\n" * 20_000, None),
        (_HEAD + b"Caused by: a.Root\n\tat x(A.java:1)\n", None),
        (_HEAD + b"Caused by: a.Root: \n\tat x(A.java:1)\n", None),
        (_HEAD + b"Caused by: a.Root:", None), (_HEAD + b"Caused by: a.Root", None), (_HEAD, None), (b"", None),
    ],
)  # fmt: skip
def test_the_message_of_the_root_ends_where_its_frames_begin(trace: bytes, message: str | None) -> None:
    assert header_values.find_java_message(trace) == message


@pytest.mark.parametrize(
    ("trace", "root", "message"),
    [
        (b"A.Outer: x\r\n ---> A.Root`1: y: z\r\n   at A.B()\r\n   --- End of inner\r\n", "A.Root`1", "y: z"),
        (b"A.Outer: x\n ---> A.Inner (0x80131904): y\n ---> A.Root (258): z\n   at A", "A.Root", "z"),
        (b"A.Outer: x\n ---> A.Root (0x80131904): y\n   at A", "A.Root", "y"),
        (b"A.Outer: x\n ---> A.Root: two\nlines\n   at A", "A.Root", "two\nlines"),
        (b"A.Outer: x\n   at A.B()\n", None, None),
    ],
)  # fmt: skip
def test_the_number_of_a_native_error_is_part_of_neither_class_nor_message(
    trace: bytes, root: str | None, message: str | None
) -> None:
    assert (header_values.find_dotnet_root(trace), header_values.find_dotnet_message(trace)) == (root, message)


@given(st.binary(max_size=200))
def test_text_is_never_refused(raw: bytes) -> None:
    v = header_values
    for read in (
        v.decode_name,
        v.message,
        v.find_java_root,
        v.find_dotnet_root,
        v.take_last_part,
        v.find_java_message,
        v.find_dotnet_message,
    ):
        said = read(raw)
        assert said is None or said


def test_only_the_end_of_an_arn_is_a_queue() -> None:
    assert header_values.take_last_part(b"arn:aws:sqs:eu-west-1:123456789012:orders") == "orders"
    assert (header_values.take_last_part(b"orders"), header_values.take_last_part(b"arn:")) == ("orders", None)
