"""A deployment, read and judged: tables, the cut, topics, letters, and then letter by letter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from retry import clock
from retry.delay_queue import control_records
from retry.operations.cluster import Cluster
from retry.kafka.topics import matches
from retry.errors import TopicsInvalid
from retry.delivery.admission import Gate
from retry.delay_queue.lane import Lane
from retry.kafka import client_config, consumer_groups, offset_ranges, topics
from retry.kafka.offset_ranges import Span
from retry.kafka.target_probe import Targets
from retry.kafka.topics import DELETE_RETENTION_MS, Described
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.operations.verify import retention, named_entries, ordered_entries
from retry.operations.verify.read_bounds import Cut, Place, cut, demand_decided, undecided
from retry.operations.verify.deliveries import Deliveries
from retry.operations.verify.findings import TABLE, Findings, Verdict
from retry.operations.verify.checks import judged
from retry.operations.verify.retention import Kept
from retry.operations.verify.context import STUCK_MS, Bounds, Known, Target
from retry.operations.verify.letter_history import letters
from retry.operations.verify.records import Reading
from retry.operations.verify.rows import Words
from retry.operations.verify.spill_files import Spill
from retry.operations.verify.disk_tables import Tables

UNCOMMITTED = "read_uncommitted"
_SLACK_MS = 60_000
# A letter, its outcome, its entry, the delete, and the delivery twice.
_ROWS_A_LETTER = 6
# The client holds as much of each partition, and counts only the bytes of records, not its own beside them.
_SPARING = {"queued.min.messages": 2_000, "queued.max.messages.kbytes": 2 << 10, "fetch.message.max.bytes": 128 << 10}

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


class Asked(NamedTuple):
    """What is asked.

    Attributes:
      data_dirs: of workers, whose tables are compared.
      since_ms: only letters that were taken in since.
      skew_ms: by how much the clocks of workers and brokers may differ.
      shown: how many findings of each kind are put in words.
      schedules: topics, and patterns that begin with `^`, of which a scheduler reads: what lies there is no letter.
    """

    data_dirs: list[Path]
    since_ms: int = 0
    skew_ms: int = 0
    shown: int = 5
    schedules: Sequence[str] = ()


def quiet(_label: str, _length: int) -> AbstractContextManager[Callable[[int], object]]:
    """No progress bar."""
    return nullcontext(lambda _n: None)


def verified(settings: Settings, registry: Registry, asked: Asked, bar: Bar = quiet) -> Findings:
    """What is wrong with a deployment.

    Args:
      bar: shows progress: told a label and a number of records, then how many of them are done.

    Raises:
      BrokersUnreachable, TopicsInvalid: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="retry-verify-") as scratch:
        return _Deployment(Cluster(settings), registry, asked, bar, Path(scratch)).verified()


