"""Which records of parking topics were returned, and so are no place where their letter is any more: from the changelog."""

from __future__ import annotations

from retry.delay_queue import returned_offsets
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.operations.verify.rows import Returned


class ReturnedLetters:
    """Takes in bitmaps; each holds all that those before it did."""

    def __init__(self) -> None:
        self._newest: dict[bytes, bytes] = {}
        self._in_scope: dict[bytes, bytes] = {}

    def add_bitmap(self, block: bytes, bitmap: bytes, in_scope: bool) -> None:
        """One record of the changelog.

        Raises:
          EntryUnreadable: it is no bitmap.
        """
        returned_offsets.check(bitmap)
        self._newest[block] = bitmap
        if in_scope:
            self._in_scope[block] = bitmap

    def find_return_state(self, topic_id: str, partition: int, offset: int) -> int:
        """Whether what rests there was returned, as a number of `Returned`."""
        block = ParkedPlace(returned_offsets.topic_hash(topic_id), partition, offset).block()
        if not returned_offsets.is_offset_returned(self._newest.get(block), offset):
            return Returned.NO
        return Returned.YES if returned_offsets.is_offset_returned(self._in_scope.get(block), offset) else Returned.OUT_OF_SCOPE
