"""Time, the log, the workers, and who has the next step. One thread: what runs at the same time runs in between."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING

from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.changelog_records import OF_ACTIONS
from retry.delay_queue.table.interface import CONTROL
from retry.kafka import topics
from retry.testing.kafka import MemoryLog, MemoryRecord, Transaction
from tests.simulation.actions import is_kept
from tests.simulation.entry_source import FIRED, HISTORY, SCHEDULES, SOURCE
from tests.simulation.keys import KeyFiles
from tests.simulation.ledger import Ledger, header, retry_of
from tests.simulation.operators import Operators
from tests.simulation.plan import (
    APP,
    CHAINED,
    DEAD_LETTERS,
    LINEAGE_PARTITIONS,
    NARROW_BYTES,
    PATIENT,
    SESSION_MS,
    SHARDS,
    SLOW,
    draw_plan,
)
from tests.simulation.refusals import Refusals
from tests.simulation.worker import Crashed, Host, Process

if TYPE_CHECKING:
    from tests.simulation.outside import Outside

BEGIN_MS = 1_800_000_000_000
_MARKERS_MS = 1_000
_DEEP = 3
_OUTSIDE = 0.12
_OPERATORS = 0.1
_KEYS = 0.05
_OFTEN = 8


class WatchedLog(MemoryLog):
    """A log that has every commit held against what is promised."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda: world.now_ms)
        self._world = world
        self.judged_by: dict[str, set[str]] = {}
        self.outward = {*map(retry_of, DEAD_LETTERS), SLOW, "shop.parked", world.own.parked, world.own.discarded}

    def append(
        self, transaction: Transaction, e: Entry, partition: int, stamp_ms: int, *, compressed: bool = False
    ) -> None:
        super().append(transaction, e, partition, stamp_ms, compressed=compressed)
        process = self._world.current
        self.judged_by[transaction.id] = set() if process is None else process.judged_by
        if (
            e.destination in self.outward and process is not None and not transaction.refused
            and not is_kept(transaction.records[-1], self._world.own)
        ):  # fmt: skip
            self._world.ledger.appended(transaction.records[-1], process.clock_ms_max, self._world.now_ms)
        if e.destination == FIRED and process is not None and not transaction.refused:
            record, world = transaction.records[-1], self._world
            about = (header(record, SOURCE) or b"").decode()
            world.happened["fired"] += 1
            key, folded, shard = process.handed[about]
            rows = world.ledger.changelog.get(shard, [])
            world.ledger.schedules.appended(about, (key, folded), rows, process.clock_ms_max, world.now_ms)

    def decide(self, transaction: Transaction, *, committed: bool) -> None:
        super().decide(transaction, committed=committed)
        if committed and transaction.id.startswith(f"{APP}-"):
            self._world.say(f"committed {transaction.id}: {describe_records(transaction.records, self._world.own.changelog)}")
            self._world.ledger.actions.judged_by = self.judged_by.get(transaction.id, set())
            self._world.ledger.committed(transaction)


