"""What `retry verify` says of entries with a name: nothing of what sweeps do, and each thing that they must not do."""

from __future__ import annotations

from typing import Any

import pytest

from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import Lane
from retry.delay_queue.envelopes import Recurrence
from retry.delay_queue.table.interface import ChangelogRow
from retry.operations.verify import checks
from retry.operations.verify.context import Finding, Findings, VerifyContext, group_rows
from retry.operations.verify.records import RecordReader
from retry.operations.verify.rows import PACK, NameTable, Row, unpack_rows
from tests.support.bench import CHANGELOG, NOW_MS, Bench

LATE_MS = NOW_MS - 60_000


class Rows(list[Row]):
    """In place of files."""

    def add_row(self, row: Row) -> None:
        self.append(next(unpack_rows(PACK[row.kind](*row))))


class Verify:
    """The changelog of a bench, read, and its table beside it."""

    def __init__(self, bench: Bench, *, stored: Any = None, complete: bool = True, scope_end: int = 1 << 30) -> None:
        rows: Any = Rows()
        self.names = NameTable()
        reader = RecordReader(self.names, rows, Findings())
        reader.scope_ends = {(CHANGELOG.topic, CHANGELOG.partition): scope_end}
        records = [record for record in bench.log.read(CHANGELOG.topic) if record.partition() == CHANGELOG.partition]
        for record in records:
            reader.read_change(record)
        for key, envelope in [row[1:] for row in bench.table.scan_entries(b"", 1_000)] if stored is None else stored:
            reader.add_table_row(0, CHANGELOG.partition, key, envelope)
        self.letters = list(group_rows(rows))
        self.tables = {CHANGELOG.partition: [(0, bench.table.next_offset if complete else records[-1].offset())]}
        self.blocked: str | None = None

    def context(self) -> VerifyContext:
        def find_block(lane: Lane) -> str | None:
            assert lane == Lane("door", "schedules", "retry")
            return self.blocked

        return VerifyContext(
            self.names, True, {}, {}, 0, LATE_MS, 0, lambda _: "never asked", find_block, lambda _: set(), self.tables
        )  # fmt: skip

    def says(self) -> list[Finding]:
        context = self.context()
        assert all(checks.is_named(context, letter) for letter in self.letters)
        return [finding for letter in self.letters for finding in checks.check_name(context, letter)]

    def waiting(self) -> int:
        return sum(checks.find_waiting(self.context(), letter) is not None for letter in self.letters)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def live_through(bench: Bench) -> None:
    """Replaced, cancelled, fired, recurring; two wait in the end."""
    for name in (b"a", b"b", b"c"):
        for version in range(1, 4):
            bench.named(NOW_MS + version * 10_000, version, name=name)
    bench.sweep(rows_max=2)
    bench.cancel(4, b"a")
    bench.named(NOW_MS, 1, name=b"r", plan=Recurrence(0, NOW_MS, every_ms=1_000))
    for now_ms in range(NOW_MS, NOW_MS + 20_000, 1_000):
        bench.sweep(now_ms, rows_max=3)
        bench.fold()
    bench.named(NOW_MS + 90_000, 9, name=b"b")
    bench.sweep()


def test_of_what_sweeps_do_nothing_is_said(bench: Bench) -> None:
    live_through(bench)
    verify = Verify(bench)
    assert (verify.says(), verify.waiting(), bench.table.waiting) == ([], 3, 3)


def test_one_that_has_been_due_for_a_while_is_stuck_unless_something_holds_it(bench: Bench) -> None:
    bench.named(LATE_MS - 9, 1)
    bench.named(LATE_MS - 1, 2)
    bench.named(LATE_MS, 1, name=b"in time")
    verify = Verify(bench)
    [(kind, says)] = verify.says()
    assert (kind, says.split(", due")[0]) == ("stuck", "changelog/1/2: entry with a name"), "records and marks of transactions"
    assert Verify(bench, scope_end=2).says() == []
    verify.blocked = "paused"
    assert verify.says() == [("unchecked", "due, and blocked: paused")]


def test_one_that_was_cancelled_is_not_stuck(bench: Bench) -> None:
    bench.named(LATE_MS - 9, 1)
    bench.cancel(2)
    verify = Verify(bench)
    assert (verify.says(), verify.waiting()) == ([], 0)


def test_an_end_that_leaves_an_earlier_one_behind_is_torn(bench: Bench) -> None:
    bench.named(LATE_MS + 9, 1)
    key = bench.named(LATE_MS + 9, 2)
    bench.named(LATE_MS + 9, 2, name=b"other")
    bench.write([(key, None)])  # type: ignore[list-item]
    said = "changelog/1/6: ended an entry with a name, and left an earlier one at changelog/1/0"
    assert Verify(bench).says() == [("torn", said)]
    assert Verify(bench, scope_end=6).says() == []


def damage_rows(rows: list[ChangelogRow], how: str) -> list[ChangelogRow]:
    """A table that is not the fold."""
    first = rows[0]
    return {
        "lacks a row": rows[1:],
        "has another row": [(first[0], b"?"), *rows[1:]],
        "has a row too many": [*rows, (entry_keys.make_key_due_at(first[0], 5), first[1])],
    }[how]


@pytest.mark.parametrize("how", ["lacks a row", "has another row", "has a row too many"])
def test_a_table_that_is_not_the_fold_is_named(bench: Bench, how: str) -> None:
    live_through(bench)
    rows: list[ChangelogRow] = [row[1:] for row in bench.table.scan_entries(b"", 1_000)]
    [(kind, says)] = Verify(bench, stored=damage_rows(rows, how)).says()
    assert (kind, says.split(": of ")[0]) == ("table", f"0: {how}")


def test_names_with_a_record_behind_the_table_are_passed_over(bench: Bench) -> None:
    bench.named(LATE_MS + 9, 1, name=b"before")
    bench.named(LATE_MS + 9, 1)
    before = [row[1:] for row in bench.table.scan_entries(b"", 9)]
    bench.named(LATE_MS + 9, 2)
    assert Verify(bench, stored=before, complete=False).says() == []
    assert [kind for kind, _ in Verify(bench, stored=[], complete=False).says()] == ["table"]
