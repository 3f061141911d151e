"""Finds the block that an entry is in, by the entry's key: of all blocks a few keys are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.blocks import WITHIN_MS
from retry.delay_queue.entry_keys import LANE_BYTES, due_at_ms, due_bound

_CANDIDATES = 1_000


class BlockRows(Protocol):
    """Rows in which blocks can be looked for."""

    def scan_keys(self, start: bytes, end: bytes, rows_max: int) -> list[bytes]:
        """The first keys from a start to before an end."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Get a row by its key."""
        ...


def find_blocks(rows: BlockRows, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The blocks of which these plain keys are entries, each once."""
    found = dict[bytes, bytes]()
    members = set[bytes]()
    for key in keys:
        if key in members or (block := _find(rows, key)) is None:
            continue
        value = rows.get(block)
        if value is not None:
            found[block] = value
            members.update(blocks.list_keys(block))
    return list(found.items())


def _find(rows: BlockRows, key: bytes) -> bytes | None:
    lane, due_ms = entry_keys.block_lane(key), due_at_ms(key)
    # Behind the due time: topic and partition, and the number of the letter.
    stem, number = key[LANE_BYTES + 8 : -8], entry_keys.letter_number(key)
    first = max(0, number - blocks.SPAN_MAX)
    latest_ms, end = due_ms, due_bound(due_ms + WITHIN_MS, lane)
    while nearest := rows.scan_keys(due_bound(latest_ms, lane), end, 1):
        # Blocks of many due times may be left out at once; of one due time they lie in the order of their letters.
        latest_ms = due_at_ms(nearest[0])
        bound = due_bound(latest_ms, lane) + stem
        start, until = bound + first.to_bytes(8, "big"), bound + (number + 1).to_bytes(8, "big")
        while some := rows.scan_keys(start, until, _CANDIDATES):
            for block in some:
                if key in blocks.list_keys(block):
                    return block
            start = some[-1] + b"\0"
        latest_ms += 1
    return None
