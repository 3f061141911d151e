"""Letters become entries: what is decided, where it goes, and what is written in one transaction."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import blocks, entry_keys, envelopes
from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.envelopes import HEADERS_MAX, Entry
from retry.errors import CommitInDoubt, ProducerFenced, TransactionAborted
from retry.intake import attempts
from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult
from retry.intake.build_entry import EntryBuilder
from retry.intake.intake import Intake
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import CommittedOffset
from retry.kafka.topics import TopicNames
from retry.operations.found_letter import make_waiting_letter
from retry.policies.registry import Registry
from retry.record import Headers
from retry.telemetry import fingerprint, outcomes
from retry.telemetry.recovery_ratio import Retry
from retry.testing.kafka import Fault, MemoryLog, MemoryRecord, MemoryTransactionalProducer
from tests.support.lineage_ids import silent_id
from tests.support.plans import registry_of
from tests.support.sealed import OLD, KeyFile

NOW_MS = 1_700_000_000_000
DELAY_MS, MAX_DELAY_MS, DAY_MS = 10_000, 60_000, 86_400_000
INCOMPRESSIBLE = random.Random(1).randbytes(5_000)
ROOMY = {"changelog": 2_000_000}
# Of a letter that says nothing of its origin: a fingerprint of topic, key and value.
ID = silent_id("orders", "orders.DLT", b"key", b"value")
POLICIES = """
defaults: {backoff: {kind: constant, delay: 10s, max_delay: 1m}, jitter: none, max_attempts: 3, max_age: 1d}
targets: {limited.retry: {rate: 10/s}}
teams:
  limited:
    rate: 10/s
    topics: [{dead_letters: limited.DLT, retry_to: back, rules: [{exception: '*.Bad', park: true}]}]
  orders:
    topics:
      - dead_letters: orders.DLT
        retry_to: orders.retry
        park_to: orders.parked
        group: shop
        rules:
          - {exception: '*.ValidationException', park: true}
          - {exception: '*.Slow', backoff: {kind: constant, delay: 30s}}
      - {dead_letters: jittery.DLT, retry_to: jittery.retry, jitter: full}
      - {dead_letters: ordered.DLT, retry_to: orders.retry, ordered: true}
      - {dead_letters: cancelled.DLT, retry_to: orders.retry, null_value: cancel}
      - {dead_letters: to-limited.DLT, retry_to: limited.retry}
      - {dead_letters: deaf.DLT, retry_to: deaf.retry, honour_retry_at: false}
      - {dead_letters: back.DLT, retry_to: origin, allowed_targets: [back, back.other]}
      - {dead_letters: again.DLT, retry_to: origin, park_to: again.parked, allowed_targets: [again, again.parked]}
      - {dead_letters: nameless, retry_to: origin, allowed_targets: [back]}
      - {dead_letters: aged.DLT, retry_to: aged.retry, rules: [{age: 1h, park: true}]}
      - dead_letters: {pattern: '(.*)\\.filled'}
        retry_to: 'back.{1}'
        allowed_targets: [back.other, back.late]
        rules:
          - {null_value: true, park: true}
          - {headers: {tenant: blue}, attempt: 2.., retry_to: back.late}
