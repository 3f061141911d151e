"""Whether this service parked letters by reference, as the outcomes tell: a header that says so can be written by anybody.

What was parked has in its headers when that was decided. So only the outcomes of some minutes are read, whatever else there is;
of many letters those of a few spans of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from retry.clock import Deadline
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import moment
from retry.delivery.resting_record import service_headers
from retry.kafka import offset_ranges
from retry.kafka.client_config import Config
from retry.kafka.interface import AdminClient
from retry.telemetry import outcomes
from retry.telemetry.outcomes import PARK

# Clocks of the worker that parked it and of whoever keeps the outcomes may differ, and a transaction takes its time.
_AROUND_MS = 120_000
_SPANS_MAX = 20


class ReferenceClaim(NamedTuple):
    """Record of a parking topic as it tells of itself.

    Attributes:
      source: `topic/partition/offset` of the letter, and `id` its lineage.
      topic: where it rests.
      parked_ms: when that was decided; None where it does not say, and in what an outcome says.
    """

    source: str
    id: str
    topic: str
    parked_ms: int | None


def read_claim(record: Any) -> ReferenceClaim:
    """Read the claim out of a record's headers."""
    ours = service_headers(record)
    source, id_ = ((ours.get(name) or b"").decode("utf-8", "replace") for name in (names.SOURCE, names.ID))
    return ReferenceClaim(source, id_, record.topic(), moment(ours.get(names.DUE_MS)))


class ParkedReferences:
    """Reads the outcomes for claims.

    Args:
      reader: configuration of a reader of committed records.
      topic: of outcomes, and `partitions` says how many it has.
    """

    def __init__(self, admin: AdminClient, reader: Config, topic: str, partitions: Callable[[], int]) -> None:
        self._admin, self._reader, self._topic, self._partitions = admin, reader, topic, partitions

    def prove_claims(self, claims: Sequence[ReferenceClaim], deadline: Deadline) -> list[bool | None]:
        """Look for outcomes that say the same as claims: for each whether there is one; None where the deadline came first.

        Raises:
          KafkaException, TimeoutError, TopicsInvalid, RightMissing: the outcomes cannot be read.
        """
        moments = sorted({claim.parked_ms for claim in claims if claim.parked_ms is not None})
        wanted, found = {claim.source: claim for claim in claims}, set[ReferenceClaim]()
        unread: list[tuple[int, int]] = []
        for first_ms, last_ms in _spans(moments):
            found |= self._find_claims(first_ms, last_ms, wanted, deadline)
            if deadline.has_passed():
                unread.append((first_ms, last_ms))
        return [
            claim._replace(parked_ms=None) in found or (None if _is_within(claim, unread) else False) for claim in claims
        ]

    def _find_claims(
        self, first_ms: int, last_ms: int, wanted: dict[str, ReferenceClaim], deadline: Deadline
    ) -> set[ReferenceClaim]:
        """Find the claims that outcomes of a span of time make, as far as these are read before the deadline."""
        if deadline.has_passed():
            return set()
        partitions = range(self._partitions())
        spans = offset_ranges.spans_between(self._admin, self._topic, partitions, first_ms - _AROUND_MS, last_ms + _AROUND_MS)
        topics = {source.partition("/")[0].encode() for source in wanted}
        found = set[ReferenceClaim]()
        for messages in offset_ranges.read_batches(self._reader, spans, deadline):
            for value in (message.value() or b"" for message in messages):
                # Most records are of other letters, and need not be taken apart.
                if any(topic in value for topic in topics):
                    found.update(_read_parked(value))
        return found


def _read_parked(value: bytes) -> Iterator[ReferenceClaim]:
    """Read which letters a record of outcomes says were parked, as claims."""
    try:
        letters = outcomes.read(value)
    except ValueError:
        return
    for letter in letters:
        if letter["decision"] == PARK:
            yield ReferenceClaim(letter["source"], letter["id"], letter["target"], None)


def _spans(moments: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Spans of time that have all of some moments in order, divided where nothing is for longest."""
    gaps = sorted(((later - earlier, n) for n, (earlier, later) in enumerate(pairwise(moments), 1)), reverse=True)
    cuts = sorted(n for gap, n in gaps[: _SPANS_MAX - 1] if gap > 2 * _AROUND_MS)
    for begin, end in pairwise([0, *cuts, len(moments)]):
        if begin < end:
            yield moments[begin], moments[end - 1]


def _is_within(claim: ReferenceClaim, spans: Sequence[tuple[int, int]]) -> bool:
    return claim.parked_ms is not None and any(first <= claim.parked_ms <= last for first, last in spans)
