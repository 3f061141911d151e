"""What one batch of intake decided of the letters of one team, as the value of one record: a version byte, 8 bytes that stand for
the team, then 27 bytes a letter.

    lineage u64 | fingerprint u64 | due second u32 | first failure's second u32 | attempt u16 | flags u8, little-endian

All that is recorded of a team lies in one partition, so that every worker folds it in the order in which it was decided, whether
it follows the topic or reads it anew.

What was moved while it waited is told in a record of its own: a zero byte, the version, the team, and rows of the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, starmap
from struct import Struct
from typing import Any, NamedTuple

from retry import format_versions
from retry.errors import LineageNewer, LineageUnreadable
from retry.intake.attempts.lineage_id import team_number

# lineage id, fingerprint, due second, first failure's second, attempt, flags
LineageFields = tuple[int, int, int, int, int, int]

MATCHED, MOVED = 1, 2
ATTEMPT_MAX = (1 << 16) - 1
_VERSION = format_versions.LINEAGE.writes.to_bytes(1, "big")
_MOVES = b"\0" + _VERSION
_TEAM, _ROW = Struct("<Q"), Struct("<QQIIHB")
# A record stays well below what every broker takes.
_ROWS_A_RECORD = 20_000
SECOND_MAX = (1 << 32) - 1


class LineageTopic(NamedTuple):
    """The topic in which lineages are recorded, and how many partitions it has."""

    name: str
    partitions: int

    def find_partition(self, team: str) -> int:
        """Partition that has all records of a team."""
        return team_number(team) % self.partitions

    def pack_by_partition(
        self, told: Iterable[tuple[str, LineageFields]], *, moves: bool = False
    ) -> dict[int, list[dict[str, Any]]]:
        """Records to write into each partition, of what is told of letters of some teams; see `pack_records`."""
        by_team: dict[str, list[LineageFields]] = {}
        for team, fields in told:
            by_team.setdefault(team, []).append(fields)
        found: dict[int, list[dict[str, Any]]] = {}
        for team, fields_of_team in by_team.items():
            found.setdefault(self.find_partition(team), []).extend(pack_records(team, fields_of_team, moves=moves))
        return found


class TeamRows(NamedTuple):
    """Rows of one record.

    Attributes:
      team: the number of whose letters they are about; see `team_number`.
      row_count: how many rows there are.
      rows: in their order.
    """

    team: int
    row_count: int
    rows: Iterator[LineageFields]


def build_fields(
    lineage_id: int, fingerprint: int, due_ms: int, first_failed_ms: int, attempt: int, matched: bool = False
) -> LineageFields:
    """One letter of a batch, in the units of the packed record.

    Both times are rounded down: who asks whether a send may have been made already is never told no too long. Times are
    kept within 1970-01-01T00:00:01 and 2106, attempts below 65,536.

    Args:
      due_ms: when it will be sent; for a letter that is parked, now.
      attempt: the number of the send that was decided, 1 for the first; 0 where the letter is parked and nothing is sent.
      matched: the letter was known by its fingerprint alone, see `TeamLineages.find_returned`.
    """
    due_s, first_s = due_ms // 1_000, first_failed_ms // 1_000
    if not 0 < due_s <= SECOND_MAX:
        due_s = max(1, min(due_s, SECOND_MAX))
    if not 0 <= first_s <= SECOND_MAX:
        first_s = max(0, min(first_s, SECOND_MAX))
    return lineage_id, fingerprint, due_s, first_s, min(attempt, ATTEMPT_MAX), MATCHED if matched else 0


def make_move_row(lineage_id: int, fingerprint: int, due_ms: int | None, attempt: int) -> LineageFields:
    """A send that was decided before, and has another time now: `due_ms`; None where its letter is parked instead."""
    due_s = 0 if due_ms is None else max(1, min(due_ms // 1_000, SECOND_MAX))
    return lineage_id, fingerprint, due_s, 0, min(attempt, ATTEMPT_MAX), MOVED


def pack(team: str, rows: Iterable[LineageFields], *, moves: bool = False) -> bytes:
    """Encode rows of a team as the value of one record; `moves` as in `pack_records`."""
    return (_MOVES if moves else _VERSION) + _TEAM.pack(team_number(team)) + b"".join(starmap(_ROW.pack, rows))


def pack_records(team: str, rows: Iterable[LineageFields], *, moves: bool = False) -> list[dict[str, Any]]:
    """Pack rows of a team into as few records as hold them; `moves`: all of them are of moved sends, else none is."""
    left = iter(rows)
    parts = iter(lambda: list(islice(left, _ROWS_A_RECORD)), [])
    return [{"key": None, "value": pack(team, part, moves=moves)} for part in parts]


def unpack(packed: bytes) -> TeamRows:
    """The team and its rows.

    Raises:
      LineageNewer: of a newer version.
      LineageUnreadable: no such record, or cut off. Raised by the call, before any row.
    """
    if packed and format_versions.LINEAGE.newer(packed[0]):
        raise LineageNewer(format_versions.LINEAGE.describe_version(packed[0]))
    head = _MOVES if packed.startswith(_MOVES) else _VERSION
    begins_at = len(head) + _TEAM.size
    if not packed.startswith(head) or len(packed) < begins_at or (len(packed) - begins_at) % _ROW.size:
        raise LineageUnreadable(f"{len(packed)} bytes that begin with {packed[:8].hex()} are no rows of version {_VERSION[0]}")
    (team,) = _TEAM.unpack_from(packed, len(head))
    rows = memoryview(packed)[begins_at:]
    return TeamRows(team, len(rows) // _ROW.size, _ROW.iter_unpack(rows))
