"""Under which keys something waits that is sealed: read from the changelog, without any key."""

from __future__ import annotations

from dataclasses import dataclass

from retry.delay_queue import action_records, entry_keys, envelopes
from retry.delay_queue.action_records import SLICE
from retry.delay_queue.envelopes import SealedEnvelope
from retry.delay_queue.table.interface import Table
from retry.errors import EntryForeign
from retry.operations import waiting_entries
from retry.settings import Settings

_SLICES_AT_ONCE = 100


@dataclass(slots=True)
class KeyUse:
    """The number of entries and edits that wait, sealed under one key or in clear.

    Attributes:
      entries: letters, timers and all other entries.
      held: of these entries, those that workers could not open.
      edits: edits of letters, in actions that are not done.
    """

    entries: int = 0
    held: int = 0
    edits: int = 0


def keys_in_use(settings: Settings) -> dict[str | None, KeyUse]:
    """Count what waits under each key, by the id of the key; by None, what waits in clear.

    Raises:
      TopicsInvalid: there is no changelog, or it cannot be read.
      EntryNewer: something waits that a newer version wrote.
    """
    found: dict[str | None, KeyUse] = {}
    for _, table in waiting_entries.load_shard_tables(settings):
        _count(table, found)
    return found


def _count(table: Table, found: dict[str | None, KeyUse]) -> None:
    for key, envelope in waiting_entries.scan_rows(table):
        use = found.setdefault(_key_id(envelope), KeyUse())
        use.entries += 1
        use.held += entry_keys.is_held(key)
    after = b""
    while slices := table.list_slices(SLICE, _SLICES_AT_ONCE, after):
        after = slices[-1][0]
        for _, value in slices:
            for member in action_records.decode_slice(value).members:
                if member.envelope:
                    found.setdefault(_key_id(member.envelope), KeyUse()).edits += 1


def _key_id(envelope: bytes) -> str | None:
    try:
        of = envelopes.routing(envelope)
    except EntryForeign as error:
        return error.key_id
    return of.key_id if isinstance(of, SealedEnvelope) else None
