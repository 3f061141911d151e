"""Log and tables as a worker reaches them: before and after each call it may crash, freeze, or be overtaken.

A crash after a call has its effect and nobody who knows of it; a crash before it has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.table.interface import ChangelogRow
from retry.errors import CommitInDoubt
from retry.kafka.interface import OffsetBounds, OnAssigned
from retry.testing.kafka import Fault, MemoryCluster, MemoryGroupMember, MemoryPartitionReader, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable
from tests.simulation.plan import APP
from tests.simulation.worker import Host

if TYPE_CHECKING:
    from tests.simulation.world import World

_FAULTS = list(Fault)


class SteppedLog:
    """The log of the simulation; see `retry.kafka.interface.Log`."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self._world, self._log = name, world, MemoryCluster(world.log, APP, name)

    def make_producer(self, name: str, *, compressing: bool = False) -> SteppedWriter:
        self._world.happened["producer that compresses"] += compressing
        return SteppedWriter(self._world, self._log.make_producer(name, compressing=compressing), name.split("-")[0])

    def make_reader(self) -> SteppedFollower:
        return SteppedFollower(self._world, self._log.make_reader())

    def join_group(
        self, group: str, subscription: list[str], gained: OnAssigned, leaving: OnAssigned, *, reads: bool = True
    ) -> SteppedMember:
        return SteppedMember(self._world, self._log.join_group(group, subscription, gained, leaving, reads=reads))

    def fetch_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, OffsetBounds]:
        """See `Log.fetch_bounds`; brokers may not answer, and then a worker that begins begins again later."""
        process = self._world.current
        if process is not None and process.ready and self._world.chance(self._world.plan.hiccup):
            self._world.fault("ends not told")
            raise TimeoutError
        return _around(self._world, "bounds", self._log.fetch_bounds, topic, partitions)

    def fetch_partition_bounds(self, partitions: Iterable[Any]) -> dict[Any, OffsetBounds]:
        return self._log.fetch_partition_bounds(partitions)


class SteppedWriter:
    """See `retry.kafka.interface.TransactionalProducer`; `name` is `sweep` or `intake`."""

    def __init__(self, world: World, writer: MemoryTransactionalProducer, name: str) -> None:
        self._world, self._writer, self._name, self._is_silent = world, writer, name, False
        self._on_their_way: list[tuple[str, int, list[dict[str, Any]]]] = []

    def open(self, within_s: float = 0.0) -> None:
        """Fails now and then, where the worker does not wait for it in real time."""
        if self._name == "sweep" and self._world.chance(self._world.plan.hiccup):
            self._world.fault("producer not opened")
            raise CommitInDoubt("no answer in time")
        self._do("open", self._writer.open)

    def begin(self, renew_within_s: float = 0.0) -> None:
        self._is_silent = False
        self._on_their_way.clear()
        self._do("begin", self._writer.begin)

    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
        """See `TransactionalProducer.write`; it may be that records arrive only when somebody waits for them."""
        if self._on_their_way or (self._name == "intake" and self._world.chance(self._world.plan.late)):
            self._world.happened["records late"] += not self._on_their_way
            self._on_their_way.append((topic, partition, rows.copy()))
        else:
            self._do("write", self._writer.write, topic, partition, rows)

    def _arrive(self) -> None:
        while self._on_their_way:
            self._do("write", self._writer.write, *self._on_their_way.pop(0))

    def publish(self, entries: Iterable[Any], now_ms: int, partitions: Sequence[int] | None = None) -> None:
        self._do("publish", self._writer.publish, entries, now_ms, partitions)

    def rehearse_entries(
        self, entries: Iterable[Any], now_ms: int, partitions: Sequence[int] | None = None, anchor: object = None
    ) -> Any:
        self._world.happened["rehearsal"] += 1
        return self._do("rehearse", self._writer.rehearse_entries, entries, now_ms, partitions, anchor)

    def read_to(self, positions: list[Any], member: object) -> None:
        self._do("read to", self._writer.read_to, positions, member)

    def await_arrival(self, within_s: float) -> bool:
        """See `TransactionalProducer.await_arrival`; it may be that nobody says so in time."""
        self._is_silent = self._world.chance(3 * self._world.plan.hiccup)
        if self._is_silent:
            self._world.fault("nothing arrives")
            self._world.pause(within_s)
            return False
        self._arrive()
        return self._writer.await_arrival(within_s)

    def is_silent(self) -> bool:
        return self._is_silent or self._writer.is_silent()

    def commit(self) -> None:
        """See `TransactionalProducer.commit`; what becomes of it is drawn."""
        self._arrive()
        self._world.at(f"{self._name} commit, before")
        if self._world.chance(self._world.plan.commit):
            fault = self._world.random.choice(_FAULTS)
            self._world.fault(f"commit {fault.name.lower().replace('_', ' ')}", self._name)
            self._world.log.faults[:] = [fault]
        try:
            self._writer.commit()
        finally:
            self._world.log.faults.clear()
        self._world.at(f"{self._name} commit, after")

    def abort(self) -> None:
        """See `TransactionalProducer.abort`; a batch of letters is undone where another one has failed."""
        self._world.happened["undone with another"] += self._name == "intake"
        self._do("abort", self._writer.abort)

    def close(self) -> None:
        self._writer.close()

    def _do(self, step: str, call: Callable[..., Any], *arguments: Any) -> Any:
        return _around(self._world, f"{self._name} {step}", call, *arguments)


