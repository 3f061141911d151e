"""Says what was asked for by a name and is not done: a message that goes though it was cancelled must not go in silence.

| kind | what was asked for |
| --- | --- |
| `late_cancel`, `late_replacement` | written before its entry was due, and taken in when that had been sent |
| `older_cancel` | has no effect, since what counts is of another partition and was written later |
| `ended_elsewhere` | was replaced or cancelled by what was written later in another partition: rightly, unless clocks differ |
| `older_than_sent` | is sent too, since what was written later, in another partition, had been sent before it was taken in |

Times are those of the records, so clocks of producers that differ show here. What was sent is remembered in memory, by the
worker that sent it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from retry import clock
from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import CANCEL, NAMED, due_at_ms, name_of, read_version, read_written_at_ms
from retry.delay_queue.table.interface import ChangelogRow, Table

log = logging.getLogger(__name__)

# Of one shard.
_NAMES_MAX = 20_000
_LOGGED_MAX = 20
_LOG_AGAIN_S = 10.0
# A key ends with the partition, 4 bytes, and the offset.
_PARTITION = slice(-12, -8)
_NAMED = bytes([NAMED])

# The one that is disregarded, and the one that counts or was sent.
OverruledPair = tuple[bytes, bytes]


def find_overruled(table: Table, superseded: Sequence[bytes]) -> list[OverruledPair]:
    """Find those of some superseded entries and cancels which one of another partition counts in place of."""
    if not superseded:
        return []
    pairs = zip(superseded, table.find_greatest(superseded), strict=True)
    return [(key, by) for key, by in pairs if by and read_written_at_ms(key) and key[_PARTITION] != by[_PARTITION]]


class DisregardedChanges:
    """Logs and counts them, with at most 20 lines of log every ten seconds; `count` is told of so many of a kind."""

    def __init__(self, count: Callable[[str, int], None] | None = None) -> None:
        self._count, self._logged, self._unlogged = count or _count_none, 0, 0
        self._again = clock.Interval(_LOG_AGAIN_S, at_once=True)

    def tell_overruled(self, pairs: Iterable[OverruledPair]) -> None:
        for key, by in pairs:
            if key.startswith(CANCEL):
                sentence = "has no effect: by its timestamp it is older than %s, which was written at %s in another partition"
                self._report_change("older_cancel", key, sentence, by)
            else:
                self._count("ended_elsewhere", 1)

    def tell_late(self, key: bytes, sent: bytes) -> None:
        of_cancel = key.startswith(CANCEL)
        sentence = "was written before %s was due, and taken in after that had been sent; that one was written at %s"
        self._report_change("late_cancel" if of_cancel else "late_replacement", key, sentence, sent)

    def tell_older_than_sent(self, key: bytes, sent: bytes) -> None:
        sentence = "waits, and will be sent too: it was taken in after %s had been sent, which was written later, at %s"
        self._report_change("older_than_sent", key, sentence, sent)

    def _report_change(self, kind: str, key: bytes, sentence: str, other: bytes) -> None:
        self._count(kind, 1)
        if self._again.is_due():
            if self._unlogged:
                log.warning("%d more changes by name had no effect, or came too late", self._unlogged)
            self._again.restart()
            self._logged = self._unlogged = 0
        if self._logged >= _LOGGED_MAX:
            self._unlogged += 1
            return
        self._logged += 1
        what = "cancel" if key.startswith(CANCEL) else "entry"
        both = [told for each in (key, other) for told in (entry_keys.read_source(each).letter, _format_time(each))]
        log.warning("the %s of %s, written at %s, " + sentence, what, *both)


class SentNames:
    """The named entries that one shard has sent last: what changes them came too late."""

    def __init__(self, disregarded: DisregardedChanges) -> None:
        self._disregarded = disregarded
        # By name, the key that was sent last.
        self._sent: dict[bytes, bytes] = {}

    def note_sent(self, keys: Sequence[bytes], table: Table) -> None:
        """Remember entries that were just sent, and say which changes of them came too late; raises TableUnreadable."""
        if not keys:
            return
        sent = self._sent
        sent.update((name_of(key), key) for key in keys if read_written_at_ms(key) is not None)
        while len(sent) > _NAMES_MAX:
            sent.pop(next(iter(sent)), None)
        self.check((key, b"") for key in table.find_greatest(keys) if key is not None)

    def check(self, rows: Iterable[ChangelogRow]) -> None:
        """Say which of some records, just folded, came too late for what was sent."""
        if not self._sent:
            return
        for key, value in rows:
            if value is not None and key[:1] == _NAMED and (sent := self._sent.get(name_of(key))) is not None:
                self._check(key, sent)

    def _check(self, key: bytes, sent: bytes) -> None:
        written_ms = read_written_at_ms(key)
        if written_ms is None:
            return
        if read_version(key) > read_version(sent):
            # The thread that folds and the one that sends may both come here: one of them says it.
            if self._sent.pop(name_of(sent), None) is not None and written_ms < due_at_ms(sent):
                self._disregarded.tell_late(key, sent)
        elif read_version(key) < read_version(sent) and key[_PARTITION] != sent[_PARTITION] and not key.startswith(CANCEL):
            self._disregarded.tell_older_than_sent(key, sent)


def _format_time(key: bytes) -> str:
    return clock.iso(read_written_at_ms(key) or 0)


def _count_none(_kind: str, _changes: int) -> None:
    pass
