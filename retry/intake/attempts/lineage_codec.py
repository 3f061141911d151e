"""What one batch of intake decided, as the value of one record: a version byte, then 27 bytes a letter.

    lineage u64 | fingerprint u64 | due second u32 | first failure's second u32 | attempt u16 | flags u8, little-endian

What was moved while it waited is told in a record of its own: the bytes 0 and 1, and rows of the same form. A worker that does
not know of it takes it for garbage, says so, and counts as if nothing had been moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, starmap
from struct import Struct
from typing import Any

from retry import format_versions
from retry.errors import LineageNewer, LineageUnreadable

# lineage id, fingerprint, due second, first failure's second, attempt, flags
LineageFields = tuple[int, int, int, int, int, int]

MATCHED, MOVED = 1, 2
ATTEMPT_MAX = (1 << 16) - 1
_VERSION = format_versions.LINEAGE.writes.to_bytes(1, "big")
_MOVES = b"\0\1"
_ROW = Struct("<QQIIHB")
# A record stays well below what every broker takes.
_ROWS_A_RECORD = 20_000
SECOND_MAX = (1 << 32) - 1


def row(
    lineage_id: int, fingerprint: int, due_ms: int, first_failed_ms: int, attempt: int, matched: bool = False
) -> LineageFields:
    """One letter of a batch, in the units of the packed record.

    Both times are rounded down: who asks whether a send may have been made already is never told no too long. Times are
    kept within 1970-01-01T00:00:01 and 2106, attempts below 65,536.

    Args:
      due_ms: when it will be sent; for a letter that is parked, now.
      attempt: the number of the send that was decided, 1 for the first; 0 where the letter is parked and nothing is sent.
      matched: the letter was known by its fingerprint alone, see `Lineages.returned`.
    """
    due_s, first_s = due_ms // 1_000, first_failed_ms // 1_000
    if not 0 < due_s <= SECOND_MAX:
        due_s = max(1, min(due_s, SECOND_MAX))
    if not 0 <= first_s <= SECOND_MAX:
        first_s = max(0, min(first_s, SECOND_MAX))
    return lineage_id, fingerprint, due_s, first_s, min(attempt, ATTEMPT_MAX), MATCHED if matched else 0


def moved(lineage_id: int, fingerprint: int, due_ms: int | None, attempt: int) -> LineageFields:
    """A send that was decided before, and has another time now: `due_ms`; None where its letter is parked instead."""
    due_s = 0 if due_ms is None else max(1, min(due_ms // 1_000, SECOND_MAX))
    return lineage_id, fingerprint, due_s, 0, min(attempt, ATTEMPT_MAX), MOVED


def pack(rows: Iterable[LineageFields], head: bytes = _VERSION) -> bytes:
    """The value of the record that says so."""
    return head + b"".join(starmap(_ROW.pack, rows))


def records(rows: Iterable[LineageFields], *, moves: bool = False) -> list[dict[str, Any]]:
    """As few records as hold them; `moves` where all of them are from `moved`, else none is."""
    left, head = iter(rows), _MOVES if moves else _VERSION
    parts = iter(lambda: list(islice(left, _ROWS_A_RECORD)), [])
    return [{"key": None, "value": pack(part, head)} for part in parts]


def unpack(packed: bytes) -> Iterator[LineageFields]:
    """The rows, in their order.

    Raises:
      LineageNewer: of a newer version.
      LineageUnreadable: no such record, or cut off. Raised by the call, before any row.
    """
    if packed and format_versions.LINEAGE.newer(packed[0]):
        raise LineageNewer(format_versions.LINEAGE.told(packed[0]))
    head = _MOVES if packed.startswith(_MOVES) else _VERSION
    if not packed.startswith(head) or (len(packed) - len(head)) % _ROW.size:
        raise LineageUnreadable(f"{len(packed)} bytes that begin with {packed[:8].hex()} are no rows of version 1")
    return _ROW.iter_unpack(memoryview(packed)[len(head) :])
