"""What would become of records that wait elsewhere, if they were moved: decided as intake would, with nothing written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from retry.clock import wall_ms
from retry.dead_letters import retry_headers as ours
from retry.dead_letters.dead_letter import moment, retries_made
from retry.dead_letters.frameworks import header_values
from retry.operations.cluster import Cluster, with_refused_headers
from retry.operations.migrate.waiting import UnreadRecords
from retry.operations.try_letters import Tried
from retry.policies.registry import Registry
from retry.record import Headers, Record, read_headers

# The headers with which a record that waits elsewhere becomes a letter here. Pure: no clock, no I/O.
#
# | what the other service says | what the letter says |
# | --- | --- |
# | how many retries it has made | `retry-attempt`, so that the count goes on |
# | when the next one is due | `retry-at-ms`, so that the time is kept as far as the policy allows |
# | where the record lay | `retry-migrated-from` |
#
# All else stays as it was, so that the record can be given back in its own format.

# Headers of a record and its place → those of the letter; None where the other service does not write such records.
LetterHeaders = Callable[[Headers, bytes], Headers | None]

_ATTEMPTS, _BACKOFF = "retry_topic-attempts", "retry_topic-backoff-timestamp"
_RETRIES = "x-retry-count"
# `ATTEMPTS_HARD_CAP` of Spring's DeadLetterPublishingRecovererFactory; beyond it Spring begins to count anew.
_SPRING_ATTEMPTS_MAX = 32_767


def of_spring(headers: Headers, place: bytes) -> Headers | None:
    """Convert the headers of a record of a Spring Kafka retry topic; where each hop added a header, the last one counts.

    `retry_topic-attempts` numbers the delivery that comes next, so two less is the number of retries that were made.
    """
    last = dict(headers)
    if _ATTEMPTS not in last and _BACKOFF not in last:
        return None
    next_delivery = header_values.byte_or_int32(last.get(_ATTEMPTS) or b"") or 1
    made = next_delivery - 2 if next_delivery <= _SPRING_ATTEMPTS_MAX else 0
    due_ms = header_values.big_integer(last.get(_BACKOFF) or b"")
    return make_moved_headers(headers, place, made, due_ms)


def of_cronsumer(headers: Headers, place: bytes) -> Headers | None:
    """Convert the headers of a record of kafka-cronsumer's topic; the first of equal names counts, and no number means 0 retries.

    Any record is one of its own: what an application writes there for the first time has no headers.
    """
    raw = next((value for name, value in headers if name == _RETRIES), None)
    return make_moved_headers(headers, place, header_values.digits_int32(raw or b"") or 0)


def make_moved_headers(headers: Headers, place: bytes, made: int = 0, due_ms: int | None = None) -> Headers:
    """Make the headers of a letter that was moved from a place.

    Args:
      made: retries that it had there. One that came from here before keeps its own count where that is higher.
      due_ms: when the next one is due; None where only the policy says so.
    """
    count = max(made, retries_made(dict(headers).get(ours.ATTEMPT, b"0")) or 0)
    due = b"%d" % due_ms if due_ms is not None and moment(b"%d" % due_ms) is not None else None
    counted = b"%d" % count if count > 0 else None
    return ours.set_in(headers, (ours.ATTEMPT, counted), (ours.RETRY_AT_MS, due), (ours.MIGRATED_FROM, place))


# How many records that are left are told of by their places.
_PLACES_MAX = 20


class Plan:
    """Records that wait, counted.

    Attributes:
      others: by topic, those that the other service did not write, or whose headers cannot be read.
      places: where the first of those lie.
      unreadable: how many of them have headers that the client cannot read, and cannot be moved at all.
      other_times: how many would be due at another time than the other service says.
    """

    def __init__(self) -> None:
        self.topics, self.others = Counter[str](), Counter[str]()
        self.places: list[str] = []
        self.unreadable = self.other_times = 0
        self.tried = Tried()

    def count_non_letter(self, place: bytes, topic: str, *, unreadable: bool) -> None:
        self.others[topic] += 1
        self.unreadable += unreadable
        if len(self.places) < _PLACES_MAX:
            self.places.append(place.decode())


class Conversion:
    """Converts another service's records into letters; with `others` also those that it did not write, with their own headers."""

    def __init__(self, convert: LetterHeaders, target: str, *, others: bool) -> None:
        self._convert, self._target, self._others = convert, target, others

    def convert_record(self, message: Any) -> tuple[bytes, Record | None, bool]:
        """Convert a record: return its place, the letter that it becomes or None, and whether its headers cannot be read."""
        place = b"%b/%d/%d" % (message.topic().encode(), message.partition(), message.offset())
        headers = read_headers(message)
        if headers is None:
            return place, None, True
        told = self._convert(headers, place)
        if told is None and self._others:
            told = make_moved_headers(headers, place)
        if told is None:
            return place, None, False
        where = self._target, message.partition(), message.offset()
        return place, Record(where, message.key(), message.value(), told, message.timestamp()), False


def plan_migration(cluster: Cluster, registry: Registry, waiting: Sequence[UnreadRecords], conversion: Conversion) -> Plan:
    """Decide everything that waits; raises `TopicsInvalid` where a topic cannot be read."""
    plan, inspector, now_ms = Plan(), cluster.inspector(registry), wall_ms()
    for batch in _read_waiting_batches(cluster, waiting):
        letters = []
        for message in batch:
            plan.topics[message.topic()] += 1
            place, letter, unreadable = conversion.convert_record(message)
            if letter is None:
                plan.count_non_letter(place, message.topic(), unreadable=unreadable)
            else:
                letters.append(letter)
        for case, built in inspector.decide_letters(letters, now_ms):
            plan.tried.add_now(case, built, now_ms)
            plan.tried.add_written(case, built)
            wish_ms = case.letter.retry_at_ms
            plan.other_times += built.reason is None and wish_ms is not None and case.due_at_ms != wish_ms
    return plan


def _read_waiting_batches(cluster: Cluster, waiting: Sequence[UnreadRecords]) -> Iterator[list[Any]]:
    for each in waiting:
        yield from with_refused_headers(cluster.reader, each.spans)
