"""What goes wrong between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from retry.delay_queue.control_records import Pause, encode, pause_key
from retry.testing.kafka import MemoryTransactionalProducer
from tests.simulation.plan import AGE_MS_MAX, RETENTION_MS, SHARDS, SKEW_MS_MAX
from tests.simulation.worker import Host

if TYPE_CHECKING:
    from tests.simulation.world import World


_LONG = 1_000_000
# So many a worker reads in the minutes of a jump at least, or a restore would outlast the deletes.
_PORTIONS = 8


def something(world: World) -> None:
    """One of them, drawn."""
    kind = world.random.choice(list(KINDS))
    host = world.random.choice(world.hosts)
    KINDS[kind](world, host)


def _kill(world: World, host: Host) -> None:
    if host.process is not None:
        world.fault("killed", host.name)
        host.crash()


def _stop(world: World, host: Host) -> None:
    if host.process is not None and host.process.ready:
        world.fault("stopped", host.name)
        world.step(host.process, "stop")


def _long_outage(world: World, host: Host) -> None:
    world.fault("long outage", host.name)
    if world.random.random() < 0.5:
        _copy(world, host)
    host.crash(world.random.randint(1, 3) * AGE_MS_MAX)
    _expiry(world, host) if world.random.random() < 0.3 else _jump(world, host)


def _jump(world: World, _host: Host) -> None:
    """Much time passes, during which whoever runs goes on running."""
    world.fault("time passes")
    for _ in range(world.random.randint(1, 6)):
        world.pass_time(AGE_MS_MAX // 4)
        for host in world.hosts:
            process = host.process
            if process is not None and process.ready and not process.frozen:
                for step in ("changelog", "fold") * _PORTIONS:
                    if process.free(step):
                        world.step(process, step)


def _compaction(world: World, _host: Host) -> None:
    partition = world.log.topics[world.own.changelog][world.random.randrange(SHARDS)]
    world.fault("compaction", str(partition.number))
    partition.compact(world.random.randint(0, partition.end), world.now_ms, RETENTION_MS)


def _expiry(world: World, host: Host) -> None:
    """Compaction after which no delete is left that was met by the one before."""
    _compaction(world, host)
    _jump(world, host)
    _jump(world, host)
    world.happened["deletes expire"] += 1
    for partition in world.log.topics[world.own.changelog]:
        partition.compact(partition.end, world.now_ms, RETENTION_MS)


def _start_moves(world: World, _host: Host) -> None:
    """The log begins later: whatever is before is dead, and was read by whoever reads just now."""
    partition = world.log.topics[world.own.changelog][world.random.randrange(SHARDS)]
    fold = {key: (offset, value) for offset, key, value in sorted(world.ledger.changelog.get(partition.number, []))}
    live = [offset for offset, value in fold.values() if value is not None]
    world.fault("log start moves", str(partition.number))
    processes = [host.process for host in world.hosts if host.process is not None and host.process.ready]
    shards = [s for process in processes for s in process.engine.list_open_shards() if s.changelog.partition == partition.number]
    partition.cut(min([*live, partition.stable, *(shard.table.next_offset for shard in shards)]))


def _rewrite(world: World, _host: Host) -> None:
    """All workers are down, and the changelog is copied: its records have other offsets now."""
    number = world.random.randrange(SHARDS)
    partition = world.log.topics[world.own.changelog][number]
    if partition.stable < partition.end or any(h.process is not None and h.process.busy for h in world.hosts):
        return
    world.fault("changelog copied", str(number))
    for host in world.hosts:
        host.crash()
    partition.rewrite()
    records = partition.read(0, partition.end)[0]
    world.ledger.copied(number, [(r.offset(), r.key() or b"", r.value()) for r in records])
    for host in world.hosts:
        host.copies = [(n, table) for n, table in host.copies if n != number]
        # As if the log had been long before. A copy that grows beyond a table's offset is another topic, as its id tells.
        kept = host.tables.kept.get(number)
        if kept is not None:
            kept.next_offset += _LONG


def _copy(world: World, host: Host) -> None:
    number = world.random.randrange(SHARDS)
    copied = host.tables.copy_table(number)
    if copied is not None:
        world.fault("table copied", f"{host.name} {number}")
        host.copies.append((number, copied))


def _put_back(world: World, host: Host) -> None:
    if not host.copies:
        _copy(world, host)
    else:
        number, copied = host.copies.pop(world.random.randrange(len(host.copies)))
        stale = world.now_ms - copied.current_at_ms >= AGE_MS_MAX
        if stale:
            # As after a long absence: deletes that it has not seen are no longer there.
            _expiry(world, host)
        world.fault("stale table put back" if stale else "old table put back", f"{host.name} {number}")
        host.crash()
        host.tables.kept[number] = copied


def _lose(world: World, host: Host) -> None:
    world.fault("table lost", host.name)
    host.crash()
    host.tables.kept.clear()


def _corrupt(world: World, host: Host) -> None:
    if host.tables.kept:
        number = world.random.choice(sorted(host.tables.kept))
        world.fault("table corrupt", f"{host.name} {number}")
        host.tables.kept[number].corrupt = True


def _skew(world: World, host: Host) -> None:
    if not world.plan.skewed:
        return
    host.skew_ms = world.random.choice((0, world.random.randint(-SKEW_MS_MAX, SKEW_MS_MAX), world.random.randint(-2_000, 2_000)))
    world.fault("clock set", f"{host.name} {host.skew_ms} ms")


def _close(world: World, _host: Host) -> None:
    topic = world.random.choice(("orders.retry", "keyed.retry", "shop.parked", "fired", "history"))
    log = world.log
    kinds = (("closed", log.closed), ("forbidden", log.forbidden), ("leaderless", log.leaderless))
    kind, changed = world.random.choice(kinds)
    world.fault("topic opened" if topic in changed else f"topic {kind}", topic)
    changed ^= {topic}


def _leave_open(world: World, _host: Host) -> None:
    """An operator's command dies in the midst of its transaction."""
    world.fault("transaction left open")
    writer = MemoryTransactionalProducer(world.log, "command")
    writer.open()
    writer.begin()
    for number in range(SHARDS):
        writer.write(world.own.changelog, number, [{"key": pause_key("all", ""), "value": encode(Pause(world.now_ms))}])


def _share_out(world: World, _host: Host) -> None:
    world.fault("rebalance")
    for group in world.log.groups.values():
        group.share_out()


def _lose_offsets(world: World, _host: Host) -> None:
    """The intake group loses what it has committed, or it is set beyond the end, or back to what it was long ago."""
    kept = world.log.committed_offsets
    places = sorted(place for place in kept if place[0] == world.own.intake_group)
    if places:
        place, kind = world.random.choice(places), world.random.choice(("lost", "too large", "set back"))
        world.fault(f"offset {kind}", f"{place}")
        if kind == "lost":
            del kept[place]
        else:
            offset = _LONG if kind == "too large" else world.random.randint(0, kept[place].offset or 0)
            kept[place] = kept[place]._replace(offset=offset)


KINDS: dict[str, Callable[[World, Host], None]] = {
    "kill": _kill, "stop": _stop, "outage": _long_outage, "jump": _jump, "compaction": _compaction, "expiry": _expiry,
    "start": _start_moves, "rewrite": _rewrite, "copy": _copy, "put back": _put_back, "lose": _lose, "corrupt": _corrupt,
    "skew": _skew, "close": _close, "rebalance": _share_out, "open": _leave_open, "open again": _leave_open,
    "offsets": _lose_offsets, "offsets again": _lose_offsets,
}  # fmt: skip
