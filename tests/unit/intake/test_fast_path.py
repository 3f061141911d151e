"""The fast path is a short cut: what is written is the same, byte for byte, whatever the letters and whichever came before."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.detection import DIALECTS
from retry.delay_queue import blocks, envelopes
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.intake import attempts, fast_path
from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult
from retry.intake.build_entry import EntryBuilder
from retry.intake.fast_path import FastPath
from retry.intake.intake import Intake
from retry.kafka.topics import TopicNames
from retry.record import CREATE_TIME, Header, Headers, Record
from retry.telemetry import outcomes
from retry.testing.kafka import MemoryRecord
from tests.bench.letters import SPRING
from tests.support.mutated_letters import Mutations, as_written
from tests.support.plans import registry_of
from tests.support.sealed import NEW, KeyFile

NOW_MS = 1_700_000_000_000
NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table")
POLICIES = """
defaults: {backoff: {kind: exponential, delay: 10s, factor: 2, max_delay: 1m}, jitter: full, max_attempts: 3, max_age: 1d}
targets: {limited.retry: {rate: 10/s}}
teams:
  a%b"c:
    topics:
      - dead_letters: plain
        retry_to: plain.retry
        rules:
          - {exception: ['*.Slow', '*.DeserializationException'], backoff: {kind: constant, delay: 30s}}
          - {cause: '*Refused', park: true}
          - {stage: [VALUE_CONVERTER, pay], retry_to: staged.retry}
      - {dead_letters: deaf, retry_to: deaf.retry, group: 'deaf "ones"', honour_retry_at: false}
      - {dead_letters: never, retry_to: never.retry, max_attempts: 0}
      - {dead_letters: ordered, retry_to: ordered.retry, ordered: true}
      - {dead_letters: aliased, retry_to: aliased.retry, aliases: {exception: [why]}}
      - {dead_letters: aged, retry_to: aged.retry, rules: [{age: 1h, park: true}]}
      - {dead_letters: asks, retry_to: asks.retry, rules: [{exception: 'org.*', message: '17', park: true}]}
      - {dead_letters: back.DLT, retry_to: origin, allowed_targets: [back, orders]}
      - {dead_letters: {pattern: 'grouped-(.+)'}, retry_to: '{group}.retry', allowed_targets: [order-service.retry]}
      - {dead_letters: parks, retry_to: parks.retry, rules: [{null_value: true, park: true}]}
      - {dead_letters: cancels, retry_to: cancels.retry, null_value: cancel}
      - {dead_letters: orders__billing__dlq, retry_to: orders.retry}
      - {dead_letters: limited, retry_to: limited.retry}
  others: {topics: [{dead_letters: theirs, retry_to: plain.retry, group: order-service}]}
