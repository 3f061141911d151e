"""What a letter was before operators edited or patched it: copies among the discarded, which are shown and never returned."""

from __future__ import annotations

from typing import NamedTuple

from retry import clock
from retry.dead_letters import retry_headers as names
from retry.kafka import offset_ranges, topics
from retry.operations.cluster import Cluster
from retry.operations.explain.search import SEARCH_S, SKEW_MS, LetterLocation, own_headers


class FormerVersion(NamedTuple):
    """A letter as it was.

    Attributes:
      place: where its copy lies.
      action: the action that changed it, in hexadecimal.
    """

    place: LetterLocation
    action: str


def former_versions(cluster: Cluster, wanted: LetterLocation, written_ms: int) -> list[FormerVersion]:
    """List the former versions of one letter, as far as they are found within 10 s.

    Args:
      written_ms: timestamp of the letter.
    """
    topic = cluster.names.discarded
    about = topics.describe(cluster.admin, [topic], optional=True).get(topic)
    if about is None:
        return []
    spans = offset_ranges.since(cluster.admin, topic, range(about.partitions), max(0, written_ms - SKEW_MS))
    batches = offset_ranges.read_batches(cluster.reader, spans, clock.Deadline(SEARCH_S))
    source, found = str(wanted).encode(), list[FormerVersion]()
    for message in (message for batch in batches for message in batch):
        ours = own_headers(message)
        if ours.get(names.SOURCE) == source and ours.get(names.ACTION_BEFORE) == names.SUPERSEDED:
            place = LetterLocation(topic, message.partition() or 0, message.offset() or 0)
            found.append(FormerVersion(place, (ours.get(names.ACTION) or b"").decode("utf-8", "replace")))
    return found
