"""Which step of which ramp put a letter: for those that come back without the header that says so.

Records of lineages that an action has written are keyed by what its letters say in `retry-action`. The latest counts: a letter
that another action has moved since is that one's.
"""

from __future__ import annotations

from retry.delay_queue import ramp_records
from retry.intake.attempts.lineage_codec import unpack
from retry.intake.attempts.lineage_id import team_number


class RampedLineages:
    """The ramp step that put each lineage last, by team; at most `limit` lineages of all teams. About 130 bytes each.

    Where there are more, those that were put longest ago are forgotten first, of the team that has most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_team: dict[int, dict[int, tuple[bytes, int]]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self._by_team.values()))

    def apply_record(self, key: bytes, packed: bytes) -> None:
        """Take in a record that an action has written.

        Raises:
          LineageUnreadable: see `unpack`; nothing of it was taken in.
        """
        told, mark = unpack(packed), ramp_records.read_mark(key)
        known = self._by_team.setdefault(told.team, {})
        for number, *_ in told.rows:
            known.pop(number, None)
            if mark is not None:
                known[number] = mark
        for _ in range(len(self) - self._limit):
            most = max(self._by_team.values(), key=len)
            del most[next(iter(most))]

    def find_step(self, team: str, lineage: int) -> tuple[bytes, int] | None:
        """Action and step by which a lineage was put last; None where that was no ramp."""
        return self._by_team.get(team_number(team), {}).get(lineage)
