"""What is recorded of one team is nothing of another's, and no team's flood has another one's letters forgotten."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retry.intake.attempts import RecentLineages, build_fields, pack
from retry.intake.attempts.lineages import LineageFields

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
TEAM, OTHERS = "payments", "shop"


def sent_fields(lineage: int, print_: int, attempt: int = 1) -> LineageFields:
    return build_fields(lineage, print_, NOW_MS, NOW_MS, attempt)


def flood(team: str, first: int, count: int) -> bytes:
    """A record of so many letters that failed for the first time."""
    return pack(team, [sent_fields(n, n) for n in range(first, first + count)])


def known_of(lineages: RecentLineages, team: str, among: range) -> list[int]:
    """Which of these lineages are known, by their number and by their fingerprint alike."""
    of_team = lineages.find_team(team)
    found = [n for n in among if of_team.sends(n)]
    assert found == [n for n in among if of_team.find_returned(n, NOW_MS, DAY_MS)]
    return found


def test_what_is_recorded_of_one_team_is_nothing_of_another_s() -> None:
    lineages = RecentLineages(100)
    lineages.apply_batch(pack(OTHERS, [sent_fields(1, 7), sent_fields(1, 7, 2)]))
    of_team = lineages.find_team(TEAM)
    assert (of_team.sends(1), of_team.find_returned(7, NOW_MS, DAY_MS), of_team.list_known([7])) == (None, None, [])
    assert not of_team.is_out(7, 2, NOW_MS)


@pytest.mark.parametrize("portion", [1, 7, 400, 5_000])
def test_a_flood_of_one_team_has_no_other_team_s_letters_forgotten(portion: int) -> None:
    lineages = RecentLineages(1_000)
    lineages.apply_batch(flood(TEAM, 1, 300))
    for first in range(1, 20_000, portion):
        lineages.apply_batch(flood(OTHERS, first, portion))
        assert len(lineages) <= 1_000
    assert known_of(lineages, TEAM, range(1, 301)) == list(range(1, 301))
    newest = range(first + portion - 700, first + portion)
    assert known_of(lineages, OTHERS, range(1, first + portion)) == list(newest)
    lineages.apply_batch(flood(TEAM, 301, 100))
    assert known_of(lineages, TEAM, range(1, 401)) == list(range(1, 401))
    assert known_of(lineages, OTHERS, range(1, first + portion)) == list(newest[100:])


def test_teams_that_have_more_than_an_equal_share_keep_as_much_as_each_other() -> None:
    lineages = RecentLineages(1_000)
    for team, count in {"a": 3_000, "b": 900, "c": 100, "d": 700}.items():
        lineages.apply_batch(flood(team, 1, count))
    assert {team: len(lineages.find_team(team)) for team in "abcd"} == {"a": 300, "b": 300, "c": 100, "d": 300}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 60)), max_size=30), st.integers(0, 1 << 32).map(random.Random))
@example([*[("a", 1)] * 3, ("a", 30), ("b", 33), ("c", 33), ("d", 2), ("a", 2)], random.Random(0))
def test_what_is_kept_does_not_depend_on_how_records_of_teams_were_mixed(
    portions: list[tuple[str, int]], draw: random.Random
) -> None:
    """Read the records of one team in their order, and those of several in any.

    Shares are whole numbers. What is left over is less than there are teams, and whose it is depends on who comes last.
    """
    records_of: dict[str, list[bytes]] = {team: [] for team in "abcd"}
    added: Counter[str] = Counter()
    order = []
    for team, count in portions:
        records_of[team].append(flood(team, added[team] + 1, count))
        added[team] += count
        order.append(team)
    known = []
    for _ in range(2):
        lineages, left = RecentLineages(100), {team: iter(found) for team, found in records_of.items()}
        for team in order:
            lineages.apply_batch(next(left[team]))
        known.append({team: known_of(lineages, team, range(1, added[team] + 1)) for team in "abcd"})
        draw.shuffle(order)
    for team, count in added.items():
        one, other = (found[team] for found in known)
        assert abs(len(one) - len(other)) < len(added)
        assert all(found == list(range(count - len(found) + 1, count + 1)) for found in (one, other))


def test_memory_is_given_back_by_a_team_that_gives_way() -> None:
    lineages = RecentLineages(50_000)
    for n, team in enumerate("abcdefgh"):
        for first in range(1, 60_000, 5_000):
            lineages.apply_batch(flood(team, first, 5_000))
        assert 50_000 - n <= len(lineages) <= 50_000
        assert lineages.bytes_used() < 2 * 80 * 50_000


def test_sends_of_equal_letters_of_one_team_are_not_forgotten_for_another_s() -> None:
    lineages = RecentLineages(100)
    lineages.apply_batch(pack(TEAM, [sent_fields(1, 7), sent_fields(2, 7, 2)]))
    for n in range(10, 1_000):
        lineages.apply_batch(pack(OTHERS, [sent_fields(2 * n, n), sent_fields(2 * n + 1, n, 2)]))
    found = [lineages.find_team(TEAM).find_returned(7, NOW_MS, DAY_MS, skip) for skip in range(2)]
    assert [known.attempts for known in found if known] == [1, 2]
    assert sum(lineages.find_team(team).level_count for team in (TEAM, OTHERS)) <= 64
