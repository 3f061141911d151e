"""Blocks go out whole with one null each; what must not go whole is exploded, and goes one by one."""

from __future__ import annotations

from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.table.interface import Table
from retry.delivery.sweep import NOTHING
from retry.errors import TransactionAborted
from retry.testing.kafka import Fault
from tests.support.bench import NOW_MS, Bench
from tests.support.sealed import NEW, OLD, KeyFile

VALUES = [b"%d" % n for n in range(6)]
# Which no compression makes smaller.
BYTES_MAX, LARGE = 380, Random(1).randbytes(300)


@pytest.fixture
def bench(table: Table) -> Bench:
    return Bench(table)


def records(bench: Bench) -> int:
    return len([r for r in bench.log.read("changelog") if r.partition() == 1])


def test_a_block_goes_out_whole_and_ends_with_one_null(bench: Bench) -> None:
    key, _ = bench.block(NOW_MS, VALUES)
    before = records(bench)
    swept = bench.sweep()
    assert [entry.value for entry in swept.sent] == sorted(bench.delivered()) == VALUES
    assert swept.due_at_ms == entry_keys.read_due_times_ms(blocks.list_keys(key))
    assert swept.labels == [(b"team/orders.DLT", b"1")] * len(VALUES)
    assert (records(bench) - before, bench.table.waiting, bench.live()) == (1, 0, {})
    sent = {record.value(): dict(record.headers() or []) for record in bench.log.read("retry")}
    assert sent[b"3"]["retry-source"] == b"orders.DLT/0/3"
    assert sent[b"3"]["stack"] == b"stack 3"
    assert bench.agrees()


def test_a_block_is_due_with_its_last_entry(bench: Bench) -> None:
    bench.block(NOW_MS, VALUES)
    assert bench.sweep(NOW_MS - 1) is NOTHING
    assert len(bench.sweep(NOW_MS).sent) == len(VALUES)


def test_a_batch_is_bounded_by_entries_and_blocks_stay_whole(bench: Bench) -> None:
    for n in range(4):
        bench.block(NOW_MS - 100 * n, VALUES)
    bench.put(NOW_MS, b"alone")
    assert [len(bench.sweep(rows_max=6).sent) for _ in range(5)] == [6, 6, 6, 6, 1]
    assert bench.agrees()


def test_what_a_closed_destination_is_to_get_stays_in_its_block(bench: Bench) -> None:
    row = bench.block(NOW_MS - 9, VALUES)
    bench.block(NOW_MS, [b"x", b"y"], to="slow")
    bench.admission.closed = {"retry": "it is closed"}
    assert [entry.value for entry in bench.sweep().sent] == [b"x", b"y"]
    assert (bench.live(), bench.agrees()) == (dict([row]), True)
    bench.admission.closed = {}
    assert (len(bench.sweep().sent), bench.live()) == (6, {})


def test_where_fewer_may_go_than_a_block_has_they_go_one_by_one(bench: Bench) -> None:
    bench.block(NOW_MS, VALUES)
    bench.admission.allowed["team"] = 4
    assert bench.sweep() is NOTHING
    assert (len(bench.live()), bench.agrees(), bench.table.waiting) == (6, True, 6)
    assert [len(bench.sweep().sent) for _ in range(2)] == [4, 0]
    assert bench.admission.allowed["team"] == 0
    bench.admission.allowed["team"] = 10
    assert (len(bench.sweep().sent), bench.admission.allowed["team"]) == (2, 8)
    assert (sorted(bench.delivered()), bench.live(), bench.agrees()) == (VALUES, {}, True)


def test_while_entries_without_a_block_wait_for_a_limit_no_block_is_exploded(bench: Bench) -> None:
    bench.put(NOW_MS - 9, b"first")
    row = bench.block(NOW_MS, VALUES)
    bench.admission.allowed["team"] = 1
    assert [entry.value for entry in bench.sweep().sent] == [b"first"]
    bench.admission.allowed["team"] = 0
    assert bench.sweep() is NOTHING
    assert bench.live() == dict([row])


def test_a_block_that_waits_for_a_limit_goes_before_entries_that_are_due_later(bench: Bench) -> None:
    bench.block(NOW_MS - 9, VALUES)
    sent = list[bytes | None]()
    for n in range(4):
        bench.put(NOW_MS, b"later %d" % (2 * n))
        bench.put(NOW_MS, b"later %d" % (2 * n + 1))
        bench.admission.allowed["team"] = 2
        sent += [entry.value for entry in chain.from_iterable(bench.sweep().sent for _ in range(3))]
    assert sent[: len(VALUES)] == VALUES
    assert bench.agrees()


