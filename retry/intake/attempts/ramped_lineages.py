"""Which step of which ramp put a letter: for those that come back without the header that says so.

Records of lineages that an action has written are keyed by what its letters say in `retry-action`. The latest counts: a letter
that another action has moved since is that one's.
"""

from __future__ import annotations

from retry.delay_queue import ramp_records
from retry.intake.attempts.lineage_codec import unpack


class RampedLineages:
    """By lineage, no more than `limit`; those that were put longest ago are forgotten first. About 130 bytes each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_lineage: dict[int, tuple[bytes, int]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_lineage)

    def fold(self, key: bytes, packed: bytes) -> None:
        """Take in a record that an action has written.

        Raises:
          LineageUnreadable: see `unpack`; nothing of it was taken in.
        """
        mark, known = ramp_records.read_mark(key), self._by_lineage
        for number, *_ in unpack(packed):
            known.pop(number, None)
            if mark is not None:
                known[number] = mark
        while len(known) > self._limit:
            del known[next(iter(known))]

    def step(self, lineage: int) -> tuple[bytes, int] | None:
        """Action and step by which a lineage was put last; None where that was no ramp."""
        return self._by_lineage.get(lineage)