class _Deployment:
    """One run."""

    def __init__(self, cluster: Cluster, registry: Registry, asked: Asked, bar: Bar, scratch: Path) -> None:
        self._admin, self._names = cluster.admin, cluster.names
        self._registry, self._asked, self._bar, self._scratch = registry, asked, bar, scratch
        committed, uncommitted = cluster.reader, client_config.reader_config(cluster.settings, UNCOMMITTED)
        self._readers = {**committed, **_SPARING}, {**uncommitted, **_SPARING}
        self._found, self._words, self._now_ms = Findings(asked.shown), Words(), clock.wall_ms()
        self._describe()
        rough = cut(self._admin, {self._names.outcomes: self._topics[self._names.outcomes].partitions})
        self._spill = Spill(scratch / "letters", _records(rough.spans.values()) * _ROWS_A_LETTER)
        self._reading = Reading(self._words, self._spill, self._found)
        self._sent = Deliveries(self._reading, asked.since_ms)

    def _describe(self) -> None:
        own = {self._names.changelog, self._names.outcomes, self._names.parked}
        self._topics = topics.describe(self._admin, own | self._registry.targets())
        if missing := sorted(own - self._topics.keys()):
            raise TopicsInvalid([f"{topic} is missing" for topic in missing], "retry topics create")

    def verified(self) -> Findings:
        """Read everything, then judge."""
        changelog, outcomes, reading = self._names.changelog, self._names.outcomes, self._reading
        tables = self._tables()
        self._describe()
        positions = consumer_groups.positions(self._admin, self._names.intake_group)
        now = cut(self._admin, {topic: about.partitions for topic, about in self._topics.items()})
        reading.judged = now.judged
        tables.end({span.partition: span.stop for span in now.spans[changelog]}, self._found)
        demand_decided(self._admin, [now.spans[changelog], now.spans[outcomes]])
        if self._asked.since_ms:
            now = self._since(now)
        self._read("outcomes", now.spans[outcomes], reading.outcome)
        self._read("changelog", now.spans[changelog], reading.change)
        self._read("the same, uncommitted", now.spans[outcomes] + now.spans[changelog], reading.count, reader=1)
        targets = self._targets(now)
        bounds = self._letters(positions)
        self._found.undone = reading.undone()
        of_outcomes = self._kept(self._topics[outcomes], now.spans[outcomes], reading.outcome_first_ms)
        since_ms = max(self._asked.since_ms, of_outcomes.since_ms(self._now_ms))
        if since_ms or self._sent.nameless:
            bounds = retention.looked_back(self._spill, self._sent, bounds, since_ms)
        self._judge(self._known(bounds, targets, tables, whole=not since_ms), tables)
        return self._found

    def _tables(self) -> Tables:
        changelog = self._names.changelog
        cluster_id, topic_id = topics.cluster_id(self._admin), self._topics[changelog].topic_id
        tables = Tables(self._asked.data_dirs, changelog, cluster_id, topic_id, self._scratch)
        tables.read(self._reading, self._found)
        return tables

    def _since(self, now: Cut) -> Cut:
        """Read of the outcomes only what is asked for."""
        outcomes = self._names.outcomes
        stops = {span.partition: span.stop for span in now.spans[outcomes]}
        later = offset_ranges.since(self._admin, outcomes, stops, self._asked.since_ms)
        return now._replace(spans={**now.spans, outcomes: [span._replace(stop=stops[span.partition]) for span in later]})

    def _read(self, label: str, wanted: list[Span], take: Callable[[Any], object], reader: int = 0) -> None:
        with self._bar(label, _records([wanted])) as done:
            for batch in offset_ranges.batches(self._readers[reader], wanted):
                for message in batch:
                    take(message)
                done(len(batch))

    def _targets(self, now: Cut) -> dict[int, Target]:
        """Read where letters are delivered to: topics of the policy file, and as evidence those of earlier ones."""
        further = topics.describe(self._admin, self._reading.targets - self._topics.keys())
        before = cut(self._admin, {topic: about.partitions for topic, about in further.items()}, judge=False)
        wanted = {**now.spans, **before.spans}
        del wanted[self._names.changelog], wanted[self._names.outcomes]
        held_back = undecided(self._admin, wanted.values())
        # Up to the transaction that stays open all can be read.
        for topic in held_back:
            reached = offset_ranges.whole(self._admin, topic, [span.partition for span in wanted[topic]])
            wanted[topic] = [span._replace(stop=min(span.stop, reached[span.partition].stop)) for span in wanted[topic]]
        every = [span for of_topic in wanted.values() for span in of_topic]
        self._read("retry and parking topics", every, self._sent.sent)
        self._read("the same, uncommitted", every, self._sent.seen, reader=1)
        found: dict[int, Target] = {}
        for topic, of_topic in wanted.items():
            about = self._topics.get(topic) or further[topic]
            first_ms = {n: at_ms for (read, n), at_ms in self._sent.first_ms.items() if read == topic}
            of_target = self._kept(about, of_topic, first_ms)
            found[self._words.topic(topic)] = retention.target(of_target, self._now_ms, held_back=topic in held_back)
        return found

    def _kept(self, about: Described, read: list[Span], first_ms: dict[int, int]) -> Kept:
        return Kept(about, offset_ranges.starts(self._admin, read[0].topic, [span.partition for span in read]), first_ms)

    def _of_a_door(self, topic: str) -> bool:
        # Compaction may have left nothing in the changelog that tells where an entry with a name came from.
        return self._registry.defines(topic) or matches(topic, self._asked.schedules)

    def _letters(self, positions: dict[Place, int]) -> dict[tuple[int, int], Bounds]:
        """Read letters that were taken in, and those that outcomes tell of."""
        reading, words = self._reading, self._words
        came_in = {topic for topic, _ in [*positions, *reading.letter_stop]} - reading.by_doors
        dead = topics.describe(self._admin, {topic for topic in came_in if not self._of_a_door(topic)})
        bounds: dict[tuple[int, int], Bounds] = {}
        wanted = []
        for topic, about in dead.items():
            every = range(about.partitions)
            reached, ends = offset_ranges.whole(self._admin, topic, every), offset_ranges.ends(self._admin, topic, every)
            for n, span in reached.items():
                position = positions.get((topic, n), 0)
                self._found.untaken += max(0, span.stop - max(position, span.start))
                stop = min(span.stop, max(position, reading.letter_stop.get((topic, n), 0)))
                wanted.append(span._replace(stop=stop))
                bounds[words.topic(topic), n] = Bounds(0, span.start, stop, ends[n], not retention.compacted(about))
        self._read("letters", wanted, lambda message: reading.letter(message, positions))
        # What retention took away meanwhile was not read.
        for topic, about in dead.items():
            for n, start in offset_ranges.starts(self._admin, topic, range(about.partitions)).items():
                at = words.topic(topic), n
                bounds[at] = bounds[at]._replace(first=max(start, bounds[at].first))
        return bounds

    def _known(
        self, bounds: dict[tuple[int, int], Bounds], targets: dict[int, Target], tables: Tables, *, whole: bool
    ) -> Known:
        registry, config = self._registry, self._topics[self._names.changelog].config
        standing = {key: value for (_, key), value in self._reading.controls.items() if value}
        closed = Targets(self._admin).closed
        gate = Gate(registry, self._names.parked, closed, lambda: 1.0)

        @cache
        def held(lane: Lane) -> str | None:
            if why := gate.why_not(lane, standing):
                return why
            if registry.team_limits.get(lane.team) or lane.destination in {*registry.target_limits, *registry.breakers}:
                return f"maybe by a limit of {lane.team}, or a limit or breaker of {lane.destination}"
            return None

        @cache
        def held_named(lane: Lane) -> str | None:
            paused = control_records.paused(standing, *lane)
            if paused or lane.calls:
                return paused or f"maybe by a limit or breaker of {lane.destination}"
            return closed({lane.destination}).get(lane.destination)

        @cache
        def permitted(topic: str) -> set[str]:
            return registry.route(topic).permitted() | {self._names.parked}

        kept_ms = int(config.get("delete.retention.ms", DELETE_RETENTION_MS)) - _SLACK_MS
        late_ms = self._now_ms - STUCK_MS
        return Known(
            self._words, whole, bounds, targets, self._now_ms - kept_ms, late_ms, self._asked.skew_ms, held, held_named,
            permitted, tables.at,
        )  # fmt: skip

    def _judge(self, known: Known, tables: Tables) -> None:
        found, ordered = self._found, Spill(self._scratch / "queues", self._spill.rows)
        with self._bar("judging", self._spill.rows) as done:
            for rows in self._spill.files():
                seen = list(rows)
                for letter in letters(seen):
                    if named_entries.named(known, letter):
                        found.waiting += named_entries.waiting(known, letter) is not None
                        self._tell(named_entries.judged(known, letter), tables)
                        continue
                    found.letters += bool(letter.outcomes)
                    found.waiting += len(letter.live)
                    self._tell(judged(known, letter), tables)
                    for row in ordered_entries.waiting(letter):
                        ordered.add(row)
                done(len(seen))
        for rows in ordered.files():
            self._tell(ordered_entries.stuck(known, rows), tables)

    def _tell(self, verdicts: Iterable[Verdict], tables: Tables) -> None:
        for kind, says in verdicts:
            if kind == TABLE:
                tables.differs(self._found, *says.split(": ", 1))
            else:
                self._found.add(kind, says)


def _records(wanted: Iterable[list[Span]]) -> int:
    return sum(max(0, span.stop - span.start) for of_topic in wanted for span in of_topic)
