"""How the retries of one kind of failure ended, by attempt and delay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from retry.analytics.statistics.proportions import Chance, chance

# Fewer retries of one attempt and delay tell less than all of that attempt together.
CELL_ENOUGH = 30
_NEAR = (0.7, 1.42)


class Kind(NamedTuple):
    """A kind of failure: the team, and the class of the exception; None where the letters do not contain it."""

    team: str
    exception: str | None


class Cell(NamedTuple):
    """Retries of one attempt with delays that are within 41 % of each other, `delay_ms` their median."""

    attempt: int
    delay_ms: int
    recovered: int
    failed: int
    unknown: int = 0

    @property
    def ended(self) -> int:
        """Those whose end is known."""
        return self.recovered + self.failed

    @property
    def letters(self) -> int:
        """Those whose end is known, and those whose end is not."""
        return self.ended + self.unknown


@dataclass(frozen=True, slots=True)
class Evidence:
    """All cells of one kind.

    Attributes:
      cells: by attempt, from 1 without a gap, in the order of their delays.
    """

    cells: Mapping[int, tuple[Cell, ...]]

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Evidence:
        """The evidence of cells in any order."""
        by_attempt: dict[int, list[Cell]] = {}
        for cell in sorted(cells):
            by_attempt.setdefault(cell.attempt, []).append(cell)
        return cls({attempt: tuple(by_attempt.get(attempt, ())) for attempt in range(1, max(by_attempt, default=0) + 1)})

    @property
    def attempts(self) -> int:
        """The last attempt that any letter is to make, or has made; 0 where there is none."""
        return max(self.cells, default=0)

    @property
    def letters(self) -> int:
        """Letters that were to be retried at all."""
        return sum(cell.letters for cell in self.cells.get(1, ()))

    def ended(self, attempt: int) -> int:
        """Retries of this attempt whose end is known."""
        return sum(cell.ended for cell in self.cells.get(attempt, ()))

    def recovered(self, attempt: int) -> int:
        """Those of them that recovered."""
        return sum(cell.recovered for cell in self.cells.get(attempt, ()))

    def hazard(self, attempt: int) -> Chance:
        """How likely this attempt recovers, whatever its delay."""
        return chance(self.recovered(attempt), self.ended(attempt))

    def hazard_after(self, attempt: int, delay_ms: int) -> Chance:
        """How likely it recovers after such a delay: of those that waited about as long where there are enough, else of all."""
        cells = self.cells.get(attempt, ())
        nearest = min(cells, key=lambda cell: abs(math.log(max(cell.delay_ms, 1) / max(delay_ms, 1))), default=None)
        if (
            nearest is None
            or nearest.ended < CELL_ENOUGH
            or not _NEAR[0] <= max(delay_ms, 1) / max(nearest.delay_ms, 1) <= _NEAR[1]
        ):
            return self.hazard(attempt)
        return chance(nearest.recovered, nearest.ended)

    def hazards(self) -> list[float]:
        """The likely hazards of all attempts from 1."""
        return [self.hazard(attempt).likely for attempt in range(1, self.attempts + 1)]


def survival(hazards: Iterable[float]) -> list[float]:
    """Share of the letters that still fail before each attempt, and as the last item after all: Kaplan and Meier, JASA 53
    (1958) 457-481.

    >>> survival([0.5, 0.5])
    [1.0, 0.5, 0.25]
    """
    left = [1.0]
    for hazard in hazards:
        left.append(left[-1] * (1 - hazard))
    return left
