"""Which records need not be tried: what topics that have refused one take, for as long as that is believed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retry import clock
from retry.delay_queue.envelopes import Entry
from retry.kafka import client_config
from retry.kafka.record_size_limits import RecordSizeLimits, batch_bytes
from retry.settings import Settings


def entry(size: int, topic: str = "t") -> Entry:
    """A record whose batch has so many bytes."""
    return Entry(topic, None, bytes(size - batch_bytes(Entry(topic, None, bytes(200), [], None, "")) + 200), [], None, "")


class Clock:
    """Goes on when it is told to."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Iterator[Clock]:
    made = Clock()
    clock.use(made)  # type: ignore[arg-type]
    yield made
    clock.use(clock.MACHINE)


def test_nothing_is_asked_or_known_until_a_record_is_met_that_is_too_large() -> None:
    asked: list[set[str]] = []
    sizes = RecordSizeLimits(lambda topics: asked.append(topics) or {"t": 500})
    sizes.refresh()
    assert (sizes.limited(), sizes.too_large([entry(1_000)]), asked) == (False, {}, [])
    assert (sizes.look([entry(500), entry(900, "other")]), sizes.limited()) == ({}, False)
    records = [entry(500), entry(501), entry(501, "other")]
    assert set(sizes.look(records)) == set(sizes.too_large(records)) == {1}
    sizes.refresh()
    assert asked[-1] == {"t"}


def test_a_limit_that_was_raised_is_believed_at_the_next_refresh() -> None:
    limits = {"t": 500}
    sizes = RecordSizeLimits(lambda _: limits)
    assert sizes.look([entry(600)])
    limits["t"] = 600
    assert sizes.too_large([entry(600)])
    sizes.refresh()
    assert (set(sizes.too_large([entry(600), entry(601)]))) == {1}


def test_what_was_heard_is_forgotten_where_brokers_do_not_tell_before_anything_is_put_back_twice(time: Clock) -> None:
    sizes = RecordSizeLimits(lambda _: {})
    for size in (600, 500, 700):
        sizes.refused(entry(size))
    assert set(sizes.too_large([entry(499), entry(500)])) == {1}
    time.now_s = 25.0
    sizes.refresh()
    assert sizes.too_large([entry(900)]) == {}
    sizes.refused(entry(900))
    assert set(sizes.too_large([entry(899), entry(900)])) == {1}


def test_a_topic_that_is_sent_nothing_too_large_any_more_is_not_asked_about_for_ever(time: Clock) -> None:
    sizes = RecordSizeLimits(lambda topics: dict.fromkeys(topics, 500))
    sizes.look([entry(600)])
    for time.now_s in (100.0, 200.0):
        sizes.refresh()
        assert sizes.too_large([entry(600)])
    time.now_s = 400.0
    sizes.refresh()
    assert not sizes.limited()


def test_the_size_of_a_record_says_nothing_where_a_producer_compresses() -> None:
    sizes = RecordSizeLimits(None)
    sizes.refused(entry(600))
    assert (sizes.look([entry(600)]), sizes.limited()) == ({}, False)
    config = client_config.producer_config(Settings(), "id")
    assert not client_config.compresses(config)
    assert client_config.compresses(config | {"compression.type": "lz4"})
    assert client_config.compresses(config | {"compression.codec": "zstd"})
