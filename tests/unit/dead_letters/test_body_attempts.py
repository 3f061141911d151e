"""A count that a consumer keeps in the body of its messages, as the system with a table of letters does: 3-1."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters import dead_letter
from retry.dead_letters.dead_letter import Letter, read
from retry.delay_queue.envelopes import Entry
from retry.intake.attempts import RecentLineages, format_retry_id
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.policies.registry import make_default_route
from retry.record import Headers
from retry.testing.kafka.partition import MemoryRecord

PATH = "$.retryAttempt"
ALIASES = {"attempts": ("x-tries", PATH)}
NOW_MS = 1_767_225_600_000
ROUTE = make_default_route()


def letter(value: bytes | None, headers: Headers | None = None, aliases: Any = ALIASES) -> Letter:
    return read(MemoryRecord(Entry("orders.DLT", b"k", value, headers or [], NOW_MS, ""), 0, 7, NOW_MS), aliases)


def count_made(found: Letter) -> int | None:
    return AttemptCounter(RecentLineages(1_000), "cluster", {}).trace(found, ROUTE, NOW_MS).made


def test_3_1_a_count_in_the_body_counts_though_everything_else_is_new() -> None:
    for attempt in (1, 2, 8):
        found = letter(json.dumps({"id": 4711, "retryAttempt": attempt}).encode())
        assert (found.failure.attempts, count_made(found)) == (attempt, attempt - 1)
    assert letter(b'{"retryAttempt": 0}').failure.attempts == 1
    assert dead_letter.count_attempts(b'{"meta": {"tries": 5}}', ["$.meta.tries"]) == 5


def test_3_1_the_larger_count_holds_where_headers_and_body_disagree() -> None:
    value = b'{"retryAttempt": 3}'
    assert letter(value, [("x-tries", b"9")]).failure.attempts == 9
    assert letter(value, [("x-tries", b"2")]).failure.attempts == 3
    assert count_made(letter(value, [("retry-id", format_retry_id(1, ROUTE.team)), ("retry-attempt", b"6")])) == 6
    assert count_made(letter(value, [("retry-id", format_retry_id(1, ROUTE.team)), ("retry-attempt", b"1")])) == 2


def test_3_1_a_body_is_not_looked_into_where_the_policy_does_not_ask() -> None:
    for aliases in (None, {}, {"attempts": ("x-tries",)}, {"exception": ("x-err",)}):
        found = letter(b'{"retryAttempt": 3}', [("x-err", b"E")], aliases)
        assert (found.failure.attempts, found.counted, count_made(found)) == (1, 0, 0)


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"{", b"[1]", b"3", b"null", b"\xff\xfe", b'{"retryAttempt"', b'{"other": 3}', b'{"retryAttempt": {"n": 3}}',
        b'{"retryAttempt": "3"}', b'{"retryAttempt": true}', b'{"retryAttempt": null}', b'{"retryAttempt": -3}',
        b'{"retryAttempt": 3.0}', b'{"retryAttempt": 3e0}', b'{"retryAttempt": 2147483648}', b'{"retryAttempt": [3]}',
        b'{"retryAttempt": ' + b"9" * 5_000 + b"}", b'{"a": ' + b"[" * 30_000 + b"]" * 30_000 + b', "retryAttempt": 3}',
        b'{"a": ' * 10_000 + b"3" + b"}" * 10_000, b'{"retryAttempt": 3, "pad": "' + b"x" * 70_000 + b'"}',
        b'\xef\xbb\xbf{"retryAttempt": 3}',
    ],
)  # fmt: skip
def test_3_1_3_11_what_is_no_count_is_as_if_it_were_not_there(value: bytes | None) -> None:
    found = letter(value)
    assert (found.counted, found.failure.attempts, count_made(found)) == (0, 1, 0)
    assert dead_letter.count_attempts(value, ["$.retryAttempt.retryAttempt.retryAttempt"]) == 0


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.sampled_from(["retryAttempt", "a"]), of, max_size=2),
    max_leaves=5,
)


@given(st.binary(max_size=300) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_3_1_3_11_no_body_is_refused(value: bytes) -> None:
    try:
        said = json.loads(value)
    except ValueError:
        said = None
    count = said.get("retryAttempt") if isinstance(said, dict) else None
    is_count = type(count) is int and 0 <= count < 1 << 31
    assert letter(value).counted == (count if is_count else 0)
