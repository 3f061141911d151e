"""One letter as a record: read from its topic, or made again from its entry."""

from __future__ import annotations

from typing import Any

from retry.dead_letters import retry_headers as names
from retry.delay_queue.envelopes import Entry
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges
from retry.operations.cluster import Cluster, LetterRange, with_refused_headers
from retry.operations.explain.search import LetterLocation
from retry.operations.json_lines import NO_TIMESTAMP
from retry.record import CREATE_TIME, Record

_NOTHING = "There is no letter at this offset: a transaction ended there or was aborted, or it was compacted away."


def from_topic(cluster: Cluster, location: LetterLocation) -> tuple[Any | None, str | None]:
    """The letter, or why there is none to be read.

    Raises:
      TopicsInvalid: there is no such topic, partition or offset, or the topic cannot be read.
    """
    (readable,) = cluster.spans(LetterRange(location.topic, location.partition))
    end = offset_ranges.ends(cluster.admin, location.topic, [location.partition])[location.partition]
    if location.offset >= end:
        last = f"the last offset of {location.topic}/{location.partition} is {end - 1}" if end else "the partition is empty"
        raise TopicsInvalid([f"there is no letter {location} yet: {last}"], "look at the offset")
    if location.offset < readable.start:
        partition = f"{location.topic}/{location.partition}"
        return None, f"It is gone from its topic by retention: {partition} begins at offset {readable.start}."
    if location.offset >= readable.stop:
        return None, "No reader sees it yet: it is part of a transaction, or behind one, that is still open."
    span = readable._replace(start=location.offset, stop=location.offset + 1)
    record = next((record for batch in with_refused_headers(cluster.reader, [span]) for record in batch), None)
    return record, _NOTHING if record is None else None


def from_entry(location: LetterLocation, entry: Entry) -> Record:
    """The letter that an entry was made from, as far as it is a copy of it: without the history that it brought along."""
    theirs = [header for header in entry.headers if header[0] not in names.OURS]
    timestamp = NO_TIMESTAMP if entry.timestamp_ms is None else (CREATE_TIME, entry.timestamp_ms)
    return Record(location, entry.key, entry.value, theirs, timestamp)
