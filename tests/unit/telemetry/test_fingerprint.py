"""Failures of one kind have one fingerprint, whatever differs in their messages; others have others."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.telemetry import fingerprint
from retry.telemetry.message_pattern import MARKED, find_common_text

ALIKE = [
    ["timeout after 30 ms", "timeout after 1500 ms", "timeout after 1.5 ms", "timeout after 2 s", "timeout after 1m30s"],
    ["no order 'A 17'", "no order 'it is'", "no order ''"],
    ['bad "x"', 'bad "y z"'],
    ["user 550e8400-e29b-41d4-a716-446655440000 gone", "user abcdabcd-abcd-abcd-abcd-abcdabcdabcd gone"],
    ["block deadbeefcafe lost", "block 0123456789AB lost", "block 0x17 lost"],
    ["10.0.0.1:9092 refused", "192.168.17.4:80 refused", "[2001:db8::1]:9092 refused"],
    ["at 2024-01-01T10:00:00.000Z", "at 2026-12-31T23:59:59.999Z", "at Sun Nov 29 10:00:00 UTC 2026"],
    ["can't open user17", "can't open user4711"],
    ["posting 17: locked", "posting 4711: locked", "posting 4711000000: locked"],
    ["posting 17, locked", "posting 4711, locked"],
    ["(1), [2], <3>; 4. -5", "(11), [-22], <33>; 44. -55"],
    ["offsets [1, 2, 3] lost", "offsets [17] lost"],
    ["mail to ann@example.org bounced", "mail to bob.stone+x@mail.example.com bounced"],
    ["GET http://stock:8080/items/17?size=XL&n=2 failed", "GET http://stock:8080/items/4711 failed"],
    ["refused {'id': 17, 'name': 'Ann'}", 'refused {"id": 4711, "lines": [{"n": {}}]}', "refused {name=Bob}"],
    ["no Order[id=17, name=Ann] there", "no Order[id=4, name=Bob (again)] there"],
    ["row (17, Ann, null)", "row (4711, Bob Stone, null, 10:00:00)"],
    ["Key (id)=(17) exists", "Key (id)=(ann) exists"],
    ["a.B@1b2c3d4e is closed", "a.B@feedbead is closed"],
]
OTHERS = [
    ["status code 503", "status code 404", "status code"],
    ["[Errno 111] refused", "[Errno 113] refused"],
    ["error code: 40401", "error code: 40403"],
    ["SQLCODE=-204, SQLSTATE=42704", "SQLCODE=-206, SQLSTATE=42703"],
    ["HTTP/1.1 400 to http://a/1", "HTTP/1.1 429 to http://a/1"],
    ['null in column "amount"', 'null in column "currency"'],
    ["'NoneType' object has no attribute 'id'", "'str' object has no attribute 'id'", "'str' object has no attribute 'key'"],
    ["'sku'", "'customer'"],
    ['Cannot invoke "a.b.Order.getLines()"', 'Cannot invoke "a.b.Order.getPrice()"'],
    ['at Order["amount"]', 'at Order["currency"]'],
    ['{"error": "declined", "id": 17}', '{"error": "expired", "id": 17}'],
    ["failed (host='stock', port=1)", "failed (host='payments', port=1)"],
    ["('aborted', Reset('connection reset by peer'))", "('aborted', Reset('remote end closed it'))"],
]
PIECES = [
    "a", "'", '"', "`", "1", "_", "-", "a'", "a-", "é", "“", "«", "(", "{", "((", "[[a=", "{a=", "{a=\n", '{"a":', "(1,", ")(",
    "[:", "::", "0:", "0-", "0-a", "a.", "a.B: ", "a.bError: ", "a@", "@a", "?a=", "a=", "a+", ")=(", "Jan ", "Jan 1 ", "code",
    "code 1 ", "error (", "status ", "# ", "1, ", "code=", "\t", " ",
]  # fmt: skip


def fingerprint_of(message: str | None) -> str | None:
    return fingerprint.compute_fingerprint("b.Cause", message)


@pytest.mark.parametrize("messages", ALIKE)
def test_what_differs_from_letter_to_letter_is_taken_out(messages: list[str]) -> None:
    assert len({fingerprint_of(message) for message in messages}) == 1


@pytest.mark.parametrize("messages", OTHERS)
def test_what_tells_failures_apart_stays(messages: list[str]) -> None:
    assert len({fingerprint_of(message) for message in messages}) == len(messages)


def test_other_kinds_have_other_fingerprints() -> None:
    kinds = [fingerprint_of(messages[0]) for messages in ALIKE] + [
        fingerprint_of(None),
        fingerprint.compute_fingerprint("a.Other", None),
    ]
    kinds += [fingerprint.compute_fingerprint(None, "failed"), fingerprint_of("failed")]
    assert len(set(kinds)) == len(kinds)


def test_it_is_part_of_the_format_and_stays_what_it_is() -> None:
    assert fingerprint.compute_fingerprint("java.io.IOException", "order 17") == "f43361b455d23f19"
    assert fingerprint.compute_fingerprint(None, None) is None


@pytest.mark.parametrize(
    ("message", "common"),
    [("posting 17: account is locked", "posting #: account is locked"),
     ("no order 'Ann' (17), lines [1, 2]", "no order # (#), lines [#]"),
     ('no answer {"id": 1, "code": "E_LIMIT"}: 503', "no answer {# E_LIMIT}: #"),
     ("Request failed with status code 503", "Request failed with status code 503"),
     ("postal code 10115 is unknown", "postal code # is unknown"),
     ("two\n  lines", "two lines")],
)  # fmt: skip
def test_punctuation_and_words_stay(message: str, common: str) -> None:
    assert fingerprint.in_common("a.B", message) == ("a.B", common)


@pytest.mark.parametrize(
    ("message", "kind"),
    [("failed; nested exception is a.Bad: no order 17", ("a.Bad", "no order #")),
     ("a.Outer: x; nested exception is a.InnerException: order 17 is closed", ("a.InnerException", "order # is closed")),
     ("java.net.ConnectException: Connection refused", ("java.net.ConnectException", "Connection refused")),
     ("order 17 failed; nested exception is a.NullPointerException", ("a.NullPointerException", "order # failed")),
     ("System.Net.SocketException (0x80131904): refused", ("System.Net.SocketException", "refused")),
     ("see java.io.IOException for more", ("a.B", "see java.io.IOException for more"))],
)  # fmt: skip
def test_of_a_message_that_goes_on_with_its_causes_the_inner_one_counts(message: str, kind: tuple[str, str]) -> None:
    assert fingerprint.in_common("a.B", message) == kind
    assert fingerprint.compute_fingerprint("a.B", message) == fingerprint.compute_fingerprint(*kind)


@given(st.text(max_size=2_000), st.text(max_size=50))
def test_every_text_has_one_and_the_cache_changes_nothing(message: str, exception: str) -> None:
    first = fingerprint.compute_fingerprint(exception, message)
    assert first is not None
    assert (len(first), int(first, 16) >= 0) == (16, True)
    fingerprint._known.clear()
    assert fingerprint.compute_fingerprint(exception, message) == first


_DIGITS = b"0123456789"
_LIKELY = st.lists(
    st.sampled_from(["code", "Error", "status", "http/", "sqlstate", "errno", " ", ":", "=", "(", "1", "2", "17", "9 9", "\x10",
                     ".", "a", "_", "é", "'", '"', "\n"])
).map("".join)  # fmt: skip


@given(_LIKELY, st.one_of(st.integers(0, 9), st.integers(2_000, 2_120)), st.integers())
def test_messages_that_are_normalized_alike_have_one_fingerprint(message: str, before: int, seed: int) -> None:
    """Use what is kept by folded digits, or by the normalized message, for all messages that are equal in it."""
    raw, chance = b"." * before + message.encode(), random.Random(seed)
    other = bytes(chance.choice(_DIGITS) if byte in _DIGITS else byte for byte in raw)
    assert fingerprint.fold_digits(raw) == fingerprint.fold_digits(other)
    assert fingerprint.find_codes(raw) == fingerprint.find_codes(other)
    if codes_in(raw) == codes_in(other):
        assert fingerprint_of(raw.decode()) == fingerprint_of(other.decode())


@given(st.binary(max_size=80), st.integers(2_000, 2_200))
def test_what_is_no_utf_8_changes_nothing_of_that(end: bytes, before: int) -> None:
    raw = b"." * before + end
    other = raw.translate(bytes.maketrans(b"123456789", b"987654321"))
    if codes_in(raw) == codes_in(other):
        assert fingerprint_of(raw.decode("utf-8", "replace")) == fingerprint_of(other.decode("utf-8", "replace"))


def codes_in(message: bytes) -> list[bytes]:
    return [message[code] for code in fingerprint.find_codes(message)]


def test_only_the_beginning_counts() -> None:
    assert fingerprint_of("a" * 2_048 + "b") == fingerprint_of("a" * 2_048 + "c")
    assert fingerprint_of("x " * 1_000 + "b") == fingerprint_of("x " * 1_000 + "c"), "512 characters of what is in common"


def test_the_cache_is_bounded() -> None:
    for n in range(fingerprint._KNOWN_MAX + 10):
        fingerprint.compute_fingerprint(str(n), None)
    assert len(fingerprint._known) <= fingerprint._KNOWN_MAX


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", PIECES)
def test_no_text_takes_long(piece: str) -> None:
    for quoted in ("", '"', "x"):
        for _ in range(20):
            fingerprint._known.clear()
            fingerprint._in_common.cache_clear()
            assert fingerprint_of(quoted + piece * 5_000)


def _measure(text: str) -> float:
    def measure_once() -> float:
        began = time.process_time()
        find_common_text(text)
        return time.process_time() - began

    return min(measure_once() for _ in range(3))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("piece", [*PIECES, "a.B ", *MARKED[:1]])
def test_a_text_that_is_ten_times_as_long_takes_about_ten_times_as_long(piece: str) -> None:
    short, long = (piece * (length // len(piece)) for length in (10_000, 100_000))
    assert _measure(long) < 35 * _measure(short) + 0.01, "in square it would be a hundred times"
