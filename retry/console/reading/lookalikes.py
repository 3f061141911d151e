"""Two groups that may be one failure: of the same class, with messages that hardly differ. Only people merge them.

Messages are compared word by word, without what stands for numbers and ids and without punctuation: by that alone no two failures
differ. Of the other words at least four of five must be the same, in the same order. A word with a digit is an error code, which
was left in the message because it tells failures apart: where these differ nothing is alike.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from heapq import nlargest
from itertools import combinations
from typing import NamedTuple

import orjson

from retry.console.folding import notes
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading.group_states import FAILED_CELLS
from retry.console.reading.groups import CountedGroup
from retry.console.reading.lists import select_teams
from retry.console.rows import Scope

# So many groups are compared, those with most letters, and of each class so many: at most 120 pairs of a class.
_GROUPS_MAX, _OF_CLASS_MAX, _FOUND_MAX = 200, 16, 3
_WORDS_MAX = 60
_ALIKE = 0.8
_WORD = re.compile(r"\w+")


class Similar(NamedTuple):
    id: str
    message: str | None
    letters: int
    teams: tuple[str, ...]


class Lookalike(NamedTuple):
    """Two groups of one class that may be one failure; `into` has more letters."""

    cause: str
    into: Similar
    other: Similar


def find_lookalikes(connection: sqlite3.Connection, scope: Scope, counted: Iterable[CountedGroup]) -> tuple[Lookalike, ...]:
    """Find pairs among groups, those with most letters first; pairs of which somebody said that they differ are left out."""
    most = nlargest(_GROUPS_MAX, counted, key=lambda each: (each.letters, each.id))
    by_class: defaultdict[str, list[Similar]] = defaultdict(list)
    for cause, each in _read_messages(connection, scope, most):
        if len(by_class[cause]) < _OF_CLASS_MAX:
            by_class[cause].append(each)
    apart = {key for key, _ in notes.list_notes(connection, notes.APART)}
    found = [
        Lookalike(cause, into, other)
        for cause, similar in by_class.items() for into, other in combinations(similar, 2)
        if is_near(into.message, other.message) and notes.apart_key(into.id, other.id) not in apart
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda each: -each.other.letters)[:_FOUND_MAX])


# Of the same pairs the same is asked every two seconds.
@lru_cache(4_096)
def is_near(one: str | None, other: str | None) -> bool:
    """Whether two messages, as `retry.telemetry.fingerprint.in_common` has them, may be of one failure.

    >>> is_near("posting # failed", "posting #: failed"), is_near("HTTP status 503", "HTTP status 404")
    (True, False)
    """
    words, others = _split_words(one), _split_words(other)
    if not words or not others or _list_codes(words) != _list_codes(others):
        return False
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    return matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _split_words(message: str | None) -> list[str]:
    return _WORD.findall((message or "").casefold())[:_WORDS_MAX]


def _list_codes(words: Collection[str]) -> list[str]:
    return [word for word in words if any(char.isdigit() for char in word)]


def _read_messages(connection: sqlite3.Connection, scope: Scope, groups: Iterable[CountedGroup]) -> Iterator[tuple[str, Similar]]:
    letters = {each.id: each.letters for each in groups}
    in_scope, teams = select_teams(scope)
    # Of a row with `max` SQLite gives the other columns of the row that has it.
    rows = select_rows(
        connection, ("group_id", "coalesce(cause, exception)", "common", "json_group_array(DISTINCT team)", "max(letters)"),
        f"FROM cells WHERE {FAILED_CELLS} AND group_id IN (SELECT value FROM json_each(?)){in_scope} GROUP BY group_id",
        (bind_ids(letters), *teams),
    )  # fmt: skip
    for group, cause, message, of_teams, _ in sorted(rows, key=lambda row: (-letters[row[0]], row[0])):
        if cause:
            yield cause, Similar(group, message, letters[group], tuple(sorted(filter(None, orjson.loads(of_teams)))))
