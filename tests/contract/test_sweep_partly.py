"""A sweep of which only a part can go leaves the rest where the next one finds it, in either table."""

from __future__ import annotations

import pytest

from retry.delay_queue.table.interface import Table
from retry.testing.kafka import Fault
from tests.support.bench import NOW_MS, Bench


@pytest.fixture
def bench(table: Table) -> Bench:
    return Bench(table)


@pytest.mark.parametrize("named", [False, True], ids=["plain", "named"])
def test_what_gives_way_to_entries_that_were_refused_has_its_turn_at_the_next_sweep(bench: Bench, named: bool) -> None:
    """One is too large, and its being put back is undone once, as if there were more of them than were found."""
    for n, value in enumerate((b"1", b"x" * 60, b"2")):
        if named:
            bench.named(NOW_MS - 9 + n, 1, value, to="narrow", name=value)
        else:
            bench.put(NOW_MS - 9 + n, value, to="narrow")
    bench.log.faults = [None, Fault.ABORTED]
    assert (bench.sweep().deferred, bench.delivered("narrow")) == ({"narrow": 1}, [])
    bench.fold()
    bench.sweep()
    assert bench.delivered("narrow") == [b"1", b"2"]
    assert (bench.agrees() or named, bench.table.waiting) == (True, 1)