"""
TOPICS = [
    "plain", "deaf", "never", "ordered", "aliased", "aged", "asks", "back.DLT", "grouped-one", "parks", "cancels",
    "orders__billing__dlq", "theirs", "limited", "nobodys",
]  # fmt: skip

# Topics that were deleted and made again, as one of their partitions says.
MADE_AGAIN = {(topic, 2): 1 + n for n, topic in enumerate(TOPICS)}

AS_WRITTEN = as_written()
TIMES = [b"", b"soon", None, b"%d" % (NOW_MS + 5_000), b"%d" % (NOW_MS - 5_000), b"9" * 30]
HEADERS = st.one_of(
    st.tuples(st.just("retry-at-ms"), st.sampled_from(TIMES)),
    st.tuples(st.sampled_from(["retry-id", "retry-attempt", "retry-source", "why"]), st.sampled_from([b"1", b"x", None])),
    st.tuples(st.just("retry-id"), st.sampled_from([attempts.format_retry_id(7, team) for team in ('a%b"c', "others")])),
    st.tuples(st.just("kafka_dlt-exception-fqcn"), st.just(b"java.lang.Slow")),
    st.tuples(st.sampled_from(["trace", "%d", "%"]), st.one_of(st.none(), st.binary(max_size=9))),
)
VALUES = st.one_of(st.none(), st.sampled_from([b"", b"same", b'{"actor_name": "a"}', b"x" * 900]), st.binary(max_size=20))
LETTERS = st.builds(
    lambda topic, key, value, headers, partition, offset, stamp_ms: MemoryRecord(
        Entry(topic, key, value, headers, None, ""), partition, offset, stamp_ms
    ),
    st.sampled_from(TOPICS),
    st.one_of(st.none(), st.sampled_from([b"", b"key"])),
    VALUES,
    st.lists(HEADERS, max_size=3),
    st.integers(0, 3),
    st.integers(0, 1 << 40),
    st.sampled_from([-1, 0, 5, NOW_MS - 90_000_000, NOW_MS - 1_000, NOW_MS + 1_000, 5_000_000_000_000]),
)


def find_no_source(wanted: Collection[tuple[str, int, int]]) -> Mapping[tuple[str, int, int], Any]:
    return dict.fromkeys(wanted, "source_gone")


def intake(recent: RecentLineages, bytes_max: int = 1_000_000, codec: EnvelopeCodec = PLAIN) -> Intake:
    registry = registry_of(POLICIES)
    attempt_counter = AttemptCounter(recent, "cluster", registry.retry_targets_by_team())
    entry_builder = EntryBuilder("changelog", "parked", {"changelog": bytes_max}, codec)
    return Intake(registry, attempt_counter, entry_builder, find_no_source, NAMES, {"changelog": 4, "outcomes": 2, "lineage": 2})


def list_result_unordered(result: BatchResult) -> list[object]:
    """List what is written and counted, the letters of the fast path before the others or among them."""
    by_shard = {None: result.anywhere, **result.entries}
    entries = {
        shard: sorted(each for row in rows for each in blocks.list_rows(row["key"], row["value"]))
        for shard, rows in by_shard.items()
    }
    told = sorted(
        orjson.dumps(letter, option=orjson.OPT_SORT_KEYS) for row in result.outcomes for letter in outcomes.read(row["value"])
    )
    traces = sorted(
        (team, each) for team, rows in result.lineages.items() for row in rows for each in list_traces(team, row["value"])
    )
    counted = [result.decided, result.families, result.failures, result.came_back, result.back, result.parked]
    return [entries, told, traces, *counted]


def list_traces(team: str, packed: bytes) -> list[attempts.LineageFields]:
    told = attempts.unpack(packed)
    assert told.team == attempts.hash_team(team)
    return list(told.rows)


class Both:
    """Two intakes for the same letters, of which one has no fast path.

    Attributes:
      fast_path: that of the other.
      by_fast_path: letters that took it, by family.
      again: how many of them had been retried before.
    """

    def __init__(self, bytes_max: int = 1_000_000) -> None:
        self._recent = [RecentLineages(1_000), RecentLineages(1_000)]
        self._fast, self._slow = (intake(recent, bytes_max) for recent in self._recent)
        self.fast_path, self.by_fast_path, self.again = self._fast._fast_path, Counter[str](), 0

    def hold(self, letters: Sequence[Record], now_ms: int = NOW_MS) -> list[Entry]:
        """Check that what both write is the same, and that both remember it; return the entries."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FastPath, "prepare", self._counting(FastPath.prepare))
            by_fast = self._fast.prepare(list(letters), now_ms, MADE_AGAIN)
            patch.setattr(FastPath, "prepare", lambda _self, messages, *_: list(messages))
            by_slow = self._slow.prepare(list(letters), now_ms, MADE_AGAIN)
        assert list_result_unordered(by_fast) == list_result_unordered(by_slow)
        entries = [envelopes.decode(row["value"]) for row in by_slow.iterate_entries()]
        # In the same order, which letters that are equal in key and value depend on.
        for rows in by_slow.lineages.values():
            for row in rows:
                for recent in self._recent:
                    recent.apply_batch(row["value"])
        return entries

    def _counting(self, prepare: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def count_others(path: FastPath, messages: list[Any], now_ms: int, result: BatchResult) -> list[Any]:
            before, again = Counter(result.families), result.back.total()
            others = prepare(path, messages, now_ms, result)
            self.by_fast_path += result.families - before
            self.again += result.back.total() - again
            return others

        return count_others


@given(st.lists(st.lists(LETTERS, max_size=12), max_size=3), st.sampled_from([400, 1_000_000]))
def test_what_is_written_is_the_same_by_the_short_way_and_by_the_long_one(
    batches: list[list[MemoryRecord]], bytes_max: int
) -> None:
    both = Both(bytes_max)
    for n, batch in enumerate(batches):
        both.hold(batch, NOW_MS + n * 60_000)


@pytest.mark.parametrize("seed", range(12))
def test_letters_of_all_frameworks_are_written_as_by_the_long_way_whatever_came_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(fast_path, "_KEPT_BYTES_MAX", chance.choice([0, 100_000, 32 << 20]))
    mutations = Mutations(chance, [letter for _, letter in AS_WRITTEN], [*TOPICS, *["plain", "back.DLT", "theirs"] * 3], NOW_MS)
    both = Both(chance.choice([3_000, 1_000_000]))
    for n in range(4):
        letters = [mutations.letter() for _ in range(150)]
        both.hold(letters + chance.choices(letters, k=20), NOW_MS + n * 60_000)
    assert both.by_fast_path.total() > 100


def test_first_failures_of_all_frameworks_with_headers_take_the_fast_path() -> None:
    both = Both()
    for turn in range(2):
        both.hold([make_record("plain", 1_000 * turn + n, letter.headers()) for n, (_, letter) in enumerate(AS_WRITTEN)])
    # Those of etf1 have one of our names for another thing, and our own an id that is of no team here; the others have none
    # where there is no header.
    assert both.by_fast_path.keys() == {family for family, _ in AS_WRITTEN} - {"etf1", "own", "celery", "dramatiq"}


@pytest.mark.parametrize("seed", range(12))
def test_letters_that_fail_again_are_written_as_by_the_long_way_whatever_came_before(seed: int) -> None:
    chance = random.Random(seed)
    mutations = Mutations(chance, [letter for _, letter in AS_WRITTEN], [*TOPICS, *["plain", "back.DLT", "theirs"] * 3], NOW_MS)
    both, out = Both(), list[Entry]()
    for n in range(5):
        back = [mutations.again(retry) for retry in out if chance.random() < 0.8]
        letters = back + chance.choices(back or [mutations.letter()], k=5) + [mutations.letter() for _ in range(60)]
        chance.shuffle(letters)
        entries = both.hold(letters, NOW_MS + n * 60_000)
        out = [entry for entry in entries if "retry-parked-reason" not in dict(entry.headers)]
    assert both.again > 50


def test_a_letter_that_fails_again_goes_the_short_way() -> None:
    both = Both()
    letters = [Record(("plain", 1, n), b"key-%d" % n, b"value", [], (CREATE_TIME, NOW_MS - 1_000)) for n in range(9)]
    for attempt in range(3):
        entries = both.hold(letters, NOW_MS + attempt * 100_000)
        assert both.again == attempt * 9
        letters = [
            Record(("plain", 1, 10 * attempt + n), e.key, e.value, [*e.headers, *spring(n)], (CREATE_TIME, NOW_MS + 90_000))
            for n, e in enumerate(entries)
        ]


@pytest.mark.parametrize("value", [None, b"", b"7", bytes([0, 0, 0, 7]), b"java.lang.Slow", b"x.Refused", b"VALUE_CONVERTER"])
def test_letters_that_differ_in_one_header_do_not_get_the_answer_of_another(value: bytes | None) -> None:
    both = Both()
    for _, letter in AS_WRITTEN:
        headers = letter.headers()
        changed = [[*headers[:n], (name, value), *headers[n + 1 :]] for n, (name, _) in enumerate(headers)]
        both.hold([make_record("plain", n, each) for n, each in enumerate([headers, *changed, headers])])


def make_record(topic: str, offset: int, headers: Headers) -> Record:
    return Record((topic, 1, offset), b"key", b"%d" % offset, headers, (CREATE_TIME, NOW_MS - 1_000))


EXCEPTION, MESSAGE = "kafka_dlt-exception-fqcn", "kafka_dlt-exception-message"


def spring(n: int, *more: Header) -> Headers:
    """Headers of a letter whose trace, message and place are its own."""
    own = {
        MESSAGE: b"Listener failed; no answer for order %d" % n,
        "kafka_dlt-exception-stacktrace": b"a.Failed: no\n\tat step%d(Step.java)\nCaused by: b.Timeout: %d\n\tat c" % (n, n),
        "kafka_dlt-original-offset": n.to_bytes(8, "big"),
        "kafka_dlt-original-timestamp": (NOW_MS - n).to_bytes(8, "big"),
    }
    return [*[(name, own.get(name, value)) for name, value in SPRING], *more]


def test_letters_that_differ_in_trace_number_and_place_share_a_template() -> None:
    both = Both()
    both.hold([make_record("plain", n, spring(n)) for n in range(100)])
    assert both.by_fast_path == {"spring-kafka": 100}
    (template,) = both.fast_path._templates.values()
    assert template is not None
    assert (template.exception, template.cause) == (str(dict(SPRING)[EXCEPTION], "utf-8"), "b.Timeout")
    assert len(template.shared_by_message) == len({len(str(n)) for n in range(100)})


def test_error_codes_tell_failures_apart_and_other_numbers_do_not() -> None:
    both = Both()

    def trace(n: int) -> Header:
        said = b"a.Failed: no\n\tat a\nCaused by: b.Denied: order %d: status code %d\n\tat c" % (n, 500 + n % 3)
        return "kafka_dlt-exception-stacktrace", said

    for begin in (0, 60):
        both.hold([make_record("plain", n, spring(n, trace(n))) for n in range(begin, begin + 60)])
    assert both.by_fast_path == {"spring-kafka": 120}
    (template,) = both.fast_path._templates.values()
    assert template is not None
    # The length of a number, and three codes.
    assert len({shared.fingerprint for shared in template.shared_by_message.values()}) == 3
    assert (len(template.shared_by_message), len(template.codes_by_message)) == (9, 3)


def test_what_is_kept_is_bounded_whatever_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "_KEPT_BYTES_MAX", 100_000)
    both = Both()
    path, most = both.fast_path, 100_000 // fast_path._BYTES_EACH + 1
    for n in range(0, 400, 20):
        both.hold([make_record("plain", m, spring(m, (f"x-{m}", b""), (EXCEPTION, b"a.E%d" % m))) for m in range(n, n + 20)])
        both.hold([make_record("plain", m, spring(m, (MESSAGE, b"x" * m))) for m in range(1_000 + n, 1_020 + n)])
        messages = sum(len(template.shared_by_message) for template in path._templates.values() if template)
        assert len(path._layouts) + len(path._templates) + messages <= most
    assert both.by_fast_path == {"spring-kafka": 800}


