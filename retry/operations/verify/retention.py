"""What retention and compaction have left, and so what can still be judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from retry.kafka.topics import Described
from retry.operations.verify.deliveries import Deliveries
from retry.operations.verify.context import NEVER, Bounds, Target
from retry.operations.verify.rows import Kind
from retry.operations.verify.spill_files import Spill

_SLACK_MS = 60_000
At = tuple[int, int]


class Kept(NamedTuple):
    """What is read of a topic.

    Attributes:
      starts: by partition, the first offset that is still there, asked for when all was read.
      first_ms: by partition, the time of the first record that was read.
    """

    about: Described
    starts: Mapping[int, int]
    first_ms: Mapping[int, int]

    def since_ms(self, now_ms: int) -> int:
        """All that came since is there: 0 where nothing was ever deleted, NEVER where nobody can say."""
        firsts = [self.first_ms.get(n, self._emptied_ms(now_ms)) for n, start in self.starts.items() if start > 0]
        return min(NEVER, max(firsts) + _SLACK_MS) if firsts else 0

    def _emptied_ms(self, now_ms: int) -> int:
        """The same of a partition that retention has emptied."""
        config = self.about.config
        if config.get("retention.bytes", "-1") != "-1":
            return NEVER
        return now_ms - int(config.get("retention.ms", "0"))


def target(kept: Kept, now_ms: int, *, held_back: bool) -> Target:
    """Which deliveries can still be found on a topic.

    Args:
      held_back: a transaction stays open there.
    """
    if held_back:
        return Target(NEVER, "has a transaction that stays open")
    if compacted(kept.about):
        return Target(NEVER, "is compacted")
    since_ms = kept.since_ms(now_ms)
    if since_ms and kept.about.config.get("message.timestamp.type") != "LogAppendTime":
        return Target(NEVER, "has lost records to retention, and keeps no broker time")
    return Target(since_ms, "has lost records of that time to retention")


def compacted(about: Described) -> bool:
    """Whether records may be gone from the middle of a topic."""
    return "compact" in about.config.get("cleanup.policy", "delete")


def looked_back(spill: Spill, sent: Deliveries, bounds: Mapping[At, Bounds], since_ms: int) -> dict[At, Bounds]:
    """Go through outcomes once more: from which letter on they are kept, and whose nameless deliveries are."""
    floors = dict.fromkeys(bounds, NEVER if since_ms else 0)
    for rows in spill.files():
        for row in rows:
            if row.kind != Kind.OUTCOME:
                continue
            if row.stamp >= since_ms and row.offset < floors.get(row[:2], 0):
                floors[row[:2]] = row.offset
            sent.name(row)
    sent.end_nameless(whole=not since_ms)
    return {at: each._replace(floor=floors[at]) for at, each in bounds.items()}
