"""Versions of records whose entries have names: as offsets order them in a partition, and as timestamps do across partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue.entry_keys import VERSIONS_OF_MS
from retry.delay_queue.envelopes import Entry
from retry.intake.entry_source import RecordVersions
from retry.intake.read_positions import ReadPosition, encode_positions, fold_record
from retry.kafka.interface import Partition
from retry.testing.kafka import MemoryRecord

NOW_MS = 1_700_000_000_000
PLACE = "schedules", 0


def record(sent_ms: int, partition: int = 0, offset: int = 0) -> MemoryRecord:
    return MemoryRecord(Entry("schedules", b"k", b"v", [], None, ""), partition, offset, sent_ms)


def version(versions: RecordVersions, sent_ms: int, partition: int = 0, *, of_cancel: bool = False, now_ms: int = NOW_MS) -> int:
    return versions.next_version(record(sent_ms, partition), now_ms, of_cancel=of_cancel)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), max_size=30), st.lists(st.integers(0, 30), max_size=3))
def test_in_a_partition_they_grow_with_the_offsets_whatever_clocks_say_and_whoever_reads(
    told: list[tuple[int, bool]], readers: list[int]
) -> None:
    versions, found = RecordVersions(), list[int]()
    for n, (skew_ms, of_cancel) in enumerate(told):
        if n in readers and found:
            (row,) = encode_positions(versions.stamp({PLACE: ReadPosition(topic_id="t", offset=n)}))
            positions = dict[Partition, ReadPosition]()
            fold_record(MemoryRecord(Entry("positions", row["key"], row["value"], [], None, ""), 0, n, NOW_MS), positions, {})
            versions = RecordVersions()
            versions.set_last_version(PLACE, positions[PLACE].version)
        found.append(version(versions, NOW_MS - 100 + skew_ms, of_cancel=of_cancel))
    assert found == sorted(set(found))


@given(st.integers(1, 9), st.booleans(), st.booleans(), st.booleans())
def test_across_partitions_the_later_is_the_greater_whichever_is_read_first(
    apart_ms: int, first: bool, second: bool, backwards: bool
) -> None:
    versions = RecordVersions()
    order = [(NOW_MS - 10, 0, first), (NOW_MS - 10 + apart_ms, 1, second)]
    found = {n: version(versions, at_ms, n, of_cancel=of) for at_ms, n, of in (order[::-1] if backwards else order)}
    assert found[0] < found[1]


def test_of_one_millisecond_the_cancel_is_the_greater() -> None:
    for partitions in ((0, 1), (1, 0)):
        versions = RecordVersions()
        assert version(versions, NOW_MS, partitions[0], of_cancel=True) > version(versions, NOW_MS, partitions[1])


def test_a_clock_that_is_ahead_does_not_order_what_comes_after_it() -> None:
    versions = RecordVersions()
    ahead = version(versions, NOW_MS + 3_600_000, 0)
    assert ahead == NOW_MS * VERSIONS_OF_MS
    assert version(versions, NOW_MS + 5, 1, now_ms=NOW_MS + 10) > ahead
    assert version(versions, NOW_MS + 5, 0, now_ms=NOW_MS + 10) == (NOW_MS + 5) * VERSIONS_OF_MS


def test_a_record_without_a_timestamp_is_as_old_as_its_reading() -> None:
    assert version(RecordVersions(), -1) == version(RecordVersions(), 0) == NOW_MS * VERSIONS_OF_MS


def test_positions_of_dead_letters_have_no_version() -> None:
    positions = {("orders.DLT", 0): ReadPosition(topic_id="t", offset=9)}
    versions = RecordVersions()
    versions.set_last_version(("orders.DLT", 0), 0)
    version(versions, NOW_MS, 3)
    assert versions.stamp(positions) == positions
