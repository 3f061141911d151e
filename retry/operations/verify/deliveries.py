"""Records of retry and parking topics → rows. Those without a header of ours are somebody else's, and passed over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import parse_integer
from retry.operations.explain.search import parse_location
from retry.operations.verify.records import RecordReader, hash_of
from retry.operations.verify.rows import UNKNOWN, DeliveryRow, OutcomeRow, Returned, RowKind
from retry.record import PartitionId, read_headers

_DIGITS_MAX = 10
_TIME_DIGITS_MAX = 18
_WITHOUT_SOURCE_MAX = 100_000
_HEADERS = {names.ID: 0, names.ATTEMPT: 1, names.SOURCE: 2, names.DUE_MS: 3}
# A letter as it was before an operator changed it, which is kept and was never delivered.
_FORMER = names.ACTION_BEFORE, names.SUPERSEDED
_APPEND = 2


class LineageAttempt(NamedTuple):
    """The lineage and attempt of a delivery that is too large to have the header `retry-source`."""

    lineage_hash: int
    attempt: int


class Deliveries:
    """A reader that turns deliveries into rows.

    Args:
      since_ms: earlier deliveries are left out, where the broker says when they were.
      permits_parking: whether letters of a dead-letter topic may rest in a topic, see `retry.policies.registry.Registry`.

    Attributes:
      first_ms: by topic and partition, when the first record was appended; UNKNOWN where the topic does not say.
      topic_ids: the ids of topics that letters may have been returned from.
    """

    def __init__(self, reader: RecordReader, since_ms: int, permits_parking: Callable[[str, str], bool]) -> None:
        self._permits_parking = permits_parking
        self._reader, self._names, self._unchecked = reader, reader.names, reader.findings.unchecked
        self._since_ms, self._without_source = since_ms, 0
        self.first_ms: dict[PartitionId, int] = {}
        self.without_source: dict[LineageAttempt, list[DeliveryRow]] = defaultdict(list)
        self.topic_ids: Mapping[str, str] = {}

    def add_committed(self, message: Any) -> None:
        self._reader.committed[message.topic(), message.partition()] += 1
        self._add_delivery(message, RowKind.DELIVERY)

    def add_uncommitted(self, message: Any) -> None:
        """Take in a record of a retry or parking topic as a read_uncommitted reader sees it."""
        self._reader.add_uncommitted(message)
        self._add_delivery(message, RowKind.UNCOMMITTED)

    def _add_delivery(self, message: Any, kind: int) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        stamp_type, appended_ms = message.timestamp()
        if stamp_type != _APPEND:
            appended_ms = UNKNOWN
        self.first_ms.setdefault((topic, partition), appended_ms)
        headers = read_headers(message)
        if headers is None:
            # The service cannot have written it, but nothing proves whose it is.
            if kind == RowKind.DELIVERY:
                self._unchecked["deliveries whose headers cannot be read"] += 1
            return
        id_, attempt, source, due = _of_service(headers)
        if UNKNOWN < appended_ms < self._since_ms or (source is None and (id_ is None or attempt is None)):
            return
        in_scope, due_ms = self._reader.in_scope(topic, partition, offset), parse_integer(due, _TIME_DIGITS_MAX)
        record = in_scope, self._names.topic(topic), partition, offset, UNKNOWN if due_ms is None else due_ms, appended_ms
        if source is None:
            if kind == RowKind.DELIVERY:
                lineage = LineageAttempt(hash_of(id_ or b""), parse_integer(attempt, _DIGITS_MAX) or 0)
                self._add_without_source(lineage, DeliveryRow(kind, 0, 0, 0, *record))
            return
        try:
            letter = parse_location(source.decode())
        except ValueError:
            self._reader.report_phantom(in_scope, f"{topic}/{partition}/{offset}: no letter can be {source[:100]!r}")
            return
        if not self._permits_parking(letter.topic, topic):
            # Whoever may write to the parking topic of one team says nothing of the letters of another.
            if kind == RowKind.DELIVERY:
                self._unchecked["records that others wrote to a parking topic in the name of another team"] += 1
            return
        topic_id = self.topic_ids.get(topic)
        returned = Returned.NO if topic_id is None else self._reader.returned.find_return_state(topic_id, partition, offset)
        numbers = self._names.topic(letter.topic), letter.partition, letter.offset
        self._reader.spill.add_row(DeliveryRow(kind, *numbers, *record, returned))

    def _add_without_source(self, lineage: LineageAttempt, row: DeliveryRow) -> None:
        if self._without_source < _WITHOUT_SOURCE_MAX:
            self.without_source[lineage].append(row)
            self._without_source += 1
        else:
            self._unchecked["deliveries without retry-source: too many"] += 1

    def match(self, outcome: OutcomeRow) -> None:
        """Give a delivery without `retry-source` to the letter of an outcome that has the same lineage and attempt."""
        if rows := self.without_source.get(LineageAttempt(outcome.lineage_hash, outcome.attempt)):
            row = rows.pop()._replace(topic=outcome.topic, partition=outcome.partition, offset=outcome.offset)
            self._reader.spill.add_row(row)

    def end_matching(self, *, all_outcomes: bool) -> None:
        """Report deliveries without `retry-source` that match no outcome; `all_outcomes`: no outcome was ever deleted."""
        count = sum(map(len, self.without_source.values()))
        if count and not all_outcomes:
            self._unchecked["origin of deliveries without retry-source: outcomes of that time are not kept"] += count
            return
        for rows in self.without_source.values():
            for row in rows:
                sentence = f"{self._names.record(row)}: no outcome has its retry-id and retry-attempt"
                self._reader.report_phantom(row.in_scope, sentence)


def _of_service(headers: Iterable[tuple[str, bytes | None]]) -> list[bytes | None]:
    """Read the values of our headers; none of a letter's former version."""
    ours: list[bytes | None] = [None] * len(_HEADERS)
    for header in headers:
        if header[0] in _HEADERS:
            ours[_HEADERS[header[0]]] = header[1]
        elif header == _FORMER:
            return [None] * len(_HEADERS)
    return ours
