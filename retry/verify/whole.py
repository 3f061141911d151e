"""A deployment, read and judged: tables, the cut, topics, letters, and then letter by letter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from retry import clock
from retry.control.cluster import Cluster
from retry.errors import TopicsInvalid
from retry.gate import Gate
from retry.gather import Lane
from retry.kafka import clients, groups, spans, topics
from retry.kafka.spans import Span
from retry.kafka.targets import Targets
from retry.kafka.topics import DELETE_RETENTION_MS, Described
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.verify import queues
from retry.verify.cut import Cut, Place, cut, demand_decided, undecided
from retry.verify.findings import TABLE, Findings
from retry.verify.judge import NEVER, STUCK_MS, Bounds, Known, Target, judged
from retry.verify.letter import letters
from retry.verify.reading import Reading
from retry.verify.rows import Kind, Words
from retry.verify.spill import Spill
from retry.verify.stored import Tables

UNCOMMITTED = "read_uncommitted"
_SLACK_MS = 60_000
# An outcome, an entry, its delete, a delivery seen twice, a letter.
_ROWS_A_LETTER = 6

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


class Asked(NamedTuple):
    """What is asked.

    Attributes:
      data_dirs: of workers, whose tables are compared.
      since_ms: only letters that were taken in since.
      skew_ms: by how much the clocks of workers and brokers may differ.
      shown: how many findings of each kind are put in words.
    """

    data_dirs: list[Path]
    since_ms: int = 0
    skew_ms: int = 0
    shown: int = 5


def quiet(_label: str, _length: int) -> AbstractContextManager[Callable[[int], object]]:
    """No progress bar."""
    return nullcontext(lambda _n: None)


def verified(settings: Settings, registry: Registry, asked: Asked, bar: Bar = quiet) -> Findings:
    """What is wrong with a deployment.

    Raises:
      BrokersUnreachable, TopicsInvalid: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="retry-verify-") as scratch:
        return _Deployment(Cluster(settings), registry, asked, bar, Path(scratch)).verified()


