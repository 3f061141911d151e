"""What is left of a waiting letter that is erased, since a person asked for it: that there was one, and where it failed.

That goes to the topic of discarded letters at once, so that whoever counts letters finds where each ended.
"""

from __future__ import annotations

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue.envelopes import Entry

# They tell which letter it was and how often it was sent, and nothing that came with it. Without a policy it counts as no retry.
_KEPT = frozenset({names.ID, names.ATTEMPT, names.SOURCE, names.DUE_MS, names.FIRST_FAILED_MS})


def redacted(entry: Entry, discarded: str) -> Entry:
    """What is put in the place of an entry: neither its record key, nor its value, nor headers that came with it."""
    headers = [header for header in entry.headers if header[0] in _KEPT]
    marked = names.set_in(headers, (names.ACTION_BEFORE, names.ERASED))
    return msgspec.structs.replace(entry, destination=discarded, key=None, value=None, headers=marked)
