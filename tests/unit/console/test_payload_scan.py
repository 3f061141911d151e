"""Looks into payloads end at 10,000 letters, after 10 s, at a full page or when they are cancelled, and go on from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from retry.console.reading import payloads
from retry.console.reading.letters import LogRecord
from retry.console.reading.payloads import Payloads, Scanned
from retry.errors import CursorStale
from retry.kafka.record_fetch import GONE, UNREADABLE
from retry.operations.letter_filter.parse import parse
from retry.policies.registry import Registry
from retry.settings import Settings
from tests.support.replicas import NOW_MS, OWN, GivenMessage, GivenReplica, make_parked_record

LETTERS, BATCH = 60, 10
EVERY = "-value.$.n=999"


class Deadline:
    """Passes when it is told to."""

    is_over = False

    def __init__(self, _s: float) -> None:
        Deadline.is_over = False

    def has_passed(self) -> bool:
        return Deadline.is_over

    def remaining_s(self) -> float:
        return 1.0


class Scan:
    """60 parked letters with values that count, and what is asked of Kafka.

    Attributes:
      answers: what Kafka has in place of some records, by offset.
      before: called before each batch is read, with how many were read.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replica, self.answers = GivenReplica(folder), dict[int, str]()
        self.before: Callable[[int], None] = lambda _read: None
        self.read: list[int] = []
        records = [make_parked_record(n) for n in range(LETTERS)]
        self._messages = [
            GivenMessage(OWN.parked, 0, n, key, b'{"n": %d}' % n, headers, NOW_MS) for n, (key, _, headers) in enumerate(records)
        ]
        self.replica.fold(OWN.parked, *records)
        self.replica.finish()
        monkeypatch.setattr(payloads, "_BATCH", BATCH)
        monkeypatch.setattr(payloads, "Deadline", Deadline)
        monkeypatch.setattr(payloads._Fetcher, "fetch", lambda _self, places, _within_s: self._fetch(places))
        reading = lambda: self.replica.readers.reading(0.0)  # noqa: E731
        self.payloads = Payloads(Settings(), Registry, reading, lambda: "a file", lambda *_: False)

    def _fetch(self, places: Sequence[LogRecord]) -> dict[tuple[str, int, int], GivenMessage | str]:
        self.before(len(self.read))
        self.read += [place.offset for place in places]
        return {place: self.answers.get(place.offset, self._messages[place.offset]) for place in places}

    def look(self, after: str | None = None, limit: int = 100, words: str = EVERY, **more: Callable[[], bool]) -> Scanned:
        return self.payloads.scan(None, parse(words), after, limit, **more)


@pytest.fixture
def scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    return Scan(tmp_path, monkeypatch)


def keys(found: Scanned) -> list[int]:
    return [int((row.key or b"").split()[1]) for row in found.rows]


def test_it_ends_where_all_was_looked_at(scan: Scan) -> None:
    found = scan.look(words="value.$.n=17 or value.$.n=5")
    assert (sorted(keys(found)), found.looked_at, found.why_ended, found.after) == ([5, 17], LETTERS, "all", None)


def test_it_ends_at_so_many_letters_and_goes_on_behind_them(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert payloads.LETTERS_MAX == 10_000
    monkeypatch.setattr(payloads, "LETTERS_MAX", 25)
    found, after, each = list[int](), None, list[tuple[int, str]]()
    while not each or after is not None:
        part = scan.look(after)
        found, after, each = found + keys(part), part.after, [*each, (part.looked_at, part.why_ended)]
    assert each == [(25, "letters"), (25, "letters"), (10, "all")]
    assert sorted(found) == list(range(LETTERS))


def test_it_ends_after_so_long_and_what_was_not_read_in_time_comes_first_the_next_time(scan: Scan) -> None:
    assert payloads.SCAN_S == 10.0

    def late(read: int) -> None:
        if read == 2 * BATCH:
            Deadline.is_over = True
            scan.answers |= dict.fromkeys(range(LETTERS), UNREADABLE)

    scan.before = late
    found = scan.look()
    assert (found.looked_at, len(found.rows), found.why_ended, found.unread) == (2 * BATCH, 2 * BATCH, "time", 0)
    scan.before, scan.answers = lambda _read: None, {}
    rest = scan.look(found.after)
    assert (rest.why_ended, sorted(keys(found) + keys(rest))) == ("all", list(range(LETTERS)))


def test_a_page_is_full_at_its_last_row(scan: Scan) -> None:
    first = scan.look(limit=7)
    assert (len(first.rows), first.looked_at, first.why_ended) == (7, 7, "page")
    assert keys(scan.look(first.after, limit=1)) == [keys(scan.look(limit=8))[7]]


def test_it_ends_when_it_is_cancelled(scan: Scan) -> None:
    found = scan.look(is_cancelled=lambda: len(scan.read) >= 3 * BATCH)
    assert (found.looked_at, found.why_ended, len(found.rows)) == (3 * BATCH, "cancelled", 3 * BATCH)
    assert scan.look(found.after).looked_at == LETTERS - 3 * BATCH


def test_what_nobody_gives_is_counted_and_what_is_gone_is_none(scan: Scan) -> None:
    scan.answers = {3: UNREADABLE, 4: GONE}
    found = scan.look()
    assert (len(found.rows), found.unread, found.why_ended) == (LETTERS - 2, 1, "all")


def test_a_cursor_is_of_its_question(scan: Scan) -> None:
    first = scan.look(limit=7)
    with pytest.raises(CursorStale):
        scan.look(first.after, words="value.$.n=1")
