"""The usual letter's way in is a short cut: what is written is the same, byte for byte, whatever the letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue.envelopes import Entry
from retry.intake import attempts
from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult
from retry.intake.build_entry import EntryBuilder
from retry.intake.fast_path import FastPath
from retry.intake.intake import Intake
from retry.kafka.topics import TopicNames
from retry.record import Headers
from retry.telemetry import outcomes
from retry.testing.kafka import MemoryRecord
from tests.support.plans import registry_of

NOW_MS = 1_700_000_000_000
NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table")
POLICIES = """
defaults: {backoff: {kind: exponential, delay: 10s, factor: 2, max_delay: 1m}, jitter: full, max_attempts: 3, max_age: 1d}
teams:
  a%b"c:
    topics:
      - dead_letters: plain
        retry_to: plain.retry
        rules: [{exception: '*.Slow', backoff: {kind: constant, delay: 30s}}]
      - {dead_letters: deaf, retry_to: deaf.retry, group: 'deaf "ones"', honour_retry_at: false}
      - {dead_letters: never, retry_to: never.retry, max_attempts: 0}
      - {dead_letters: ordered, retry_to: ordered.retry, ordered: true}
      - {dead_letters: aliased, retry_to: aliased.retry, aliases: {exception: [why]}}
      - {dead_letters: aged, retry_to: aged.retry, rules: [{age: 1h, park: true}]}
      - {dead_letters: back.DLT, retry_to: origin, allowed_targets: [back]}
      - {dead_letters: parks, retry_to: parks.retry, rules: [{null_value: true, park: true}]}
      - {dead_letters: cancels, retry_to: cancels.retry, null_value: cancel}
"""
TOPICS = ["plain", "deaf", "never", "ordered", "aliased", "aged", "back.DLT", "parks", "cancels", "nobody's"]
TIMES = [b"", b"soon", None, b"%d" % (NOW_MS + 5_000), b"%d" % (NOW_MS - 5_000), b"9" * 30]
HEADERS = st.one_of(
    st.tuples(st.just("retry-at-ms"), st.sampled_from(TIMES)),
    st.tuples(st.sampled_from(["retry-id", "retry-attempt", "retry-source", "why"]), st.sampled_from([b"1", b"x", None])),
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
    st.sampled_from([-1, 0, 5, NOW_MS - 90_000_000, NOW_MS - 1_000, NOW_MS + 1_000]),
)


def nothing(wanted: Collection[tuple[str, int, int]]) -> Mapping[tuple[str, int, int], Any]:
    return dict.fromkeys(wanted, "source_gone")


def intake(recent: RecentLineages, bytes_max: int) -> Intake:
    registry = registry_of(POLICIES)
    tracer = AttemptCounter(recent, "cluster", registry.retry_targets())
    packer = EntryBuilder("changelog", "parked", {"changelog": bytes_max})
    return Intake(registry, tracer, packer, nothing, NAMES, {"changelog": 4, "outcomes": 2, "lineage": 2})


def unordered(result: BatchResult) -> list[object]:
    """What is written, the usual letters of a batch before the others or among them."""
    entries = {shard: sorted((row["key"], row["value"]) for row in rows) for shard, rows in result.entries.items()}
    told = [letter for row in result.outcomes for letter in outcomes.read(row["value"])]
    traces = sorted(trace for row in result.lineages for trace in attempts.unpack(row["value"]))
    return [entries, sorted(map(orjson.dumps, told)), traces, result.decided, result.families, result.failures, result.came_back]


@given(st.lists(st.lists(LETTERS, max_size=12), max_size=3), st.sampled_from([400, 1_000_000]))
def test_what_is_written_is_the_same_by_the_short_way_and_by_the_long_one(
    batches: list[list[MemoryRecord]], bytes_max: int
) -> None:
    both = [RecentLineages(100), RecentLineages(100)]
    short, long = (intake(recent, bytes_max) for recent in both)
    with pytest.MonkeyPatch.context() as patch:
        for n, batch in enumerate(batches):
            now_ms = NOW_MS + n * 60_000
            by_short = short.prepare(list(batch), now_ms)
            patch.setattr(FastPath, "template", lambda *_: None)
            by_long = long.prepare(list(batch), now_ms)
            patch.undo()
            assert unordered(by_short) == unordered(by_long)
            for recent, result in zip(both, (by_short, by_long), strict=True):
                for row in result.lineages:
                    recent.fold(row["value"])


def test_a_plain_letter_goes_the_short_way() -> None:
    usual, result = intake(RecentLineages(100), 1_000_000)._fast_path, BatchResult()
    plain = MemoryRecord(Entry("plain", b"key", b"value", [("retry-at-ms", b"%d" % NOW_MS)], None, ""), 1, 2, NOW_MS)
    telling = MemoryRecord(Entry("plain", b"key", b"value", [("retry-attempt", b"2")], None, ""), 1, 3, NOW_MS)
    assert usual.prepare([plain, telling], NOW_MS, result) == [telling]
    assert len(result.traces) == sum(map(len, result.letters.values())) == 1


@pytest.mark.parametrize("topic", ["ordered", "aliased", "aged", "back.DLT", "parks", "cancels", "nobody's"])
def test_topics_whose_letters_need_a_closer_look_have_no_short_way(topic: str) -> None:
    assert intake(RecentLineages(100), 1_000_000)._fast_path.template(topic, 0) is None


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
