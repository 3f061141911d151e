"""What retention and compaction have left, and so what can still be checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from retry.kafka.topics import Described
from retry.operations.verify.context import NEVER, Target, VerifiableLetters
from retry.operations.verify.deliveries import Deliveries
from retry.operations.verify.rows import OutcomeRow
from retry.operations.verify.spill_files import Spill

_SLACK_MS = 60_000


class RetainedOffsets(NamedTuple):
    """The offsets and times of a topic that retention has left.

    Attributes:
      starts: by partition, the first offset that is still there, asked for when all was read.
      first_ms: by partition, the time of the first record that was read.
    """

    about: Described
    starts: Mapping[int, int]
    first_ms: Mapping[int, int]

    def since_ms(self, now_ms: int) -> int:
        """Return the time since which all records are there: 0 where none was ever deleted, NEVER where nobody can say."""
        firsts = [self.first_ms.get(n, self._emptied_ms(now_ms)) for n, start in self.starts.items() if start > 0]
        return min(NEVER, max(firsts) + _SLACK_MS) if firsts else 0

    def _emptied_ms(self, now_ms: int) -> int:
        """Return the time since which an emptied partition would have all records; NEVER where its size is limited."""
        config = self.about.config
        if config.get("retention.bytes", "-1") != "-1":
            return NEVER
        return now_ms - int(config.get("retention.ms", "0"))


def describe_target(retained: RetainedOffsets, now_ms: int, *, open_transaction: bool) -> Target:
    """Which deliveries can still be found on a topic.

    Args:
      open_transaction: a transaction stays open there, and nothing behind it can be read.
    """
    if open_transaction:
        return Target(NEVER, "has a transaction that stays open")
    if is_compacted(retained.about):
        return Target(NEVER, "is compacted")
    since_ms = retained.since_ms(now_ms)
    if since_ms and retained.about.config.get("message.timestamp.type") != "LogAppendTime":
        return Target(NEVER, "has lost records to retention, and keeps no broker time")
    return Target(since_ms, "has lost records of that time to retention")


def is_compacted(about: Described) -> bool:
    """Whether records may be gone from the middle of a topic."""
    return "compact" in about.config.get("cleanup.policy", "delete")


def with_oldest_outcomes(
    letters: Mapping[Any, VerifiableLetters], spill: Spill, deliveries: Deliveries, since_ms: int
) -> dict[Any, VerifiableLetters]:
    """Go through outcomes once more: from which letter on they are kept, and whose the deliveries without `retry-source` are."""
    oldest = dict.fromkeys(letters, NEVER if since_ms else 0)
    for rows in spill.files():
        for row in rows:
            if isinstance(row, OutcomeRow):
                partition = row[1:3]
                if row.taken_ms >= since_ms and row.offset < oldest.get(partition, 0):
                    oldest[partition] = row.offset
                deliveries.match(row)
    deliveries.end_matching(all_outcomes=not since_ms)
    return {partition: each._replace(outcomes_from=oldest[partition]) for partition, each in letters.items()}
