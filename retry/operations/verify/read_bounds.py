"""Up to where the topics are read while the service goes on.

1. how far intake has read, and of each topic the end that a read_committed reader sees: records before it are *in scope*
2. later, of each topic the end of everything, undecided records included: up to there it is read

Whatever was committed by step 1 was written completely by then, in every topic that its transaction touched, so it lies before
the ends of step 2. So all that belongs to a record in scope is read; what lies between the two is evidence and is not checked.
A read_committed reader comes to the ends of step 2 as soon as the transactions are decided that were open then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from retry.clock import Deadline, pause
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges
from retry.kafka.interface import AdminClient
from retry.kafka.offset_ranges import Span
from retry.record import PartitionId

_DECIDED_S = 30.0
_ASK_AGAIN_S = 0.2


class ReadBounds(NamedTuple):
    """Up to where topics are read.

    Attributes:
      spans: what is read of each topic.
      scope_ends: by topic and partition, the offset before which records are in scope.
    """

    spans: dict[str, list[Span]]
    scope_ends: dict[PartitionId, int]


def read_bounds(admin: AdminClient, partitions: dict[str, int]) -> ReadBounds:
    """Return where reading begins and ends now; `partitions`: by topic, how many partitions it has."""
    committed = {topic: offset_ranges.readable_spans(admin, topic, range(count)) for topic, count in partitions.items()}
    ends = {topic: offset_ranges.ends(admin, topic, range(count)) for topic, count in partitions.items()}
    return ReadBounds(
        {topic: [span._replace(stop=ends[topic][n]) for n, span in spans.items()] for topic, spans in committed.items()},
        {(topic, n): span.stop for topic, spans in committed.items() for n, span in spans.items()},
    )


def wait_for_transactions(admin: AdminClient, spans: Iterable[list[Span]]) -> set[str]:
    """Wait until all transactions in the spans have ended; return the topics in which one stays open for 30 s."""
    open_topics, deadline = [of_topic for of_topic in spans if of_topic], Deadline(_DECIDED_S)
    while True:
        open_topics = [of_topic for of_topic in open_topics if not _are_decided(admin, of_topic)]
        if not open_topics or deadline.has_passed():
            return {of_topic[0].topic for of_topic in open_topics}
        pause(_ASK_AGAIN_S)


def _are_decided(admin: AdminClient, spans: list[Span]) -> bool:
    committed = offset_ranges.readable_spans(admin, spans[0].topic, [span.partition for span in spans])
    return all(committed[span.partition].stop >= span.stop for span in spans)


def demand_decided(admin: AdminClient, spans: Iterable[list[Span]]) -> None:
    """Wait until all transactions in the spans have ended.

    Raises:
      TopicsInvalid: a transaction stays open for 30 s.
    """
    if topics := sorted(wait_for_transactions(admin, spans)):
        problems = [f"{topic}: a transaction has been open for {_DECIDED_S:.0f} s" for topic in topics]
        raise TopicsInvalid(problems, "end it with kafka-transactions.sh, then try again")
