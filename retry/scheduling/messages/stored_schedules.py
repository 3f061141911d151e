"""Reads schedules: those that wait from the tables of this process, those that were sent from the history topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from retry.delay_queue import entry_keys, envelopes
from retry.errors import EntryUnreadable
from retry.scheduling.messages.entry_source import TEAM
from retry.scheduling.messages.search import Query, ScheduleJson, of_entry, of_history
from retry.scheduling.newest_records import newest_records
from retry.settings import Settings
from retry.worker.shards.shard import Shard

# Whoever reads slowly keeps one page in memory.
_PAGE = 100
_HISTORY_MAX = 10_000


def iterate_waiting(shards: Iterable[Shard], parked: str, query: Query) -> Iterator[ScheduleJson]:
    """Read the schedules of some shards that may match, a page at a time, in no order; raises TableUnreadable."""
    part = query.part.encode()
    for shard in shards:
        after = b""
        while page := shard.scan_entries(after, _PAGE):
            for _, key, envelope in page:
                # Most are told apart by their bytes, which is a tenth of the work.
                if key[0] == entry_keys.NAMED and part in envelope and query.may_match(entry_keys.due_at_ms(key) // 1_000):
                    entry = _read_schedule(envelope)
                    if entry is not None and entry.team == TEAM and entry.destination != parked:
                        yield of_entry(key, entry)
            after = page[-1][0]


def _read_schedule(envelope: bytes) -> envelopes.Entry | None:
    """Decode the entry in an envelope; None of what is sealed, or none: nothing is shown of it."""
    try:
        return envelopes.decode(envelope)
    except EntryUnreadable:
        return None


def read_sent_schedules(settings: Settings, topic: str) -> Iterator[ScheduleJson]:
    """Read the newest 10,000 schedules that were sent, as far as that is done in ten seconds; raises as `newest_records`."""
    for message, headers in newest_records(settings, topic, lambda partitions: _HISTORY_MAX // partitions + 1):
        yield of_history(headers, message.key(), message.value())
