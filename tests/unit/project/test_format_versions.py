"""What each release wrote is read; what later ones may write is known for what it is, and never guessed at."""

from __future__ import annotations

import json
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry import format_versions
from retry.delay_queue import control_records, entry_keys, envelopes
from retry.delay_queue.control_records import Pause, Reschedule
from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.changelog_records import count_before_newer, select_readable_rows
from retry.errors import EntryNewer, EntryUnreadable, LineageNewer, LineageUnreadable, OutcomeNewer
from retry.format_versions import FORMATS, Format
from retry.intake import attempts
from retry.operations.explain.search import LetterLocation, read_outcome
from retry.telemetry import outcomes
from retry.telemetry.outcomes import SharedFields
from tests.fixtures.make_versions import FILE, written_now

WRITTEN = json.loads(FILE.read_text())
DUE_MS = 1_700_000_000_000
SOURCE = Source(DUE_MS, "orders.DLT", 3, 7)
ENTRY = Entry("orders.retry", b"k", b"v", [("trace", b"1"), ("none", None)], DUE_MS - 9, "payments", DUE_MS - 5)
LANE = entry_keys.lane("payments", "orders.DLT", "orders.retry")
KEY = entry_keys.build_key(DUE_MS, entry_keys.build_key_stem("orders.DLT", 3), 7, LANE)
ENVELOPE = envelopes.encode(ENTRY)
ORDERED_KEY = bytes.fromhex(WRITTEN["now"]["ordered key"])
# Rows that only tables have, and a named entry without name and version, among them.
STRANGERS = [
    *(bytes([kind]) + KEY[1:] for kind in range(3, 10)), b"", b"\0", b"\x01", b"order-42", b"\x20", b"\xff" * 40, KEY[:30],
]  # fmt: skip
NEWER_KEYS = [b"\x0a" + KEY[1:], b"\x1f" + KEY[1:], b"\x0a"]
NEWER_CONTROLS = [
    (b"\x10hold/team/a", b"{}"), (b"\x10pause/region/a", b'{"since_ms":1}'), (control_records.pause_key("all", ""), b'{"v":2}'),
    (b"\x10", b"{}"), (control_records.reschedule_key(1), b'{"v":99,"since_ms":"then"}'),
]  # fmt: skip


def envelope(version: object) -> bytes:
    return msgspec.msgpack.encode([version, "something", "else"])


@pytest.fixture(params=WRITTEN)
def written_records(request: pytest.FixtureRequest) -> dict[str, bytes]:
    """The records that a release wrote, or that are written now, by name."""
    return {name: bytes.fromhex(text) for name, text in WRITTEN[request.param].items()}


def test_entries_are_read(written_records: dict[str, bytes]) -> None:
    rows = [(written_records[name], written_records["envelope"]) for name in ("key", "ordered key")]
    assert select_readable_rows(rows) == (rows, [])
    assert {entry_keys.read_source(key) for key, _ in rows} == {SOURCE}
    assert envelopes.decode(written_records["envelope"]) == ENTRY


def test_controls_are_read(written_records: dict[str, bytes]) -> None:
    rows = [(written_records[f"{name} key"], written_records[name]) for name in ("pause", "reschedule")]
    standing = dict(select_readable_rows(rows).rows)
    assert control_records.read_pauses(standing, DUE_MS) == {("team", "payments"): Pause(DUE_MS, "why")}
    assert list(control_records.read_reschedules(standing).values()) == [Reschedule(DUE_MS, "payments", None, "ab" * 32)]


def test_lineages_are_read(written_records: dict[str, bytes]) -> None:
    told = attempts.unpack(written_records["lineages"])
    assert told.team == attempts.hash_team("payments")
    row = attempts.build_fields
    assert list(told.rows) == [row(11, 22, DUE_MS, DUE_MS - 5_000, 2, True), row(1, 2, DUE_MS, 0, 1)]


def test_outcomes_are_of_a_version_that_is_read(written_records: dict[str, bytes]) -> None:
    assert msgspec.json.decode(written_records["outcome"])["v"] in format_versions.OUTCOME.reads


def test_an_outcome_is_read_but_not_one_of_a_newer_version(written_records: dict[str, bytes]) -> None:
    wanted, other = LetterLocation("orders.DLT", 3, 7), LetterLocation("orders.DLT", 3, 77)
    told = read_outcome(written_records["outcome"], wanted)
    assert told is not None
    assert (told["source"], told["attempt"], told["due_ms"]) == (str(wanted), 2, DUE_MS)
    newer = written_records["outcome"].replace(b'{"v":1', b'{"v":2')
    with pytest.raises(OutcomeNewer, match=r"outcome version 2 .*upgrade"):
        read_outcome(newer, wanted)
    # Whoever asks for another letter has no trouble with it.
    assert read_outcome(newer, other) is read_outcome(b'"orders.DLT/3/7"', wanted) is read_outcome(b"{", wanted) is None


def test_a_letter_is_found_among_those_that_are_told_of_together() -> None:
    shared = SharedFields("t", "orders.DLT", 3, "t/o", 1, None, "retry", None, "orders.retry", None, None, None)
    rows: outcomes.LetterRows = [(b"%x" % n, n, 1, 2, 3) for n in range(9)]
    (value,) = outcomes.encode_outcomes(defaultdict(list, {shared: rows}), 4)
    told = read_outcome(value, LetterLocation("orders.DLT", 3, 7))
    assert told is not None
    assert (told["id"], told["source"], told["delay_ms"]) == ("7", "orders.DLT/3/7", 1)
    assert read_outcome(value, LetterLocation("orders.DLT", 3, 9)) is None
    newer = value.replace(b'{"v":1', b'{"v":2')
    with pytest.raises(OutcomeNewer, match="outcome version 2"):
        read_outcome(newer, LetterLocation("orders.DLT", 3, 7))


