"""One seed from beginning to end: trouble, then calm, in which everything must come to its end."""

from __future__ import annotations

import traceback
from collections import Counter
from typing import NamedTuple

from retry import clock
from retry.delay_queue import entry_keys
from retry.kafka.broker_clock import TOLERANCE_MS
from retry.worker.shards.restore import Phase
from tests.simulation import faults, tables
from tests.simulation.ledger import Violation
from tests.simulation.outside import Outside
from tests.simulation.plan import NARROW_BYTES
from tests.simulation.violation import SharedCoordinates
from tests.simulation.world import World

_LOOK_EVERY = 20
_ROUNDS_MAX = 600
# Steps between two acts of operators, and turns of all workers after each.
_ACTED_EVERY, _TURNS = 25, 6
_ROUND_MS = 300
_CLIMB_MS = 150
_IDLE_MS_MAX, _PATIENT_MS = 60_000, 45_000


class Result(NamedTuple):
    """How a seed went.

    Attributes:
      problem: the promise that was broken; "" where all were kept.
      trace: what happened, one line each, if it was to be told.
    """

    seed: int
    problem: str
    letters: int
    happened: Counter[str]
    points: Counter[str]
    crashed: Counter[str]
    trace: list[str]


def run(seed: int, *, tell: bool = False) -> Result:
    """Run one seed; the same one always goes the same way."""
    world = World(seed, tell=tell)
    world.outside = Outside(world, seed)
    clock.use(world)
    problem = ""
    try:
        _trouble(world)
        _calm(world)
    except Violation as violation:
        problem = str(violation)
    except SharedCoordinates:
        world.happened["acted on another with its coordinates"] += 1
    except Exception as error:
        problem = f"died: {type(error).__name__}: {error}"
        world.trace += traceback.format_exc().splitlines() if tell else []
    finally:
        clock.use(clock.MACHINE)
    world.happened["cancelled"] = world.ledger.cancelled
    world.happened["entry held"] = world.ledger.held
    world.happened["parked as refused"] = world.ledger.refused
    world.happened["block put"] = world.ledger.blocks_put
    world.happened["block exploded"] = world.ledger.blocks_exploded
    world.happened["moved to another shard"] = world.ledger.moved_away
    world.happened["steps judged"] = world.ledger.actions.ramps.judged
    world.happened["letters sent in steps"] = world.ledger.actions.ramps.sent.total()
    world.happened["letters returned"] = len(world.ledger.actions.returned)
    world.happened.update(world.ledger.actions.happened)
    return Result(seed, problem, len(world.ledger.letters), world.happened, world.points, world.crashed, world.trace)


def _trouble(world: World) -> None:
    for host in world.hosts:
        world.start(host)
    for n in range(world.plan.steps):
        if world.chance(world.plan.trouble):
            faults.something(world)
        world.something()
        world.refusals.change()
        if world.operators.left and n % _ACTED_EVERY == 0:
            _act(world)
        if n % _LOOK_EVERY == 0:
            _check_tables(world)
    _check_tables(world)


def _act(world: World) -> None:
    """Operators act, and workers come to that while there is something left to act on."""
    world.operators.act()
    for _ in range(_TURNS):
        _turn(world)
    while world.operators.climbs and not world.calm:
        # As long as its letters still wait, and consumers fail on some of them.
        world.operators.climbs -= 1
        _turn(world)
        world.pass_time(_CLIMB_MS)
        world.outside.consume()
        world.outside.fail()
        world.operators.mend()


def _turn(world: World) -> None:
    """All workers do what they have to do."""
    for host in world.hosts:
        for step in ("letters", "settle", "write", "commit", "changelog", "fold", "sweep"):
            process = host.process
            if process is not None and process.ready and not process.frozen and step in process.steps():
                world.step(process, step)


