"""Payloads, read from Kafka when they are asked for: of one letter, or of many that a filter looks into."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from retry.console.replica.rows import LetterRow, Scope
from retry.operations.letter_filter.syntax import Filter
from retry.operations.letters.found_letter import FoundLetter

LETTERS_MAX, SCAN_S = 10_000, 10.0


class Scanned(NamedTuple):
    """What a look into payloads has found.

    Attributes:
      looked_at: letters whose payloads were read.
      why_ended: `all` where every letter was looked at; else `letters`, `time` or `cancelled`.
      after: the cursor behind the last letter that was looked at; None at the end.
    """

    rows: list[LetterRow]
    looked_at: int
    why_ended: str
    after: str | None


class Payloads:
    """Reads records of letters by offset; of `Replica.payloads`."""

    def found(self, scope: Scope, name: str) -> FoundLetter | None:
        """The letter with headers and payload: from the changelog where it waits, from its topic where it rests.

        None where it waits or rests no more, or is another team's.

        Raises:
          TopicsInvalid: nobody answered.
        """
        raise NotImplementedError

    def scan(
        self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 100,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Scanned:
        """Letters that a filter means that asks for payloads too: stops at 10,000 letters, after 10 s, or when cancelled."""
        raise NotImplementedError
