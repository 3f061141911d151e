"""What cannot be opened is held: never sent, never lost, in nobody's way; and goes, at its place, when its key is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import HELD, NAMED, ORDERED, PLAIN
from retry.delay_queue.envelopes import Recurrence
from retry.delay_queue.table.interface import Table
from retry.delivery.sweep import NOTHING
from retry.errors import TransactionAborted, TransactionFailed
from retry.testing.kafka import Fault
from tests.support.bench import NOW_MS, Bench
from tests.support.sealed import NEW, OLD, OTHER_OLD, KeyFile

MINUTE_MS = 60_000


@pytest.fixture
def file() -> KeyFile:
    return KeyFile(OLD)


@pytest.fixture
def bench(table: Table, file: KeyFile) -> Bench:
    return Bench(table, file.codec)


def sweeps(bench: Bench, now_ms: int = NOW_MS, turns: int = 5) -> list[bytes | None]:
    """Sweep as often as possible and list what was delivered; the fold follows each turn."""
    for _ in range(turns):
        bench.release(now_ms)
        bench.fold()
        bench.sweep(now_ms)
        bench.fold()
    return bench.delivered()


def lanes(bench: Bench) -> list[bytes]:
    return sorted({entry_keys.lane_of(key) for key in bench.live()})


def test_only_what_cannot_be_opened_is_held_and_goes_when_its_key_is_found(bench: Bench, file: KeyFile) -> None:
    sealed = [bench.put(NOW_MS - n, b"old %d" % n) for n in range(3)]
    file.write(NEW)
    bench.put(NOW_MS, b"new")
    file.write("plain", NEW)
    bench.put(NOW_MS, b"in clear")
    assert sorted(filter(None, sweeps(bench))) == [b"in clear", b"new"]
    assert lanes(bench) == [HELD[PLAIN]]
    assert bench.holding.held.by_key == {"old": 3}
    assert list(bench.holding.held.why) == ["it is sealed under key old, which is not in the file of RETRY_ENCRYPTION_KEYS"]
    assert bench.table.waiting == 3
    assert bench.agrees()
    # Its due time stays its own, whatever time passes.
    assert sorted(map(entry_keys.due_at_ms, bench.live())) == sorted(map(entry_keys.due_at_ms, sealed))
    file.write(NEW, OLD)
    assert sorted(filter(None, sweeps(bench))) == [b"in clear", b"new", b"old 0", b"old 1", b"old 2"]
    assert (bench.live(), bench.holding.held.by_key, bench.table.waiting) == ({}, {}, 0)


def test_what_is_held_is_not_moved_again_while_its_key_is_away(bench: Bench, file: KeyFile) -> None:
    for n in range(20):
        bench.put(NOW_MS, b"%d" % n)
    file.write(NEW)
    sweeps(bench)
    end = len(bench.log.read("changelog"))
    for minute in range(50):
        sweeps(bench, NOW_MS + minute * MINUTE_MS, turns=1)
    assert len(bench.log.read("changelog")) == end
    assert bench.holding.held.by_key == {"old": 20}
    # A key of the same id that is another one, or a new one of another id, frees nothing.
    file.write(NEW, OTHER_OLD)
    assert sweeps(bench) == []
    assert [why.partition(" than")[0] for why in bench.holding.held.why] == ["it is sealed under another key old"]


def test_what_was_changed_or_moved_is_held_for_good_and_others_go(bench: Bench) -> None:
    first, second = bench.put(NOW_MS, b"first"), bench.put(NOW_MS, b"second")
    bench.write([(first, bench.live()[second]), (second, bench.live()[second][:-1] + b"\0")])
    bench.put(NOW_MS, b"third")
    assert sweeps(bench) == [b"third"]
    assert bench.holding.held.by_key == {"old": 2}
    assert lanes(bench) == [HELD[PLAIN]]


def test_letters_of_one_key_keep_their_order_behind_one_that_is_held(bench: Bench, file: KeyFile) -> None:
    bench.put(NOW_MS - 9, b"first", ordered=True)
    file.write(NEW)
    bench.put(NOW_MS - 8, b"second", ordered=True)
    bench.put(NOW_MS, b"third", ordered=True)
    bench.put(NOW_MS, b"of another key", team="others", ordered=True)
    assert sweeps(bench) == [b"of another key"]
    assert HELD[ORDERED] in lanes(bench)
    assert bench.holding.held.by_key == {"old": 1}
    assert bench.agrees()
    file.write(NEW, OLD)
    assert sweeps(bench, turns=9)[1:] == [b"first", b"second", b"third"]
    assert bench.live() == {}


def test_what_has_a_name_is_held_and_still_replaced_and_cancelled(bench: Bench, file: KeyFile) -> None:
    for name in (b"kept", b"replaced", b"cancelled"):
        bench.named(NOW_MS, 1, name, name=name)
    file.write(NEW)
    assert sweeps(bench) == []
    assert (lanes(bench), bench.holding.held.by_key) == ([HELD[NAMED]], {"old": 3})
    bench.named(NOW_MS, 2, b"anew", name=b"replaced")
    bench.cancel(2, name=b"cancelled")
    assert sweeps(bench) == [b"anew"]
    sweeps(bench, NOW_MS + 2 * MINUTE_MS)
    assert bench.holding.held.by_key == {"old": 1}
    file.write(NEW, OLD)
    assert sweeps(bench, NOW_MS + 2 * MINUTE_MS) == [b"anew", b"kept"]
    assert (bench.live(), bench.table.waiting) == ({}, 0)


def test_what_recurs_is_sealed_anew_for_each_run(bench: Bench, file: KeyFile) -> None:
    bench.named(NOW_MS, 1, b"run", plan=Recurrence(0, NOW_MS, every_ms=1_000))
    file.write(NEW, OLD)
    bench.sweep(NOW_MS)
    bench.fold()
    ((key, envelope),) = bench.live().items()
    assert b"run" not in envelope
    file.write(NEW)
    assert bench.codec.decode_named(key, envelope).plan == Recurrence(1, NOW_MS, every_ms=1_000)
    assert sweeps(bench, NOW_MS + 1_000) == [b"run", b"run"]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("frees", [False, True])
def test_a_crash_around_each_effect_loses_nothing_and_moves_nothing_twice(
    bench: Bench, file: KeyFile, fault: Fault, frees: bool
) -> None:
    keys = [bench.put(NOW_MS, b"old %d" % n) for n in range(4)] + [bench.put(NOW_MS, b"ordered", ordered=True)]
    file.write(NEW)
    step: Callable[[], object] = bench.sweep
    if frees:
        sweeps(bench)
        file.write(NEW, OLD)
        step = bench.release
    bench.log.faults.append(fault)
    try:
        step()
    except TransactionAborted:
        pass
    except TransactionFailed:
        bench.open()
    bench.fold()
    identities = {entry_keys.extract_identity(key) for key in keys}
    assert {entry_keys.extract_identity(key) for key in bench.live()} == identities
    assert len(bench.live()) == len(keys)
    assert bench.delivered() == []
    # What is late is seen with the next transaction of this producer.
    file.write(NEW, OLD)
    bench.put(NOW_MS, b"new")
    assert sorted(filter(None, sweeps(bench, turns=8))) == [b"new", b"old 0", b"old 1", b"old 2", b"old 3", b"ordered"]


def test_many_that_are_held_are_looked_at_a_batch_at_a_time(bench: Bench, file: KeyFile) -> None:
    for n in range(40):
        bench.put(NOW_MS, b"%d" % n, ordered=n % 4 == 0, team=f"team {n % 3}")
        bench.named(NOW_MS, 1, b"named %d" % n, name=b"%d" % n)
    file.write(NEW)
    for _ in range(200):
        bench.sweep(rows_max=7)
        bench.fold()
    held = sum(entry_keys.is_held(key) for key in bench.live())
    assert held == bench.holding.held.by_key.total() == 73, "of each queue of an ordered key only the first"
    file.write(NEW, OLD)
    freed = []
    while (step := bench.release(rows_max=7)) or bench.holding.held.by_key:
        freed.append(step)
        bench.fold()
    assert max(freed) == 7
    assert sum(freed) == 73
    assert not any(map(entry_keys.is_held, bench.live()))
    assert bench.agrees()


def test_a_new_owner_of_the_shard_finds_what_is_held(bench: Bench, file: KeyFile) -> None:
    bench.put(NOW_MS, b"old")
    file.write(NEW)
    sweeps(bench)
    bench.open()
    assert bench.holding.held.by_key == {}
    assert bench.release() == 0
    assert bench.holding.held.by_key == {"old": 1}
    assert bench.sweep() is NOTHING
    file.write(OLD)
    assert sweeps(bench) == [b"old"]


def test_letters_with_the_same_coordinates_are_held_under_two_keys(bench: Bench, file: KeyFile) -> None:
    """A dead-letter topic that was made anew has the coordinates of the one before."""
    one = bench.put(NOW_MS, b"one")
    other = entry_keys.move_into_lane(one, entry_keys.lane("team", "orders.DLT", "retry/2"))
    bench.write([(other, bench.codec.encode(other, bench.codec.decode(one, bench.live()[one])))])
    file.write(NEW)
    sweeps(bench)
    assert [entry_keys.due_at_ms(key) for key in sorted(bench.live())] == [NOW_MS, NOW_MS + 1]
    assert bench.holding.held.by_key == {"old": 2}
    file.write(OLD)
    assert sweeps(bench, NOW_MS + 1) == [b"one", b"one"]


def test_nothing_is_moved_before_the_fold_has_told_of_the_last_move(bench: Bench, file: KeyFile) -> None:
    for n in range(2):
        bench.put(NOW_MS, b"%d" % n)
    file.write(NEW)
    bench.sweep(rows_max=1)
    end = bench.end()
    for _ in range(5):
        bench.sweep(rows_max=1)
    assert bench.end() == end
    bench.fold()
    bench.sweep(rows_max=1)
    assert bench.end() > end