class World:
    """One run of the simulation.

    Attributes:
      calm: nothing goes wrong any more.
      happened: how often what went wrong; `points` how often which step was passed, `crashed` ended there.
    """

    def __init__(self, seed: int, *, tell: bool = False) -> None:
        self.random = Random(seed)
        self.plan = draw_plan(self.random)
        self.now_ms, self.calm, self._tell = BEGIN_MS, False, tell
        self.trace: list[str] = []
        self.happened: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.crashed: Counter[str] = Counter()
        self.current: Process | None = None
        self._depth = 0
        self._looked_after: dict[str, int] = {}
        self.own = topics.build_topic_names(APP)
        self.ledger = Ledger(self.own)
        self.log = WatchedLog(self)
        self.log.create(self.own.changelog, SHARDS)
        own = self.own
        for topic in (own.outcomes, own.parked, own.discarded, own.audit, own.positions):
            self.log.create(topic)
        self.log.create(self.own.lineage, LINEAGE_PARTITIONS)
        for topic, partitions in DEAD_LETTERS.items():
            self.log.create(topic, partitions)
            self.log.create(retry_of(topic), 2)
        for topic, partitions in CHAINED.items():
            self.log.create(topic, partitions)
        self.log.bytes_max["others.retry"] = NARROW_BYTES
        self.log.create("shop.parked")
        self.log.create(SLOW, 2)
        for topic in (SCHEDULES, FIRED, HISTORY):
            self.log.create(topic, 2)
        self.delay, self.limited = "2s", False
        self.hosts = [Host(self, f"w{n}") for n in range(self.plan.workers)]
        self.outside: Outside
        self.operators = Operators(self, seed)
        self.keys = KeyFiles(self, seed, [host.name for host in self.hosts])
        self.refusals = Refusals(self, seed)
        self.ledger.may_be_refused = self.refusals.may_refuse
        self.ledger.sealed = self.keys.never_plain
        if self.operators.patient:
            # Letters still wait when something is asked of them.
            self.delay = PATIENT

    # The clock of whoever has the step.
    def wall_ms(self) -> int:
        return self.now_ms if self.current is None else self.current.clock_ms()

    def monotonic_s(self) -> float:
        return self.now_ms / 1_000

    def pause(self, seconds: float) -> None:
        """See `retry.clock.Clock`; meanwhile the worker's other threads go on."""
        self.pass_time(max(1, int(seconds * 1_000)))
        if self.current is not None:
            self.current.alongside()

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        """See `retry.clock.Clock`; meanwhile the worker's other threads go on."""
        self.pause(min(seconds, 0.5))

    def say(self, what: str) -> None:
        """Put a line into the trace."""
        if self._tell:
            who = self.current.host.name if self.current else "--"
            self.trace.append(f"{self.now_ms - BEGIN_MS:>8} ms  {'· ' * self._depth}{who}: {what}")

    def fault(self, kind: str, about: str = "") -> None:
        """Count something that goes wrong."""
        self.happened[kind] += 1
        if self._tell:
            self.say(f"FAULT {kind} {about}".rstrip())

    def chance(self, rate: float) -> bool:
        """Whether something happens that goes wrong so often."""
        return not self.calm and rate > 0 and self.random.random() < rate

    def at(self, point: str) -> None:
        """The process that has the step comes to a point where anything may happen to it, or meanwhile.

        Raises:
          Crashed: it is gone.
        """
        process = self.current
        if process is None or not process.alive:
            raise Crashed
        if self.calm:
            return
        self.points[point] += 1
        drawn, plan = self.random.random(), self.plan
        often = _OFTEN if point.startswith(plan.focus) else 1
        if drawn < plan.crash * often:
            self.fault("crash", point)
            self.crashed[point] += 1
            process.host.crash()
            raise Crashed
        drawn -= plan.crash * often
        if drawn < plan.switch:
            if self._depth < _DEEP:
                self.happened["overtaken in a step"] += 1
                self._meanwhile(process, self.random.randint(1, 4), 200)
        elif drawn - plan.switch < plan.freeze * often and self._depth < _DEEP and not process.frozen:
            self.fault("freeze", point)
            process.frozen = True
            self._meanwhile(process, self.random.randint(5, 40), 1_500)
            process.frozen = False
            self.say("goes on")

    def _meanwhile(self, process: Process, steps: int, pace_ms: int) -> None:
        """Others go on while a process is in the midst of a step; its own other threads too, unless it is frozen."""
        with self._by(None):
            for _ in range(steps):
                self.something(pace_ms)
        if not process.alive:
            raise Crashed

    @contextmanager
    def _by(self, process: Process | None) -> Iterator[None]:
        before, self.current = self.current, process
        self._depth += 1
        try:
            yield
        finally:
            self.current = before
            self._depth -= 1

    def step(self, process: Process, step: str) -> None:
        """One step of one process."""
        before, self.current = self.current, process
        self._depth += 1
        process.busy.append(step)
        try:
            process.do(step)
        except Crashed:
            pass
        finally:
            process.busy.remove(step)
            self._depth -= 1
            self.current = before

    def something(self, pace_ms: int = 100) -> None:
        """A step of somebody, or of the world outside."""
        random = self.random
        self.pass_time(int(random.expovariate(1) * pace_ms))
        if self.operators.left and not self.calm and self.operators.random.random() < _OPERATORS:
            self.operators.act()
        if self.keys.on and not self.calm and self.keys.random.random() < _KEYS:
            self.keys.act()
        if random.random() < _OUTSIDE:
            self.outside.act()
            return
        host = random.choice(self.hosts)
        process = host.process
        if process is None:
            if self.now_ms >= host.down_until_ms:
                self.start(host)
        elif process.ready and not process.frozen and (steps := process.steps()):
            self.step(process, random.choice(steps))

    def start(self, host: Host) -> None:
        """Start a worker's process."""
        process = host.process = Process(host)
        with self._by(process):
            self.say("starts")
            with suppress(Crashed):
                process.build()

    def pass_time(self, ms: int) -> None:
        """Let time pass, and brokers do what they do when it has."""
        self.now_ms += ms
        self._end_transactions()
        for host in self.hosts:
            if host.process is not None and not host.process.frozen:
                host.heard_ms = self.now_ms
            elif self.now_ms - host.heard_ms > SESSION_MS:
                self._expire(host.name)
        for group in self.log.groups.values():
            if self._looked_after.get(group.name) != group.changes():
                self._looked_after[group.name] = group.changes()
                if group.orphans():
                    self.happened["nobody's partition"] += 1
                    group.share_out()

    def _end_transactions(self) -> None:
        for name, transaction in list(self.log.under_way.items()):
            age_ms = self.now_ms - transaction.begun_ms
            if transaction.committed is not None:
                if age_ms > _MARKERS_MS or self.calm:
                    self.log.complete_transaction(name)
            elif age_ms > SESSION_MS:
                self.happened["transaction timed out"] += 1
                self.say(f"{name} timed out")
                self.log.time_out(name)

    def _expire(self, name: str) -> None:
        for group in self.log.groups.values():
            if name in group.list_instances():
                self.happened["session ended"] += 1
                self.say(f"{name} is no member of {group.name} any more")
                group.expire(name)


def describe_records(records: list[MemoryRecord], changelog: str) -> str:
    return ", ".join(_one(record, changelog) for record in records)


def _one(record: MemoryRecord, changelog: str) -> str:
    place, key = f"{record.topic()}/{record.partition()}/{record.offset()}", record.key() or b""
    if record.topic() != changelog:
        return place
    if key[:1] in OF_ACTIONS:
        return f"{place} {'-' if record.value() is None else '+'}row {key.hex()}"
    named = key[1:].decode() if key[:1] == CONTROL else _sources(key)
    return f"{place} {'-' if record.value() is None else '+'}{named}"


def _sources(key: bytes) -> str:
    keys = blocks.list_keys(key) if blocks.is_block(key) else [key]
    return " ".join(f"{entry_keys.read_source(each)}".replace(str(BEGIN_MS)[:4], "", 1) for each in keys)