class _Deployment:
    """One run."""

    def __init__(self, cluster: Cluster, registry: Registry, asked: Asked, bar: Bar, scratch: Path) -> None:
        self._cluster, self._admin, self._names = cluster, cluster.admin, cluster.names
        self._registry, self._asked, self._bar, self._scratch = registry, asked, bar, scratch
        self._readers = cluster.reader, clients.reader_config(cluster.settings, UNCOMMITTED)
        self._found, self._words = Findings(asked.shown), Words()
        self._now_ms = clock.wall_ms()
        self._topics = topics.describe(self._admin, {*self._own(), *registry.targets()})
        if missing := [topic for topic in self._own() if topic not in self._topics]:
            raise TopicsInvalid([f"{topic} is missing" for topic in missing], "retry topics create")

    def _own(self) -> tuple[str, str, str]:
        return self._names.changelog, self._names.outcomes, self._names.parked

    def verified(self) -> Findings:
        changelog, outcomes, _ = self._own()
        partitions = {topic: about.partitions for topic, about in self._topics.items()}
        rough = cut(self._admin, {outcomes: partitions[outcomes]})
        spill = Spill(self._scratch / "letters", _records(rough.spans.values()) * _ROWS_A_LETTER)
        reading = Reading(self._words, spill, self._found, {})
        tables = self._tables()
        tables.read(reading, self._found)
        positions = groups.positions(self._admin, self._names.intake_group)
        now = cut(self._admin, partitions)
        reading.judge(now.judged)
        tables.end({span.partition: span.stop for span in now.spans[changelog]}, self._found)
        demand_decided(self._admin, [now.spans[changelog], now.spans[outcomes]])
        if self._asked.since_ms:
            now = self._since(now, outcomes)
        self._read("outcomes", now.spans[outcomes], reading.outcome)
        self._read("changelog", now.spans[changelog], reading.change)
        self._read("the same, uncommitted", now.spans[outcomes] + now.spans[changelog], reading.count, reader=1)
        targets = self._targets(now, reading)
        bounds = self._letters(positions, reading)
        self._found.undone += reading.undone()
        horizon_ms = self._horizon_ms(now, outcomes, reading)
        if horizon_ms or reading.nameless:
            bounds = self._look_back(spill, reading, bounds, horizon_ms)
        known = self._known(reading, bounds, targets, tables, not horizon_ms)
        self._judge(spill, known, tables)
        return self._found

    def _tables(self) -> Tables:
        changelog = self._names.changelog
        cluster_id, topic_id = topics.cluster_id(self._admin), self._topics[changelog].topic_id
        return Tables(self._asked.data_dirs, changelog, cluster_id, topic_id, self._scratch)

    def _since(self, now: Cut, outcomes: str) -> Cut:
        """Read of the outcomes only what is asked for."""
        stops = {span.partition: span.stop for span in now.spans[outcomes]}
        later = spans.since(self._admin, outcomes, stops, self._asked.since_ms)
        return now._replace(spans={**now.spans, outcomes: [span._replace(stop=stops[span.partition]) for span in later]})

    def _read(self, label: str, wanted: list[Span], take: Callable[[Any], object], reader: int = 0) -> None:
        with self._bar(label, _records([wanted])) as done:
            for batch in spans.batches(self._readers[reader], wanted):
                for message in batch:
                    take(message)
                done(len(batch))

    def _targets(self, now: Cut, reading: Reading) -> dict[int, Target]:
        """Read where letters are delivered to: topics of the policy file, and as evidence those of earlier ones."""
        own = {self._names.changelog, self._names.outcomes}
        further = topics.describe(self._admin, reading.targets - self._topics.keys())
        before = cut(self._admin, {topic: about.partitions for topic, about in further.items()}, judge=False)
        wanted = {topic: each for topic, each in {**now.spans, **before.spans}.items() if topic not in own}
        described, starts = {**self._topics, **further}, {**now.starts, **before.starts}
        held_back = undecided(self._admin, wanted.values())
        # Up to the transaction that stays open all can be read.
        for topic in held_back:
            reached = spans.whole(self._admin, topic, [span.partition for span in wanted[topic]])
            wanted[topic] = [span._replace(stop=min(span.stop, reached[span.partition].stop)) for span in wanted[topic]]
        every = [span for each in wanted.values() for span in each]
        self._read("retry and parking topics", every, reading.delivery)
        self._read("the same, uncommitted", every, reading.seen, reader=1)
        return {
            self._words.topic(topic): _target(described[topic], of_topic, starts, reading, topic in held_back)
            for topic, of_topic in wanted.items()
        }

    def _letters(self, positions: dict[Place, int], reading: Reading) -> dict[tuple[int, int], Bounds]:
        """Read letters that were taken in, and those that outcomes tell of."""
        dead = topics.describe(self._admin, {topic for topic, _ in positions} | {topic for topic, _ in reading.letter_stop})
        bounds: dict[tuple[int, int], Bounds] = {}
        wanted = []
        for topic, about in dead.items():
            every = range(about.partitions)
            reached, ends = spans.whole(self._admin, topic, every), spans.ends(self._admin, topic, every)
            whole = "compact" not in about.config.get("cleanup.policy", "delete")
            for n, span in reached.items():
                position = positions.get((topic, n), 0)
                self._found.untaken += max(0, span.stop - max(position, span.start))
                stop = min(span.stop, max(position, reading.letter_stop.get((topic, n), 0)))
                wanted.append(span._replace(stop=stop))
                bounds[self._words.topic(topic), n] = Bounds(0, span.start, stop, ends[n], whole)
        self._read("letters", wanted, lambda message: reading.letter(message, positions))
        # What retention took away meanwhile was not read.
        for topic, about in dead.items():
            for n, start in spans.starts(self._admin, topic, range(about.partitions)).items():
                at = self._words.topic(topic), n
                bounds[at] = bounds[at]._replace(first=max(start, bounds[at].first))
        return bounds

    def _horizon_ms(self, now: Cut, outcomes: str, reading: Reading) -> int:
        """Outcomes of letters that were taken in since are all kept; 0 where none was ever deleted."""
        firsts = [
            reading.outcome_first_ms.get(span.partition, NEVER)
            for span in now.spans[outcomes] if now.starts[outcomes, span.partition] > 0
        ]  # fmt: skip
        if not firsts and not self._asked.since_ms:
            return 0
        return max([self._asked.since_ms, *(first for first in firsts if first != NEVER)]) + _SLACK_MS

    def _look_back(
        self, spill: Spill, reading: Reading, bounds: dict[tuple[int, int], Bounds], horizon_ms: int
    ) -> dict[tuple[int, int], Bounds]:
        """Go through outcomes once more: from which letter on they are kept, and whose nameless deliveries are."""
        floors = dict.fromkeys(bounds, NEVER if horizon_ms else 0)
        for rows in spill.files():
            for row in rows:
                if row.kind != Kind.OUTCOME:
                    continue
                if row.stamp >= horizon_ms and row.offset < floors.get(row[:2], 0):
                    floors[row[:2]] = row.offset
                reading.name(row)
        reading.end_nameless(not horizon_ms)
        return {at: each._replace(floor=floors[at]) for at, each in bounds.items()}

    def _known(
        self, reading: Reading, bounds: dict[tuple[int, int], Bounds], targets: dict[int, Target], tables: Tables, whole: bool
    ) -> Known:
        config = self._topics[self._names.changelog].config
        kept_ms = int(config.get("delete.retention.ms", DELETE_RETENTION_MS))
        standing = {key: value for (_, key), value in reading.controls.items() if value}
        gate = Gate(self._registry, self._names.parked, Targets(self._admin).closed, lambda: 1.0)

        def held(lane: Lane) -> str | None:
            registry = self._registry
            limited = registry.team_limits.get(lane.team) or lane.destination in {*registry.target_limits, *registry.breakers}
            maybe = f"maybe by a limit of {lane.team}, or a limit or breaker of {lane.destination}" if limited else None
            return gate.why_not(lane, standing) or maybe

        def permitted(topic: str) -> set[str]:
            return self._registry.route(topic).permitted() | {self._names.parked}

        return Known(
            self._words, whole, bounds, targets, self._now_ms - kept_ms + _SLACK_MS, self._now_ms - STUCK_MS,
            self._asked.skew_ms, held, permitted, tables.at,
        )  # fmt: skip

    def _judge(self, spill: Spill, known: Known, tables: Tables) -> None:
        found, ordered = self._found, Spill(self._scratch / "queues", len(spill) * 40_000)
        with self._bar("judging", len(spill)) as done:
            for rows in spill.files():
                for letter in letters(rows):
                    found.letters += bool(letter.outcomes)
                    found.waiting += len(letter.live)
                    for kind, says in judged(known, letter):
                        if kind == TABLE:
                            number, _, words = says.partition(": ")
                            tables.differs(found, int(number), words)
                        else:
                            found.add(kind, says)
                    for row in queues.waiting(letter.live.values()):
                        ordered.add(queues.by_order(row))
                done(1)
        for rows in ordered.files():
            for kind, says in queues.stuck(known, rows):
                found.add(kind, says)


def _target(
    about: Described, read: list[Span], starts: dict[Place, int], reading: Reading, held_back: bool
) -> Target:
    """What can still be found on a topic."""
    if held_back:
        return Target(NEVER, "has a transaction that stays open")
    if "compact" in about.config.get("cleanup.policy", "delete"):
        return Target(NEVER, "is compacted")
    places = [(span.topic, span.partition) for span in read]
    cut_off = [reading.sent_first_ms.get(place, NEVER) for place in places if starts[place] > 0]
    if not cut_off:
        return Target(0, "")
    if about.config.get("message.timestamp.type") != "LogAppendTime":
        return Target(NEVER, "has lost records to retention, and has no time of the broker's")
    return Target(max(cut_off) + _SLACK_MS, "has lost records of that time to retention")


def _records(wanted: Iterable[list[Span]]) -> int:
    return sum(max(0, span.stop - span.start) for each in wanted for span in each)
