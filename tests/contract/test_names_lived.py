"""Names through sweeps, a fold that goes on meanwhile, and owners that come and go, on real tables: what counts fires, once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Recurrence
from retry.delay_queue.table import watermarks
from retry.delay_queue.table import watermarks as of_names
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.testing.memory_table import MemoryTable
from tests.support.bench import CHANGELOG, NOW_MS, Bench
from tests.support.tables import ALL, rocks

RUNS, EVERY_MS = 3, 40


class Service(Bench):
    """A shard with a fold of its own pace: while a batch is delivered, too.

    Attributes:
      runs: how often each version of each name has to fire, in the order of versions; 0 is a cancel.
    """

    def __init__(self, path: Path | None, chance: random.Random) -> None:
        self.path, self.made, self.chance = path, 0, chance
        super().__init__(self._opened())
        self.log.create("copies", 1)
        self.runs: dict[bytes, dict[int, int]] = {}
        commit, begin = self.writer.commit, self.writer.begin
        self.writer.begin = lambda: (self.fold_some(), begin())[1]  # type: ignore[method-assign]
        self.writer.commit = lambda: (commit(), self.fold_some())[0]  # type: ignore[method-assign]

    def _opened(self) -> Table:
        return MemoryTable() if self.path is None else rocks(self.path / str(self.made))

    def rows(self) -> list[ChangelogRow | None]:
        """The changelog by offsets; marks of transactions are None."""
        records = {r.offset(): (r.key() or b"", r.value()) for r in self.log.read(CHANGELOG.topic) if r.partition() == 1}
        return [records.get(n) for n in range(max(records, default=-2) + 2)]

    def fold_some(self) -> None:
        """A few records more, or none."""
        at, rows = self.table.next_offset, self.rows()
        upto = self.chance.randint(at, max(at, len(rows)))
        self.table.apply_records([row for row in rows[at:upto] if row], upto, NOW_MS)

    def crash(self) -> None:
        """The next owner has the table as it was left, or none; it reads all there is, or what compaction left of it."""
        self.table.close()
        if self.path is None or self.chance.random() < 0.5:
            self.made += 1
            self.table = self._opened()
            rows = self.rows()
            last = {row[0]: n for n, row in enumerate(rows) if row}
            thin = self.chance.random() < 0.5
            for n, row in enumerate(rows):
                gone = row and thin and (last[row[0]] != n or (row[1] is None and self.chance.random() < 0.5))
                self.table.apply_records([] if row is None or gone else [row], n + 1, NOW_MS)
        else:
            self.table = self._opened()
        self.fold()

    def ask(self, now_ms: int, version: int) -> None:
        """Something at a later time, some of it again and again, or never."""
        chance, name = self.chance, self.chance.choice([b"a", b"b", b"c"])
        what, due_ms = chance.random(), now_ms + chance.randint(-20, 60)
        runs = 0 if what < 0.2 else RUNS if what < 0.5 else 1
        self.runs.setdefault(name, {})[version] = runs
        if runs == 0:
            self.cancel_later(version, name, now_ms)
            return
        plan = Recurrence(0, due_ms, every_ms=EVERY_MS, end_ms=due_ms + (RUNS - 1) * EVERY_MS) if runs > 1 else None
        also = (envelopes.Also("copies", 0, name, None, copies_entry=True),)
        self.named(due_ms, version, b"%b/%d" % (name, version), name=name, fold=False, also=also, plan=plan)

    def cancel_later(self, version: int, name: bytes, now_ms: int) -> None:
        of, stem = entry_keys.hash_name("door", "schedules", name), entry_keys.build_key_stem("schedules", 0)
        remembered_until_ms = self.chance.choice([0, now_ms, now_ms + 100])
        self.write([envelopes.build_cancel(of, version, stem, version, remembered_until_ms)], fold=False)

    def known(self) -> dict[bytes, int]:
        """The latest version of each name that the table has been told of."""
        found: dict[bytes, int] = {}
        for row in self.rows()[: self.table.next_offset]:
            if row and row[1] is not None:
                name = entry_keys.name_of(row[0])
                found[name] = max(found.get(name, 0), entry_keys.read_version(row[0]))
        return found


def live_through(path: Path | None, seed: int) -> None:
    chance = random.Random(seed)
    service, now_ms, fired = Service(path, chance), NOW_MS, 0
    for version in range(1, 41):
        if version <= 30:
            service.ask(now_ms, version)
        service.fold_some()
        if chance.random() < 0.15:
            service.crash()
        now_ms += chance.randint(0, 30)
        known = service.known()
        service.sweep(now_ms, rows_max=chance.choice([1, 3, 100]))
        told = [(value or b"").split(b"/") for value in service.delivered()]
        for name, of in told[fired:]:
            latest = known.get(entry_keys.hash_name("door", "schedules", name), 0)
            assert int(of) >= latest, f"{name!r} {of!r} was replaced before"
        fired = len(told)
    for _ in range(60):
        now_ms += 30
        service.fold()
        service.sweep(now_ms)
    service.fold()
    count = Counter((value or b"") for value in service.delivered())
    for name, versions in service.runs.items():
        for version, runs in versions.items():
            assert count.pop(b"%b/%d" % (name, version), 0) in ((runs,) if version == max(versions) else range(runs + 1))
    assert not count
    assert Counter(service.delivered("copies")) == Counter(service.delivered())
    table = service.table
    assert (service.live(), table.waiting, table.list_superseded(ALL), table.list_lanes()) == ({}, 0, [], [])
    service.table.close()


@pytest.mark.parametrize("seed", range(120))
def test_what_counts_fires_and_nothing_else_whoever_dies(seed: int) -> None:
    live_through(None, seed)


@pytest.mark.parametrize("seed", range(25))
def test_the_same_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    for module in (watermarks, of_names):
        monkeypatch.setattr(module, "_RECLAIM_EVERY", 2)
    live_through(tmp_path, 1_000 + seed)
