"""What retention and compaction have left, and so what can still be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retry.kafka.spans import Span
from retry.kafka.topics import Described
from retry.verify.cut import Place
from retry.verify.deliveries import Deliveries
from retry.verify.known import NEVER, Bounds, Target
from retry.verify.reading import Reading
from retry.verify.rows import Kind
from retry.verify.spill import Spill

_SLACK_MS = 60_000
At = tuple[int, int]


def target(about: Described, read: Sequence[Span], starts: Mapping[Place, int], sent: Deliveries, held_back: bool) -> Target:
    """Which deliveries can still be found on a topic.

    Args:
      held_back: a transaction stays open there.
    """
    if held_back:
        return Target(NEVER, "has a transaction that stays open")
    if compacted(about):
        return Target(NEVER, "is compacted")
    places = [(span.topic, span.partition) for span in read]
    cut_off = [sent.first_ms.get(place, NEVER) for place in places if starts[place] > 0]
    if not cut_off:
        return Target(0, "")
    if about.config.get("message.timestamp.type") != "LogAppendTime":
        return Target(NEVER, "has lost records to retention, and keeps no broker time")
    return Target(max(cut_off) + _SLACK_MS, "has lost records of that time to retention")


def compacted(about: Described) -> bool:
    """Whether records may be gone from the middle of a topic."""
    return "compact" in about.config.get("cleanup.policy", "delete")


def horizon_ms(read: Sequence[Span], starts: Mapping[Place, int], reading: Reading, since_ms: int) -> int:
    """Outcomes of letters that were taken in since are all kept; 0 where none was ever deleted."""
    firsts = [reading.outcome_first_ms.get(span.partition) for span in read if starts[span.topic, span.partition] > 0]
    return max([since_ms, *(first + _SLACK_MS for first in firsts if first is not None)])


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
