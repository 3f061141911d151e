"""What the judge goes by: which records can still be found, what holds entries back, and which tables there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from retry.delay_queue.lane import Lane
from retry.operations.verify.letter_history import Letter
from retry.operations.verify.rows import Words

STUCK_MS = 60_000
NEVER = 1 << 62


class Bounds(NamedTuple):
    """Of a dead-letter partition, which letters can be judged.

    Attributes:
      floor: outcomes of letters from this offset on are kept.
      first, stop: letters of these offsets were looked for.
      end: no letter has this offset or a higher one.
      whole: none of them was taken away by compaction.
    """

    floor: int
    first: int
    stop: int
    end: int
    whole: bool


class Target(NamedTuple):
    """Of a retry or parking topic, which deliveries can still be found.

    Attributes:
      kept_from_ms: all that was delivered since; `NEVER` where nothing can be said.
      why: in words, what took the others away.
    """

    kept_from_ms: int
    why: str


class Known(NamedTuple):
    """What the judge goes by.

    Attributes:
      outcomes_whole: no outcome was ever deleted.
      bounds: by number of a dead-letter topic and partition.
      targets: by number of the topic.
      deletes_from_ms: deletes in the changelog since then are all kept.
      late_ms: who was due before and still waits is stuck.
      skew_ms: by how much clocks of workers and brokers may differ.
      held, held_named: why nothing of a lane may go, None where it may; the second of entries with a name, which no policy
        file tells of.
      permitted: where letters of a dead-letter topic may go by the policy file of now.
      tables: by changelog partition, the number of each table on disk and where its fold goes on.
    """

    words: Words
    outcomes_whole: bool
    bounds: Mapping[tuple[int, int], Bounds]
    targets: Mapping[int, Target]
    deletes_from_ms: int
    late_ms: int
    skew_ms: int
    held: Callable[[Lane], str | None]
    held_named: Callable[[Lane], str | None]
    permitted: Callable[[str], set[str]]
    tables: Mapping[int, list[tuple[int, int]]]

    def floor(self, letter: Letter) -> int:
        """From which offset on letters of its partition have outcomes that are kept."""
        bounds = self.bounds.get(letter.place)
        return bounds.floor if bounds else 0 if self.outcomes_whole else NEVER

    def gone(self, letter: Letter, since_ms: int) -> str | None:
        """Why its delivery, not before `since_ms`, may have been deleted; None where it would be found."""
        named = self.words.topic(lane.destination) if (lane := self.lane(letter)) else None
        # Where nothing is left of its entries they may have been moved to any topic.
        asked = list(self.targets) if not letter.changes else [letter.outcomes[0].extra if named is None else named]
        for each in asked:
            target = self.targets.get(each)
            if target is None:
                return "deliveries: their topic is gone"
            if target.kept_from_ms > since_ms:
                return f"deliveries: {self.words.topics[each]} {target.why}"
        return None

    def lane(self, letter: Letter) -> Lane | None:
        """Where its last entry was; None where nothing tells."""
        return self.words.whose(letter.changes[-1]) if letter.changes else None
