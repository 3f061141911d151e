"""Letters that rest, and that a person wants erased: marked as if they had been returned, so that nobody ever returns them.

Their records can be removed by nobody but Kafka, when the time of their topic is over. For `retry.delivery.act`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from retry.delay_queue import returned_offsets
from retry.delay_queue.action_records import Member
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery.acted_entry import Refusal
from retry.delivery.return_slice import RETURNED


class ErasedPlace(NamedTuple):
    """Where a letter rests that nobody returns any more, as its member has it."""

    key: bytes


class ErasedSlice(NamedTuple):
    """What became of the members of a slice.

    Attributes:
      bitmaps: which letters are not returned any more by now.
    """

    results: list[tuple[Member, ErasedPlace | Refusal]]
    bitmaps: list[ChangelogRow]


def erased(members: Sequence[Member], table: Table) -> ErasedSlice:
    """Mark letters that rest.

    Raises:
      EntryUnreadable: a member is no place where one could.
    """
    bitmaps: dict[bytes, bytes | None] = {}
    results: list[tuple[Member, ErasedPlace | Refusal]] = []
    for member in members:
        place = returned_offsets.place(member.key)
        block = place.block()
        bitmap = bitmaps[block] if block in bitmaps else table.get(block)
        if returned_offsets.has(bitmap, place.offset):
            results.append((member, Refusal(RETURNED)))
            continue
        bitmaps[block] = returned_offsets.marked(bitmap, place.offset)
        results.append((member, ErasedPlace(member.key)))
    return ErasedSlice(results, list(bitmaps.items()))
