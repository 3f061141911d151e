"""What a parked reference says of itself, and how much of the outcomes is read to find out whether that is so."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.intake import attempts
from retry.telemetry import outcomes
from retry.worker import parked_letters
from retry.worker.parked_letters import ReferenceClaim, read_claim
from tests.support.acted import NOW_MS
from tests.support.rested import dead, park_letter, with_headers

MINUTE_MS, AROUND_MS = 60_000, parked_letters._AROUND_MS
ID = attempts.format_retry_id(7, "orders").decode()


def test_what_is_too_large_says_when_that_was_decided_and_not_when_it_would_have_been_due() -> None:
    record = park_letter(dead(value=b"v" * 5_000), made=0, bytes_max=1_000)
    assert read_claim(record) == ReferenceClaim("orders.DLT/0/7", ID, "orders.parked", NOW_MS)


@pytest.mark.parametrize("due_ms", [None, b"", b"\xff", b"-1", b"9" * 5_000])
def test_what_does_not_say_when_is_not_looked_for(due_ms: bytes | None) -> None:
    assert read_claim(with_headers(park_letter(), due_ms=due_ms)).parked_ms is None


@given(st.lists(st.integers(NOW_MS, NOW_MS + 1_000 * MINUTE_MS), max_size=60))
def test_spans_have_every_moment_once_and_are_few(moments: list[int]) -> None:
    ordered = sorted(set(moments))
    spans = list(parked_letters._spans(ordered))
    assert len(spans) <= 20
    assert [at for first, last in spans for at in ordered if first <= at <= last] == ordered
    assert all(later[0] - earlier[1] > 2 * AROUND_MS for earlier, later in pairwise(spans))


def test_an_outcome_proves_only_what_it_says_was_parked() -> None:
    shared = outcomes.SharedFields(
        "orders", "orders.DLT", 0, "orders/orders.DLT", 1, None, "park", "too_large", "orders.parked", None, None, None
    )
    letters = outcomes.LettersByShared(list)
    letters[shared].append((b"7", 7, 1, 2, None))
    letters[shared._replace(decision="retry", reason=None, target="orders.retry")].append((b"8", 8, 1, 2, 3))
    (value,) = outcomes.encode_outcomes(letters, NOW_MS)
    assert list(parked_letters._read_parked(value)) == [ReferenceClaim("orders.DLT/0/7", "7", "orders.parked", None)]
    assert list(parked_letters._read_parked(b"no json")) == []
