"""One worker: the real classes, put together as `retry.worker.composition` does, and the steps that its threads take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retry.delay_queue import returned_offsets
from retry.delivery.admission import Admission
from retry.delivery.movers import ConsumerProgress
from retry.delivery.redecide import Redecider
from retry.intake import entry_source
from retry.intake.attempts import LineageTopic, RampedLineages, RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.attempts.lineage_follower import LineageFollower
from retry.intake.build_entry import EntryBuilder
from retry.intake.consumer import LetterConsumer
from retry.intake.entry_source import RecordVersions
from retry.intake.intake import HomeShard, Intake
from retry.intake.read_positions import ReadPositions
from retry.kafka.broker_clock import TrustedClock
from retry.kafka.record_limits import RecordLimits
from retry.policies.registry import Registry
from retry.testing.memory_table import MemoryTable, MemoryTables
from retry.worker.engine import Engine
from retry.worker.shards.assignment import Shards
from retry.worker.shards.joint_sweep import AT_ONCE
from retry.worker.shards.restore import ShardContext
from tests.simulation.entry_source import SimulatedSource
from tests.simulation.plan import AGE_MS_MAX, LINEAGES, SHARDS, SILENT, policies

if TYPE_CHECKING:
    from tests.simulation.world import World

# What a thread of the worker does in one go, and which others cannot do theirs meanwhile: one thread each, and locks.
_KEEPS_OUT = {
    "letters": {"letters"},
    "settle": {"settle"},
    "write": {"write"},
    "commit": {"commit"},
    "changelog": {"changelog", "fold"},
    "fold": {"fold", "changelog"},
    "sweep": {"changelog"},
    "policies": {"policies"},
    "stop": {"letters", "settle", "write", "commit", "changelog", "fold", "sweep", "policies", "stop"},
}
_BYTES_MAX = 1 << 20
# As `retry.worker.faust_app` has it: batches of letters that are prepared, and those that are written or committed.
_PREPARED_MAX, _UNDER_WAY_MAX = 2, 2
# The watchdog is a thread by itself, and not one of those that are stepped.
_NEVER_S = 1e9


class Crashed(BaseException):
    """The process that has the step is gone."""


class Host:
    """The machine of a worker: what is left of it when its process is gone.

    Attributes:
      skew_ms: of its clock.
      copies: of tables, made some time ago.
      heard_ms: when brokers last heard of its process.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.skew_ms = world, name, 0
        self.tables = MemoryTables(AGE_MS_MAX)
        self.copies: list[tuple[int, MemoryTable]] = []
        self.process: Process | None = None
        self.down_until_ms = self.heard_ms = 0

    def crash(self, down_ms: int | None = None) -> None:
        """End its process, as kill -9 does."""
        if self.process is not None:
            self.process.alive, self.process = False, None
        random = self.world.random
        self.down_until_ms = self.world.now_ms + (random.choice((0, 500, 10_000)) if down_ms is None else down_ms)