class SteppedFollower:
    """See `retry.kafka.interface.PartitionReader`; it may bring nothing, little, or what it brought before."""

    def __init__(self, world: World, follower: MemoryPartitionReader) -> None:
        self._world, self._follower = world, follower
        self.unfollow_partition, self.close = follower.unfollow_partition, follower.close
        self._begun: dict[tuple[str, int], int] = {}

    def follow_partition(self, topic: str, partition: int, offset: int) -> None:
        self._begun[topic, partition] = offset
        self._follower.follow_partition(topic, partition, offset)

    def read(self, records_max: int, wait_s: float) -> list[Any]:
        world = self._world
        world.at("follower read, before")
        # Little is no fault but a rhythm; only, in the end all must be read.
        records_max = records_max if world.calm and world.random.random() < 0.3 else min(records_max, world.plan.portion)
        if world.chance(world.plan.hiccup):
            kind = world.random.choice(("reads nothing", "reads little", "reads again"))
            world.fault(f"follower {kind}")
            if kind == "reads nothing":
                return []
            if kind == "reads little":
                records_max = 1
            # The record of lineages counts what it reads; only a shard knows what it has seen.
            elif followed := [p for p in self._begun if p[0] == world.own.changelog and p in self._follower._next]:
                place = world.random.choice(followed)
                self._follower.follow_partition(*place, self._begun[place])
        found = self._follower.read(records_max, wait_s)
        world.at("follower read, after")
        return found


class SteppedMember:
    """The group member of the simulation; see `retry.kafka.interface.GroupMember`."""

    def __init__(self, world: World, member: MemoryGroupMember) -> None:
        self._world, self._member = world, member
        self.subscribe, self.metadata, self.close, self.ended, self.ask_recreated, self.replace_unreadable = (
            member.subscribe, member.metadata, member.close, member.ended, member.ask_recreated, member.replace_unreadable,
        )  # fmt: skip
        self.commit_starts = member.commit_starts

    @property
    def owned(self) -> set[tuple[str, int]]:
        return self._member.owned

    def read(self, records_max: int, wait_s: float) -> list[Any]:
        """See `GroupMember.read`; it may bring little, or what it brought before: once or again and again."""
        if self._world.chance(self._world.plan.hiccup):
            self._world.fault("member reads little")
            records_max = self._world.random.randint(1, 3)
        elif self._world.chance(self._world.plan.hiccup):
            self._go_back()
        return _around(self._world, "member read", self._member.read, records_max, wait_s)

    def _go_back(self) -> None:
        """The client reads on from further back by itself, as where it hears of another leader."""
        placed = sorted(place for place, offset in self._member._next.items() if offset)
        if placed:
            place = self._world.random.choice(placed)
            self._world.fault("client goes back", f"{place}")
            self._member._next[place] = self._world.random.randrange(self._member._next[place] or 1)

    def begin_reading(self, partitions: Iterable[Any], choose: Any) -> None:
        self._world.happened["reading begun"] += 1
        _around(self._world, "member begin reading", self._member.begin_reading, partitions, choose)