def test_this_version_writes_what_it_wrote_before() -> None:
    assert written_now() == WRITTEN["now"]


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name)
def test_what_is_written_is_read_and_only_what_is_beyond_is_newer(each: Format) -> None:
    newest = max(each.reads)
    assert each.writes in each.reads
    assert not any(map(each.newer, [*each.reads, 0, -1, None, "9", 1.5]))
    assert each.newer(newest + 1)
    assert f"{each.name} {newest + 1} was written by a newer version" in each.describe_version(newest + 1)


@pytest.mark.parametrize("key", NEWER_KEYS)
def test_a_key_of_a_newer_kind_is_told_from_a_strangers(key: bytes) -> None:
    with pytest.raises(EntryNewer, match="upgrade this worker"):
        select_readable_rows([(key, ENVELOPE)])
    assert select_readable_rows([(key, None)]) == ([], [])


@pytest.mark.parametrize("key", STRANGERS)
def test_a_strangers_key_is_not_called_newer(key: bytes) -> None:
    rows, unreadable = select_readable_rows([(KEY, ENVELOPE), (key, ENVELOPE)])
    assert (rows, [row.key for row in unreadable]) == ([(KEY, ENVELOPE)], [key])


@pytest.mark.parametrize("value", [b"", b"garbage", b'{"at_ms": null}', b'{"at_ms": "\xff"}', b'{"at_ms": 1e400, "reason": ""}'])
def test_what_was_folded_of_a_key_stands_where_a_record_of_it_cannot_be_read(value: bytes) -> None:
    key, pause = control_records.pause_key("team", "payments"), control_records.encode(Pause(DUE_MS, "why"))
    rows, unreadable = select_readable_rows([(key, pause), (key, value)])
    assert (rows, [row.key for row in unreadable]) == ([(key, pause)], [key])


@pytest.mark.parametrize("value", [b"", b"garbage", msgspec.msgpack.encode([1, "nowhere"]), msgspec.msgpack.encode([1] * 8)])
@pytest.mark.parametrize("key", [KEY, ORDERED_KEY])
def test_what_is_no_envelope_takes_the_place_of_its_key_as_after_a_restart(key: bytes, value: bytes) -> None:
    # Compaction leaves the last record of a key: whoever folds both must have what a new worker has.
    assert [found for _, found in select_readable_rows([(key, ENVELOPE), (key, value)]).rows] == [value]


@pytest.mark.parametrize("version", [3, 127, 128, 255, 1 << 40])
@pytest.mark.parametrize("key", [KEY, ORDERED_KEY])
def test_an_envelope_of_a_newer_version_is_known_when_it_is_folded(key: bytes, version: int) -> None:
    with pytest.raises(EntryNewer, match=f"envelope version {version} .*upgrade"):
        select_readable_rows([(key, envelope(version))])
    with pytest.raises(EntryNewer):
        envelopes.decode(envelope(version))


@given(st.binary(max_size=60).map(b"{".__add__) | st.sampled_from([envelope(v) for v in (0, 1, -1, "2", None, True, [2])]))
def test_other_bytes_are_never_called_newer(value: bytes) -> None:
    envelopes.check_version(value)
    if value != envelope(1):
        with pytest.raises(EntryUnreadable) as refused:
            envelopes.decode(value)
        assert not isinstance(refused.value, EntryNewer)


def test_a_field_that_a_later_version_adds_at_the_end_is_no_trouble() -> None:
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(envelopes.encode(ENTRY)), "more"])
    assert select_readable_rows([(KEY, longer)]) == ([(KEY, longer)], [])
    assert envelopes.decode(longer) == ENTRY


@pytest.mark.parametrize(("key", "value"), NEWER_CONTROLS)
def test_a_control_that_this_version_cannot_obey_is_newer(key: bytes, value: bytes) -> None:
    with pytest.raises(EntryNewer, match="upgrade this worker"):
        select_readable_rows([(key, value)])
    assert select_readable_rows([(key, None)]) == ([(key, None)], [])


@pytest.mark.parametrize("version", [2, 255])
def test_a_newer_record_of_lineages_is_told_from_garbage(version: int) -> None:
    with pytest.raises(LineageNewer, match=f"version {version}"):
        attempts.unpack(bytes([version]) + b"whatever")
    for garbage in (b"", b"\0", b"\x01short", b"\0\2" + bytes(35)):
        with pytest.raises(LineageUnreadable) as refused:
            attempts.unpack(garbage)
        assert not isinstance(refused.value, LineageNewer)


def test_how_many_rows_come_before_the_first_of_a_newer_version() -> None:
    good = [(KEY, ENVELOPE), (KEY, None), (b"\xff", None), (b"garbage", b"")]
    assert count_before_newer(good) == 4
    for newer in [*((key, b"") for key in NEWER_KEYS), *NEWER_CONTROLS, (KEY, envelope(3))]:
        assert count_before_newer([*good, newer, *good, newer]) == 4
        assert count_before_newer([newer]) == 0