@pytest.mark.parametrize("name", ["x" * 3_000, EXCEPTION, MESSAGE])
def test_what_is_too_long_is_not_kept(name: str) -> None:
    both = Both()
    both.hold([make_record("plain", n, spring(n, (name, b"x" * 3_000))) for n in range(3)])
    assert both.by_fast_path == {"spring-kafka": 3}
    layouts, templates = both.fast_path._layouts, both.fast_path._templates
    messages = [message for template in templates.values() if template for message in template.shared_by_message]
    assert "xxx" not in f"{layouts.keys()} {templates.keys()} {messages}"


def test_a_plain_letter_goes_the_short_way() -> None:
    path, result = intake(RecentLineages(100))._fast_path, BatchResult()
    plain = MemoryRecord(Entry("plain", b"key", b"value", [("retry-at-ms", b"%d" % NOW_MS)], None, ""), 1, 2, NOW_MS)
    telling = MemoryRecord(Entry("plain", b"key", b"value", [("retry-attempt", b"2")], None, ""), 1, 3, NOW_MS)
    assert path.prepare([plain, telling], NOW_MS, result) == [telling]
    assert list(map(len, result.traces.values())) == list(map(len, result.letters.values())) == [1]


def test_letters_are_sealed_by_the_short_way_too() -> None:
    codec, letters = KeyFile(NEW).codec, [make_record("plain", n, spring(n)) for n in range(3)]
    clear, sealed = (intake(RecentLineages(100), codec=by).prepare(list(letters), NOW_MS) for by in (PLAIN, codec))
    rows = {row["key"]: row["value"] for row in clear.iterate_entries()}
    found = {row["key"]: row["value"] for row in sealed.iterate_entries()}
    assert {key: codec.decode(key, value) for key, value in found.items()} == {
        key: envelopes.decode(value) for key, value in rows.items()
    }
    assert all(isinstance(envelopes.decode_routing(value), envelopes.SealedEnvelope) for value in found.values())