class SteppedTables:
    """See `retry.delay_queue.table.interface.TableDirectory`; what lies there is the host's."""

    def __init__(self, world: World, host: Host) -> None:
        self._world, self._host = world, host

    def open(self, partition: int, now_ms: int) -> SteppedTable:
        self._world.at("table open, before")
        before = self._host.tables.kept.get(partition)
        table = self._host.tables.open(partition, now_ms)
        if before is not None and before is not table:
            self._world.happened["table not trusted"] += 1
            self._world.say(f"table {partition} is not trusted: wiped")
        self._world.at("table open, after")
        return SteppedTable(self._world, table, partition)

    def delete_table(self, partition: int) -> None:
        self._world.happened["table wiped by its shard"] += 1
        _around(self._world, "table wipe", self._host.tables.delete_table, partition)


class SteppedTable:
    """The table of the simulation; see `retry.delay_queue.table.interface.Table`."""

    def __init__(self, world: World, table: MemoryTable, shard: int) -> None:
        self._world, self.table, self._shard = world, table, shard
        self.list_lanes, self.find_due_lanes, self.scan_entries, self.page_behind, self.get, self.close = (
            table.list_lanes, table.find_due_lanes, table.scan_entries, table.page_behind, table.get, table.close,
        )  # fmt: skip
        self.estimate_due, self.list_first_entries, self.list_slices, self.is_leaving, self.find_blocks = (
            table.estimate_due, table.list_first_entries, table.list_slices, table.is_leaving, table.find_blocks,
        )  # fmt: skip

    @property
    def current_at_ms(self) -> int:
        return self.table.current_at_ms

    def find_due(self, *asked: Any) -> list[tuple[bytes, bytes]]:
        """See `Table.find_due`; of what has a name it is noted what the table knew then."""
        found = self.table.find_due(*asked)
        for key, _ in found:
            if key[0] == NAMED and self._world.current is not None:
                where = entry_keys.read_source(key)
                about = f"{where.topic}/{where.partition}/{where.offset}"
                self._world.current.handed[about] = key, self.table.next_offset, self._shard
        return found

    def list_superseded(self, rows_max: int) -> list[bytes]:
        return _around(self._world, "table superseded", self.table.list_superseded, rows_max)

    def expired_cancels(self, now_ms: int, keys_max: int) -> list[bytes]:
        return _around(self._world, "table expired_cancels", self.table.expired_cancels, now_ms, keys_max)

    def find_greatest(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.table.find_greatest(keys)

    def bulk_load(self, *, on: bool) -> None:
        self.table.bulk_load(on=on)

    @property
    def next_offset(self) -> int:
        return self.table.next_offset

    @property
    def waiting(self) -> int:
        return self.table.waiting

    @property
    def has_slices(self) -> bool:
        return self.table.has_slices

    @property
    def controls(self) -> Any:
        return self.table.controls

    def apply_records(self, rows: Sequence[ChangelogRow], next_offset: int, now_ms: int) -> Any:
        return _around(self._world, "table fold", self.table.apply_records, rows, next_offset, now_ms)

    def delete_scanned_rows(self, keys: Sequence[bytes], again: Sequence[tuple[bytes, bytes]] = ()) -> None:
        _around(self._world, "table forget", self.table.delete_scanned_rows, keys, again)

    def explode(self, block_keys: Sequence[bytes]) -> None:
        _around(self._world, "table explode", self.table.explode, block_keys)

    def delete_rows(self, keys: Sequence[bytes], again: Sequence[tuple[bytes, bytes]] = ()) -> None:
        _around(self._world, "table drop", self.table.delete_rows, keys, again)


def _around(world: World, step: str, call: Callable[..., Any], *arguments: Any) -> Any:
    world.at(f"{step}, before")
    done = call(*arguments)
    world.at(f"{step}, after")
    return done
