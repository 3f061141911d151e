"""What is promised of entries with a name, held against every commit.

| problem | meaning |
| --- | --- |
| superseded | fired though the table that it came from knew already what replaced or cancelled it |
| revived | a fired or cancelled one left an earlier version of its name in the changelog, where it counts again |
| duplicate | fired twice, or taken in twice |
| torn | fired without its null, or what goes beside it; a null without either; taken in without its offset |
| early | written before it was due |
| lost | its offset was committed, and it was not taken in |
| stuck | the last version has not fired as often as it should, though nothing goes wrong any more |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import CANCEL, NAMED
from retry.delay_queue.table.named_entries import rank
from retry.kafka.broker_clock import TOLERANCE_MS
from retry.testing.kafka import MemoryRecord, Transaction
from tests.simulation.entry_source import FIRED, HISTORY, RUNS, SCHEDULES, SOURCE, source
from tests.simulation.keys import OBSERVER
from tests.simulation.violation import Violation, want

_OURS = (FIRED, HISTORY, SCHEDULES)


@dataclass(slots=True)
class Schedule:
    """A message: how often it has to fire if nothing replaces it, and which of its runs it has made."""

    record: MemoryRecord
    runs: int
    taken: bool = False
    fired: set[int] = field(default_factory=set)


@dataclass
class Schedules:
    """Every schedule, by its coordinates.

    Attributes:
      live: keys that stand in the changelog, by name.
    """

    schedules: dict[str, Schedule] = field(default_factory=dict)
    live: dict[bytes, set[bytes]] = field(default_factory=dict)
    _read: dict[int, int] = field(default_factory=dict)
    _runs: dict[bytes, int] = field(default_factory=dict)

    def written(self, record: MemoryRecord, runs: int) -> None:
        """Somebody asked for something; a cancel fires never."""
        self.schedules[source(record)] = Schedule(record, runs)

    def takes(self, record: MemoryRecord, changelog: str) -> bool:
        """Whether a record of a transaction is looked at here, and nowhere else."""
        return record.topic() in _OURS or (record.topic() == changelog and (record.key() or b"")[:1] == bytes([NAMED]))

    def appended(self, about: str, handed: tuple[bytes, int], rows: list[Any], clock_ms: int, brokers_ms: int) -> None:
        """A worker wrote a delivery; nobody knows yet whether it counts.

        Args:
          handed: its key as the table handed it out, and how far the table was folded then.
          rows: committed rows of its shard.
        """
        key, folded = handed
        due_ms = entry_keys.due_at_ms(key)
        want(clock_ms >= due_ms and brokers_ms >= due_ms - TOLERANCE_MS, "early", about)
        name = entry_keys.name_of(key)
        for offset, other, value in rows:
            if value is not None and other[0] == NAMED and offset < folded and entry_keys.name_of(other) == name:
                is_lesser = rank(other) <= rank(key)
                want(is_lesser, "superseded", f"{about} by {entry_keys.read_source(other)}, at {offset} of {folded}")

    def committed(self, transaction: Transaction, records: list[MemoryRecord]) -> None:
        """A transaction was decided, and will be seen; `records` are those that `takes` has said yes to."""
        fired: dict[str, MemoryRecord] = {}
        beside: dict[tuple[str, bytes | None], int] = {}
        changes: list[tuple[bytes, bytes | None]] = []
        for record in records:
            if record.topic() == FIRED:
                about = _header(record, SOURCE).decode()
                want(about not in fired, "duplicate", f"{about} twice at once")
                fired[about] = record
            elif record.topic() in (HISTORY, SCHEDULES):
                at = record.topic(), record.key()
                beside[at] = beside.get(at, 0) + 1
            else:
                changes.append((record.key() or b"", record.value()))
        self._positions(transaction, self._put(changes))
        self._ended(changes, fired, beside)
        want(not fired, "torn", f"fired and not ended: {', '.join(fired)}")
        want(not any(beside.values()), "torn", f"beside nothing: {beside}")

    def _put(self, changes: list[tuple[bytes, bytes | None]]) -> list[str]:
        """Which were taken in; the others come again."""
        nulls, taken = {key for key, value in changes if value is None}, []
        for key, value in changes:
            if value is None:
                continue
            about = describe_place(key)
            schedule = self.schedules.get(about)
            if schedule is None:
                raise Violation(f"phantom: {about}")
            if not schedule.taken:
                schedule.taken = True
                taken.append(about)
            else:
                want(any(describe_place(other) == about for other in nulls), "duplicate", f"{about} was taken in twice")
            self.live.setdefault(entry_keys.name_of(key), set()).add(key)
            plan = OBSERVER.decode_named(key, value).plan
            self._runs[key] = plan.run if plan else 0
        return taken

    def _ended(self, changes: Any, fired: dict[str, MemoryRecord], beside: dict[tuple[str, bytes | None], int]) -> None:
        again = {describe_place(key) for key, value in changes if value is not None}
        for key, value in changes:
            if value is not None:
                continue
            about, live = describe_place(key), self.live.get(entry_keys.name_of(key), set())
            want(key in live, "duplicate", f"{about} has ended already")
            live.discard(key)
            lower = [other for other in live if rank(other) < rank(key)]
            greater = len(live) > len(lower)
            want(greater or not lower, "revived", f"{', '.join(map(describe_place, lower))} by the end of {about}")
            if about in fired:
                self._fire(about, key, fired.pop(about), beside)
            else:
                want(greater or about in again or key.startswith(CANCEL), "torn", f"{about} was ended and did not fire")

    def _fire(self, about: str, key: bytes, record: MemoryRecord, beside: dict[tuple[str, bytes | None], int]) -> None:
        schedule = self.schedules[about]
        want(self._runs[key] not in schedule.fired, "duplicate", f"{about} fired before, run {self._runs[key]}")
        want(self._runs[key] < schedule.runs, "phantom", f"{about} has no run {self._runs[key]}")
        same = (record.key(), record.value()) == (schedule.record.key(), schedule.record.value())
        want(same, "wrong", f"{about} was changed")
        schedule.fired.add(self._runs[key])
        for topic in (HISTORY, SCHEDULES) if schedule.runs == 1 else (HISTORY,):
            want(beside.get((topic, record.key()), 0) > 0, "torn", f"{about} fired without its record on {topic}")
            beside[topic, record.key()] -= 1

    def _positions(self, transaction: Transaction, taken: list[str]) -> None:
        expected = []
        for (_, topic, partition), committed in transaction.positions.items():
            offset = committed.offset or 0
            if topic == SCHEDULES:
                told = [f"{topic}/{partition}/{n}" for n in range(self._read.get(partition, 0), offset)]
                expected += [about for about in told if about in self.schedules]
                self._read[partition] = offset
        want(set(expected) <= set(taken), "lost", f"{sorted(set(expected) - set(taken))}")
        want(len(expected) == len(taken), "torn", f"taken without their offsets: {sorted(set(taken) - set(expected))}")

    def left(self) -> list[str]:
        """List what is still to happen: schedules not taken in, the last of a name that has not fired often enough, keys."""
        last = {each.record.key(): about for about, each in self.schedules.items()}
        found = [about for about, each in self.schedules.items() if not each.taken]
        found += [about for about in last.values() if len(self.schedules[about].fired) < self.schedules[about].runs]
        return found + [describe_place(key) for keys in self.live.values() for key in keys]

    def due_ms(self) -> list[int]:
        """When those that wait are due."""
        return [entry_keys.due_at_ms(key) for keys in self.live.values() for key in keys if not key.startswith(CANCEL)]


def runs_of(every_ms: int) -> int:
    """How often a schedule fires."""
    return RUNS if every_ms else 1


def describe_place(key: bytes) -> str:
    where = entry_keys.read_source(key)
    return f"{where.topic}/{where.partition}/{where.offset}"


def _header(record: MemoryRecord, name: str) -> bytes:
    return next(value for found, value in record.headers() or [] if found == name) or b""
