"""Samples of what consumer groups have committed, written to the outcomes topic: they tell which retries a group has passed.

The worker that owns the shard of a group's name samples it. While shards change hands two may, or none, which does no harm. It is
written by a plain producer, and has no part in any transaction.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import msgspec

from retry import clock
from retry.errors import RetryError
from retry.kafka.interface import Partition
from retry.telemetry.offset_records import KEY, Position, to_json

# Up to when consumer groups have passed what lay in topics: from where those ended, and what has been committed since. Pure.
#
# Where a topic ended at a moment is a mark. Once all of its partitions are committed up to there, whatever lay in the topic
# then is passed. What left the changelog just before that moment may not have lain there yet, so the last seconds are left out.

_IN_FLIGHT_MS = 5_000
# Of one group in one topic; where it is further behind, what lies between two marks passes with the later one.
_MARKS_MAX = 16


class _Mark(NamedTuple):
    """The ends of all partitions of a topic, and when they were first and last seen there."""

    ends: Mapping[int, int]
    first_ms: int
    last_ms: int


class PassedMarks:
    """The marks of each group and topic, and up to when they were told as consumed; for one thread."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], list[_Mark]] = {}
        self._began: dict[tuple[str, str], Mapping[int, int]] = {}
        self._told: dict[tuple[str, str], int] = {}

    def observe_committed(
        self, group: str, topic: str, ends: Mapping[int, int], asked_ms: int, committed: Mapping[int, int]
    ) -> int | None:
        """Return up to when, in milliseconds, a group has passed everything in a topic; None where nothing new can be told.

        A time is new where it is later than the last one that was told, and was not told in full.

        Args:
          ends: what has to be committed of each partition to be beyond all that lay there at `asked_ms`.
          committed: since; a partition that is missing counts as read up to where it ended when it was seen first.
        """
        place = group, topic
        began, marks = self._began.setdefault(place, dict(ends)), self._marks.setdefault(place, [])
        if marks and marks[-1].ends == ends:
            marks[-1] = marks[-1]._replace(last_ms=asked_ms)
        else:
            marks.append(_Mark(dict(ends), asked_ms, asked_ms))
        if len(marks) > _MARKS_MAX:
            marks[:] = [*marks[:-1:2], marks[-1]]
        reached = {n: committed.get(n, began.get(n, 0)) for n in ends}
        last = max((n for n, mark in enumerate(marks) if _is_passed(mark, reached)), default=None)
        if last is None:
            return None
        del marks[:last]
        until_ms, told = marks[0].last_ms - _IN_FLIGHT_MS, self._told.get(place, 0)
        return until_ms if told < min(until_ms, marks[0].first_ms) else None

    def note_mark(self, group: str, topic: str, until_ms: int) -> None:
        """Note that a sample told that the group has consumed the topic up to `until_ms`."""
        self._told[group, topic] = until_ms

    def retain_groups(self, groups: Collection[str]) -> None:
        for known in (self._marks, self._began, self._told):
            for place in [place for place in known if place[0] not in groups]:
                del known[place]  # type: ignore[attr-defined]


def _is_passed(mark: _Mark, reached: Mapping[int, int]) -> bool:
    return all(reached.get(n, 0) >= end for n, end in mark.ends.items())


log = logging.getLogger(__name__)

_ASK_S, _WRITE_S = 5.0, 12.0
# Of one round. What is left over comes first in the next one.
_GROUPS_MAX, _SAMPLES_MAX = 1_000, 10_000

Groups = Mapping[str, set[str]]
# By topic and partition, what has to be committed to be beyond all that lies there now; see `retry.kafka.topic_ends.TopicEnds`.
FetchEnds = Callable[[set[str]], Mapping[str, Mapping[int, int]]]
FetchCommitted = Callable[[Iterable[str], float], tuple[dict[str, dict[Partition, int]], dict[str, str]]]
Tell = Callable[[int, int], None]


class SampleWriter(Protocol):
    """The method of `retry.kafka.record_producer.Records` that writes samples."""

    def write(self, topic: str, partition: int, key: bytes, value: bytes | None) -> Future[int]: ...