@pytest.mark.parametrize("topic", ["ordered", "aliased", "aged", "asks", "parks", "cancels", "nobodys"])
def test_topics_whose_letters_need_a_closer_look_have_no_short_way(topic: str) -> None:
    path = intake(RecentLineages(100))._fast_path
    headers = [("kafka_dlt-exception-fqcn", b"org.Failed")]
    letters = [make_record(topic, 1, headers), make_record(topic, 2, headers)]
    assert path.prepare(list(letters), NOW_MS, BatchResult()) == letters


@pytest.mark.parametrize(("topic", "retry_to"), [("back.DLT", "orders"), ("grouped-one", "order-service.retry")])
def test_a_target_that_the_letter_names_is_the_same_for_all_that_name_it(topic: str, retry_to: str) -> None:
    both = Both()
    both.hold([make_record(topic, n, spring(n)) for n in range(3)])
    assert both.by_fast_path == {"spring-kafka": 3}
    assert {template and template.target for template in both.fast_path._templates.values()} == {retry_to}


def test_messages_are_read_alike_in_all_frameworks() -> None:
    assert {place.read for dialect in DIALECTS for place in dialect.message} == {header_values.message}


def test_headers_that_cannot_be_told_are_asked_for_once() -> None:
    asked = []

    class Broken(MemoryRecord):
        def headers(self) -> Headers | None:
            asked.append(self)
            raise SystemError("returned a result with an exception set")

    letter = Broken(Entry("plain", b"key", b"value", [], None, ""), 1, 2, NOW_MS)
    result = intake(RecentLineages(100), 1_000_000).prepare([letter], NOW_MS)
    assert result.decided == {('a%b"c', "park"): 1}
    assert asked == [letter]
