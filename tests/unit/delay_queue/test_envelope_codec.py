"""Entries that are sealed come back as they were, under the key of their letter alone; what anybody may know is told in clear."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import DUE_MS_MAX, HELD, NAMED, ORDERED, PLAIN
from retry.delay_queue.envelope_codec import PLAIN as WITHOUT_KEYS
from retry.delay_queue.envelopes import Also, Call, Entry, Named, Recurrence, SealedEnvelope, Unopened
from retry.delay_queue.table.changelog_records import select_readable_rows
from retry.errors import EntryForeign, SealUnopened
from tests.support.sealed import NEW, OLD, KeyFile

NOW_MS = 1_700_000_000_000
CANARY = b"canary-4711"
SECRET = Entry("orders.retry", CANARY, b'{"card":"' + CANARY + b'"}', [("trace", CANARY), ("none", None)], NOW_MS, "shop", NOW_MS)
TIMER = Named("https://example.com:443", b"mark", CANARY, [("Authorization", CANARY)], None, "shop", None,
              (Also("history", None, CANARY, CANARY),), Recurrence(1, NOW_MS, every_ms=1_000),
              Call(f"https://example.com/{CANARY.decode()}", id=CANARY.decode()))  # fmt: skip
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=5)
STAMP_MS = st.none() | st.integers(0, DUE_MS_MAX)
ENTRY = st.builds(Entry, st.text(max_size=20), BYTES, BYTES, HEADERS, STAMP_MS, st.text(max_size=9), STAMP_MS)
FILE = KeyFile(NEW, OLD)


def key(kind: int = PLAIN, topic: str = "orders.DLT", offset: int = 7, name: bytes = b"n", version: int = 1) -> bytes:
    stem, lane = entry_keys.build_key_stem(topic, 3), entry_keys.lane("shop", topic, "orders.retry", kind == ORDERED)
    if kind == NAMED:
        lane = entry_keys.build_named_lane("shop", topic, "https://example.com:443")
        return entry_keys.build_named_key(NOW_MS, entry_keys.hash_name("door", topic, name), version, stem, offset, lane)
    order = entry_keys.hash_record_key("shop", topic, b"k") if kind == ORDERED else b""
    return entry_keys.build_key(NOW_MS, order + stem, offset, lane)


@pytest.mark.parametrize("kind", [PLAIN, ORDERED])
@given(entry=ENTRY)
def test_any_entry_comes_back_as_it_was(kind: int, entry: Entry) -> None:
    envelope = FILE.codec.encode(key(kind), entry)
    assert FILE.codec.decode(key(kind), envelope) == entry == FILE.codec.decode_to_show(key(kind), envelope)


@given(entry=ENTRY, calls=st.booleans())
def test_any_named_entry_comes_back_as_it_was(entry: Entry, calls: bool) -> None:
    whole = Named(**msgspec.structs.asdict(entry), call=TIMER.call if calls else None, plan=TIMER.plan, also=TIMER.also)
    envelope = FILE.codec.encode(key(NAMED), whole)
    assert FILE.codec.decode(key(NAMED), envelope) == whole == FILE.codec.decode_named(key(NAMED), envelope)


@pytest.mark.parametrize(("kind", "entry"), [(PLAIN, SECRET), (ORDERED, SECRET), (NAMED, TIMER)])
def test_nothing_of_a_payload_is_in_clear_and_its_way_is(kind: int, entry: Entry) -> None:
    envelope = FILE.codec.encode(key(kind), entry)
    assert CANARY not in envelope
    assert CANARY in envelopes.encode(entry)
    told = envelopes.decode_routing(envelope)
    assert isinstance(told, SealedEnvelope)
    assert (told.destination, told.team, told.timestamp_ms, told.failed_at_ms, told.key_id) == (
        entry.destination, entry.team, entry.timestamp_ms, entry.failed_at_ms, "new",
    )  # fmt: skip
    assert select_readable_rows([(key(kind), envelope)]) == ([(key(kind), envelope)], [])
    # It costs so many bytes of each entry.
    assert len(envelope) - len(envelopes.encode(entry)) <= 104 + len(entry.destination) + len(entry.team)


def test_the_same_entry_twice_cannot_be_seen_to_be_the_same() -> None:
    first, second = (msgspec.msgpack.decode(FILE.codec.encode(key(), SECRET)) for _ in range(2))
    assert first[:7] == second[:7]
    assert first[7] != second[7]
    assert first[8] != second[8]


MOVED = [
    key(offset=8), key(topic="other.DLT"), key(ORDERED)[:17] + key(ORDERED, offset=8)[17:],
    key(NAMED), key(NAMED, name=b"other"), key(NAMED, version=2),
]  # fmt: skip


@pytest.mark.parametrize("other", MOVED, ids=lambda other: other.hex()[:4])
def test_under_the_key_of_another_letter_or_name_it_does_not_open(other: bytes) -> None:
    kind = other[0]
    of, entry = (key(kind, offset=1, name=b"mine", version=1), TIMER if kind == NAMED else SECRET)
    envelope = FILE.codec.encode(of, entry)
    with pytest.raises(SealUnopened, match="belongs to something else"):
        FILE.codec.decode(other, envelope)
    # A lane and a due time of its own are no other letter.
    for place in (entry_keys.make_key_due_at(of, NOW_MS + 1), entry_keys.move_into_lane(of, HELD[kind])):
        assert FILE.codec.decode(place, envelope) == entry


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_what_it_says_in_clear_cannot_be_changed(place: int) -> None:
    fields = msgspec.msgpack.decode(FILE.codec.encode(key(), SECRET))
    fields[place] = {1: "evil.topic", 2: "other", 3: NOW_MS + 1, 4: None}[place]
    envelope = msgspec.msgpack.encode(fields)
    with pytest.raises(SealUnopened, match="what it says in clear is changed"):
        FILE.codec.decode(key(), envelope)
    with pytest.raises(SealUnopened):
        FILE.codec.decode(key(), msgspec.msgpack.encode([*fields[:5], "old", *fields[6:]]))


def test_without_its_key_it_is_known_for_what_it_is_and_not_read() -> None:
    envelope = FILE.codec.encode(key(NAMED), TIMER)
    without = {WITHOUT_KEYS: "RETRY_ENCRYPTION_KEYS is not set", KeyFile(OLD).codec: "sealed under key new, which is not"}
    for codec, why in without.items():
        with pytest.raises(SealUnopened, match=why):
            codec.decode(key(NAMED), envelope)
        shown = codec.decode_to_show(key(NAMED), envelope)
        assert isinstance(shown, Unopened)
        assert why in shown.why
        assert (shown.destination, shown.team, shown.key, shown.value, shown.headers, shown.call) == (
            TIMER.destination, "shop", None, None, [], None,
        )  # fmt: skip
    with pytest.raises(SealUnopened, match="has no keys"):
        envelopes.decode_named(envelope)
    with pytest.raises(SealUnopened, match="has no keys"):
        envelopes.decode(FILE.codec.encode(key(), SECRET))


def test_what_is_in_clear_is_read_with_keys_and_written_without_them() -> None:
    envelope = envelopes.encode(SECRET)
    assert FILE.codec.decode(key(), envelope) == SECRET
    assert WITHOUT_KEYS.encode(key(), SECRET) == envelope == KeyFile("plain", NEW).codec.encode(key(), SECRET)
    cancel = envelopes.build_cancel(bytes(16), 1, entry_keys.build_key_stem("t", 0), 1)
    assert FILE.codec.decode(*cancel) == envelopes.decode_named(cancel[1])


SHORT, OTHER_TYPES = msgspec.msgpack.encode([2, "a"]), msgspec.msgpack.encode([2, *"abcdefgh"])


@pytest.mark.parametrize("foreign", [b"", b"\x99\x02", SHORT, OTHER_TYPES])
def test_what_is_no_envelope_is_refused(foreign: bytes) -> None:
    with pytest.raises(EntryForeign):
        FILE.codec.decode(key(), foreign)
    shown = FILE.codec.decode_to_show(key(), foreign)
    assert isinstance(shown, Unopened) and shown.is_foreign
