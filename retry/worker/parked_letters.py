"""Reads parked records for actions, in a thread of its own; whoever asks comes back for the answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

from retry.clock import Deadline, monotonic_s
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import parse_moment
from retry.delay_queue import returned_offsets
from retry.delivery.movers import FoundRecord
from retry.delivery.returned_letter import NOT_OURS, find_letter_source, is_reference, read_service_headers
from retry.errors import RightMissing, TopicsInvalid
from retry.intake.pointer_letters import Fetch
from retry.kafka import offset_ranges
from retry.kafka.client_config import Config
from retry.kafka.interface import AdminClient, KafkaException
from retry.kafka.record_fetch import UNREADABLE
from retry.policies.registry import Registry
from retry.record import RecordLocation
from retry.telemetry import outcomes
from retry.telemetry.outcomes import PARK

# Whether this service parked letters by reference, as the outcomes tell: a header that says so can be written by anybody.
#
# What was parked has in its headers when that was decided. So only the outcomes of some minutes are read, whatever else there
# is; of many letters those of a few spans of time.

# Clocks of the worker that parked it and of whoever keeps the outcomes may differ, and a transaction takes its time.
_AROUND_MS = 120_000
_SPANS_MAX = 20


class ReferenceClaim(NamedTuple):
    """Record of a parking topic as it tells of itself; `source` is the letter's `topic/partition/offset`, `id` its lineage.

    Attributes:
      parked_ms: when that was decided; None where it does not say, and in what an outcome says.
    """

    source: str
    id: str
    topic: str
    parked_ms: int | None


def read_claim(record: Any) -> ReferenceClaim:
    ours = read_service_headers(record)
    source, id_ = ((ours.get(name) or b"").decode("utf-8", "replace") for name in (names.SOURCE, names.ID))
    return ReferenceClaim(source, id_, record.topic(), parse_moment(ours.get(names.DUE_MS)))


class ParkedReferences:
    """Reads the outcomes for claims; `topic` is theirs, and `reader` configures a reader of committed records."""

    def __init__(self, admin: AdminClient, reader: Config, topic: str, partitions: Callable[[], int]) -> None:
        self._admin, self._reader, self._topic, self._partitions = admin, reader, topic, partitions

    def prove_claims(self, claims: Sequence[ReferenceClaim], deadline: Deadline) -> list[bool | None]:
        """Look for outcomes that say the same as claims: for each whether there is one; None where the deadline came first.

        Raises KafkaException, TimeoutError, TopicsInvalid or RightMissing where they cannot be read.
        """
        moments = sorted({claim.parked_ms for claim in claims if claim.parked_ms is not None})
        wanted, found = {claim.source: claim for claim in claims}, set[ReferenceClaim]()
        unread: list[tuple[int, int]] = []
        for first_ms, last_ms in _spans(moments):
            found |= self._find_claims(first_ms, last_ms, wanted, deadline)
            if deadline.has_passed():
                unread.append((first_ms, last_ms))
        return [claim._replace(parked_ms=None) in found or (None if _is_within(claim, unread) else False) for claim in claims]

    def _find_claims(
        self, first_ms: int, last_ms: int, wanted: dict[str, ReferenceClaim], deadline: Deadline
    ) -> set[ReferenceClaim]:
        """Find the claims that outcomes of a span of time make, as far as the deadline allows."""
        if deadline.has_passed():
            return set()
        partitions = range(self._partitions())
        spans = offset_ranges.find_spans_between(
            self._admin, self._topic, partitions, first_ms - _AROUND_MS, last_ms + _AROUND_MS
        )
        topics = {source.partition("/")[0].encode() for source in wanted}
        found = set[ReferenceClaim]()
        for messages in offset_ranges.read_batches(self._reader, spans, deadline):
            for value in (message.value() or b"" for message in messages):
                # Most records are of other letters, and need not be taken apart.
                if any(topic in value for topic in topics):
                    found.update(_read_parked(value))
        return found


def _read_parked(value: bytes) -> Iterator[ReferenceClaim]:
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


log = logging.getLogger(__name__)

_GONE = "gone"
# So many at first, and twice as many each time while all that is read stays small: of large letters few fit into memory, and
# each question takes brokers some milliseconds.
_AT_FIRST, _BYTES_MAX = 50, 8 << 20
# A fetch waits for ten seconds: so this is about a minute, in which most brokers have come back.
_TRIES, _AGAIN_S = 5, 5.0
_PROVE_S = 10.0
Found = dict[bytes, FoundRecord]
# See `ParkedReferences.prove_claims`.
Prove = Callable[[Sequence[ReferenceClaim], Deadline], Sequence[bool | None]]


class ParkedLetters:
    """One question at a time; another one takes its place.

    Args:
      prove: see `ParkedReferences.prove_claims`.
      discarded: the topic of discarded letters, to which nobody else may write.
      again_s: so long brokers are left alone that did not answer.
    """

    def __init__(
        self, fetch: Fetch, topic_ids: Callable[[list[str]], Mapping[str, str]], registry: Callable[[], Registry], prove: Prove,
        discarded: str, *, again_s: float = _AGAIN_S,
    ) -> None:
        self._fetch, self._topic_ids, self._again_s = fetch, topic_ids, again_s
        self._registry, self._prove, self._discarded = registry, prove, discarded
        self._thread = ThreadPoolExecutor(1, "parked-letters")
        self._asked: list[bytes] = []
        self._answer: Future[Found] | None = None
        self._tries, self._not_before_s = 0, 0.0

    def request_records(self, parking: Mapping[str, str], places: Sequence[bytes]) -> Mapping[bytes, FoundRecord] | None:
        """Ask for parked records by their places; None while they are read, see `retry.delivery.movers.AskParked`.

        Brokers that do not answer are asked again some times, before what they did not tell counts as unreadable.
        """
        if self._asked != list(places):
            self._asked, self._answer, self._tries, self._not_before_s = list(places), None, 0, 0.0
        if self._answer is None:
            if monotonic_s() >= self._not_before_s:
                self._tries += 1
                self._answer = self._thread.submit(self.read_records, dict(parking), self._asked)
            return None
        if not self._answer.done():
            return None
        answer, self._answer = self._answer, None
        found = self._read(answer)
        if UNREADABLE in found.values() and self._tries < _TRIES:
            self._not_before_s = monotonic_s() + self._again_s
            return None
        self._asked = []
        return found

    def _read(self, answer: Future[Found]) -> Found:
        try:
            return answer.result()
        except (KafkaException, TimeoutError) as error:
            log.warning("parked letters cannot be read: %s", error)
            return dict.fromkeys(self._asked[:_AT_FIRST], UNREADABLE)

    def read_records(self, parking: Mapping[str, str], places: Sequence[bytes]) -> Found:
        """Read the first of some places now: more of them while what they hold is small."""
        names, found, read_bytes, begin, count = self._map_topics(parking), Found(), 0, 0, _AT_FIRST
        while begin < len(places) and read_bytes <= _BYTES_MAX and UNREADABLE not in found.values():
            part = self._fetch_records(names, places[begin : begin + count])
            read_bytes += sum(_count_record_bytes(each) for each in part.values())
            found |= part
            begin, count = begin + count, 2 * count
        return found

    def _map_topics(self, parking: Mapping[str, str]) -> dict[str, str]:
        """Topics by their hashes, without those that were made anew: other letters have these offsets there."""
        ids = self._topic_ids(sorted(set(parking.values())))
        hashes = {topic: returned_offsets.hash_topic_id(id_).hex() for topic, id_ in ids.items()}
        return {hash_: topic for hash_, topic in parking.items() if hashes.get(topic) == hash_}

    def _fetch_records(self, names: Mapping[str, str], places: Sequence[bytes]) -> Found:
        wanted: dict[bytes, RecordLocation] = {}
        for key in places:
            place = returned_offsets.decode_place(key)
            if topic := names.get(place.topic.hex()):
                wanted[key] = topic, place.partition, place.offset
        records = self._fetch(set(wanted.values())) if wanted else {}
        found: dict[bytes, Any] = {key: records.get(wanted[key]) if key in wanted else None for key in places}
        found = {key: _GONE if record is None or record == "source_gone" else record for key, record in found.items()}
        return self._fetch_whole(found)

    def _fetch_whole(self, found: dict[bytes, Any]) -> Found:
        """Fetch what was parked by reference from where it failed; nothing of what only says that it was."""
        references = {key: record for key, record in found.items() if not isinstance(record, str) and is_reference(record)}
        whole = self._proven(references)
        sources = {key: find_letter_source(references[key], self._registry()) for key, why in whole.items() if why is None}
        letters = self._fetch({where for where in sources.values() if where}) if sources else {}
        whole |= {key: letters.get(where, "source_gone") if where else NOT_OURS for key, where in sources.items()}
        answer: Found = {}
        for key, record in found.items():
            there = whole.get(key, record)
            answer[key] = record if isinstance(record, str) else there if isinstance(there, str) else (record, there)
        return answer

    def _proven(self, references: Mapping[bytes, Any]) -> dict[bytes, Any]:
        """Why references are not followed; None where this service parked the letter so."""
        claims = {key: read_claim(record) for key, record in references.items() if record.topic() != self._discarded}
        if not claims:
            return dict.fromkeys(references)
        try:
            proven = self._prove(list(claims.values()), Deadline(_PROVE_S))
        except (TopicsInvalid, RightMissing) as error:
            log.warning("it is not known which letters were parked by reference: %s", error)
            proven = [None] * len(claims)
        told = {True: None, False: NOT_OURS, None: UNREADABLE}
        return dict.fromkeys(references) | {key: told[is_proven] for key, is_proven in zip(claims, proven, strict=True)}


def _count_record_bytes(found: FoundRecord) -> int:
    if isinstance(found, str):
        return 0
    record, whole = found
    return sum(len(part or b"") for part in (record.key(), record.value(), whole.value()))
