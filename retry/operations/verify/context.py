"""What the checks go by: which records can still be found, what holds entries back, and which tables there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from retry.delay_queue.lane import Lane
from retry.operations.verify.letter_history import RecordedLetter
from retry.operations.verify.rows import DeliveryRow, EntryRow, NameTable, OutcomeRow

STUCK_MS = 60_000
NEVER = 1 << 62


class VerifiableLetters(NamedTuple):
    """The letters of one dead-letter partition that can be checked.

    Attributes:
      outcomes_from: outcomes of letters from this offset on are kept.
      first, stop: letters of these offsets were read.
      end: no letter has this offset or a higher one.
      uncompacted: compaction has taken no letter away.
      read_again_from: letters from this offset on may have been taken in more than once, since an operator asked for that.
    """

    outcomes_from: int
    first: int
    stop: int
    end: int
    uncompacted: bool
    read_again_from: int = NEVER


class Target(NamedTuple):
    """The deliveries to one retry or parking topic that can still be found.

    Attributes:
      kept_from_ms: all deliveries since then are found; `NEVER` where nothing can be said.
      reason: why others may not be found.
    """

    kept_from_ms: int
    reason: str


class VerifyContext(NamedTuple):
    """The facts about a deployment that the checks go by.

    Attributes:
      all_outcomes: no outcome was ever deleted.
      dead_letters: letters that can be checked, by number of the dead-letter topic and partition.
      targets: deliveries that can be found, by number of the topic.
      deletes_kept_from_ms: deletes in the changelog since then are all kept.
      stuck_before_ms: an entry that was due before and still waits is stuck.
      skew_ms: by how much clocks of workers and brokers may differ.
      blocked: why nothing of a lane may go, None where it may.
      named_blocked: as `blocked`, for entries with a name, which no policy file mentions.
      permitted: where letters of a dead-letter topic may go by the policy file of now.
      tables: by changelog partition, the number of each table on disk and where its fold goes on.
      find_writer: says which transaction wrote a record of a topic, partition and offset; None where nobody knows.
    """

    names: NameTable
    all_outcomes: bool
    dead_letters: Mapping[Any, VerifiableLetters]
    targets: Mapping[int, Target]
    deletes_kept_from_ms: int
    stuck_before_ms: int
    skew_ms: int
    blocked: Callable[[Lane], str | None]
    named_blocked: Callable[[Lane], str | None]
    permitted: Callable[[str], set[str]]
    tables: Mapping[int, list[tuple[int, int]]]
    find_writer: Callable[[str, int, int], object | None] = lambda *_: None

    def name_with_writer(self, row: OutcomeRow | EntryRow | DeliveryRow) -> str:
        """Name a record by its place and the transaction that wrote it."""
        writer = self.find_writer(self.names.topics[row.at_topic], row.at_partition, row.at_offset)
        return self.names.record(row) + (f" ({writer})" if writer else "")

    def outcomes_from(self, letter: RecordedLetter) -> int:
        """From which offset on letters of its partition have outcomes that are kept."""
        letters = self.dead_letters.get(letter.partition)
        return letters.outcomes_from if letters else 0 if self.all_outcomes else NEVER

    def may_be_read_again(self, letter: RecordedLetter) -> bool:
        """Whether a letter was taken in more than once, and an operator has asked for that."""
        letters = self.dead_letters.get(letter.partition)
        return len(letter.outcomes) > 1 and letters is not None and letter.offset >= letters.read_again_from

    def why_no_delivery(self, letter: RecordedLetter, since_ms: int) -> str | None:
        """Why its delivery, not before `since_ms`, may have been deleted; None where it would be found."""
        lane = self.lane(letter)
        # Where nothing is left of its entries they may have been moved to any topic.
        targets = [*self.targets]
        if letter.changes:
            targets = [self.names.topic(lane.destination) if lane else letter.outcomes[0].target]
        for number in targets:
            target = self.targets.get(number)
            if target is None:
                return "deliveries: their topic is gone"
            if target.kept_from_ms > since_ms:
                return f"deliveries: {self.names.topics[number]} {target.reason}"
        return None

    def lane(self, letter: RecordedLetter) -> Lane | None:
        """Return the lane of the last entry; None where no record says. Rows not in scope may belong to a later delivery."""
        changes = [row for row in letter.changes if not self.names.is_held(row)] or letter.changes
        last = next((row for row in reversed(changes) if row.in_scope), None)
        return self.names.lane_of(last or changes[-1]) if changes else None
