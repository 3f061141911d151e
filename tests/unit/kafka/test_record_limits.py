"""Which records need not be tried: what topics that have refused one take, for as long as that is believed."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

from retry.delay_queue.envelopes import Entry
from retry.kafka import client_config
from retry.kafka.record_limits import (
    RecordLimits,
    RefusedFor,
    TopicLimits,
    fits_compressed,
    measure_batch,
    measure_compressed_batch,
)  # fmt: skip
from retry.settings import Settings
from tests.support.simulated_clock import Simulated

NOW_MS = 1_700_000_000_000


def entry(size: int, topic: str = "t") -> Entry:
    """A record whose batch has so many bytes."""
    return Entry(topic, None, bytes(size - measure_batch(Entry(topic, None, bytes(200), [], None, "")) + 200), [], None, "")


def test_nothing_is_asked_or_known_until_a_record_is_met_that_is_too_large() -> None:
    asked: list[set[str]] = []
    sizes = RecordLimits(lambda topics: asked.append(topics) or {"t": TopicLimits(500)})
    sizes.refresh()
    assert (sizes.has_limits(), sizes.find_refused([entry(1_000)], NOW_MS), asked) == (False, {}, [])
    assert (sizes.probe_records([entry(500), entry(900, "other")], NOW_MS), sizes.has_limits()) == ({}, False)
    records = [entry(500), entry(501), entry(501, "other")]
    assert set(sizes.probe_records(records, NOW_MS)) == set(sizes.find_refused(records, NOW_MS)) == {1}
    sizes.refresh()
    assert asked[-1] == {"t"}


def test_a_limit_that_was_raised_is_believed_at_the_next_refresh() -> None:
    limits = {"t": TopicLimits(500)}
    sizes = RecordLimits(lambda _: limits)
    assert sizes.probe_records([entry(600)], NOW_MS)
    limits["t"] = TopicLimits(600)
    assert sizes.find_refused([entry(600)], NOW_MS)
    sizes.refresh()
    assert (set(sizes.find_refused([entry(600), entry(601)], NOW_MS))) == {1}


def test_what_was_heard_is_forgotten_where_brokers_do_not_tell_before_anything_is_put_back_twice(
    stepped_clock: Simulated,
) -> None:
    sizes = RecordLimits(lambda _: {})
    for size in (600, 500, 700):
        sizes.learn_refusal(entry(size), RefusedFor.SIZE, NOW_MS)
    assert set(sizes.find_refused([entry(499), entry(500)], NOW_MS)) == {1}
    stepped_clock.now_s += 25.0
    sizes.refresh()
    assert sizes.find_refused([entry(900)], NOW_MS) == {}
    sizes.learn_refusal(entry(900), RefusedFor.SIZE, NOW_MS)
    assert set(sizes.find_refused([entry(899), entry(900)], NOW_MS)) == {1}


def test_a_topic_that_is_sent_nothing_too_large_any_more_is_not_asked_about_for_ever(stepped_clock: Simulated) -> None:
    sizes = RecordLimits(lambda topics: dict.fromkeys(topics, TopicLimits(500)))
    sizes.probe_records([entry(600)], NOW_MS)
    for _ in range(2):
        stepped_clock.now_s += 100.0
        sizes.refresh()
        assert sizes.find_refused([entry(600)], NOW_MS)
    stepped_clock.now_s += 200.0
    sizes.refresh()
    assert not sizes.has_limits()


def test_the_size_of_a_record_says_nothing_where_a_producer_compresses() -> None:
    sizes = RecordLimits(lambda topics: dict.fromkeys(topics, TopicLimits(500)), compressed=True)
    sizes.learn_refusal(entry(600), RefusedFor.SIZE, NOW_MS)
    assert (sizes.probe_records([entry(500)], NOW_MS), sizes.has_limits()) == ({}, False)
    # But it is known then that another codec may do where this one does not.
    assert sizes.probe_records([entry(600)], NOW_MS) == {}
    assert sizes.needs_compression([entry(600)])
    config = client_config.build_producer_config(Settings(), "id")
    assert not client_config.compresses(config)
    assert client_config.compresses(config | {"compression.type": "lz4"})
    assert client_config.compresses(config | {"compression.codec": "zstd"})


@pytest.mark.parametrize("told", [True, False], ids=["limit told", "limit not told"])
def test_what_a_topic_takes_only_compressed_is_not_refused_where_it_can_be_sent_so(told: bool) -> None:
    sizes = RecordLimits(lambda topics: dict.fromkeys(topics, TopicLimits(500)) if told else {})
    records = [entry(400), entry(5_000)]
    if told:
        assert sizes.probe_records(records, NOW_MS, may_compress=True) == {}
    else:
        sizes.learn_refusal(records[1], RefusedFor.SIZE, NOW_MS)
    assert sizes.find_refused(records, NOW_MS, may_compress=True) == {}
    assert [sizes.needs_compression([record]) for record in records] == [False, True]
    refused = sizes.find_refused(records, NOW_MS)
    assert {n: refusal.cause for n, refusal in refused.items()} == {1: RefusedFor.SIZE}


def test_what_is_refused_compressed_too_is_not_tried_again() -> None:
    sizes = RecordLimits(lambda _: {})
    one = entry(5_000)
    sizes.learn_refusal(one, RefusedFor.SIZE, NOW_MS)
    sizes.learn_refusal(one, RefusedFor.SIZE, NOW_MS, compressed=True)
    assert not sizes.needs_compression([one])
    (refusal,) = sizes.find_refused([one], NOW_MS, may_compress=True).values()
    assert (refusal.cause, "even compressed" in refusal.why) == (RefusedFor.SIZE, True)


def made_at(timestamp_ms: int | None, topic: str = "t", key: bytes | None = b"k") -> Entry:
    return Entry(topic, key, b"v", [], timestamp_ms, "")


def test_what_is_older_than_its_topic_takes_or_lacks_the_key_that_it_needs_is_known() -> None:
    limits = RecordLimits(lambda topics: dict.fromkeys(topics - {"other"}, TopicLimits(500, 1_000, needs_key=True)))
    old, keyless = made_at(NOW_MS - 1_001), made_at(NOW_MS, key=None)
    records = [made_at(NOW_MS - 1_000), old, keyless, made_at(None), made_at(0, "other"), entry(501)]
    found = limits.probe_records(records, NOW_MS)
    assert {n: refusal.cause for n, refusal in found.items()} == {
        1: RefusedFor.TIME, 2: RefusedFor.CONTENT, 5: RefusedFor.CONTENT
    }
    assert "message.timestamp.before.max.ms" in found[1].why
    assert "cleanup.policy" in found[2].why
    assert limits.find_refused(records, NOW_MS) == found


def test_where_brokers_do_not_tell_nothing_older_than_what_was_refused_is_tried() -> None:
    limits = RecordLimits(lambda _: {})
    limits.learn_refusal(made_at(NOW_MS - 500), RefusedFor.TIME, NOW_MS)
    limits.learn_refusal(made_at(None), RefusedFor.CONTENT, NOW_MS)
    records = [made_at(NOW_MS - 499), made_at(NOW_MS - 500), made_at(None, key=None)]
    assert set(limits.find_refused(records, NOW_MS)) == {1}


@pytest.mark.parametrize("seed", range(8))
def test_a_record_fits_exactly_where_all_of_it_compressed_does(seed: int) -> None:
    draw = random.Random(seed)
    words = [draw.randbytes(draw.randrange(1, 30)) for _ in range(50)]
    value = b"".join(draw.choices(words, k=draw.randrange(1, 20_000))) + draw.randbytes(draw.randrange(100_000))
    record = Entry("t", b"key", value, [("a", b"b" * 300)], None, "")
    size = measure_compressed_batch(record)
    assert fits_compressed(record, size) and not fits_compressed(record, size - size // 4)


def test_what_cannot_fit_is_compressed_no_further_than_its_topic_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, compressobj = [0], zlib.compressobj

    class Counting:
        def __init__(self, *args: Any, **more: Any) -> None:
            self._packer = compressobj(*args, **more)

        def compress(self, data: bytes) -> bytes:
            seen[0] += len(data)
            return self._packer.compress(data)

        def flush(self) -> bytes:
            return self._packer.flush()

    monkeypatch.setattr(zlib, "compressobj", Counting)
    record = Entry("t", None, random.Random(0).randbytes(3 << 20), [], None, "")
    assert not fits_compressed(record, 32 << 10)
    # Of both levels; a compressor holds back what it has not made a block of.
    assert 0 < seen[0] < 2 * (200 << 10)
    assert fits_compressed(record, 4 << 20)
