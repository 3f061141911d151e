"""The bounded record of recent lineages: how often each letter was sent, whatever came back with it.

Headers are a letter's word for its own history, and they may be dropped or forged. So every batch of intake writes packed
records of what it decided, in the same transaction as its entries, and every worker folds these records into `RecentLineages`. A
letter that comes back is known by its lineage, or, where its headers are gone, by the fingerprint of what does not change on the
way: dead-letter topic, key and value. All of that is kept by team, so that nobody can say anything of another team's letters, and
no team's letters are forgotten for another one's.

| module | what it is |
| --- | --- |
| `lineages` | letters → 64-bit numbers: the lineage, its text, the fingerprint; decisions of one batch ↔ bytes |
| `ring_buffer` | the newest rows of a team, found by lineage and by fingerprint |
| `equal_letters` | sends of equal letters, counted |
| `team_lineages` | all of it together, of one team |
| `attempt_counter` | which record a letter is an attempt of, and how many it has had |
| `lineage_follower` | folds the topic of what other workers decided |

Here they are put together for all teams, in bounded memory; and which step of which ramp put a lineage.
"""

from __future__ import annotations

from collections.abc import Iterable

from retry.delay_queue import ramp_records
from retry.intake.attempts.lineages import (
    MATCHED,
    SECOND_MAX,
    LineageFields,
    LineageTopic,
    TeamRows,
    belongs_to,
    build_fields,
    describe_failing_consumer,
    find_lineage,
    format_retry_id,
    format_retry_ids,
    hash_payload,
    hash_payloads,
    hash_team,
    make_fingerprint,
    make_fingerprints,
    make_lineage,
    make_lineages,
    make_move_row,
    pack,
    pack_records,
    parse_retry_id,
    parse_retry_ids,
    shorten_team_number,
    unpack,
)
from retry.intake.attempts.team_lineages import KnownLineage, TeamLineages

__all__ = [
    "MATCHED", "SECOND_MAX", "KnownLineage", "LineageFields", "LineageTopic", "RampedLineages", "RecentLineages", "TeamLineages",
    "belongs_to", "build_fields", "describe_failing_consumer", "find_lineage", "format_retry_id", "format_retry_ids",
    "hash_payload", "hash_payloads", "hash_team", "make_fingerprint", "make_fingerprints", "make_lineage", "make_lineages",
    "make_move_row", "pack", "pack_records", "parse_retry_id", "parse_retry_ids", "shorten_team_number", "unpack",
]  # fmt: skip


# Which step of which ramp put a letter: for those that come back without the header that says so.
#
# Records of lineages that an action has written are keyed by what its letters say in `retry-action`. The latest counts: a
# letter that another action has moved since is that one's.

class RampedLineages:
    """The ramp step that put each lineage last, by team; at most `limit` lineages of all teams. About 130 bytes each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_team: dict[int, dict[int, tuple[bytes, int]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_team.values()))

    def apply_record(self, key: bytes, packed: bytes) -> None:
        """Take in a record that an action has written; raises LineageUnreadable as `unpack`, and takes in nothing of it then."""
        told, mark = unpack(packed), ramp_records.read_mark(key)
        known = self._by_team.setdefault(told.team, {})
        for number, *_ in told.rows:
            known.pop(number, None)
            if mark is not None:
                known[number] = mark
        for _ in range(len(self) - self._limit):
            most = max(self._by_team.values(), key=len)
            del most[next(iter(most))]

    def find_step(self, team: str, lineage: int) -> tuple[bytes, int] | None:
        """Find the action, and its step, that put a lineage last; None where that was not a ramp."""
        return self._by_team.get(hash_team(team), {}).get(lineage)


# A level takes some 300 bytes, a lineage 70.
_LINEAGES_PER_LEVEL = 32
_LEVELS_MIN = 64


class RecentLineages:
    """Lineages by team: no more than `limit` of all teams together."""

    def __init__(self, limit: int) -> None:
        self._limit = max(2, limit)
        self._levels_max = max(_LEVELS_MIN, limit // _LINEAGES_PER_LEVEL)
        self._by_team: dict[int, TeamLineages] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_team.values()))

    def bytes_used(self) -> int:
        return sum(lineages.bytes_used() for lineages in self._by_team.values())

    def find_team(self, team: str) -> TeamLineages:
        """Return the lineages of a team; a team that has none yet gets an empty record from then on."""
        return self._find_by_number(hash_team(team))

    def _find_by_number(self, number: int) -> TeamLineages:
        found = self._by_team.get(number)
        if found is None:
            found = self._by_team[number] = TeamLineages()
        return found

    def apply_batch(self, packed: bytes) -> None:
        """Take in what one batch decided of letters of one team; raises as `unpack`, and takes in nothing of it then."""
        told = unpack(packed)
        lineages = self._find_by_number(told.team)
        levels = lineages.level_count
        lineages.apply_sends(told.rows, told.row_count, self._make_room(told))
        if lineages.level_count > levels:
            self._forget_levels()

    def _make_room(self, told: TeamRows) -> int:
        """Have teams that have more than their share give way to rows that come; how many of their team may be kept."""
        wanted = {number: len(lineages) for number, lineages in self._by_team.items()}
        wanted[told.team] += told.row_count
        if sum(wanted.values()) <= self._limit:
            return self._limit
        share = compute_equal_share(wanted.values(), self._limit)
        for number, rows in wanted.items():
            if rows > share and number != told.team:
                self._by_team[number].limit_rows(share)
        return share

    def _forget_levels(self) -> None:
        while sum(lineages.level_count for lineages in self._by_team.values()) > self._levels_max:
            max(self._by_team.values(), key=lambda lineages: lineages.level_count).forget_oldest_level()


def compute_equal_share(wanted: Iterable[int], room: int) -> int:
    """Compute the most that each may have where all together want more than there is room for.

    >>> compute_equal_share([100, 2_000, 3], 1_000), compute_equal_share([600, 600, 3], 1_000)
    (897, 498)
    """
    rest, share = sorted(wanted), room
    for position, rows in enumerate(rest):
        share = room // (len(rest) - position)
        if rows > share:
            break
        room -= rows
    return share
