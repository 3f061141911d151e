"""What would become of records that wait elsewhere, if they were moved: decided as intake would, with nothing written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from retry.clock import wall_ms
from retry.operations.cluster import Cluster, with_refused_headers
from retry.operations.migrate.letter_headers import LetterHeaders, make_moved_headers
from retry.operations.migrate.waiting import Waiting
from retry.operations.try_letters import Tried
from retry.policies.registry import Registry
from retry.record import Record, read_headers

# How many records that are left are told of by their places.
_PLACES_MAX = 20


class Plan:
    """Records that wait, counted.

    Attributes:
      topics: by topic, how many there are.
      others: of these, by topic, those that the other service did not write, or whose headers cannot be read.
      places: where the first of those lie.
      unreadable: how many of them have headers that the client cannot read, and cannot be moved at all.
      other_times: how many would be due at another time than the other service says.
      tried: what becomes of those that are moved.
    """

    def __init__(self) -> None:
        self.topics, self.others = Counter[str](), Counter[str]()
        self.places: list[str] = []
        self.unreadable = self.other_times = 0
        self.tried = Tried()

    def count_non_letter(self, place: bytes, topic: str, *, unreadable: bool) -> None:
        """Count a record that becomes no letter; the places of the first ones are kept."""
        self.others[topic] += 1
        self.unreadable += unreadable
        if len(self.places) < _PLACES_MAX:
            self.places.append(place.decode())


class Conversion:
    """The conversion of another service's records into letters.

    Args:
      others: whether records that the other service did not write become letters, too, with the headers that they have.
    """

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


def plan_migration(cluster: Cluster, registry: Registry, waiting: Sequence[Waiting], conversion: Conversion) -> Plan:
    """Decide everything that waits.

    Raises:
      TopicsInvalid: a topic cannot be read.
    """
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


def _read_waiting_batches(cluster: Cluster, waiting: Sequence[Waiting]) -> Iterator[list[Any]]:
    for each in waiting:
        yield from with_refused_headers(cluster.reader, each.spans)
