"""What the checks go by, which records can be found, what holds entries back, what is said of a letter; and what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from retry.delay_queue.entry_keys import Lane
from retry.operations.verify.rows import DeliveryRow, EntryRow, LetterRow, NameTable, OutcomeRow, Row, RowKind, TableRow

# What the checks of `retry verify` have found: counts, and examples of each kind with their places.

KINDS = ("lost", "duplicate", "torn", "early", "phantom", "wrong_topic", "stuck")
UNCHECKED, TABLE = "unchecked", "table"
# What is unchecked of an entry that was due.
READ_AGAIN = "letters taken in more than once, as an operator asked with `retry topics reread`"
HELD = "due, and held: it is sealed under a key that workers did not have, or was changed since"

# A kind, or UNCHECKED or TABLE, and a sentence.
Finding = tuple[str, str]


@dataclass
class Findings:
    """Counts and examples of what is wrong with a deployment, and of what was checked.

    Attributes:
      shown: how many examples of each kind are kept.
      letters: how many were taken in, as far as outcomes are kept.
      waiting: entries in the fold.
      aborted: records that only a read_uncommitted reader sees.
      counts, examples: by kind; examples are sentences.
      unchecked: how often something could not be checked any more, by the reason.
      tables, differing: tables on disk that were compared, and those that differ.
      uncompared: tables that were not compared, with the reason.
    """

    shown: int = 5
    letters: int = 0
    waiting: int = 0
    not_taken_in: int = 0
    aborted: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    unchecked: Counter[str] = field(default_factory=Counter)
    tables: int = 0
    differing: set[str] = field(default_factory=set)
    uncompared: dict[str, str] = field(default_factory=dict)

    def add_finding(self, kind: str, sentence: str) -> None:
        """Count a finding, or what could not be checked."""
        if kind == UNCHECKED:
            self.unchecked[sentence] += 1
            return
        self.counts[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < self.shown:
            examples.append(sentence)

    def clean(self) -> bool:
        return not self.counts


# One letter: all that the topics say about it, in the order in which it was written.

class RecordedLetter:
    """All rows of one letter.

    Attributes:
      delivered: committed deliveries, but for those that were returned since.
      returned: the latter: the letter rested there, and an operator had it retried or discarded from there.
      aborted: deliveries of transactions that were aborted.
      changes: puts and deletes of its entries, in the changelog's order; those of the shard in which it was put last come last.
      waiting: by partition of the changelog and hash of the key, entries that were not deleted.
      rewritten: puts of a key that was waiting already.
    """

    __slots__ = (
        "aborted", "changes", "dead_letter", "delivered", "offset", "outcomes", "partition", "returned", "rewritten",
        "table_rows", "waiting",
    )  # fmt: skip

    def __init__(self, rows: list[Row]) -> None:
        by_kind: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
        for row in rows:
            by_kind[row.kind].append(row)
        # The number of its topic, and the partition.
        self.partition, self.offset = rows[0][1:3], rows[0].offset
        self.dead_letter: LetterRow | None = next(iter(by_kind[RowKind.LETTER]), None)
        self.outcomes: list[OutcomeRow] = by_kind[RowKind.OUTCOME]
        committed: list[DeliveryRow] = by_kind[RowKind.DELIVERY]
        self.delivered = [row for row in committed if not row.returned]
        self.returned = [row for row in committed if row.returned]
        self.aborted = _select_aborted(by_kind[RowKind.UNCOMMITTED], committed)
        self.table_rows: list[TableRow] = by_kind[RowKind.TABLE]
        self.changes: list[EntryRow] = by_kind[RowKind.PUT] + by_kind[RowKind.DELETE]
        self.waiting: dict[tuple[int, int], EntryRow] = {}
        self.rewritten: list[EntryRow] = []
        self._replay_changes()

    def _replay_changes(self) -> None:
        # It is put into another shard where it returns from a parking topic, or where its key decides the shard from then on.
        put_ms = dict[int, int]()
        for row in self.changes:
            if row.kind == RowKind.PUT:
                put_ms[row.at_partition] = max(row.appended_ms, put_ms.get(row.at_partition, 0))
        order = lambda row: (put_ms.get(row.at_partition, 0), row.at_partition, row.at_offset)  # noqa: E731
        changes, self.changes = sorted(self.changes, key=order), []
        for row in changes:
            # A letter that was moved to another shard has the same key there.
            place = row.at_partition, row.key_hash
            before = self.waiting.get(place)
            if row.kind == RowKind.PUT:
                if before is not None and not _has_left_block(before, row):
                    self.rewritten.append(row)
                self.waiting[place] = row
            elif before is None or before.in_block or not row.in_block:
                self.waiting.pop(place, None)
            else:
                # Its block has ended, and it has got a record of its own before.
                continue
            self.changes.append(row)


def group_rows(rows: Iterable[Row]) -> Iterable[RecordedLetter]:
    by_letter: dict[Any, list[Row]] = {}
    for row in rows:
        by_letter.setdefault(row[1:4], []).append(row)
    return map(RecordedLetter, by_letter.values())


def _select_aborted(uncommitted: list[DeliveryRow], committed: list[DeliveryRow]) -> list[DeliveryRow]:
    if len(uncommitted) == len(committed):
        # Whoever reads everything sees at least what is committed.
        return []
    records = {row[5:8] for row in committed}
    return [row for row in uncommitted if row[5:8] not in records]


def _has_left_block(before: EntryRow, put: EntryRow) -> bool:
    """Whether an entry was put again as it was since others have left its block."""
    return before.in_block and not put.in_block and before.envelope_hash == put.envelope_hash


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
    """Since when all deliveries to one topic are found, `NEVER` where nothing can be said, and why others may not be."""

    kept_from_ms: int
    reason: str


class VerifyContext(NamedTuple):
    """The facts about a deployment that the checks go by.

    Attributes:
      all_outcomes: no outcome was ever deleted.
      dead_letters, targets: what can be checked, by number of the topic, and of dead-letter topics by partition, too.
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
        writer = self.find_writer(self.names.topics[row.at_topic], row.at_partition, row.at_offset)
        return self.names.record(row) + (f" ({writer})" if writer else "")

    def outcomes_from(self, letter: RecordedLetter) -> int:
        """Return the offset from which on the outcomes of a letter's partition are kept; `NEVER` where that is not known."""
        letters = self.dead_letters.get(letter.partition)
        return letters.outcomes_from if letters else 0 if self.all_outcomes else NEVER

    def may_be_read_again(self, letter: RecordedLetter) -> bool:
        letters = self.dead_letters.get(letter.partition)
        return len(letter.outcomes) > 1 and letters is not None and letter.offset >= letters.read_again_from

    def why_no_delivery(self, letter: RecordedLetter, since_ms: int) -> str | None:
        """Explain why the delivery of a letter, made at or after `since_ms`, may be deleted; None where it would be found."""
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