def _calm(world: World) -> None:
    """Nothing goes wrong any more: everybody runs, and in the end nothing waits."""
    world.calm = True
    world.say("calm")
    world.log.closed.clear()
    world.log.forbidden.clear()
    world.log.leaderless.clear()
    world.refusals.end()
    world.log.bytes_max["others.retry"] = NARROW_BYTES * 10
    world.outside.resume()
    world.operators.resume()
    world.keys.mend()
    for host in world.hosts:
        if abs(host.skew_ms) >= TOLERANCE_MS:
            # By such a clock nothing is delivered, and somebody sets it right.
            host.skew_ms = 0
    while world.outside.unwritten:
        world.outside.write()
    while world.outside.unscheduled:
        world.outside.schedule()
    outside, ledger, log = world.outside, world.ledger, world.log
    for _ in range(_ROUNDS_MAX):
        before = ledger.size(), len(outside.returns), sum(p.end for held in log.topics.values() for p in held)
        _round(world)
        if not ledger.size() and not outside.returns and is_settled(world):
            break
        idle = before == (ledger.size(), len(outside.returns), sum(p.end for held in log.topics.values() for p in held))
        world.pass_time(_until_next(world) if idle else _ROUND_MS)
    else:
        raise Violation(f"stuck: {_state(world)}")
    world.ledger.actions.check_end()
    _check_tables(world)


def _round(world: World) -> None:
    for host in world.hosts:
        if host.process is None:
            world.start(host)
        process = host.process
        assert process is not None
        for step in ("letters", "settle", "write", "commit", "changelog", "fold", "policies", "sweep"):
            world.step(process, step)
    world.outside.consume()
    world.outside.fail()
    world.operators.mend()


def _until_next(world: World) -> int:
    """Nothing happened: how long until something will."""
    moments = [at_ms for at_ms, *_ in world.outside.returns] + world.ledger.due_ms()
    skew_ms = max(abs(host.skew_ms) for host in world.hosts)
    ahead = [at_ms - world.now_ms for at_ms in moments if at_ms > world.now_ms]
    ahead.append(skew_ms + (_PATIENT_MS if world.operators.patient else 2_000))
    return max(_ROUND_MS, min(*ahead, _IDLE_MS_MAX))


def is_settled(world: World) -> bool:
    """Every shard is open somewhere, and has folded all there is."""
    ends = {p.number: p.end for p in world.log.topics[world.own.changelog]}
    open_ = [(process, shard) for h in world.hosts if (process := h.process) for shard in process.engine.list_open_shards()]
    ready = {s.changelog.partition: s.table.next_offset for _, s in open_ if s.phase is Phase.READY}
    asked = (shard.describe_requested(process.shards.shard_context) for process, shard in open_)
    return ready == ends and not any(each.reschedule for each in asked)


def _check_tables(world: World) -> None:
    for host in world.hosts:
        for shard in host.process.engine.list_open_shards() if host.process and host.process.ready else []:
            if shard.phase in (Phase.READY, Phase.RESTORING) and not shard.table.table.corrupt:  # type: ignore[attr-defined]
                number = shard.changelog.partition
                partition = world.log.topics[world.own.changelog][number]
                name = f"{host.name}'s table of shard {number}"
                tables.check(name, shard.table.table, world.ledger.changelog.get(number, []), partition.stable)  # type: ignore[attr-defined]


def _state(world: World) -> str:
    waits = [
        f"{source} due in {entry_keys.due_at_ms(letter.key) - world.now_ms} ms" if letter.key else f"{source} not taken in"
        for source, letter in world.ledger.letters.items() if not letter.done
    ]  # fmt: skip
    return "; ".join(waits + world.ledger.schedules.left() + world.ledger.actions.left()) + "; " + "; ".join(
        f"{host.name} {s.changelog.partition} {s.phase.value} {s.trouble} at {s.table.next_offset}"
        for host in world.hosts if host.process and host.process.ready for s in host.process.engine.list_open_shards()
    )  # fmt: skip
