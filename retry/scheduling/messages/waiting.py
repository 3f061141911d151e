"""Schedules that wait, as the tables of this process have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from retry.delay_queue import entry as entries
from retry.scheduling.messages.entry_source import DOOR
from retry.delay_queue.entry import NAMED, Entry
from retry.scheduling.messages.search import Query
from retry.scheduling.messages.schedule_json import Shown, of_entry
from retry.worker.shards.shard import Shard

_PAGE = 500

# The shards of which tables are kept here: those of its own, and perhaps copies of others.
Here = Callable[[], Iterable[Shard]]


def waiting(shards: Iterable[Shard], parked: str, wanted: Query) -> Iterator[Shown]:
    """Those in range, in no order; what only waits to be parked is no schedule.

    Read a page at a time, between which everything else goes on.

    Raises:
      TableUnreadable, EntryUnreadable: a table has to be restored first.
    """
    part = wanted.part.encode()
    for shard in shards:
        after = b""
        while page := shard.page(after, _PAGE):
            for key, envelope in page:
                # Most are told apart by their bytes, which is a tenth of the work.
                if key[0] == NAMED and part in envelope and wanted.may_match(entries.due_at_ms(key) // 1_000):
                    entry = entries.decode(envelope)
                    if _is_schedule(entry, parked):
                        yield of_entry(key, entry)
            after = page[-1][0]


def _is_schedule(entry: Entry, parked: str) -> bool:
    return entry.team == DOOR and entry.destination != parked
