"""The topic `<app>-notes`: what operators write of kinds of failures, saved filters, and what consoles have told whom."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from sqlite3 import Connection
from typing import NamedTuple

from retry import clock
from retry.console.folding import notes, regrouping
from retry.console.folding.folding_process import FoldingProcess
from retry.console.folding.notes import (
    FILTER,
    NOTE,
    RESOLVED,
    TARGET,
    TELLING,
    TOLD,
    Apart,
    FailingTarget,
    KeptFilter,
    Note,
    Record,
    Resolved,
    Telling,
    Told,
)
from retry.console.folding.regrouping import CHANGE, SPLIT_BY, Change
from retry.console.rows import SavedFilter, Scope
from retry.errors import ActionRefused, WriteNotShown
from retry.kafka import client_config, topics
from retry.kafka.record_producer import Records
from retry.operations.letter_filter.parse import parse
from retry.settings import Settings

_WRITTEN_S, _SHOWN_S = 15.0, 5.0
CHARS_MAX = {"owner": 200, "note": 4_000, "link": 2_000, "name": 100}


class Notes:
    """Writes to `<app>-notes`; what this process has written it shows at once.

    A write returns when Kafka has acknowledged it and the replica has it. It raises RecordUnwritten where it is not known whether
    it was written, and WriteNotShown where the replica does not have it within five seconds.
    """

    def __init__(
        self, settings: Settings, follower: FoldingProcess, reading: Callable[[], AbstractContextManager[Connection]]
    ) -> None:
        self._settings, self._follower, self._reading = settings, follower, reading
        self._topic = topics.build_topic_names(settings.app_id).notes

    def set_note(self, group: str, *, owner: str, note: str, link: str, by: str, teams: Collection[str] = ()) -> None:
        """Say whose a kind of failures is, and what is known of it; without teams all may read it. Raises ActionRefused."""
        _demand_short(owner=owner, note=note, link=link)
        if link and not link.startswith(("https://", "http://")):
            raise ActionRefused("a link begins with https:// or http://")
        record = Note(owner, note, link, by, clock.wall_ms(), tuple(teams)) if owner or note or link else None
        self._write(NOTE + group, record)

    def merge(self, groups: Collection[str], into: str, by: str) -> str:
        """Count kinds of failures as another one; returns an id for `undo_regrouping`. Raises ActionRefused: nothing to merge."""
        others = tuple(sorted(set(groups) - {into}))
        if not others:
            raise ActionRefused("a group is merged with others: choose two at least")
        return self._write_change(Change(others, by, clock.wall_ms(), into=into))

    def keep_apart(self, group: str, other: str, by: str) -> None:
        """Say that two groups that look the same are two failures."""
        self._write(notes.build_apart_key(group, other), Apart(by, clock.wall_ms()))

    def split(self, group: str, by_what: str, by: str) -> str:
        """Split a group by one of `SPLIT_BY`; returns an id for `undo_regrouping`. Raises ActionRefused where it is another."""
        if by_what not in SPLIT_BY:
            raise ActionRefused(f"a group is split by one of {', '.join(SPLIT_BY)}")
        return self._write_change(Change((group,), by, clock.wall_ms(), by_what=by_what))

    def undo_regrouping(self, change: str, by: str) -> bool:  # noqa: ARG002 the next release writes it down
        """Take back a merge or a split; False where there is none of this id."""
        with self._reading() as connection:
            known = change in regrouping.changes(connection)
        if known:
            self._write(CHANGE + change, None)
        return known

    def changes(self, group: str) -> list[tuple[str, str, str, int]]:
        """List the merges and splits that apply to a group: id, description in words, author, and time in ms of each."""
        with self._reading() as connection:
            known = regrouping.changes(connection)
        found = [(id_, each) for id_, each in known.items() if group == each.into or _is_part(group, each)]
        told = [(id_, _describe_change(each), each.by, each.at_ms) for id_, each in found]
        return sorted(told, key=lambda each: each[3])

    def resolve(self, group: str, by: str) -> None:
        """Mark a group of failures as resolved: nothing is to be done. A letter that fails later opens the group again."""
        self._write(RESOLVED + group, Resolved(by, clock.wall_ms()))

    def reopen(self, group: str, by: str) -> None:  # noqa: ARG002 as `undo_regrouping`
        self._write(RESOLVED + group, None)

    def save_filter(self, name: str, text: str, team: str, by: str) -> None:
        """Keep a filter for a team, or, where it is empty, for everybody; raises FilterInvalid, and ActionRefused for a bad name.
        """
        parse(text, groups=True)
        _demand_short(name=name)
        if not name.strip():
            raise ActionRefused("a filter that is kept has a name")
        self._write(f"{FILTER}{team}/{name}", KeptFilter(text, by, clock.wall_ms()))

    def delete_filter(self, name: str, team: str, by: str) -> None:  # noqa: ARG002 as `undo_regrouping`
        self._write(f"{FILTER}{team}/{name}", None)

    def filters(self, scope: Scope) -> list[SavedFilter]:
        with self._reading() as connection:
            rows = notes.list_notes(connection, FILTER)
        found = []
        for key, value in rows:
            team, _, name = key.removeprefix(FILTER).partition("/")
            kept = notes.kept_filter(value)
            if not team or scope is None or team in scope:
                found.append(SavedFilter(name, kept.text, team, kept.by))
        return sorted(found, key=lambda each: (each.name, each.team))

    def close(self) -> None:
        if "_records" in self.__dict__:
            self._records.close()

    def _write_change(self, change: Change) -> str:
        id_ = secrets.token_hex(8)
        self._write(CHANGE + id_, change)
        return id_

    def _write(self, key: str, record: Record | None) -> None:
        if not self.write_records({key: record}):
            raise WriteNotShown

    def write_records(self, records: Mapping[str, Record | None]) -> bool:
        """Write records by key, all of them before one is waited for; None deletes one. Returns whether all are shown yet."""
        under_way = []
        for key, record in records.items():
            partition = notes.find_partition(key, self._partitions)
            value = None if record is None else notes.encode_note(record)
            under_way.append((partition, self._records.write(self._topic, partition, key.encode(), value)))
        deadline = clock.Deadline(_WRITTEN_S)
        offsets = [(partition, written.result(deadline.remaining_s())) for partition, written in under_way]
        return all(self._follower.has_folded(self._topic, partition, at, _SHOWN_S) for partition, at in dict(offsets).items())

    @cached_property
    def _records(self) -> Records:
        return Records(client_config.build_records_config(self._settings))

    @cached_property
    def _partitions(self) -> int:
        described = topics.describe(client_config.connect_admin(self._settings), [self._topic])
        if self._topic not in described:
            raise ActionRefused(f"{self._topic} is missing: retry topics create")
        return described[self._topic].partitions


def _demand_short(**texts: str) -> None:
    for name, text in texts.items():
        if len(text) > CHARS_MAX[name]:
            raise ActionRefused(f"{name} has {len(text):,} characters; {CHARS_MAX[name]:,} is the most")


def _is_part(group: str, change: Change) -> bool:
    """Whether a change has to do with a group: it is one of those that were merged or split, or came of a split."""
    return any(group == each or (change.by_what != "" and group.startswith(f"{each}~")) for each in change.groups)


def _describe_change(change: Change) -> str:
    groups = ", ".join(change.groups)
    return f"{groups} counts as {change.into}" if change.into else f"{groups} is split by {change.by_what}"


class ToldEvent(NamedTuple):
    target: str
    event: str


class ToldEvents:
    """Reads what was told from the replica, and writes it; `write` returns once Kafka has records and the replica shows them."""

    def __init__(
        self, write: Callable[[Mapping[str, Record | None]], object], reading: Callable[[], AbstractContextManager[Connection]]
    ) -> None:
        self._write, self._reading = write, reading

    def list_told(self) -> dict[ToldEvent, Told]:
        with self._reading() as connection:
            rows = notes.list_notes(connection, TOLD)
        return {ToldEvent(*key.removeprefix(TOLD).split("/", 1)): notes.told(value) for key, value in rows if key.count("/") > 1}

    def list_beginnings(self) -> dict[str, Telling]:
        with self._reading() as connection:
            return {key.removeprefix(TELLING): notes.telling(value) for key, value in notes.list_notes(connection, TELLING)}

    def list_failing(self) -> dict[str, FailingTarget]:
        with self._reading() as connection:
            return {key.removeprefix(TARGET): notes.failing_target(value) for key, value in notes.list_notes(connection, TARGET)}

    def write_told(self, told: Mapping[ToldEvent, Told | None]) -> None:
        """Write down what was told; None takes it back, so that it is told again. Raises RecordUnwritten, as those below."""
        self._write({f"{TOLD}{target}/{event}": record for (target, event), record in told.items()})

    def write_beginnings(self, beginnings: Mapping[str, Telling | None]) -> None:
        self._write({f"{TELLING}{rule}": record for rule, record in beginnings.items()})

    def write_failing(self, target: str, record: FailingTarget | None) -> None:
        self._write({f"{TARGET}{target}": record})
