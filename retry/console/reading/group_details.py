"""One kind of failures in detail: when its letters failed, where, what became of their retries, and what was done before.

Nothing here looks at letters: all of it is counted by what they have in common while they come and go, so that it costs the same
with a million letters as with ten.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from retry.console.folding import notes, regrouping
from retry.console.folding.attempts import HOUR_MS, KNOWN_BACK, KNOWN_SENT, PENDING, SLOT_MS
from retry.console.folding.outcomes_fold import MINUTE_MS
from retry.console.folding.regrouping import Regrouping
from retry.console.folding.sql import bind_ids, select_column, select_rows
from retry.console.reading import lists
from retry.console.reading.filter_sql import conjuncts
from retry.console.reading.groups import HOURS, OF_GROUP
from retry.console.reading.now import sum_recoveries
from retry.console.rows import Recovery, Scope
from retry.errors import FilterInvalid
from retry.operations.letter_filter.fields import GROUP
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Glob, Term

VALUES_MAX, BEFORE_MAX = 10, 10
# Actions whose letters are looked at; of older ones nobody asks on this page.
_ACTIONS_MAX = 200
_IN = "IN (SELECT value FROM json_each(?))"


class Period(NamedTuple):
    """A stretch of time up to now, in bars of equal length; a narrow screen has `joined` of them as one, which are whole hours or
    days: so the last may not have begun yet."""

    name: str
    bar_ms: int
    bars: int
    joined: int


PERIODS = {
    each.name: each for each in (
        Period("1h", 3 * MINUTE_MS, 20, 2), Period("24h", HOUR_MS, 24, 2), Period("7d", 8 * HOUR_MS, 21, 3),
    )
}  # fmt: skip


class FailureBar(NamedTuple):
    """How many letters failed from one moment up to another, which is the first that does not count."""

    from_ms: int
    to_ms: int
    failed: int


class CommonValue(NamedTuple):
    """A value that letters of a group share, None where it is not known, and how many have it; `topic` is that of a partition."""

    by: str
    value: str | None
    letters: int
    topic: str = ""


class PastEvent(NamedTuple):
    """Something that was done about a group: an action on letters of it, or what somebody wrote of it.

    Attributes:
      what: a kind of action, or `note`, `resolved`, `merged`, `split`.
      letters, done: how many letters of the viewer's teams the action was about, of this group and others, and had it done.
    """

    at_ms: int
    what: str
    by: str
    text: str = ""
    action: str = ""
    letters: int = 0
    done: int = 0


class GroupDetails(NamedTuple):
    """All that the page of one group shows beside the group itself.

    Attributes:
      common: the largest values of each of `COMMON_BY`, most letters first.
      recovery: of the retries of the last 24 hours, by attempt.
    """

    bars: tuple[FailureBar, ...]
    common: tuple[CommonValue, ...]
    recovery: tuple[Recovery, ...]
    before: tuple[PastEvent, ...]


COMMON_BY = ("topic", "partition", "consumer-group", "version", "attempt", "frames")


def join_bars(bars: Iterable[FailureBar], joined: int) -> Iterator[FailureBar]:
    """Make one bar of several that follow on each other.

    >>> list(join_bars([FailureBar(0, 1, 5), FailureBar(1, 2, 7)], 2))
    [FailureBar(from_ms=0, to_ms=2, failed=12)]
    """
    each = iter(bars)
    for some in zip(*[each] * joined, strict=True):
        yield FailureBar(some[0].from_ms, some[-1].to_ms, sum(bar.failed for bar in some))


class DetailsQuery:
    """One query for the details of a group, as one viewer may see them."""

    def __init__(self, connection: sqlite3.Connection, scope: Scope, group_id: str, now_ms: int) -> None:
        self._connection, self._scope, self._now_ms = connection, scope, now_ms
        self._grouping = Regrouping.read_notes(connection)
        self._group = self._grouping.resolve_group(group_id)
        self._in_scope, self._teams = lists.select_teams(scope)
        self._outcomes = self._select_cells("outcome_cells", "")
        self._letters = self._select_cells("cells", " AND state IN ('waiting', 'parked') AND letters > 0")

    def load(self, period: Period) -> GroupDetails:
        return GroupDetails(
            tuple(self._build_bars(period)), tuple(self._count_common()), sum_recoveries(self._count_retries()),
            tuple(sorted(self._list_before(), key=lambda each: -each.at_ms)[:BEFORE_MAX]),
        )  # fmt: skip

    def _select_cells(self, table: str, more: str) -> str:
        """Numbers of the group's cells, as a parameter for `json_each`."""
        rest = f"FROM {table} WHERE {OF_GROUP}{more}{self._in_scope}"
        return bind_ids(select_column(self._connection, "id", rest, (self._group, *self._teams)))

    def _build_bars(self, period: Period) -> Iterator[FailureBar]:
        table, unit, unit_ms = ("minutes", "minute", MINUTE_MS) if period.bar_ms < HOUR_MS else ("hours", "hour", HOUR_MS)
        units = period.bar_ms // unit_ms
        first = (self._now_ms // (period.bar_ms * period.joined) + 1) * period.joined - period.bars
        counts = dict(select_rows(
            self._connection, (f"{unit} / {units}", "sum(failed)"),
            f"FROM outcome_{table} WHERE cell {_IN} AND {unit} >= ? AND {unit} < ? GROUP BY 1",
            (self._outcomes, first * units, (first + period.bars) * units),
        ))  # fmt: skip
        for n in range(first, first + period.bars):
            yield FailureBar(n * period.bar_ms, (n + 1) * period.bar_ms, counts.get(n, 0))

    def _count_common(self) -> Iterator[CommonValue]:
        for by in COMMON_BY:
            if by == "partition":
                yield from self._count_partitions()
                continue
            rest = f"FROM cells WHERE id {_IN} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?"
            columns = by.replace("-", "_"), "sum(letters)"
            for value, count in select_rows(self._connection, columns, rest, (self._letters, VALUES_MAX)):
                yield CommonValue(by, None if value is None else str(value), count)

    def _count_partitions(self) -> Iterator[CommonValue]:
        rest = (
            f"FROM cell_partitions p JOIN cells c ON c.id = p.cell WHERE p.cell {_IN} AND c.topic IS NOT NULL"
            " GROUP BY c.topic, p.partition ORDER BY 3 DESC, 1, 2 LIMIT ?"
        )
        columns = "c.topic", "p.partition", "sum(p.letters)"
        for topic, partition, count in select_rows(self._connection, columns, rest, (self._letters, VALUES_MAX)):
            yield CommonValue("partition", str(partition), count, topic)

    def _count_retries(self) -> Iterator[Sequence[int]]:
        """Count the retries of the last 24 hours by attempt, as `sum_recoveries` takes them."""
        first = self._now_ms // HOUR_MS - HOURS + 1
        for table, since, columns in (
            ("outcome_hours", f"hour >= {first}", ("sum(sent)", "sum(came_back)", "0")),
            ("outcome_slots", f"slot >= {first * HOUR_MS // SLOT_MS}", (KNOWN_SENT, KNOWN_BACK, PENDING)),
        ):
            rest = f"FROM {table} JOIN outcome_cells ON id = cell WHERE cell {_IN} AND {since} GROUP BY attempt"
            yield from select_rows(self._connection, ("attempt", *columns), rest, (self._outcomes,))

    # What was done before.

    def _list_before(self) -> Iterator[PastEvent]:
        yield from self._list_actions()
        yield from self._list_notes()

    def _list_actions(self) -> Iterator[PastEvent]:
        visible = lists.list_visible_actions(lists.read_controls(self._connection), self._scope)[:_ACTIONS_MAX]
        members = {each.id.hex(): each.action.members for each in visible}
        asked = {each.id.hex(): each for each in visible if self._asks_for_group(each.action.filter)}
        cells = self._select_cells("cells", "")
        moved = f"FROM cell_actions WHERE cell {_IN} ORDER BY action LIMIT ?"
        ids = asked.keys() | set(select_column(self._connection, "DISTINCT action", moved, (cells, _ACTIONS_MAX)))
        told = select_rows(
            self._connection, ("action", "kind", "by", "max(reason)", "min(at_ms)", "sum(letters)", "sum(done)"),
            f"FROM audit WHERE action {_IN} AND shard >= 0{self._in_scope} GROUP BY action ORDER BY 5 DESC LIMIT ?",
            (bind_ids(ids), *self._teams, BEFORE_MAX),
        )  # fmt: skip
        for action, kind, by, reason, at_ms, letters, done in told:
            # While it goes on the audit has no more letters than it has come to.
            yield PastEvent(at_ms, kind, by, reason, action, max(letters, members.get(action, 0)), done)
        # What was only just asked for is in no audit yet.
        for action, each in asked.items():
            if action not in {row[0] for row in told} and not each.tally.slices:
                head = each.action
                yield PastEvent(head.asked_at_ms, head.kind, head.by, head.reason, action, head.members)

    def _asks_for_group(self, words: str) -> bool:
        try:
            asked = parse(words, groups=True)
        except FilterInvalid:
            # Of a release that knows more terms.
            return False
        return any(
            isinstance(each, Term) and each.field == GROUP and isinstance(each.value, Glob)
            and self._grouping.resolve_group(each.value.parts[0]) == self._group for each in conjuncts(asked)
        )  # fmt: skip

    def _list_notes(self) -> Iterator[PastEvent]:
        sees_all = self._sees_all_teams()
        kept = dict(self._connection.execute(
            "SELECT key, value FROM notes WHERE key IN (?, ?)", (notes.NOTE + self._group, notes.RESOLVED + self._group)
        ))  # fmt: skip
        for key, value in kept.items():
            if key.startswith(notes.RESOLVED):
                if sees_all:
                    resolved = notes.resolved(value)
                    yield PastEvent(resolved.at_ms, "resolved", resolved.by)
            elif (note := notes.note(value)).is_for(self._scope):
                owner = f"owner {note.owner}" if note.owner else ""
                lines = [owner, *note.note.split("\n", 1)[:1], note.link]
                yield PastEvent(note.at_ms, "note", note.by, ", ".join(filter(None, lines)))
        if sees_all:
            for change in regrouping.changes(self._connection).values():
                if change.into == self._group:
                    yield PastEvent(change.at_ms, "merged", change.by, f"{', '.join(change.groups)} into it")
                elif self._group in change.groups:
                    yield PastEvent(change.at_ms, "split", change.by, f"by {change.by_what}")

    def _sees_all_teams(self) -> bool:
        """Whether the viewer sees every team with letters of the group: merges, splits and resolutions name people of each."""
        if self._scope is None:
            return True
        of_group = f"WHERE {OF_GROUP} AND team IS NOT NULL"
        statement = f"SELECT team FROM cells {of_group} UNION SELECT team FROM outcome_cells {of_group}"
        return self._scope.issuperset(team for (team,) in self._connection.execute(statement, (self._group,)))
