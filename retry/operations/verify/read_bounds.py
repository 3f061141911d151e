"""Up to where the topics are read while the service goes on.

1. where intake's group stands, and of each topic the end that a read_committed reader sees: records before it are *judged*
2. later, of each topic the end of everything, undecided records included: up to there it is read

Whatever was committed by step 1 was written as a whole by then, in every topic that its transaction touched, so it lies before
the ends of step 2. So all that belongs to a judged record is read; what lies between the two is evidence and is not judged.
A read_committed reader comes to the ends of step 2 as soon as the transactions are decided that were open then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from retry.clock import Deadline, pause
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges
from retry.kafka.offset_ranges import Span

_DECIDED_S = 30.0
_ASK_AGAIN_S = 0.2

Place = tuple[str, int]


class Cut(NamedTuple):
    """Up to where topics are read.

    Attributes:
      spans: what is read of each topic.
      judged: by topic and partition, the offset before which records are judged.
    """

    spans: dict[str, list[Span]]
    judged: dict[Place, int]


def cut(admin: AdminClient, partitions: dict[str, int], *, judge: bool = True) -> Cut:
    """Where reading begins and ends now.

    Args:
      partitions: of each topic, how many it has.
      judge: whether anything is judged; otherwise all of it is evidence.
    """
    first = {topic: offset_ranges.whole(admin, topic, range(count)) for topic, count in partitions.items()}
    ends = {topic: offset_ranges.ends(admin, topic, range(count)) for topic, count in partitions.items()}
    return Cut(
        {topic: [s._replace(stop=ends[topic][n]) for n, s in of_topic.items()] for topic, of_topic in first.items()},
        {(topic, n): s.stop for topic, of_topic in first.items() for n, s in of_topic.items()} if judge else {},
    )


def undecided(admin: AdminClient, wanted: Iterable[list[Span]]) -> set[str]:
    """Wait until what is to be read is decided; topics in which a transaction stays open."""
    left, deadline = [each for each in wanted if each], Deadline(_DECIDED_S)
    while True:
        left = [each for each in left if not _decided(admin, each)]
        if not left or deadline.passed():
            return {each[0].topic for each in left}
        pause(_ASK_AGAIN_S)


def _decided(admin: AdminClient, wanted: list[Span]) -> bool:
    reached = offset_ranges.whole(admin, wanted[0].topic, [span.partition for span in wanted])
    return all(reached[span.partition].stop >= span.stop for span in wanted)


def demand_decided(admin: AdminClient, wanted: Iterable[list[Span]]) -> None:
    """Wait until what is to be read is decided.

    Raises:
      TopicsInvalid: a transaction stays open.
    """
    if left := sorted(undecided(admin, wanted)):
        found = [f"{topic}: a transaction has been open for {_DECIDED_S:.0f} s" for topic in left]
        raise TopicsInvalid(found, "end it with kafka-transactions.sh, then try again")
