"""What the console's replica makes of letters that share one record of the changelog, and reads again from that record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from retry.console.reading import payloads
from retry.console.reading.letters import LogRecord
from retry.console.reading.payloads import Payloads
from retry.console.rows import LetterRow
from retry.delay_queue import blocks
from retry.intake.gather_blocks import encode_block
from retry.operations.letter_filter.parse import parse
from retry.policies.registry import Registry
from retry.settings import Settings
from tests.support.blocks import FAILED_MS, NOW_MS, SHARED, letters_of
from tests.support.replicas import OWN, GivenMessage, GivenReplica

# Every second letter of a partition.
OFFSETS = [10, 12, 14, 16, 18]
LETTERS = [each._replace(value=b'{"n": %d}' % n) for n, each in enumerate(letters_of(5, first=10, apart=2))]
BLOCK = encode_block(SHARED, LETTERS)
NAMES = [f"{NOW_MS + n}/orders.DLT/0/{offset}" for n, offset in enumerate(OFFSETS)]
ALONE = [
    encode_block(SHARED, [each._replace(value=b'{"n": "alone"}')])
    for each in (*letters_of(1, first=2, due_ms=NOW_MS - 5), *letters_of(1, first=4, due_ms=NOW_MS + 5))
]
EARLIER, LATER = f"{NOW_MS - 5}/orders.DLT/0/2", f"{NOW_MS + 5}/orders.DLT/0/4"
SENT, STAY = (1, 3), (0, 2, 4)


@pytest.fixture(params=["while it is built", "when it is live"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> GivenReplica:
    """A replica of a block between two letters that have records of their own."""
    made = GivenReplica(tmp_path)
    if request.param == "when it is live":
        made.finish()
    made.fold(OWN.changelog, ALONE[0], BLOCK, ALONE[1])
    return made


def show_rows(replica: GivenReplica) -> Sequence[LetterRow]:
    if not replica.file.is_live:
        replica.finish()
    assert replica.counts_hold()
    assert replica.unreadable == 0
    return replica.letters().rows


def show_names(replica: GivenReplica) -> list[str]:
    return [row.name for row in show_rows(replica)]


def list_explosion() -> list[blocks.Row]:
    """The records that end the block when some of its letters are sent."""
    keys = blocks.list_keys(BLOCK[0])
    return list(blocks.split_blocks([BLOCK], [keys[n] for n in SENT]))


def test_each_letter_of_a_block_is_told_once_and_with_what_is_its_own(replica: GivenReplica) -> None:
    rows = show_rows(replica)
    assert [row.name for row in rows] == [EARLIER, *NAMES, LATER]
    of_block = rows[1:-1]
    assert [(row.due_at_ms, row.offset) for row in of_block] == [(NOW_MS + n, offset) for n, offset in enumerate(OFFSETS)]
    assert [(row.key, row.lineage) for row in of_block] == [(b"k%d" % n, f"id{n}") for n in range(5)]
    shared = {(row.state, row.team, row.topic, row.target, row.attempt, row.policy, row.failed_ms) for row in rows}
    assert shared == {("waiting", "team", "orders.DLT", "orders", 1, "team/orders.DLT", FAILED_MS)}


def test_behind_the_null_of_a_block_none_of_its_letters_is_left(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, (BLOCK[0], None))
    assert show_names(replica) == [EARLIER, LATER]


def test_a_block_that_comes_and_ends_in_one_batch_leaves_nothing(tmp_path: Path) -> None:
    replica = GivenReplica(tmp_path)
    replica.fold(OWN.changelog, ALONE[0], BLOCK, (BLOCK[0], None))
    assert show_names(replica) == [EARLIER]


@pytest.mark.parametrize("together", [True, False], ids=["at once", "one by one"])
def test_of_a_block_that_was_exploded_each_letter_that_stays_is_told_once(replica: GivenReplica, together: bool) -> None:
    for records in [list_explosion()] if together else [[record] for record in list_explosion()]:
        replica.fold(OWN.changelog, *records)
    rows = show_rows(replica)
    assert [row.name for row in rows] == [EARLIER, *(NAMES[n] for n in STAY), LATER]
    assert [row.key for row in rows[1:-1]] == [b"k%d" % n for n in STAY]
    for n in STAY:
        replica.fold(OWN.changelog, (blocks.list_keys(BLOCK[0])[n], None))
    assert show_names(replica) == [EARLIER, LATER]


class Looks:
    """The reads of the records that a replica was made of.

    Attributes:
      fetched: offsets of the records that were asked for, look by look.
    """

    def __init__(self, replica: GivenReplica, records: Sequence[blocks.Row], monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched: list[list[int]] = []
        self._records = [GivenMessage(OWN.changelog, 0, n, *record, None, NOW_MS) for n, record in enumerate(records)]
        monkeypatch.setattr(payloads._Fetcher, "fetch", lambda _self, places, _within_s: self._fetch(places))
        settings = Settings(app_id="app")
        self._payloads = Payloads(settings, Registry, lambda: replica.readers.reading(0.0), lambda: "a file", lambda *_: False)

    def _fetch(self, places: Sequence[LogRecord]) -> dict[LogRecord, GivenMessage]:
        self.fetched.append([place.offset for place in places])
        return {place: self._records[place.offset] for place in places}

    def read_value(self, name: str) -> bytes | None:
        found = self._payloads.find_letter(None, name)
        assert found is None or found.name == name
        return None if found is None else found.value

    def scan_names(self, words: str) -> list[str]:
        return [row.name for row in self._payloads.scan(None, parse(words)).rows]


def test_each_letter_of_a_block_is_opened_with_its_own_payload(replica: GivenReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    show_rows(replica)
    looks = Looks(replica, [ALONE[0], BLOCK, ALONE[1]], monkeypatch)
    assert [looks.read_value(name) for name in NAMES] == [b'{"n": %d}' % n for n in range(5)]
    assert [looks.read_value(name) for name in (EARLIER, LATER)] == [b'{"n": "alone"}'] * 2
    assert looks.read_value(f"{NOW_MS}/orders.DLT/0/11") is None
    looks.fetched.clear()
    assert looks.scan_names("value.$.n=3") == [NAMES[3]]
    assert looks.scan_names("-value.$.n=3") == [EARLIER, *NAMES[:3], NAMES[4], LATER]
    # The record of the block is read once for all of its letters.
    assert looks.fetched == [[0, 1, 2]] * 2


def test_a_letter_that_stays_of_a_block_is_opened_from_its_own_record(
    replica: GivenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.fold(OWN.changelog, *list_explosion())
    show_rows(replica)
    looks = Looks(replica, [ALONE[0], BLOCK, ALONE[1], *list_explosion()], monkeypatch)
    values = [looks.read_value(name) for name in NAMES]
    assert values == [b'{"n": %d}' % n if n in STAY else None for n in range(5)]
    assert [offset for [offset] in looks.fetched] == [3, 4, 5]
