"""How much goes to a topic at once: all, until it refuses; then half as much, down to one record at a time."""

from __future__ import annotations

from retry.delay_queue.envelopes import Entry
from retry.kafka.record_limits import BatchSizeLimits


def entry(size: int, topic: str = "t") -> Entry:
    return Entry(topic, None, bytes(size - 1), [], None, "")


def portions_of(portions: BatchSizeLimits, entries: list[Entry]) -> list[int]:
    """How many go together, portion by portion."""
    assert portions.begin_batch()
    found = [0]
    for e in entries:
        if portions.queue_entry(e):
            found.append(0)
        found[-1] += 1
    return found


def test_nothing_is_limited_until_it_is_refused() -> None:
    portions = BatchSizeLimits()
    assert not portions.begin_batch()
    assert not any(portions.queue_entry(entry(1 << 20)) for _ in range(10))
    assert not portions.alone(entry(1 << 20))


def test_what_was_refused_together_goes_in_halves() -> None:
    portions, batch = BatchSizeLimits(), [entry(100)] * 8
    for expected in ([4, 4], [2, 2, 2, 2], [1] * 8):
        portions.note_refused(batch)
        assert portions_of(portions, batch) == expected
    assert portions.alone(entry(100))
    assert not portions.alone(entry(99))


def test_a_record_of_a_whole_portion_has_no_company() -> None:
    portions = BatchSizeLimits()
    portions.note_refused([entry(100)] * 2)
    assert portions_of(portions, [entry(30), entry(30), entry(200), entry(30), entry(30)]) == [2, 1, 2]
    assert portions.alone(entry(200))


def test_other_topics_are_not_limited() -> None:
    portions = BatchSizeLimits()
    portions.note_refused([entry(100)] * 2)
    assert portions_of(portions, [entry(100, "other")] * 4) == [4]


def test_a_portion_never_grows() -> None:
    portions = BatchSizeLimits()
    portions.note_refused([entry(100)] * 2)
    portions.note_refused([entry(100)] * 50)
    assert portions_of(portions, [entry(50)] * 2) == [1, 1]
