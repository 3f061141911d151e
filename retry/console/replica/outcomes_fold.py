"""Records of the outcomes topic → how many failed, were due and came back, by what they have in common and the hour; and the
newest outcomes one by one, for timelines.

A retry came back where its lineage fails again. Both are counted when the retry was due, as far as that is known.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from xxhash import xxh3_128_digest

from retry import clock, format_versions
from retry.console.replica.regrouping import Regrouping
from retry.console.replica.sql_rows import insert, rows
from retry.kafka.interface import Message
from retry.telemetry import outcomes
from retry.telemetry.offset_records import KEY as POSITION_KEY

# Of the hour that is not over, what was due already is known to ten seconds.
SLOT_MS, HOUR_MS, DAY_MS = 10_000, 3_600_000, 86_400_000
# A little more than is shown.
_KEPT_MS, _SLOTS_KEPT_MS = 26 * HOUR_MS, 2 * HOUR_MS
_RECENT_MAX = 1_000_000
_HEARD_MS = 30 * DAY_MS
_KNOWN_MAX = 50_000
_FAILED, _DUE, _CAME_BACK = range(3)


class OutcomeCell(NamedTuple):
    """What outcomes have in common; see the columns of `outcome_cells`."""

    team: str | None
    topic: str | None
    attempt: int
    cause: str | None
    fingerprint: str | None
    consumer_group: str | None

    @property
    def frames(self) -> None:
        """Nothing of a stack is told with an outcome."""
        return


_COLUMNS = ", ".join(OutcomeCell._fields)
_RECENT = 'recent (lineage, attempt, cell, partition, "offset", failed_ms, due_ms, taken_ms, decision, reason, target)'
# Of each the last, since it comes last.
_BEFORE = (
    ("lineage", "cell", "due_ms"),
    "FROM recent WHERE lineage IN (SELECT value FROM json_each(?)) AND attempt = ? ORDER BY id",
)


class OutcomesFold:
    """For the thread that folds."""

    def __init__(self, connection: sqlite3.Connection, grouping: Regrouping, trouble: Callable[[str], None]) -> None:
        self._connection, self._grouping, self._trouble = connection, grouping, trouble
        self._ids: dict[OutcomeCell, int] = {}
        self._counts: Counter[tuple[int, int, int]] = Counter()
        self._times: dict[int, tuple[int, int]] = {}

    def fold(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
        # What is not heard of for long is pruned.
        self._ids.clear()
        self._counts.clear()
        self._times.clear()
        since_ms = clock.wall_ms() - _KEPT_MS
        for message in messages:
            if message.key() == POSITION_KEY:
                continue
            try:
                for alike in _alike(message.value() or b""):
                    self._take(alike, since_ms)
            except (KeyError, TypeError, ValueError) as error:
                self._trouble(f"{message.topic()}/{partition}/{message.offset()}: no outcome: {error!r:.200}")
        self._write()

    def regroup(self) -> None:
        """Merges or splits have changed."""
        cells = self._connection.execute(f"SELECT id, {_COLUMNS} FROM outcome_cells").fetchall()
        groups = [(self._grouping.group_of(OutcomeCell(*cell[1:])), cell[0]) for cell in cells]
        self._connection.executemany("UPDATE outcome_cells SET group_id = ?1 WHERE id = ?2 AND group_id IS NOT ?1", groups)

    def prune(self) -> None:
        """Forget what is not shown any more."""
        now_ms = clock.wall_ms()
        self._connection.execute("DELETE FROM outcome_hours WHERE hour < ?", ((now_ms - _KEPT_MS) // HOUR_MS,))
        self._connection.execute("DELETE FROM outcome_slots WHERE slot < ?", ((now_ms - _SLOTS_KEPT_MS) // SLOT_MS,))
        self._connection.execute("DELETE FROM outcome_cells WHERE last_ms < ?", (now_ms - _HEARD_MS,))
        self._connection.execute("DELETE FROM recent WHERE id <= (SELECT max(id) FROM recent) - ?", (_RECENT_MAX,))

    def _take(self, alike: Mapping[str, Any], since_ms: int) -> None:
        attempt, failed_ms = int(alike["attempt"]), alike["failed_ms"]
        cause = alike.get("cause") or alike["exception"]
        cell = OutcomeCell(alike["team"], alike["topic"], attempt, cause, alike.get("fingerprint"), alike.get("group"))
        number = self._id_of(cell)
        self._note_times(number, min(alike["first_failed_ms"]), max(failed_ms))
        if alike["taken_ms"] < since_ms:
            return
        for slot, n in Counter(at // SLOT_MS for at in failed_ms).items():
            self._counts[number, slot, _FAILED] += n
        for slot, n in Counter(at // SLOT_MS for at in alike["due_ms"] if at is not None).items():
            self._counts[number, slot, _DUE] += n
        if attempt > 1:
            self._note_back(cell._replace(attempt=attempt - 1), alike)
        shared = [alike.get(name) for name in ("taken_ms", "decision", "reason", "target")]
        each = zip(alike["id"], alike["offset"], failed_ms, alike["due_ms"], strict=True)
        letters = [(id_, attempt, number, alike["partition"], offset, failed, due, *shared) for id_, offset, failed, due in each]
        insert(self._connection, _RECENT, letters)

    def _note_back(self, before: OutcomeCell, alike: Mapping[str, Any]) -> None:
        """Retries that failed again: of the kind that they failed with before, where that is known."""
        wanted = orjson.dumps(alike["id"]).decode()
        known = {id_: (cell, due_ms) for id_, cell, due_ms in rows(self._connection, *_BEFORE, (wanted, before.attempt))}
        for id_, failed_ms in zip(alike["id"], alike["failed_ms"], strict=True):
            cell, due_ms = known.get(id_) or (self._id_of(before), None)
            self._counts[cell, (failed_ms if due_ms is None else due_ms) // SLOT_MS, _CAME_BACK] += 1

    def _note_times(self, number: int, first_ms: int, last_ms: int) -> None:
        first, last = self._times.get(number, (first_ms, last_ms))
        self._times[number] = min(first, first_ms), max(last, last_ms)

    def _id_of(self, cell: OutcomeCell) -> int:
        if (found := self._ids.get(cell)) is not None:
            return found
        digest = xxh3_128_digest(repr(tuple(cell)).encode("utf-8", "surrogatepass"))
        row = self._connection.execute("SELECT id FROM outcome_cells WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            made = self._connection.execute(
                f"INSERT INTO outcome_cells (digest, group_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (digest, self._grouping.group_of(cell), *cell),
            )
            row = (made.lastrowid,)
        self._ids[cell] = int(row[0])
        return self._ids[cell]

    def _write(self) -> None:
        hours: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        slots: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        for (cell, slot, what), n in self._counts.items():
            hours[cell, slot * SLOT_MS // HOUR_MS][what] += n
            if what != _FAILED:
                slots[cell, slot][what - 1] += n
        insert(
            self._connection, "outcome_hours", [(*at, *counts) for at, counts in hours.items()],
            "ON CONFLICT (cell, hour) DO UPDATE SET failed = failed + excluded.failed, due = due + excluded.due,"
            " came_back = came_back + excluded.came_back",
        )  # fmt: skip
        insert(
            self._connection, "outcome_slots", [(*at, *counts) for at, counts in slots.items()],
            "ON CONFLICT (cell, slot) DO UPDATE SET due = due + excluded.due, came_back = came_back + excluded.came_back",
        )  # fmt: skip
        self._connection.executemany(
            "UPDATE outcome_cells SET first_ms = min(coalesce(first_ms, ?1), ?1), last_ms = max(coalesce(last_ms, ?2), ?2)"
            " WHERE id = ?3", ((first, last, number) for number, (first, last) in self._times.items()),
        )  # fmt: skip


def _alike(value: bytes) -> Sequence[Mapping[str, Any]]:
    """The objects of a record, each of letters that have much in common, whatever its version.

    Raises:
      KeyError, TypeError, ValueError: it is no outcome, or one of a newer version.
    """
    record = orjson.loads(value)
    if format_versions.OUTCOME.newer(record["v"]):
        raise ValueError(format_versions.OUTCOME.told(record["v"]))
    if "letters" in record:
        return [{**alike, "taken_ms": record["taken_ms"]} for alike in record["letters"]]
    return [_listed(letter) for letter in outcomes.read(value)]


def _listed(letter: Mapping[str, Any]) -> Mapping[str, Any]:
    """An outcome of a former version, which tells of one letter, as one of many."""
    _, partition, offset = letter["source"].split("/")
    lists = {name: [letter.get(name)] for name in ("id", "first_failed_ms", "failed_ms", "due_ms")}
    return {**letter, **lists, "partition": int(partition), "offset": [int(offset)]}
