"""Failures of one kind have one fingerprint, whatever differs in their messages; others have others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.telemetry import fingerprint

ALIKE = [
    ["timeout after 30 ms", "timeout after 1500 ms", "timeout after 1.5 ms"],
    ["no order 'A 17'", "no order 'it is'", "no order ''"],
    ['bad "x"', 'bad "y z"'],
    ["user 550e8400-e29b-41d4-a716-446655440000 gone", "user abcdabcd-abcd-abcd-abcd-abcdabcdabcd gone"],
    ["block deadbeefcafe lost", "block 0123456789AB lost"],
    ["10.0.0.1:9092 refused", "192.168.17.4:80 refused"],
    ["at 2024-01-01T10:00:00.000Z", "at 2026-12-31T23:59:59.999Z"],
    ["can't open user17", "can't open user4711"],
]


def of(message: str | None) -> str | None:
    return fingerprint.compute_fingerprint("a.Failed", "b.Cause", message)


@pytest.mark.parametrize("messages", ALIKE)
def test_what_differs_from_letter_to_letter_is_taken_out(messages: list[str]) -> None:
    assert len({of(message) for message in messages}) == 1


def test_other_kinds_have_other_fingerprints() -> None:
    kinds = [of(messages[0]) for messages in ALIKE] + [of(None), fingerprint.compute_fingerprint("a.Failed", None, None)]
    kinds += [fingerprint.compute_fingerprint("a.Other", "b.Cause", None), fingerprint.compute_fingerprint(None, "b.Cause", None)]
    assert len(set(kinds)) == len(kinds)


def test_it_is_part_of_the_format_and_stays_what_it_is() -> None:
    assert fingerprint.compute_fingerprint("java.io.IOException", None, "order 17") == "0da0c0197e1792c7"
    assert fingerprint.compute_fingerprint(None, None, None) is None


@given(st.text(max_size=2_000), st.text(max_size=50))
def test_every_text_has_one_and_the_cache_changes_nothing(message: str, exception: str) -> None:
    first = fingerprint.compute_fingerprint(exception, None, message)
    assert first is not None
    assert (len(first), int(first, 16) >= 0) == (16, True)
    fingerprint._known.clear()
    assert fingerprint.compute_fingerprint(exception, None, message) == first


@given(st.text(alphabet="aZ09 1-.:'\"`_éx", max_size=60))
def test_digits_that_are_made_alike_before_change_nothing(message: str) -> None:
    alike = message.translate(fingerprint._ALIKE)
    assert fingerprint._DIFFERS.sub("#", message) == fingerprint._DIFFERS.sub("#", alike)


def test_the_cache_is_bounded() -> None:
    for n in range(fingerprint._KNOWN_MAX + 10):
        fingerprint.compute_fingerprint(str(n), None, None)
    assert len(fingerprint._known) <= fingerprint._KNOWN_MAX


@pytest.mark.timeout(60)
@pytest.mark.parametrize("letter", ["a", "'", '"', "`", "1", "_", "-", "a'", "a-", "é"])
def test_no_text_takes_long(letter: str) -> None:
    for _ in range(200):
        fingerprint._known.clear()
        assert of(letter * 5_000)
