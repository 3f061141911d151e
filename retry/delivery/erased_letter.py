"""What is left of a letter that is erased, since a person asked for it: that there was one, and where it failed.

That goes to the topic of discarded letters at once, so that whoever counts letters finds where each ended. Of a letter that
rests, the record where it does is marked as returned, so that nobody returns it: it can be removed by nobody but Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue.envelopes import Entry

# They tell which letter it was and how often it was sent, and nothing that came with it. Without a policy it counts as no retry.
_KEPT = frozenset({names.ID, names.ATTEMPT, names.SOURCE, names.DUE_MS, names.FIRST_FAILED_MS, names.ACTION})


class WithdrawnPlace(NamedTuple):
    """The place of a record that is no letter of its own, as a former version, or is not ours: nobody returns it any more."""

    key: bytes


def redact_entry(entry: Entry, discarded: str) -> Entry:
    """Make the entry that replaces one that is erased: without its record key, its value, and headers that came with it."""
    headers = [header for header in entry.headers if header[0] in _KEPT]
    marked = names.set_in(headers, (names.ACTION_BEFORE, names.ERASED))
    return msgspec.structs.replace(entry, destination=discarded, key=None, value=None, headers=marked)