class LagSamples:
    """Samples `groups`, with the topics that count; belongs to one thread, but for `lag_s`.

    Args:
      committed: see `retry.kafka.consumer_groups.Committed`.
      tell: is told how many samples were written, and how many groups or samples failed.
    """

    def __init__(
        self, groups: Callable[[], Groups], ends: FetchEnds, committed: FetchCommitted, writer: Callable[[], SampleWriter],
        topic: str, partitions: int, tell: Tell,
    ) -> None:  # fmt: skip
        self._groups, self._ends, self._committed, self._writer = groups, ends, committed, writer
        self._topic, self._partitions, self._tell = topic, partitions, tell
        self._known: dict[tuple[str, str, int], int] = {}
        self._sampled_s: dict[str, float] = {}
        self._marks = PassedMarks()

    def sample_groups(self) -> None:
        """Sample every group once; takes no longer than some seconds, whoever does not answer."""
        groups, now_s = self._groups(), clock.monotonic_s()
        # Those that have waited longest come first, if there are too many of them.
        asked = sorted(groups, key=lambda group: self._sampled_s.get(group, now_s))[:_GROUPS_MAX]
        self._sampled_s = {group: self._sampled_s.get(group, now_s) for group in groups}
        self._known = {place: offset for place, offset in self._known.items() if place[0] in groups}
        self._marks.retain_groups(groups)
        # Before what is committed: what comes in between is beyond these, and not said to be passed.
        asked_ms, ends = clock.wall_ms(), self._ends({topic for group in asked for topic in groups[group]})
        found, failed = self._committed(asked, _ASK_S)
        for group, why in failed.items():
            log.warning("cannot learn what group %s has committed: %s", group, why)
        samples = self._samples({group: found[group] for group in asked if group in found}, groups)
        changed = self._select_changed(samples, self._find_consumed(samples, ends, asked_ms))
        written = self._write(changed[:_SAMPLES_MAX])
        left = {(p.group, p.topic, p.partition) for p in changed} - {(p.group, p.topic, p.partition) for p in written}
        self._sampled_s |= dict.fromkeys(found.keys() - {group for group, _, _ in left}, now_s)
        self._tell(len(written), len(failed) + len(changed) - len(written))

    def lag_s(self) -> float:
        """Return the seconds since the group that waits longest was sampled; 0 where there is no group."""
        return max((clock.monotonic_s() - at_s for at_s in list(self._sampled_s.values())), default=0.0)

    def _samples(self, found: Mapping[str, Mapping[Partition, int]], groups: Groups) -> list[Position]:
        at_ms = clock.wall_ms()
        return [
            Position(group, topic, partition, offset, at_ms)
            for group, places in found.items()
            for (topic, partition), offset in sorted(places.items())
            if topic in groups[group]
        ]

    def _find_consumed(
        self, samples: list[Position], ends: Mapping[str, Mapping[int, int]], asked_ms: int
    ) -> dict[tuple[str, str], int]:
        """Find by group and topic up to what time all is consumed, where that is to be written in a sample."""
        committed: dict[tuple[str, str], dict[int, int]] = {}
        for each in samples:
            committed.setdefault((each.group, each.topic), {})[each.partition] = each.offset
        passed = {
            (group, topic): self._marks.observe_committed(group, topic, ends[topic], asked_ms, of)
            for (group, topic), of in committed.items() if topic in ends
        }  # fmt: skip
        return {place: until_ms for place, until_ms in passed.items() if until_ms is not None}

    def _select_changed(self, samples: list[Position], passed: dict[tuple[str, str], int]) -> list[Position]:
        """Samples of what has changed, and one of each topic of which more is passed, with that."""
        def is_old(each: Position) -> bool:
            return self._known.get((each.group, each.topic, each.partition)) == each.offset

        changed = []
        for each in sorted(samples, key=is_old):
            until_ms = passed.pop((each.group, each.topic), None)
            if until_ms is not None or not is_old(each):
                changed.append(each if until_ms is None else msgspec.structs.replace(each, passed_ms=until_ms))
        return changed

    def _write(self, changed: list[Position]) -> list[Position]:
        """Write samples, and return those that were acknowledged in time."""
        done, deadline, troubles = [], clock.Deadline(_WRITE_S), set[str]()
        writing = [
            self._writer().write(self._topic, choose_shard(each.group, self._partitions), KEY, to_json(each)) for each in changed
        ]
        for each, acknowledged in zip(changed, writing, strict=True):
            try:
                acknowledged.result(deadline.remaining_s())
            except (RetryError, TimeoutError) as error:
                troubles.add(str(error) or "not acknowledged in time")
                continue
            self._known[each.group, each.topic, each.partition] = each.offset
            if each.passed_ms is not None:
                self._marks.note_mark(each.group, each.topic, each.passed_ms)
            done.append(each)
        for trouble in troubles:
            log.warning("samples are not written to %s: %s", self._topic, trouble)
        return done


def choose_shard(group: str, partitions: int) -> int:
    """Compute the number of the shard whose worker samples a group, which is also the partition for its samples."""
    return zlib.crc32(group.encode()) % partitions