class Process:
    """A worker that runs.

    Attributes:
      busy: the steps that are under way, one in the midst of another.
      clock_ms_max: the latest time that it has read.
      judged_by: policy files that it goes by in the sweeps that are under way.
      handed: what its tables handed out of each schedule last, how far they were folded then, and of which shard.
    """

    def __init__(self, host: Host) -> None:
        self.host, self.world = host, host.world
        self.alive, self.ready, self.frozen = True, False, False
        self._reads_lineages = False
        self.busy: list[str] = []
        self.clock_ms_max = 0
        self.judged_by: set[str] = set()
        self.handed: dict[str, tuple[bytes, int, int]] = {}
        self._ends: dict[bytes, dict[tuple[str, int], int]] = {}
        self._batches: list[Any] = []
        self._prepared: list[Any] = []
        self._written: list[Any] = []
        self._portions: list[Any] = []

    def build(self) -> None:
        """Build the worker; see `retry.worker.composition.build`."""
        from tests.simulation.stepped import SteppedLog, SteppedTables

        world, own = self.world, self.world.own
        log, partitions = SteppedLog(world, self.host.name), {t: len(p) for t, p in world.log.topics.items()}
        self.policies = _Policies(world)
        registry = self.policies.registry
        codec = world.keys.codec(self.host.name)
        versions = RecordVersions()
        through = [SimulatedSource(codec, versions)]
        recorded, ramped, positions = RecentLineages(LINEAGES), RampedLineages(LINEAGES), ReadPositions(log, own.positions)
        recent = LineageFollower(log, own.lineage, partitions[own.lineage], recorded, positions, ramped)

        def entry_builder() -> EntryBuilder:
            return EntryBuilder(own.changelog, own.parked, {own.changelog: _BYTES_MAX}, codec)

        def intake(registry: Registry) -> Intake:
            attempt_counter = AttemptCounter(recent.lineages, "cluster", registry.retry_targets_by_team())
            return Intake(registry, attempt_counter, entry_builder(), None, own, partitions, through, recent.ramped, home)

        home = HomeShard(SHARDS, lambda: self.shards.list_ready())
        letters = LetterConsumer(
            log, f"intake-{self.host.name}", own.intake_group, entry_source.list_subscription(registry, through),
            intake(registry),
            positions=positions, versions=versions, records_max=world.plan.batch, bytes_max=_BYTES_MAX,
        )  # fmt: skip
        # Drawn in the order of names: that of a set is another in each process, and a seed would not go the same way again.
        record_limits = RecordLimits(
            lambda topics: world.log.limits(t for t in sorted(topics) if world.random.random() < 0.5)
        )
        parking = {own.parked, own.discarded}
        admission = Admission(registry, parking, self._closed, lambda: 1.0, through, record_limits=record_limits)
        tables = SteppedTables(world, self.host)
        lineages = LineageTopic(own.lineage, partitions[own.lineage])
        redecider = Redecider(registry, entry_builder(), lineages, SHARDS)
        shard_context = ShardContext(
            log, tables, admission, redecider, world.plan.batch, _BYTES_MAX, AGE_MS_MAX, discarded=own.discarded, audit=own.audit,
            outcomes=own.outcomes, ask_parked=self._parked, ask_passed=self._passed, shards=SHARDS,
        )  # fmt: skip
        self.shards = shards = Shards(own.table_group, own.changelog, shard_context, map, f"sweep-{self.host.name}")

        def use(registry: Registry) -> None:
            letters.use(intake(registry), entry_source.list_subscription(registry, through))
            admission.use(registry, through)
            shards.shard_context = shards.shard_context._replace(redecider=Redecider(registry, entry_builder(), lineages, SHARDS))
            self.judged_by.add(registry.digest)

        self.skew = TrustedClock(lambda: world.now_ms)
        self.engine = Engine(
            letters, shards, recent, self.policies, use, _Unmeasured(), self.skew, (), dict.fromkeys, _NEVER_S,  # type: ignore[arg-type]
        )  # fmt: skip
        self.ready = True

    def _closed(self, destinations: set[str]) -> dict[str, str]:
        log, random = self.world.log, self.world.random
        return {d: "it is not there" for d in sorted(destinations & (log.closed | log.leaderless)) if random.random() < 0.5}

    def _parked(self, parking: Mapping[str, str], places: Sequence[bytes]) -> Mapping[bytes, Any] | None:
        """See `retry.worker.parked_letters`; the answer may take a while."""
        log, found = self.world.log, {}
        if self.world.chance(self.world.plan.hiccup):
            return None
        for key in places:
            place = returned_offsets.decode_place(key)
            partition = log.topics[parking[place.topic.hex()]][place.partition]
            records = [r for r in partition.read(place.offset, 1)[0] if r.offset() == place.offset]
            found[key] = (records[0], records[0]) if records else "gone"
        return found

    def _passed(self, name: bytes, targets: Sequence[str]) -> ConsumerProgress | None:
        """See `retry.worker.passed_letters`; of one topic nobody says what is read there."""
        if self.world.chance(self.world.plan.hiccup):
            return None
        ends = self._ends.setdefault(name, self.world.outside.ends(targets))
        return ConsumerProgress(self.world.outside.has_passed(ends), [target for target in targets if target == SILENT])

    def clock_ms(self) -> int:
        """Return the time of its wall clock."""
        now_ms = self.world.now_ms + self.host.skew_ms
        if now_ms > self.clock_ms_max:
            self.clock_ms_max = now_ms
        return now_ms

    def steps(self) -> list[str]:
        """List the steps that would do something, or may."""
        found = ["changelog"] if not self._portions else ["fold"]
        if not self._batches:
            found.append("letters")
        elif len(self._prepared) < _PREPARED_MAX:
            found.append("settle")
        if self._prepared and self._room():
            found.append("write")
        if self._written:
            found.append("commit")
        if self.engine.list_open_shards():
            found.append("sweep")
        if self.policies.changed() or self.skew.now_ms() is None:
            found.append("policies")
        return [step for step in found if self.free(step)] if self.busy else found

    def free(self, step: str) -> bool:
        """Whether the thread of a step has nothing else to do."""
        if step == "sweep" and self.busy.count("sweep") >= AT_ONCE:
            return False
        return not any(step in _KEEPS_OUT[busy] for busy in self.busy)

    def alongside(self) -> None:
        """While one of its threads waits for the others: what these have to do."""
        if self.ready and not self.frozen:
            for step in ("settle", "write", "commit", "policies"):
                if self.free(step):
                    self.world.step(self, step)
        self.engine_lineages()

    def engine_lineages(self) -> None:
        """Follow the record of lineages in a thread of its own; there is one, so nothing that happens meanwhile reads on."""
        if self.ready and not self._reads_lineages:
            self._reads_lineages = True
            try:
                self.engine.read_lineages()
            finally:
                self._reads_lineages = False

    def do(self, step: str) -> None:
        """One step of one thread."""
        _DO[step](self)

    def letters(self) -> None:
        self.engine_lineages()
        if not self._batches and (batch := self.engine.read_letters()):
            self._batches.append(batch)

    def prepare(self) -> None:
        if self._batches and len(self._prepared) < _PREPARED_MAX:
            prepared = self.engine.prepare(self._batches.pop(0))
            # What is gathered is written when its time has come, which is at any time.
            if prepared and self._prepared and self.engine.gathering.may_join(self._prepared[-1].batch, prepared.batch):
                self._prepared[-1] = self._prepared[-1].join_later(prepared)
                self.world.happened["gathered"] += 1
            elif prepared:
                self._prepared.append(prepared)

    def _room(self) -> bool:
        """Whether one more batch may be written: of those under way some wait, and others are in the midst of a step."""
        return len(self._written) + self.busy.count("write") + self.busy.count("commit") < _UNDER_WAY_MAX

    def write(self) -> None:
        # This step is among those that are under way.
        if self._prepared and len(self._written) + self.busy.count("commit") < _UNDER_WAY_MAX:
            beside = bool(self._written) or "commit" in self.busy
            written = self.engine.write_letters(self._prepared.pop(0))
            self._written.append(written)
            self.world.happened["written before a commit"] += beside and written is not None

    def commit(self) -> None:
        if self._written:
            self.engine.commit(self._written.pop(0))

    def changelog(self) -> None:
        # As the watchdog hears it, which is a thread by itself.
        ends = {(self.world.own.changelog, p.number): p.stable for p in self.world.log.topics[self.world.own.changelog]}
        self.shards.note_ends(ends, self.clock_ms())
        if not self._portions and (portions := self.engine.read_changelog()):
            self._portions.append(portions)

    def fold(self) -> None:
        if self._portions:
            self.engine.apply_portions(self._portions.pop(0))

    def sweep(self) -> None:
        if self.busy.count("sweep") == 1:
            self.judged_by = {self.shards.shard_context.redecider.digest}
        self.engine.sweep()

    def look(self) -> None:
        self.engine.run_checks()

    def stop(self) -> None:
        """Stop as a worker stops after SIGTERM."""
        self.engine.close_lineages()
        self.engine.close_letters()
        self.engine.close_shards()
        self.host.crash()


_DO: dict[str, Callable[[Process], None]] = {
    "letters": Process.letters, "settle": Process.prepare, "write": Process.write, "commit": Process.commit,
    "changelog": Process.changelog, "fold": Process.fold, "sweep": Process.sweep, "policies": Process.look, "stop": Process.stop,
}  # fmt: skip


class _Policies:
    """A policy file that needs no disk; see `retry.process.policy_reload.PolicyFile`."""

    trouble, refusals, used_at_ms = None, 0, 0

    def __init__(self, world: World) -> None:
        self._world, self.registry = world, policies(world.delay, limited=world.limited)

    def changed(self) -> bool:
        """Whether there is another file."""
        return self._newest() is not self.registry

    def request_reload(self) -> None:
        """Looking is cheap here."""

    def refresh_registry(self, use: Callable[[Registry], None]) -> None:
        registry = self._newest()
        if registry is not self.registry:
            self.registry = registry
            use(registry)

    def _newest(self) -> Registry:
        return policies(self._world.delay, limited=self._world.limited)

    def describe(self) -> dict[str, object]:
        return {}


class _Unmeasured:
    """Metrics that nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None
