"""Up to when consumer groups have passed what lay in topics: from where those ended, and what has been committed since. Pure.

Where a topic ended at a moment is a mark. Once all of its partitions are committed up to there, whatever lay in the topic then is
passed. What left the changelog just before that moment may not have lain there yet, so the last seconds are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

_IN_FLIGHT_MS = 5_000
# Of one group in one topic; where it is further behind, what lies between two marks passes with the later one.
_MARKS_MAX = 16


class _Mark(NamedTuple):
    """The ends of all partitions of a topic, and when they were first and last seen there."""

    ends: Mapping[int, int]
    first_ms: int
    last_ms: int


class PassedMarks:
    """The marks of each group and topic, and up to when they were told as consumed; for one thread."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], list[_Mark]] = {}
        self._began: dict[tuple[str, str], Mapping[int, int]] = {}
        self._told: dict[tuple[str, str], int] = {}

    def find_consumed(
        self, group: str, topic: str, ends: Mapping[int, int], asked_ms: int, committed: Mapping[int, int]
    ) -> int | None:
        """Up to when everything is passed, where that is to be told: it is later than what was told, and not told in full.

        Args:
          ends: what has to be committed of each partition to be beyond all that lay there at `asked_ms`.
          committed: since; a partition that is missing counts as read up to where it ended when it was seen first.
        """
        place = group, topic
        began, marks = self._began.setdefault(place, dict(ends)), self._marks.setdefault(place, [])
        if marks and marks[-1].ends == ends:
            marks[-1] = marks[-1]._replace(last_ms=asked_ms)
        else:
            marks.append(_Mark(dict(ends), asked_ms, asked_ms))
        if len(marks) > _MARKS_MAX:
            marks[:] = [*marks[:-1:2], marks[-1]]
        reached = {n: committed.get(n, began.get(n, 0)) for n in ends}
        last = max((n for n, mark in enumerate(marks) if _is_passed(mark, reached)), default=None)
        if last is None:
            return None
        del marks[:last]
        until_ms, told = marks[0].last_ms - _IN_FLIGHT_MS, self._told.get(place, 0)
        return until_ms if told < min(until_ms, marks[0].first_ms) else None

    def note_mark(self, group: str, topic: str, until_ms: int) -> None:
        """Note that a sample told that the group has consumed the topic up to `until_ms`."""
        self._told[group, topic] = until_ms

    def retain_groups(self, groups: Collection[str]) -> None:
        """Forget all groups but these."""
        for known in (self._marks, self._began, self._told):
            for place in [place for place in known if place[0] not in groups]:
                del known[place]  # type: ignore[attr-defined]


def _is_passed(mark: _Mark, reached: Mapping[int, int]) -> bool:
    return all(reached.get(n, 0) >= end for n, end in mark.ends.items())
