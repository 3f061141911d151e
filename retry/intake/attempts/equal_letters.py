"""Sends of letters that are equal in topic, key and value, counted by attempt.

Nothing tells such letters apart once their headers are gone, and nothing needs to: each send is a credit, each return
takes one, and every credit is dearer than the one that it follows. So the sends of N letters stay below N times the
most attempts of one, whichever return takes which credit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from operator import attrgetter

_ATTEMPT = attrgetter("attempt")
# Of one fingerprint. Where a policy allows more attempts, some are counted as one more than they are, never as less.
LEVELS_MAX = 64


@dataclass(slots=True)
class Level:
    """Outstanding sends of one attempt: the earliest due time, the latest first failure and whose it is."""

    attempt: int
    count: int
    due_s: int
    first_s: int
    id: int


class Levels:
    """Levels of all fingerprints of one team: in `by_fingerprint`, for reading, the lowest attempt first; none is empty."""

    def __init__(self) -> None:
        self._levels = 0
        self.by_fingerprint: OrderedDict[int, list[Level]] = OrderedDict()

    def __len__(self) -> int:
        return self._levels

    def add_sends(self, fingerprint: int, credit: Level) -> None:
        levels = self.by_fingerprint.setdefault(fingerprint, [])
        self.by_fingerprint.move_to_end(fingerprint)
        at = bisect_left(levels, credit.attempt, key=_ATTEMPT)
        if len(levels) == LEVELS_MAX and at == LEVELS_MAX:
            levels[-1].attempt = credit.attempt
            at -= 1
        if at < len(levels) and (levels[at].attempt == credit.attempt or len(levels) == LEVELS_MAX):
            _join(levels[at], credit)
            return
        levels.insert(at, credit)
        self._levels += 1

    def forget_oldest(self) -> None:
        if self.by_fingerprint:
            self._levels -= len(self.by_fingerprint.popitem(last=False)[1])

    def nearest(self, fingerprint: int, attempt: int) -> int:
        """Return the attempt of the send that `take_send` would take back; 0 if there is none."""
        levels = self.by_fingerprint.get(fingerprint)
        return levels[_find_level(levels, attempt)].attempt if levels else 0

    def take_send(self, fingerprint: int, attempt: int) -> int:
        """Take back one send of `attempt`, or else of the nearest lower one, or else of the lowest; which it was, or 0."""
        levels = self.by_fingerprint.get(fingerprint)
        if not levels:
            return 0
        at = _find_level(levels, attempt)
        level = levels[at]
        level.count -= 1
        if not level.count:
            del levels[at]
            self._levels -= 1
            if not levels:
                del self.by_fingerprint[fingerprint]
        return level.attempt

    def lower_due_time(self, fingerprint: int, attempt: int, due_s: int) -> None:
        """Lower the due time of sends of one attempt to `due_s`, where that is earlier; 0 (no send) changes nothing."""
        for level in self.by_fingerprint.get(fingerprint, ()):
            if level.attempt == attempt and due_s:
                level.due_s = min(level.due_s, due_s)

    def has_outstanding_send(self, fingerprint: int, attempt: int, due_s: int) -> bool:
        """Whether a send of exactly this attempt is outstanding, and was due by `due_s`."""
        return any(v.attempt == attempt and v.due_s <= due_s for v in self.by_fingerprint.get(fingerprint, ()))

    def find(self, fingerprint: int, due_s: int, first_s: int, skip: int = 0) -> Level | None:
        """Find the lowest level due by `due_s` with its first failure at `first_s` or later; None if there is none.

        `skip` of such sends are spoken for, and passed over.
        """
        for level in self.by_fingerprint.get(fingerprint, ()):
            if level.due_s <= due_s and level.first_s >= first_s:
                if skip < level.count:
                    return level
                skip -= level.count
        return None


def _find_level(levels: list[Level], attempt: int) -> int:
    return max(0, bisect_right(levels, attempt, key=_ATTEMPT) - 1)


def _join(level: Level, more: Level) -> None:
    level.count += more.count
    level.due_s = min(level.due_s, more.due_s)
    if more.first_s >= level.first_s:
        level.first_s, level.id = more.first_s, more.id
