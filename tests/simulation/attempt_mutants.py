"""The product with one rule of how attempts are counted switched off, for the table in `mutants`.

| mutant | what it does |
| --- | --- |
| any-team | lineages are made of the record that failed alone, and counted for all teams together |
| any-topic | the same within each team: whose dead-letter topic a letter was written to says nothing of who failed |
| foreign-ids | an id that another team's letter was given counts, and so does what comes with it |
| flood-forgets | what was recorded longest ago is forgotten first, whichever team's it is |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

from retry.intake import attempts
from retry.intake.attempts import RecentLineages, lineages
from retry.intake.attempts.lineages import TeamRows
from tests.simulation.plan import LOUD

Patches = list[Any]


def _any_topic() -> Patches:
    return [patch.object(attempts, "describe_failing_consumer", lambda team, _group, _dead_letters: team)]


def _any_team() -> Patches:
    def number(team: str) -> int:
        return int(team == LOUD)

    return [
        patch.object(attempts, "describe_failing_consumer", lambda *_: ""),
        patch.object(lineages, "hash_team", number), patch.object(attempts, "hash_team", number),
    ]  # fmt: skip


def _foreign_ids() -> Patches:
    def read_all(texts: Iterable[bytes], _team: str) -> list[int]:
        return list(map(attempts.parse_retry_id, texts))

    return [patch.object(attempts, "belongs_to", lambda *_: True), patch.object(attempts, "parse_retry_ids", read_all)]


def _flood_forgets() -> Patches:
    def make_room(recent: RecentLineages, told: TeamRows) -> int:
        over = len(recent) + told.row_count - recent._limit
        for of_team in recent._by_team.values():
            of_team.limit_rows(max(0, len(of_team) - max(0, over)))
        return recent._limit

    return [patch.object(RecentLineages, "_make_room", make_room)]


ATTEMPT_MUTANTS: dict[str, Callable[[], Patches]] = {
    "any-team": _any_team, "any-topic": _any_topic, "foreign-ids": _foreign_ids, "flood-forgets": _flood_forgets,
}  # fmt: skip
