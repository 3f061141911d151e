"""What `retry try` counts is what intake decides, as of when each letter was written and as of now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from retry.intake.attempts import format_retry_id
from retry.operations.inspect import Inspector
from retry.operations.try_letters import OutcomeKey, Remembered, Tried, try_letters
from retry.policies.policy_file import parse
from retry.record import Headers, Record, RecordLocation

NOW_MS = 1_795_284_700_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
POLICIES = """
defaults: {backoff: {kind: constant, delay: 10m}, jitter: none, max_attempts: 3, max_age: 2d}
teams:
  pay:
    topics:
      - dead_letters: pay.DLT
        retry_to: pay.retry
        park_to: pay.parked
        rules: [{exception: '*.Bad', park: true}, {exception: '*.Slow', backoff: {kind: constant, delay: 3h, max_delay: 3h}}]
      - {dead_letters: share.DLT, retry_to: share.retry, origins: [shop], rules: [{headers: {tenant: blue}, park: true}]}
"""


def letter(age_ms: int, exception: str | None = None, *more: tuple[str, bytes], offset: int = 0) -> Record:
    headers: Headers = [*([("exception-class", exception.encode())] if exception else []), *more]
    return Record(("pay.DLT", 0, offset), b"k", b"v", headers, (1, NOW_MS - age_ms))


def run(*letters: Record) -> Tried:
    return try_letters(Inspector(parse(POLICIES, "p.yaml"), "retry", "", {}), [list(letters)], NOW_MS)


def test_nothing_is_counted_where_there_are_no_letters() -> None:
    result = run()
    assert (result.letters, result.retried, result.counts) == (0, 0, {})


def test_letters_are_counted_by_what_becomes_of_them_and_by_exception() -> None:
    result = run(
        letter(0, "com.acme.Bad"), letter(0, "com.acme.Slow"), letter(0, "com.acme.Slow"), letter(0),
        letter(0, "com.acme.Slow", ("retry-attempt", b"3"), ("retry-id", format_retry_id(7, "pay"))),
    )  # fmt: skip
    assert (result.letters, result.retried, dict(result.topics)) == (5, 3, {"pay.DLT": 5})
    assert result.counts == {
        OutcomeKey("pay/pay.DLT#1", "pay.parked", "rule"): 1,
        OutcomeKey("pay/pay.DLT#2", "pay.retry", None): 2,
        OutcomeKey("pay/pay.DLT", "pay.retry", None): 1,
        OutcomeKey("pay/pay.DLT#2", "pay.parked", "max_attempts"): 1,
    }
    assert result.exceptions == {"com.acme.Bad": {"rule": 1}, "com.acme.Slow": {None: 2, "max_attempts": 1}, None: {None: 1}}


def test_it_is_the_root_cause_that_failures_are_counted_by_where_it_is_known() -> None:
    wrapped: Headers = [("kafka_dlt-exception-fqcn", b"org.Wrapper"), ("kafka_dlt-exception-cause-fqcn", b"com.acme.Slow")]
    inspector = Inspector(parse(POLICIES, "p.yaml"), "retry", "", {})
    result = try_letters(inspector, [[letter(0, None, *wrapped)]], NOW_MS)  # type: ignore[arg-type]
    assert result.exceptions == {"com.acme.Slow": {None: 1}}


def test_a_letter_waits_as_long_as_it_would_have_from_when_it_was_written() -> None:
    result = run(letter(5 * DAY_MS), letter(HOUR_MS), letter(MINUTE_MS, "com.acme.Slow"))
    plain, slow = (result.waits[OutcomeKey(policy, "pay.retry", None)] for policy in ("pay/pay.DLT", "pay/pay.DLT#2"))
    assert plain.spread() == (600_000, 600_000, 600_000) and slow.spread() == (3 * HOUR_MS,) * 3
    assert (plain.first_due_ms, plain.last_due_ms) == (NOW_MS - 5 * DAY_MS + 600_000, NOW_MS - HOUR_MS + 600_000)


def test_what_a_worker_does_that_begins_now_is_told_apart() -> None:
    # Too old by now, though it was not when it was written; overdue; due in nine minutes; due in three hours; parked by a rule.
    result = run(
        letter(5 * DAY_MS), letter(HOUR_MS), letter(MINUTE_MS), letter(0, "com.acme.Slow"), letter(0, "com.acme.Bad")
    )
    assert result.now == {"at_once": 1, "within_an_hour": 1, "later": 1, "parked": 2}
    assert result.retried == 4


def test_a_letter_without_a_time_or_with_one_to_come_is_decided_as_of_now() -> None:
    result = try_letters(
        Inspector(parse(POLICIES, "p.yaml"), "retry", "", {}),
        [[Record(("pay.DLT", 0, 0), None, b"v", [], (0, -1)), letter(-HOUR_MS)]], NOW_MS,
    )  # fmt: skip
    (waits,) = result.waits.values()
    assert waits.first_due_ms == NOW_MS + 600_000


def test_records_that_pointers_name_are_fetched_once_and_decided_with() -> None:
    asked: list[RecordLocation] = []

    def fetch(wanted: Collection[RecordLocation]) -> Mapping[RecordLocation, Any]:
        asked.extend(wanted)
        return {place: Record(place, b"k", b"v", [("tenant", b"blue")], (1, NOW_MS)) for place in wanted}

    remembered = Remembered(fetch)
    place: Headers = [("__dlq.errors.topic", b"shop"), ("__dlq.errors.partition", b"0"), ("__dlq.errors.group", b"billing")]
    places = [[*place, ("__dlq.errors.offset", b"%d" % n)] for n in (7, 8)]
    pointers = [Record(("share.DLT", 0, n), None, None, of, (1, NOW_MS)) for n, of in enumerate(places)]
    inspector = Inspector(parse(POLICIES, "p.yaml"), "retry", "", {}, remembered)
    result = try_letters(inspector, [pointers[:1], pointers[1:]], NOW_MS, remembered.clear_records)
    assert result.counts == {OutcomeKey("pay/share.DLT#1", "retry-parked", "rule"): 2}
    assert asked == [("shop", 0, 7), ("shop", 0, 8)]


def test_what_is_counted_is_what_inspect_says_letter_by_letter() -> None:
    letters = [letter(n * MINUTE_MS, name, offset=n) for n, name in enumerate(["a.Bad", "a.Slow", None, "a.Other", "a.Bad"])]
    inspector = Inspector(parse(POLICIES, "p.yaml"), "retry", "", {})
    said = [row for each in letters for row in inspector.inspect_letters([each], each.timestamp()[1])]
    result = run(*letters)
    assert result.counts == {key: said_of(said).count(key) for key in said_of(said)}


def said_of(rows: list[dict[str, object]]) -> list[OutcomeKey]:
    return [OutcomeKey(str(row["policy"]), str(row["target"]), row["reason"]) for row in rows]  # type: ignore[arg-type]
