"""Which group a failure counts in, after what operators have merged and split, in the order in which they did it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Protocol

import msgspec

from retry.format_versions import Number, make_json_decoder

SPLIT_BY = ("frames", "topic", "consumer-group", "attempt")
CHANGE = "change/"
# Behind the id of what was split, in those of its parts.
PART = "~"


class Alike(Protocol):
    """The values of a failure that decide its group, as `retry.console.folding.letter_record.Cell` has them."""

    @property
    def fingerprint(self) -> str | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def consumer_group(self) -> str | None: ...
    @property
    def attempt(self) -> int | None: ...
    @property
    def frames(self) -> str | None: ...


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A merge of `groups` into the group `into`, or a split of the only one of them by `by_what`, which is one of `SPLIT_BY`."""

    groups: tuple[str, ...]
    by: str
    at_ms: Number
    into: str = ""
    by_what: str = ""
    v: int = 1


decode_change = make_json_decoder(Change, "change of groups")


class Regrouping:
    """Changes as they stand, by id."""

    def __init__(self, changes: dict[str, Change]) -> None:
        self._of_group: dict[str, list[tuple[int, Change]]] = {}
        # As which change a group was split first and last, and as which another was merged into it last.
        self._first_split: dict[str, int] = {}
        self._last_split: dict[str, int] = {}
        self._last_merge: dict[str, int] = {}
        self.replace(changes)

    @classmethod
    def read_notes(cls, connection: sqlite3.Connection) -> Regrouping:
        return cls(changes(connection))

    def replace(self, changes: dict[str, Change]) -> None:
        for each in (self._of_group, self._first_split, self._last_split, self._last_merge):
            each.clear()
        for n, change in enumerate(sorted(changes.values(), key=lambda each: each.at_ms)):
            for group in change.groups:
                self._of_group.setdefault(group, []).append((n, change))
                if change.by_what:
                    self._first_split.setdefault(group, n)
                    self._last_split[group] = n
            if change.into:
                self._last_merge[self._resolve_split(change.into, n)] = n

    def group_of(self, failure: Alike) -> str | None:
        """Find the group of a failure; None where nothing is known of the failure."""
        group = failure.fingerprint
        return None if group is None else self._follow_splits(group, failure, -1)

    def resolve_group(self, group: str) -> str:
        """Return the group that a merged group counts in now, or its own id.

        Merges before or after a change that made the group anew are not followed: the group is its own since.
        """
        came = self._last_merge.get(group, -1), self._last_split.get(group.rpartition(PART)[0], -1)
        return self._follow_splits(group, None, max(came))

    def in_group(self, group: str) -> Callable[[Alike], bool]:
        """Whether a failure counts in a group as it is now: as what it was merged into, or with all that it was split into."""
        wanted = self.resolve_group(group)

        def is_in(failure: Alike) -> bool:
            found = self.group_of(failure)
            return found is not None and (found == wanted or found.startswith(f"{wanted}{PART}"))

        return is_in

    def _follow_splits(self, group: str, failure: Alike | None, done: int) -> str:
        while found := next(((n, each) for n, each in self._of_group.get(group, ()) if n > done), None):
            done, change = found
            if change.into:
                group = self._resolve_split(change.into, done)
            elif failure is None:
                return group
            else:
                group = build_part_id(group, change.by_what, find_split_value(failure, change.by_what))
        return group

    def _resolve_split(self, group: str, merge: int) -> str:
        """A group as it stands for a merge: where a split was undone, what had been merged into a part of it counts in the whole.
        """
        whole, *parts = group.split(PART)
        for part in parts:
            if self._first_split.get(whole, merge) >= merge:
                break
            whole += PART + part
        return whole


def find_split_value(failure: Alike, by_what: str) -> str | None:
    """Return a failure's value of one of `SPLIT_BY`, as text; None where it has none."""
    found = getattr(failure, by_what.replace("-", "_"))
    return None if found is None else str(found)


def build_part_id(group: str, by_what: str, found: str | None) -> str:
    """Build the id of one of the groups into which a split divides a group."""
    text = f"{by_what}\0{'' if found is None else '=' + found}"
    return f"{group}{PART}{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


def changes(connection: sqlite3.Connection) -> dict[str, Change]:
    rows = connection.execute("SELECT key, value FROM notes WHERE key >= ? AND key < ?", (CHANGE, CHANGE[:-1] + "0"))
    return {key.removeprefix(CHANGE): decode_change(value) for key, value in rows}
