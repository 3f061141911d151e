"""Keys sort as deliveries do, and envelopes are read or refused, never guessed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import DUE_MS_MAX, INCARNATION_MAX, Source
from retry.delay_queue.envelopes import Entry
from retry.errors import EntryNewer, EntryUnreadable

DUE_MS_MIN = -(1 << 63)
DUE = st.integers(DUE_MS_MIN, DUE_MS_MAX) | st.sampled_from([DUE_MS_MIN, -1, 0, 1, DUE_MS_MAX])
TOPIC = st.text("abcXYZ019._-", min_size=1, max_size=30)
OFFSET = st.integers(0, (1 << 48) - 1)
SOURCE = st.builds(Source, DUE, TOPIC, st.integers(0, (1 << 31) - 1), OFFSET)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=5)
BYTES = st.none() | st.binary(max_size=50)
STAMP_MS = st.none() | st.integers(0, DUE_MS_MAX)
ENTRY = st.builds(Entry, st.text(max_size=20), BYTES, BYTES, HEADERS, STAMP_MS, st.text(max_size=9))
PLAIN = Entry("orders.retry", b"k", b"v", [("a", None)], 1, "team")


def key(source: Source) -> bytes:
    return entry_keys.build_key(source.due_at_ms, entry_keys.build_key_stem(source.topic, source.partition), source.offset)


@given(SOURCE, SOURCE)
def test_3_2_what_is_due_first_sorts_first(one: Source, other: Source) -> None:
    if one.due_at_ms != other.due_at_ms:
        assert (key(one) < key(other)) == (one.due_at_ms < other.due_at_ms)


@given(SOURCE, st.integers(0, (1 << 31) - 1), OFFSET)
def test_letters_of_one_topic_and_time_sort_by_partition_and_offset(one: Source, partition: int, offset: int) -> None:
    other = one._replace(partition=partition, offset=offset)
    assert (key(one) < key(other)) == (one < other)


@given(SOURCE, OFFSET, st.integers(0, INCARNATION_MAX), st.integers(0, INCARNATION_MAX))
def test_letters_of_a_topic_that_was_made_again_lie_behind_those_of_before(
    one: Source, offset: int, before: int, now: int
) -> None:
    stem = entry_keys.build_key_stem(one.topic, one.partition)
    former = entry_keys.build_key(one.due_at_ms, stem, entry_keys.number_letter(one.offset, before))
    later = entry_keys.build_key(one.due_at_ms, stem, entry_keys.number_letter(offset, now))
    assert (former < later) == ((before, one.offset) < (now, offset))
    assert (former == later) == ((before, one.offset) == (now, offset))
    assert (entry_keys.read_source(former), entry_keys.read_incarnation(former)) == (one, before)


@given(SOURCE, SOURCE)
def test_3_11_no_two_letters_share_a_key(one: Source, other: Source) -> None:
    assert (key(one) == key(other)) == (one == other)


@given(SOURCE, st.integers(0, 9))
def test_a_key_that_is_taken_gives_way_to_the_next_time_or_the_one_before(source: Source, taken: int) -> None:
    others: set[bytes] = set()
    for _ in range(taken):
        others.add(entry_keys.find_untaken_key(key(source), others.__contains__))
    assert len(others) == taken
    free = entry_keys.find_untaken_key(key(source), others.__contains__)
    assert free not in others
    found = entry_keys.read_source(free)
    away_ms = abs(found.due_at_ms - source.due_at_ms)
    # At the end of time some lie later, and some earlier.
    assert away_ms == taken if source.due_at_ms + taken <= DUE_MS_MAX else away_ms <= taken
    assert found._replace(due_at_ms=0) == source._replace(due_at_ms=0)


@given(SOURCE)
def test_a_key_says_what_it_was_made_from(source: Source) -> None:
    assert entry_keys.read_source(key(source)) == source
    assert entry_keys.due_at_ms(key(source)) == source.due_at_ms


@given(SOURCE)
def test_a_key_survives_being_written_as_text(source: Source) -> None:
    assert entry_keys.parse_source(str(source)) == source


@pytest.mark.parametrize(
    "text",
    ["", "1/a/0", "1/a/0/0/0", "x/a/0/0", "1/a/x/0", "1/a/0/x", "1/a/-1/0", "1/a/0/-1", f"1/a/{1 << 31}/0"],
)
def test_text_that_names_no_key_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever int or split say
        entry_keys.parse_source(text)


@given(SOURCE, DUE)
def test_every_key_due_at_a_time_lies_between_two_bounds(source: Source, now_ms: int) -> None:
    assert (key(source) >= entry_keys.build_due_bound(now_ms)) == (source.due_at_ms >= now_ms)
    assert entry_keys.FIRST_KEY <= key(source) < entry_keys.END_KEY


@given(SOURCE, DUE)
def test_a_postponed_entry_keeps_its_letter(source: Source, due_at_ms: int) -> None:
    assert entry_keys.read_source(entry_keys.make_key_due_at(key(source), due_at_ms)) == source._replace(due_at_ms=due_at_ms)


@pytest.mark.parametrize(
    ("asked_ms", "kept_ms"),
    [(1 << 63, DUE_MS_MAX), (1 << 100, DUE_MS_MAX), (-(1 << 63) - 1, DUE_MS_MIN), (-(1 << 100), DUE_MS_MIN), (-1, -1)],
)
def test_due_times_beyond_64_bits_are_clamped(asked_ms: int, kept_ms: int) -> None:
    made = entry_keys.build_key(asked_ms, entry_keys.build_key_stem("a", 0), 0)
    assert entry_keys.due_at_ms(made) == entry_keys.due_at_ms(entry_keys.build_due_bound(asked_ms)) == kept_ms


def test_3_11_the_bytes_of_a_key_are_those_of_the_docstring() -> None:
    made = key(Source(5, "a.DLT", 3, 7))
    tail = b"a.DLT\0" + bytes.fromhex("00000003 0000000000000007")
    assert made == b"\x01" + bytes(8) + bytes.fromhex("8000000000000005") + tail
    lane = entry_keys.lane("team", "a.DLT", "a.retry", ordered=True)
    order = entry_keys.hash_record_key("team", "a.DLT", b"key")
    ordered = entry_keys.build_key(5, order + entry_keys.build_key_stem("a.DLT", 3), 7, lane)
    assert ordered == lane + bytes.fromhex("8000000000000005") + order + tail
    assert (len(lane), lane[0], len(order), entry_keys.order_of(ordered)) == (9, 2, 8, order)


@given(SOURCE, st.booleans(), DUE)
def test_a_key_of_any_lane_says_the_same(source: Source, ordered: bool, other_ms: int) -> None:
    lane = entry_keys.lane("team", source.topic, "retry", ordered)
    stem = entry_keys.hash_record_key("team", source.topic, b"k") * ordered + entry_keys.build_key_stem(
        source.topic, source.partition
    )
    made = entry_keys.build_key(source.due_at_ms, stem, source.offset, lane)
    assert (entry_keys.read_source(made), entry_keys.due_at_ms(made), entry_keys.lane_of(made)) == (
        source,
        source.due_at_ms,
        lane,
    )
    assert entry_keys.read_source(entry_keys.make_key_due_at(made, other_ms)) == source._replace(due_at_ms=other_ms)
    assert lane < made < entry_keys.build_lane_end(lane)
    assert (made >= entry_keys.build_due_bound(other_ms, lane)) == (source.due_at_ms >= other_ms)


def test_lanes_differ_by_team_topic_destination_and_order() -> None:
    names = [("a", "b", "c"), ("a", "c", "b"), ("ab", "", "c"), ("a", "b", "cc")]
    assert len({entry_keys.lane(*name, ordered) for name in names for ordered in (False, True)}) == 2 * len(names)
    of = entry_keys.hash_record_key
    assert of("a", "b", b"k") != of("a", "c", b"k") != of("a", "b", b"l")


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"\0",
        b"\x01",
        b"order-42",
        b"\x02" + key(Source(1, "a", 0, 0))[1:],
        b"\x03" + key(Source(1, "a", 0, 0))[1:],
        key(Source(1, "a", 0, 0))[:28],
        b"\x01" + bytes(16) + b"\xff\xff\0" + bytes(12),
        b"\x01" + bytes(16) + b"\0" + bytes(12),
        b"\x01" + bytes(16) + b"aX" + bytes(12),
    ],
)
def test_a_foreign_key_is_refused(foreign: bytes) -> None:
    with pytest.raises(EntryUnreadable, match="no entry has the key"):
        entry_keys.read_source(foreign)


@given(ENTRY)
def test_an_envelope_holds_all_of_an_entry(entry: Entry) -> None:
    assert envelopes.decode(envelopes.encode(entry)) == entry


def test_null_and_empty_are_kept_apart() -> None:
    for nothing in (None, b""):
        entry = Entry("t", nothing, nothing, [("", nothing)], None, "")
        read = envelopes.decode(envelopes.encode(entry))
        assert (read.key, read.value, read.headers[0][1]) == (nothing, nothing, nothing)


def test_an_envelope_begins_with_its_version() -> None:
    assert msgspec.msgpack.decode(envelopes.encode(PLAIN))[0] == 1


@given(st.binary(max_size=200))
def test_bytes_that_are_no_envelope_are_refused(foreign: bytes) -> None:
    with pytest.raises(EntryUnreadable, match=f"{len(foreign)} bytes|newer version"):
        envelopes.decode(foreign)


@pytest.mark.parametrize("version", [0, 2, 3, 255, -1, "1", None, b"1"])
def test_another_version_is_refused(version: object) -> None:
    envelope = msgspec.msgpack.encode([version, *msgspec.msgpack.decode(envelopes.encode(PLAIN))[1:]])
    with pytest.raises(EntryUnreadable) as refused:
        envelopes.decode(envelope)
    assert isinstance(refused.value, EntryNewer) == (version in (3, 255))


@pytest.mark.parametrize("cut", range(0, len(envelopes.encode(PLAIN)), 5))
def test_a_truncated_envelope_is_refused(cut: int) -> None:
    with pytest.raises(EntryUnreadable):
        envelopes.decode(envelopes.encode(PLAIN)[:cut])


@pytest.mark.parametrize(
    "fields",
    [
        ["orders.retry", b"k", b"v", [], 1],
        [b"orders.retry", b"k", b"v", [], 1, "team"],
        ["orders.retry", 1, b"v", [], 1, "team"],
        ["orders.retry", b"k", b"v", [["a"]], 1, "team"],
        ["orders.retry", b"k", b"v", [[b"a", b"b"]], 1, "team"],
        ["orders.retry", b"k", b"v", None, 1, "team"],
        ["orders.retry", b"k", b"v", [], 1.5, "team"],
    ],
)
def test_fields_of_another_type_are_refused(fields: list[object]) -> None:
    with pytest.raises(EntryUnreadable):
        envelopes.decode(msgspec.msgpack.encode([1, *fields]))


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(EntryUnreadable):
        envelopes.decode(envelopes.encode(PLAIN) + b"\0")
