"""Asks whether consumers have passed the letters of a step, in a thread of its own; whoever asks comes back for the answer.

A group has passed what lies in a topic now once it has committed beyond its end, or once nothing that it could read lies between:
what it commits stops in front of the marks that end transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from retry import clock
from retry.delivery.movers import ConsumerProgress
from retry.errors import RetryError, RightMissing
from retry.kafka import consumer_groups, offset_ranges
from retry.kafka.client_config import Config
from retry.kafka.interface import AdminClient, KafkaException, Partition
from retry.kafka.offset_ranges import Span

log = logging.getLogger(__name__)

_ASK_S, _EVERY_S = 15.0, 1.0
_KEPT_MAX = 100

# Where some topics end now, by partition; what a group has committed; whether something can be read in some spans.
Ends = Callable[[Iterable[str]], Mapping[Partition, int]]
Committed = Callable[[str], Mapping[Partition, int]]
Readable = Callable[[list[Span]], bool]
Groups = Callable[[], Mapping[str, set[str]]]


class PassedLetters:
    """One question at a time; `groups` says which consumer groups read which topics, by the policy file."""

    def __init__(self, groups: Groups, ends: Ends, committed: Committed, readable: Readable) -> None:
        self._groups, self._ends, self._committed, self._readable = groups, ends, committed, readable
        self._thread = ThreadPoolExecutor(1, "passed-letters")
        self._ended: dict[bytes, Mapping[Partition, int]] = {}
        self._known: dict[bytes, ConsumerProgress] = {}
        self._answer: Future[None] | None = None
        self._again_s = 0.0

    def request_progress(self, name: bytes, targets: Sequence[str]) -> ConsumerProgress | None:
        """Return how far consumer groups have read some topics, and ask again in another thread; None while nobody knows.

        See `retry.delivery.movers.AskPassed`. A group has to pass what lay in the topics when `name` was asked for the first
        time.
        """
        known = self._known.get(name)
        if known is None or not known.reached:
            self._start_check(name, targets)
        return known

    def _start_check(self, name: bytes, targets: Sequence[str]) -> None:
        if (self._answer is None or self._answer.done()) and clock.monotonic_s() >= self._again_s:
            self._again_s = clock.monotonic_s() + _EVERY_S
            self._answer = self._thread.submit(self._refresh_progress, name, list(targets))

    def _refresh_progress(self, name: bytes, targets: list[str]) -> None:
        try:
            self._known[name] = self.measure_progress(name, targets)
        except (KafkaException, TimeoutError, RetryError) as error:
            log.warning("what consumers have passed is not known: %s", error)
        for kept in (self._known, self._ended):
            while len(kept) > _KEPT_MAX:
                del kept[next(iter(kept))]  # type: ignore[attr-defined]

    def measure_progress(self, name: bytes, targets: list[str]) -> ConsumerProgress:
        """Ask now whether groups have consumed what lay in `targets` when `name` was first asked for; raises KafkaException."""
        groups = {group: read & set(targets) for group, read in self._groups().items() if read & set(targets)}
        named = set().union(*groups.values())
        if name not in self._ended:
            self._ended[name] = self._ends(named) if named else {}
        ends, reached, silent = self._ended[name], True, set(targets) - named
        for group, read in groups.items():
            try:
                reached = reached and self._has_passed(group, {place: end for place, end in ends.items() if place[0] in read})
            except RightMissing as missing:
                log.warning("what %s has passed is not known, and silence is waited for: %s", group, missing)
                silent |= read
        return ConsumerProgress(reached, sorted(silent))

    def _has_passed(self, group: str, ends: Mapping[Partition, int]) -> bool:
        committed = self._committed(group)
        behind = [Span(*place, committed.get(place, 0), end) for place, end in ends.items() if committed.get(place, 0) < end]
        return not behind or not self._readable(behind)


def build_passed_letters(groups: Groups, admin: AdminClient, reader: Config) -> PassedLetters:
    """Build a `PassedLetters` that asks the cluster; `reader` is from `retry.kafka.client_config.build_reader_config`."""

    def ends(topics: Iterable[str]) -> Mapping[Partition, int]:
        found: dict[Partition, int] = {}
        wanted = set(topics)
        places = offset_ranges.partitions_of(admin, wanted.__contains__, _ASK_S)
        for topic in wanted:
            numbers = [partition for name, partition in places if name == topic]
            found |= {(topic, n): end for n, end in offset_ranges.ends(admin, topic, numbers).items()}
        return found

    def has_records(spans: list[Span]) -> bool:
        return next(offset_ranges.read_batches(reader, spans), None) is not None

    return PassedLetters(groups, ends, lambda group: consumer_groups.read_positions(admin, group), has_records)