def test_a_batch_is_bounded_by_the_bytes_of_its_entries_and_not_by_those_of_its_blocks(bench: Bench) -> None:
    for n in range(4):
        bench.block(NOW_MS - 100 * n, VALUES)
    (key, value), *_ = bench.live().items()
    as_entries = blocks.measure_entries(key, value)
    assert len(value) < as_entries < sum(len(envelope or b"") for _, envelope in blocks.list_rows(key, value))
    assert [len(bench.sweep(bytes_max=2 * as_entries - 50).sent) for _ in range(2)] == [12, 12]


def test_one_that_its_topic_refuses_leaves_its_block_and_the_others_go(bench: Bench) -> None:
    bench.log.bytes_max["narrow"] = BYTES_MAX
    bench.block(NOW_MS, [b"1", LARGE, b"2"], to="narrow")
    swept = bench.sweep()
    assert ([entry.value for entry in swept.sent], swept.deferred) == ([b"1", b"2"], {"narrow": 1})
    ((key, _),) = bench.live().items()
    assert (entry_keys.read_source(key).offset, bench.agrees(), bench.table.waiting) == (1, True, 1)


def test_what_gives_way_to_entries_that_were_refused_stays_without_its_block(bench: Bench) -> None:
    bench.log.bytes_max["narrow"] = BYTES_MAX
    bench.block(NOW_MS, [b"1", LARGE, b"2"], to="narrow")
    bench.log.faults = [None, Fault.ABORTED]
    swept = bench.sweep()
    bench.fold()
    assert bench.agrees()
    assert bench.table.waiting == 3 - len(swept.sent)
    bench.sweep()
    assert sorted(bench.delivered("narrow")) == [b"1", b"2"]
    assert (bench.agrees(), bench.table.waiting) == (True, 1)


def test_a_sealed_block_goes_out_whole(table: Table) -> None:
    bench = Bench(table, KeyFile(OLD).codec)
    key, _ = bench.block(NOW_MS, VALUES)
    swept = bench.sweep()
    assert ([entry.value for entry in swept.sent], bench.live(), bench.agrees()) == (VALUES, {}, True)
    assert swept.labels == [(b"team/orders.DLT", b"1")] * len(VALUES)
    assert swept.due_at_ms == entry_keys.read_due_times_ms(blocks.list_keys(key))


def test_a_sealed_block_that_cannot_be_opened_is_held_by_entry_and_others_go(table: Table) -> None:
    keys = KeyFile(OLD)
    bench = Bench(table, keys.codec)
    bench.block(NOW_MS - 9, VALUES)
    keys.write(NEW)
    bench.put(NOW_MS, b"alone")
    bench.block(NOW_MS, [b"x", b"y"])
    sent = list(chain.from_iterable(bench.sweep().sent for _ in range(4)))
    assert sorted(entry.value or b"" for entry in sent) == [b"alone", b"x", b"y"]
    assert [entry_keys.is_held(key) for key in bench.live()] == [True] * len(VALUES)
    assert (bench.agrees(), bench.table.waiting) == (True, len(VALUES))
    keys.write(NEW, OLD)
    assert bench.release() == len(VALUES)
    bench.fold()
    assert [entry.value for entry in bench.sweep().sent] == VALUES
    assert (bench.agrees(), bench.live()) == (True, {})


def test_an_undone_transaction_leaves_the_block(bench: Bench) -> None:
    row = bench.block(NOW_MS, VALUES)
    bench.log.faults = [Fault.ABORTED]
    with pytest.raises(TransactionAborted):
        bench.sweep()
    assert (bench.live(), bench.agrees(), bench.delivered()) == (dict([row]), True, [])
    assert len(bench.sweep().sent) == 6


@given(st.integers(0, 1 << 30))
def test_whatever_the_limits_each_entry_goes_once(seed: int) -> None:
    random, bench = Random(seed), Bench()
    values = []
    for n in range(random.randint(1, 8)):
        some = [b"%d of %d" % (m, n) for m in range(random.choice((1, 2, 5, 32)))]
        due_ms = NOW_MS - random.randint(0, 50)
        values += some
        if len(some) == 1:
            bench.put(due_ms, *some)
        else:
            bench.block(due_ms, some)
    for _ in range(400):
        if not bench.table.waiting:
            break
        bench.admission.allowed = random.choice(({}, {"team": random.randint(0, 40)}))
        if random.random() < 0.1:
            bench.log.faults = [random.choice((Fault.ABORTED, None))]
        try:
            bench.sweep(rows_max=random.choice((1, 5, 100)))
        except TransactionAborted:
            continue
        if random.random() < 0.5:
            assert bench.agrees()
    assert sorted(bench.delivered()) == sorted(values)
    assert (bench.live(), bench.table.waiting) == ({}, 0)
