"""Who writes letters, takes retries and gives orders: everybody but the workers. What they do is done at once and whole."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import orjson

from retry.dead_letters import retry_headers as names
from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause, Reschedule
from retry.delay_queue.ramp_records import read_mark
from retry.intake.attempts import format_retry_id, parse_retry_id, shorten_team_number
from retry.record import Headers
from retry.testing.kafka import MemoryPartitionReader, MemoryRecord, MemoryTransactionalProducer
from tests.simulation.entry_source import SCHEDULES
from tests.simulation.ledger import header, retry_of
from tests.simulation.names import runs_of
from tests.simulation.origins import Origins
from tests.simulation.plan import CANCELLABLE, DEAD_LETTERS, DELAYS, LARGE_BYTES, MAX_ATTEMPTS, SILENT, SLOW, TEAMS

if TYPE_CHECKING:
    from tests.simulation.world import World

# Longer than any transaction may hold up the record of lineages.
_SLOW_MS = 9_000
_PAUSED_MS = 20_000
# Where nothing keeps letters apart.
_PLAIN = ("orders.DLT", "others.DLT")
_LIMIT = 0.15


class Outside:
    """All programs outside the service in one run.

    Attributes:
      returns: retries that consumers are failing on: when their letters will be written, and which.
      read_to: how far consumers have read, by topic and partition.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._follower = MemoryPartitionReader(world.log)
        self.returns: list[tuple[int, str, MemoryRecord, Headers]] = []
        self.read_to: dict[tuple[str, int], int] = {}
        # By itself, so that a seed goes on in the same way whether pauses have an end or not.
        self._ends = Random(f"ends of pauses of {seed}")
        self._bursts = Random(f"letters together of {seed}")
        self._ordered: dict[bytes, bytes] = {}
        self._origins = Origins(world, seed)
        self.unwritten, self.unscheduled = world.plan.letters, world.plan.schedules
        for topic in DEAD_LETTERS:
            for partition in range(2):
                self._follower.follow_partition(retry_of(topic), partition, 0)
        for partition in range(2):
            self._follower.follow_partition(SLOW, partition, 0)

    def act(self) -> None:
        """One of them does something."""
        world = self._world
        if self._bursts.random() < _LIMIT:
            # Nobody asks for anything to be rescheduled.
            world.limited = not world.limited
            world.say(f"rate limits {world.limited}")
        drawn = world.random.random()
        if drawn < 0.25 and self.unscheduled:
            self.schedule()
        elif drawn < 0.5 and self.unwritten:
            self._write_some()
        elif drawn < 0.55 and not world.calm:
            self.pause()
        elif drawn < 0.66 and not world.calm and not world.operators.patient:
            self.change_policies()
        else:
            self.consume()
            self.fail()

    def _write_some(self) -> None:
        """Write letters: one, or some that fail together, which are due together."""
        together = self._bursts.choice((1, 2, 6))
        topic = self._bursts.choice(_PLAIN)
        place = (topic, self._bursts.randrange(DEAD_LETTERS[topic])) if together > 1 else None
        for _ in range(min(together, self.unwritten)):
            self.write(place)

    def write(self, place: tuple[str, int] | None = None) -> None:
        """A new letter, to a topic and partition; some come in transactions, of which some are undone."""
        world = self._world
        self.unwritten -= 1
        topic, partition = place or self._draw_place()
        few = topic in CANCELLABLE
        keys = (b"a", b"b")[: DEAD_LETTERS[topic]] if few else (None, b"%d" % self.unwritten)
        # Several letters of a key that some policy files keep in order.
        key = world.random.choice((None, b"a", b"b") if topic == "others.DLT" else keys)
        large = topic == "others.DLT" and world.random.random() < 0.3
        value = b"letter %d" % self.unwritten
        if large:
            # Of some its topic takes what gzip makes of them.
            value += b"." * LARGE_BYTES if world.random.random() < 0.6 else world.random.randbytes(LARGE_BYTES)
        null = few and world.random.random() < 0.4
        if world.random.random() < 0.2:
            writer = MemoryTransactionalProducer(world.log, "shop")
            writer.open()
            writer.begin()
            writer.write(topic, partition, [{"key": key, "value": b"undone"}])
            writer.abort()
        tried = 0 if null or not world.operators.used_up() else MAX_ATTEMPTS
        headers: Headers = (
            [(names.ID, format_retry_id(self.unwritten, TEAMS[topic])), (names.ATTEMPT, b"%d" % tried)] if tried else []
        )
        if not (tried or null or large or place):
            key, value, headers = self._origins.draw(topic, key, value)
        record = world.log.add_record(topic, key, None if null else value, headers, partition)
        world.ledger.written(record, tried + 1)
        world.happened["null that cancels"] += null
        world.say(f"{'null' if null else 'letter'} {topic}/{partition}/{record.offset()} key {key!r}")

    def _draw_place(self) -> tuple[str, int]:
        topic = self._world.random.choice(list(DEAD_LETTERS))
        return topic, self._world.random.randrange(DEAD_LETTERS[topic])

    def schedule(self) -> None:
        """Ask for something at a later time, or change one's mind: another time, or never."""
        world, random = self._world, self._world.random
        self.unscheduled -= 1
        key = random.choice((b"x", b"y"))
        every_ms = random.choice((0, 0, 700))
        due_ms = world.now_ms + random.choice((-1_000, random.randint(0, 3_000), random.randint(0, 30_000)))
        value = None if random.random() < 0.25 else orjson.dumps({"n": self.unscheduled, "due_ms": due_ms, "every_ms": every_ms})
        # Half of them by a clock that is up to a minute late.
        stamp_ms = world.now_ms - self.unscheduled % 2 * (self.unscheduled * 7_919 % 61_000)
        record = world.log.add_record(SCHEDULES, key, value, partition=key == b"y", stamp_ms=stamp_ms)
        world.ledger.schedules.written(record, runs_of(every_ms) if value else 0)
        world.happened["cancel" if value is None else "schedule that recurs" if every_ms else "schedule"] += 1
        world.say(f"schedule {key!r} {record.partition()}/{record.offset()} {value!r}")

    def consume(self) -> None:
        """Read retries, and fail on some of them."""
        world = self._world
        for record in self._follower.read(100, 0.0):
            if record.error() is None:
                self._origins.consumed(record)
                self.read_to[record.topic(), record.partition()] = record.offset() + 1
            soon = record.error() is None and world.operators.fails_in_ramp(record)
            if soon or (record.error() is None and world.random.random() < world.plan.fails):
                bare = not world.plan.skewed and world.random.random() < 0.6
                at_ms = world.now_ms + (_SLOW_MS if bare else 0) + world.random.randint(0, 300 if soon else 10_000)
                dead_letters = self._origins.choose_dead_letters(record, bare=bare)
                self.returns.append((at_ms, dead_letters, record, [] if bare else list(record.headers() or [])))

    def ends(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Behind the last record of each partition of these topics, where there is one, that consumers may read."""
        partitions = [partition for topic in topics for partition in self._world.log.topics[topic]]
        records = {(p.topic, p.number): p.read(0, p.end)[0] for p in partitions}
        return {place: found[-1].offset() + 1 for place, found in records.items() if found}

    def has_passed(self, ends: dict[tuple[str, int], int]) -> bool:
        """Whether consumers have come so far, as far as anybody knows."""
        return all(self.read_to.get(place, 0) >= end for place, end in ends.items() if place[0] != SILENT)

    def fail(self) -> None:
        """Write the letters of retries that failed again."""
        world = self._world
        for each in [each for each in self.returns if each[0] <= world.now_ms]:
            self.returns.remove(each)
            _, topic, retry, headers = each
            former = world.ledger.letters[world.ledger.who.of_record(retry)]
            if world.log.topics[topic][former.record.partition()].end == former.record.offset():
                # Of a topic that was made anew: coordinates and lineage would be its own, and nobody could tell them apart.
                continue
            record = world.log.add_record(topic, retry.key(), retry.value(), headers, former.record.partition())
            again = world.ledger.written(record, former.number + 1)
            if put := read_mark(header(retry, names.ACTION)):
                again.ramped = *put, parse_retry_id(header(retry, names.ID) or b""), shorten_team_number(TEAMS[topic])
                world.happened["failed again in a ramp"] += 1
            world.happened["came back" if headers else "came back without headers"] += 1
            world.say(f"failed again: {topic}/{record.partition()}/{record.offset()}, number {former.number + 1}")

    def pause(self) -> None:
        """Pause something, or let go what is paused."""
        world = self._world
        scope, name = world.random.choice((("all", ""), ("team", "others"), ("topic", "keyed.DLT"), ("target", "orders.retry")))
        stands = world.random.random() < 0.5
        world.fault("pause" if stands else "resume", f"{scope} {name}")
        until_ms = world.now_ms + self._ends.randint(0, _PAUSED_MS) if stands and self._ends.random() < 0.5 else None
        world.happened["pause that ends"] += until_ms is not None
        pause = Pause(world.now_ms, until_ms=until_ms)
        self.order(control_records.pause_key(scope, name), control_records.encode(pause) if stands else None)

    def resume(self) -> None:
        """End every pause but those that end by themselves."""
        for (scope, name), pause in control_records.read_pauses(self._ordered, self._world.now_ms).items():
            if pause.until_ms is None:
                self.order(control_records.pause_key(scope, name), None)

    def change_policies(self) -> None:
        """Write another policy file, and ask for what waits to be rescheduled."""
        world = self._world
        world.delay = world.random.choice(DELAYS)
        world.fault("reschedule", world.delay)
        self.reschedule(acted=self._ends.random() < 0.5)

    def reschedule(self, *, acted: bool) -> None:
        """Ask for what waits to be rescheduled by the policy file of now."""
        world = self._world
        world.happened["reschedule of what was acted on, too"] += acted
        world.ledger.actions.reschedules |= acted
        request = control_records.encode(Reschedule(world.now_ms, policies=world.delay, acted=acted))
        self.order(control_records.reschedule_key(world.now_ms), request)

    def order(self, key: bytes, value: bytes | None) -> None:
        """A control record into every shard."""
        world = self._world
        self._ordered.pop(key, None)
        if value is not None:
            self._ordered[key] = value
        writer = MemoryTransactionalProducer(world.log, "sim-operator")
        writer.open()
        writer.begin()
        for partition in range(len(world.log.topics[world.own.changelog])):
            writer.write(world.own.changelog, partition, [{"key": key, "value": value}])
        writer.commit()