"""


NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table")


def intake(bytes_max: Mapping[str, int] = ROOMY, shards: int = 4, recent: RecentLineages | None = None, **options: Any) -> Intake:
    registry = registry_of(POLICIES)
    attempt_counter = AttemptCounter(recent or RecentLineages(1_000), "cluster", registry.retry_targets_by_team())
    entry_builder = EntryBuilder("changelog", "parked", bytes_max, options.get("codec", PLAIN))
    partitions = {"changelog": shards, "outcomes": 2, "lineage": 2}
    return Intake(registry, attempt_counter, entry_builder, options.get("fetch", find_no_source), NAMES, partitions)


def find_no_source(wanted: Collection[tuple[str, int, int]]) -> dict[tuple[str, int, int], Any]:
    return dict.fromkeys(wanted, "source_gone")


def record(
    *headers: tuple[str, bytes | None],
    topic: str = "orders.DLT",
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    offset: int = 42,
    stamp_ms: int = NOW_MS,
) -> MemoryRecord:
    return MemoryRecord(Entry(topic, key, value, list(headers), None, ""), 3, offset, stamp_ms)


class One:
    """The result of the intake of one letter."""

    def __init__(self, result: BatchResult) -> None:
        (row,) = result.iterate_entries()
        (outcome,) = result.outcomes
        self.key, self.envelope = row["key"], row["value"]
        self.entry = envelopes.decode(self.envelope)
        (told,) = outcomes.read(outcome["value"])
        self.outcome: dict[str, Any] = dict(told)
        ((self.counted, _),) = result.decided.items()
        self.due_at_ms = entry_keys.due_at_ms(self.key)

    def header(self, name: str) -> bytes | None:
        """The only value of a header; b"" where it is not there."""
        found = [value for header, value in self.entry.headers if header == name]
        assert len(found) <= 1
        return found[0] if found else b""

    @property
    def parked(self) -> str:
        """Why it is parked, or nothing; header, outcome and count say the same."""
        reason = (self.header(names.PARKED_REASON) or b"").decode()
        assert (self.outcome["reason"] or "") == reason
        assert self.counted[1] == self.outcome["decision"] == ("park" if reason else "retry")
        assert self.entry.destination == self.outcome["target"]
        return reason


def prepare(letter: MemoryRecord, now_ms: int = NOW_MS, **options: Any) -> One:
    return One(intake(**options).prepare([letter], now_ms))


def test_a_letter_becomes_an_entry_that_is_complete() -> None:
    one = prepare(record(("a", None), ("a", b"1")))
    assert one.entry.destination == "orders.retry"
    assert (one.entry.key, one.entry.value, one.entry.timestamp_ms) == (b"key", b"value", NOW_MS)
    assert one.entry.team == "orders"
    assert one.entry.headers == [
        ("a", None), ("a", b"1"),
        (names.ID, ID), (names.ATTEMPT, b"1"), (names.SOURCE, b"orders.DLT/3/42"),
        (names.DUE_MS, b"1700000010000"), (names.POLICY, b"orders/orders.DLT"),
        (names.FIRST_FAILED_MS, b"1700000000000"),
    ]  # fmt: skip
    assert str(entry_keys.read_source(one.key)) == "1700000010000/orders.DLT/3/42"
    assert one.parked == ""


def test_an_outcome_says_what_was_decided() -> None:
    one = prepare(record(("exception-class", b"a.Slow")), NOW_MS + 7)
    assert one.outcome == {
        "v": 1, "id": ID.decode(), "source": "orders.DLT/3/42", "team": "orders", "topic": "orders.DLT",
        "policy": "orders/orders.DLT#2", "attempt": 1, "exception": "a.Slow", "first_failed_ms": NOW_MS,
        "failed_ms": NOW_MS, "taken_ms": NOW_MS + 7, "decision": "retry", "reason": None, "due_ms": NOW_MS + 30_000,
        "target": "orders.retry", "cause": None, "fingerprint": fingerprint.compute_fingerprint("a.Slow", None),
        "group": "shop", "delay_ms": 30_000, "action": None, "action_kind": None,
    }  # fmt: skip


@pytest.mark.parametrize("topic", ["orders.DLT", "jittery.DLT"])
def test_the_same_letter_makes_the_same_entry_whenever_it_is_taken_in(topic: str) -> None:
    one, other = (prepare(record(("a", b"1"), topic=topic), now_ms) for now_ms in (NOW_MS, NOW_MS + 3_600_000))
    assert (one.key, one.envelope) == (other.key, other.envelope)


def test_letters_with_the_same_coordinates_wait_beside_each_other_though_they_are_due_at_one_time() -> None:
    # Their topic was deleted and made again while the first of them waited for the same moment.
    at = names.RETRY_AT_MS, b"%d" % (NOW_MS + 60_000)
    former, later = prepare(record(at)), One(intake().prepare([record(at)], NOW_MS, {("orders.DLT", 3): 1}))
    assert former.key < later.key
    assert entry_keys.read_source(former.key) == entry_keys.read_source(later.key)
    assert former.header(names.SOURCE) == later.header(names.SOURCE)


def test_jitter_differs_from_letter_to_letter_within_its_bounds() -> None:
    result = intake().prepare([record(topic="jittery.DLT", offset=n) for n in range(200)], NOW_MS)
    keys = [key for row in result.iterate_entries() for key, _ in blocks.list_rows(row["key"], row["value"])]
    due = set(entry_keys.read_due_times_ms(keys))
    assert len(due) > 150
    assert NOW_MS <= min(due) <= max(due) <= NOW_MS + DELAY_MS


@pytest.mark.parametrize(("key", "value"), [(None, None), (b"", b""), (None, b""), (b"\xff\0", b"\xff\0")])
def test_3_8_null_empty_and_binary_stay_as_they_are(key: bytes | None, value: bytes | None) -> None:
    one = prepare(record(key=key, value=value))
    assert (one.entry.key, one.entry.value) == (key, value)


@pytest.mark.parametrize("topic", ["ordered.DLT", "cancelled.DLT", "limited.DLT", "to-limited.DLT"])
def test_letters_that_must_not_wait_anywhere_go_where_their_keys_say_and_those_without_are_spread(topic: str) -> None:
    def shards(*letters: MemoryRecord) -> set[int]:
        result = intake().prepare(letters, NOW_MS)
        assert not result.anywhere
        return set(result.entries)

    assert len(shards(*(record(topic=topic, key=b"k", offset=n) for n in range(50)))) == 1
    assert shards(*(record(topic=topic, key=None, offset=n) for n in range(50))) == {0, 1, 2, 3}
    assert shards(*(record(topic=topic, key=b"%d" % n) for n in range(50))) == {0, 1, 2, 3}


def test_other_letters_may_wait_in_any_shard_and_what_is_parked_of_limited_ones_too() -> None:
    letters = [record(key=b"k"), record(key=None, offset=43), record(("exception-class", b"a.Bad"), topic="limited.DLT")]
    result = intake().prepare(letters, NOW_MS)
    assert (sum(blocks.count_entries(row["key"]) for row in result.anywhere), dict(result.entries)) == (3, {})


def test_letters_that_are_sealed_wait_in_a_block_too_each_under_its_own_seal() -> None:
    codec = KeyFile(OLD).codec
    result = intake(codec=codec).prepare([record(offset=n) for n in range(3)], NOW_MS)
    (row,) = result.anywhere
    assert blocks.is_of_envelopes(row["value"])
    sealed = blocks.list_rows(row["key"], row["value"])
    entries = [codec.decode(key, envelope or b"") for key, envelope in sealed]
    assert [dict(entry.headers)[names.SOURCE] for entry in entries] == [b"orders.DLT/3/%d" % n for n in range(3)]


def test_a_narrow_target_keeps_letters_of_others_out_of_no_block() -> None:
    letters = [record(offset=n) for n in range(3)]
    for bytes_max in ({"bills.retry": 200}, {"changelog": 40_000}):
        result = intake({"changelog": 1_000_000, **bytes_max}).prepare(letters, NOW_MS)
        assert [blocks.count_entries(row["key"]) for row in result.anywhere] == [3]
    large = [record(offset=n, value=b"%d" % n * 4_000) for n in range(6)]
    result = intake({"changelog": 60_000}).prepare(large, NOW_MS)
    assert [blocks.count_entries(row["key"]) for row in result.anywhere] == [2, 2, 2]
    assert max(len(row["value"]) for row in result.anywhere) < 15_000


def test_our_headers_are_replaced_and_never_stacked() -> None:
    letter = record()
    for attempt in range(1, 4):
        one = prepare(letter)
        assert one.header(names.ATTEMPT) == b"%d" % attempt
        assert one.header(names.ID) == ID
        assert one.header(names.SOURCE) == b"orders.DLT/3/%d" % (41 + attempt)
        assert len(one.entry.headers) == 6
        # The consumer fails again and copies everything that it got.
        letter = record(*one.entry.headers, offset=42 + attempt)
    assert prepare(letter).parked == "max_attempts"


def test_the_last_attempt_is_made_and_the_next_is_parked() -> None:
    assert prepare(record((names.ATTEMPT, b"2"))).parked == ""
    last = prepare(record((names.ATTEMPT, b"3")))
    assert last.parked == "max_attempts"
    assert (last.entry.destination, last.header(names.ATTEMPT), last.outcome["attempt"]) == ("orders.parked", b"3", 4)
    assert (last.due_at_ms, last.outcome["due_ms"]) == (NOW_MS, None)


@pytest.mark.parametrize(("age_ms", "reason"), [(DAY_MS - DELAY_MS, ""), (DAY_MS - DELAY_MS + 1, "max_age")])
def test_a_letter_is_parked_when_its_retry_would_come_too_late(age_ms: int, reason: str) -> None:
    first = b"%d" % (NOW_MS - age_ms)
    one = prepare(record((names.FIRST_FAILED_MS, first), (names.ATTEMPT, b"1")))
    assert one.parked == reason
    assert (one.header(names.FIRST_FAILED_MS), one.outcome["first_failed_ms"]) == (first, NOW_MS - age_ms)


@pytest.mark.parametrize(
    ("asked_ms", "due_ms"),
    [
        (NOW_MS + 5, NOW_MS + 5), (NOW_MS, NOW_MS), (NOW_MS - DAY_MS, NOW_MS - DAY_MS),
        (NOW_MS + MAX_DELAY_MS, NOW_MS + MAX_DELAY_MS), (NOW_MS + MAX_DELAY_MS + 1, NOW_MS + MAX_DELAY_MS),
        (253_402_300_799_999, NOW_MS + MAX_DELAY_MS),
    ],
)  # fmt: skip
def test_a_wish_is_honoured_bounded_and_consumed(asked_ms: int, due_ms: int) -> None:
    one = prepare(record((names.RETRY_AT_MS, b"%d" % asked_ms)))
    assert (one.parked, one.due_at_ms) == ("", due_ms)
    assert names.RETRY_AT_MS not in dict(one.entry.headers)


def test_a_wish_is_not_heard_where_the_policy_is_deaf() -> None:
    for raw in (b"%d" % (NOW_MS + 5), b"tomorrow"):
        one = prepare(record((names.RETRY_AT_MS, raw), topic="deaf.DLT"))
        assert (one.parked, one.due_at_ms) == ("", NOW_MS + DELAY_MS)
        assert names.RETRY_AT_MS not in dict(one.entry.headers)


@pytest.mark.parametrize(
    ("letter", "reason", "target"),
    [
        (record((names.ATTEMPT, b"NaN")), "bad_attempt", "orders.parked"),
        (record((names.ATTEMPT, None)), "bad_attempt", "orders.parked"),
        (record((names.RETRY_AT_MS, b"1700000000")), "bad_due", "orders.parked"),
        (record((names.RETRY_AT_MS, None)), "bad_due", "orders.parked"),
        (record(("exception-class", b"a.ValidationException")), "rule", "orders.parked"),
        (record(("exception-class", b"a.ValidationException"), (names.ATTEMPT, b"x")), "rule", "orders.parked"),
        (record(topic="unknown.DLT"), "no_policy", "parked"),
        (record(topic="nameless"), "no_origin", "parked"),
        (record(("x-original-topic", b"__consumer_offsets"), topic="back.DLT"), "target_not_allowed", "parked"),
        (record(("x-original-topic", b"back.DLT"), topic="back.DLT"), "target_not_allowed", "parked"),
        (record(("x-original-topic", b"changelog"), topic="back.DLT"), "target_not_allowed", "parked"),
    ],
)
def test_what_must_not_be_retried_is_parked_at_once_and_whole(letter: MemoryRecord, reason: str, target: str) -> None:
    one = prepare(letter)
    assert (one.parked, one.entry.destination, one.due_at_ms) == (reason, target, NOW_MS)
    assert (one.entry.key, one.entry.value) == (b"key", b"value")
    assert one.entry.headers[: len(list_kept_headers(letter))] == list_kept_headers(letter)


def list_kept_headers(letter: MemoryRecord) -> Headers:
    return [header for header in letter.headers() or [] if header[0] not in names.OURS]


def test_letters_go_back_to_origins_that_are_allowed() -> None:
    assert prepare(record(topic="back.DLT")).entry.destination == "back"
    assert prepare(record(("x-original-topic", b"back.other"), topic="back.DLT")).entry.destination == "back.other"


def test_a_header_that_names_the_parking_topic_as_origin_does_not_have_the_letter_retried_there() -> None:
    one = prepare(record(("x-original-topic", b"again.parked"), topic="again.DLT"))
    assert (one.parked, one.entry.destination) == ("target_not_allowed", "again.parked")
    assert prepare(record(topic="again.DLT")).entry.destination == "again"


def test_a_topic_that_a_template_comes_to_must_be_allowed() -> None:
    assert prepare(record(topic="other.filled")).entry.destination == "back.other"
    for topic in ("more.filled", "x" * 240 + ".filled"):
        one = prepare(record(("x-original-topic", b"o"), topic=topic))
        assert (one.parked, one.entry.destination) == ("target_not_allowed", "parked")


def test_rules_ask_for_the_attempt_the_headers_and_the_value() -> None:
    blue = ("tenant", b"blue")
    assert prepare(record(blue, topic="other.filled")).entry.destination == "back.other"
    assert prepare(record(blue, (names.ATTEMPT, b"1"), topic="other.filled")).entry.destination == "back.late"
    assert prepare(record(blue, (names.ATTEMPT, b"1"), topic="other.filled", value=None)).parked == "rule"


@pytest.mark.parametrize(("age_ms", "park"), [(3_599_999, False), (3_600_000, True)])
def test_rules_ask_for_the_time_since_the_first_failure(age_ms: int, park: bool) -> None:
    first = (names.FIRST_FAILED_MS, b"%d" % (NOW_MS - age_ms))
    assert (prepare(record(first, (names.ATTEMPT, b"1"), topic="aged.DLT")).parked == "rule") is park


def test_a_header_chooses_no_topic_where_the_policy_names_one() -> None:
    one = prepare(record(("x-original-topic", b"elsewhere"), ("retry-topic", b"elsewhere")))
    assert one.entry.destination == "orders.retry"


def large(size: int, *headers: tuple[str, bytes | None]) -> MemoryRecord:
    return record(*headers, key=None, value=b"x" * size)


def test_a_letter_at_the_limit_of_its_topic_is_whole_and_one_above_loses_our_optional_headers() -> None:
    spare = 2_000 - len(prepare(large(1_000)).envelope)
    limits = {"changelog": 10_000, "orders.retry": 2_000}
    whole = prepare(large(1_000 + spare), bytes_max=limits)
    assert (len(whole.envelope), len(whole.entry.headers)) == (2_000, 6)
    lean = prepare(large(1_001 + spare), bytes_max=limits)
    assert {name for name, _ in lean.entry.headers} == {names.ID, names.ATTEMPT, names.FIRST_FAILED_MS}
    assert (lean.parked, lean.entry.value) == ("", b"x" * (1_001 + spare))


def test_with_ours_there_are_never_more_headers_than_clients_read_back() -> None:
    headers: list[tuple[str, bytes | None]] = [("", None)] * HEADERS_MAX
    whole, lean, none = (prepare(record(*headers[fewer:])) for fewer in (6, 5, 2))
    assert [len(one.entry.headers) for one in (whole, lean, none)] == [HEADERS_MAX, HEADERS_MAX - 2, 7]
    assert [one.parked for one in (whole, lean, none)] == ["", "", "too_large"]
    assert none.header(names.SOURCE) == b"orders.DLT/3/42"


def test_a_letter_that_its_topic_takes_only_compressed_keeps_its_value_and_all_headers() -> None:
    """Take in 3 MB of JSON that came compressed, of topics that take 1 MB."""
    limits = {"changelog": 10_000, "orders.retry": 2_000, "orders.parked": 2_000}
    letter = large(5_000, ("theirs", b"1"))
    one = prepare(letter, bytes_max=limits)
    assert (one.parked, one.entry.destination, one.entry.value) == ("", "orders.retry", b"x" * 5_000)
    assert {"theirs", names.SOURCE} <= set(dict(one.entry.headers))
    parked = prepare(record((names.ATTEMPT, b"3"), value=b"x" * 5_000), bytes_max=limits)
    assert (parked.parked, parked.entry.value) == ("max_attempts", b"x" * 5_000)


@pytest.mark.parametrize("limits", [{"changelog": 2_000}, {"changelog": 10_000, "orders.retry": 2_000}])
def test_a_letter_that_fits_nowhere_is_parked_by_reference(limits: dict[str, int]) -> None:
    one = prepare(record(("theirs", b"1"), key=None, value=INCOMPRESSIBLE), bytes_max=limits)
    assert (one.parked, one.entry.destination, one.entry.value) == ("too_large", "orders.parked", None)
    id_ = silent_id("orders", "orders.DLT", None, INCOMPRESSIBLE)
    assert (one.header(names.SOURCE), one.header(names.ID)) == (b"orders.DLT/3/42", id_)
    assert "theirs" not in dict(one.entry.headers)
    assert len(one.envelope) < 2_000


def test_a_reference_is_parked_at_once_and_tells_the_failure_that_it_counts_among() -> None:
    failed: Headers = [
        ("kafka_dlt-exception-fqcn", b"com.acme.Wrapper"), ("kafka_dlt-exception-cause-fqcn", b"com.acme.GatewayTimeout"),
        ("kafka_dlt-exception-message", b"no answer for order 17"), ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-stacktrace", b"com.acme.GatewayTimeout: no answer\n" + b"\tat com.acme.A.b(A.java:1)\n" * 5_000),
    ]  # fmt: skip
    small, large = (prepare(record(*failed, value=value), bytes_max={"changelog": 500_000}) for value in (b"x", b"x" * 600_000))
    assert (small.parked, large.parked, large.entry.value) == ("", "too_large", None)
    assert large.header(names.DUE_MS) == b"%d" % NOW_MS, "it does not wait for the retry that it never gets"
    assert small.header(names.DUE_MS) > large.header(names.DUE_MS)
    assert all(name in names.OURS for name, _ in large.entry.headers), "older workers know a reference by that"
    where = Source(NOW_MS, "orders.DLT", 3, 42)
    whole, told = (make_waiting_letter(where, one.entry, Registry(), "") for one in (small, large))
    assert (told.failure.exception, told.failure.cause) == ("com.acme.Wrapper", "com.acme.GatewayTimeout")
    assert (told.failure.message, told.failure.consumer_group) == (whole.failure.message, "billing")
    assert told.fingerprint == whole.fingerprint is not None
    failed[2] = ("kafka_dlt-exception-message", b"m" * 3_000)
    narrow = prepare(record(*failed, value=b"x" * 9_000), bytes_max={"changelog": 2_000})
    assert (narrow.parked, names.PARKED_FAULT in dict(narrow.entry.headers)) == ("too_large", False), "nothing is left of that"


@pytest.mark.parametrize(("size", "kept_key"), [(1_024, True), (1_025, False)])
def test_a_reference_keeps_a_key_that_is_short(size: int, kept_key: bool) -> None:
    one = prepare(record(key=b"k" * size, value=b"x" * 9_000), bytes_max={"changelog": 5_000})
    assert one.entry.key == (b"k" * size if kept_key else None)


def test_a_reference_to_a_letter_that_was_to_be_parked_tells_one_reason() -> None:
    letter = record((names.ATTEMPT, b"3"), value=b"x" * 9_000)
    assert prepare(letter, bytes_max={"changelog": 5_000}).parked == "max_attempts"


def test_a_letter_whose_headers_cannot_be_told_is_parked_by_reference() -> None:
    letter = record()

    def headers() -> Headers:
        raise SystemError("returned a result with an exception set")

    letter.headers = headers  # type: ignore[assignment]
    one = prepare(letter)
    assert (one.parked, one.entry.destination) == ("unreadable_headers", "orders.parked")
    assert (one.entry.key, one.entry.value, one.header(names.SOURCE)) == (b"key", None, b"orders.DLT/3/42")


def test_a_reference_counts_the_retries_that_were_made() -> None:
    one = prepare(record((names.ATTEMPT, b"1"), value=b"x" * 9_000), bytes_max={"changelog": 5_000})
    assert one.header(names.ATTEMPT) == b"1"


class TestCommit:
    """The transaction of a batch."""

    @pytest.fixture
    def log(self) -> MemoryLog:
        log = MemoryLog()
        log.create("changelog", 4)
        log.create("outcomes", 2)
        log.create("lineage", 2)
        log.create(NAMES.positions)
        return log

    def take(self, log: MemoryLog, letters: list[MemoryRecord], writer: MemoryTransactionalProducer | None = None) -> None:
        writer = writer or self.opened(log)
        taking = intake()
        positions = {("orders.DLT", 3): ReadPosition(topic_id="id", offset=43)}
        taking.write(taking.prepare(letters, NOW_MS), positions, "intake", writer)
        writer.commit()

    def opened(self, log: MemoryLog) -> MemoryTransactionalProducer:
        writer = MemoryTransactionalProducer(log, "intake")
        writer.open()
        return writer

    def test_entries_outcomes_and_offsets_are_one_transaction(self, log: MemoryLog) -> None:
        self.take(log, [record(offset=n) for n in range(40, 43)])
        (block,) = log.read("changelog")
        rows = blocks.list_rows(block.key() or b"", block.value())
        assert [entry_keys.read_source(key).offset for key, _ in rows] == [40, 41, 42]
        (record_of_outcomes,) = log.read("outcomes")
        told = [letter["source"] for letter in outcomes.read(record_of_outcomes.value() or b"")]
        assert told == [f"orders.DLT/3/{n}" for n in range(40, 43)]
        (record_of_lineages,) = log.read("lineage")
        assert attempts.unpack(record_of_lineages.value() or b"").row_count == 3
        assert log.committed_offsets == {("intake", "orders.DLT", 3): CommittedOffset(43, "id")}
        (position,) = log.read(NAMES.positions)
        assert position.key() == b"orders.DLT/3"

    def test_what_was_decided_is_recorded_in_the_partition_of_each_team(self, log: MemoryLog) -> None:
        other = MemoryRecord(Entry("nobody's", b"key", b"value", [], None, ""), 3, 7, NOW_MS)
        self.take(log, [record(), other])
        told = [(each.partition(), attempts.unpack(each.value() or b"").team) for each in log.read("lineage")]
        topic = attempts.LineageTopic("lineage", 2)
        assert sorted(told) == sorted((topic.find_partition(team), attempts.hash_team(team)) for team in ("orders", "default"))

    @pytest.mark.parametrize(("fault", "error"), [(Fault.ABORTED, TransactionAborted), (Fault.DOUBT_OPEN, CommitInDoubt)])
    def test_a_batch_that_fails_leaves_nothing_and_is_taken_in_once_again(
        self, log: MemoryLog, fault: Fault, error: type[Exception]
    ) -> None:
        log.faults.append(fault)
        with pytest.raises(error):
            self.take(log, [record()])
        assert (log.read("changelog"), log.read("outcomes"), log.committed_offsets) == ([], [], {})
        self.take(log, [record()])
        assert (len(log.read("changelog")), len(log.read("outcomes"))) == (1, 1)

    def test_a_fenced_intake_leaves_nothing(self, log: MemoryLog) -> None:
        stale = self.opened(log)
        self.opened(log)
        with pytest.raises(ProducerFenced):
            self.take(log, [record()], stale)
        assert (log.read("changelog"), log.read("outcomes"), log.committed_offsets) == ([], [], {})

    def test_counts_are_by_team_and_decision(self) -> None:
        letters = [record(), record(offset=43), record((names.ATTEMPT, b"x")), record(topic="unknown.DLT")]
        decided = intake().prepare(letters, NOW_MS).decided
        assert decided == {("orders", "retry"): 2, ("orders", "park"): 1, ("default", "park"): 1}


def test_what_came_back_is_counted_by_the_retry_that_failed_and_what_is_parked_by_its_reason() -> None:
    back = [(names.POLICY, b"orders/orders.DLT#2"), (names.DUE_MS, b"%d" % (NOW_MS - 90_000))]
    letters = [
        record(offset=1),
        record((names.ATTEMPT, b"1"), *back, value=b"2", offset=2),
        record((names.ATTEMPT, b"2"), (names.POLICY, b"forged"), value=b"3", offset=3),
        record((names.ATTEMPT, b"3"), *back, value=b"4", offset=4),
        record(("exception-class", b"a.ValidationException"), value=b"5", offset=5),
    ]
    result = intake().prepare(letters, NOW_MS)
    minute = NOW_MS // 60_000
    assert result.back == {
        Retry("orders", "orders/orders.DLT#2", "1", (NOW_MS - 90_000) // 60_000): 1,
        # A policy that the file does not know is no label; without a due time it was sent when it failed.
        Retry("orders", "orders/orders.DLT", "2", minute): 1,
        Retry("orders", "orders/orders.DLT#2", "3", (NOW_MS - 90_000) // 60_000): 1,
    }
    assert result.parked == {("orders", "orders/orders.DLT", "max_attempts"): 1, ("orders", "orders/orders.DLT#1", "rule"): 1}
    assert result.failures == {
        ("orders", None, 0): 1, ("orders", None, 1): 1, ("orders", None, 2): 1, ("orders", None, 3): 1,
        ("orders", "a.ValidationException", 0): 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "group"),
    [([], "shop"),
     ([("kafka_dlt-exception-fqcn", b"x.Y"), ("kafka_dlt-original-consumer-group", b"theirs")], "shop")],
)  # fmt: skip
def test_the_group_is_that_of_the_policy_file_whatever_a_letter_names(headers: Headers, group: str) -> None:
    assert prepare(record(*headers)).outcome["group"] == group


def test_of_what_is_parked_there_is_no_delay_and_of_causes_there_is_one_fingerprint() -> None:
    def read_outcome(message: bytes) -> dict[str, Any]:
        said = [("kafka_dlt-exception-fqcn", b"a.ValidationException"), ("kafka_dlt-exception-cause-fqcn", b"b.Root")]
        return prepare(record(*said, ("kafka_dlt-exception-message", message))).outcome

    one, other = read_outcome(b"order 17"), read_outcome(b"order 4711")
    assert (one["delay_ms"], one["cause"], one["exception"]) == (None, "b.Root", "b.Root")
    expected = fingerprint.compute_fingerprint("b.Root", "order 3")
    assert one["fingerprint"] == other["fingerprint"] == expected
