"""What the next week brings, if letters come and recover as they did: not the same failures again, but others like them.

The unit is the day: what failed first in 24 hours, counted back from the end, days without failures included. The week is a sum
of seven such days, which are as different from each other as they were; and their mean is not known any better than they tell.
Of few days Student's t makes the interval wider. It is that of a gamma distribution, since sums are not below 0, and a day of an
outage has many times the letters of the others. Where weeks without any letter are to be expected, it begins at 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.episodes import Episode
from retry.analytics.statistics import Chance, Z, gamma_quantile, t_quantile

_DAY_MS, _WEEK_DAYS = 86_400_000, 7
_DAYS_LEAST = 2
_TEAMS_MAX = 20
# The part of weeks that may be below the interval, and above it.
_SIDE = 0.025
# Below, the lower bound is nothing that could be told from 0.
_SHAPE_LEAST = 0.02


def forecast_week(evidence: Mapping[Kind, Evidence], since_ms: int, until_ms: int) -> list[dict[str, Any]]:
    """Forecast letters and recoveries of the next week, of all teams (`team` is None) and of those with most letters.

    Gives `team`, `letters` that will be retried with `letters_low` and `letters_high`, `recovered` of them with `recovered_low`
    and `recovered_high` (95 %), `episodes` that it rests on and `weeks` that were seen; nothing of less than two days.
    """
    days = (until_ms - since_ms) // _DAY_MS
    if days < _DAYS_LEAST:
        return []
    by_team: dict[str | None, list[Episode]] = {None: []}
    for kind, each in evidence.items():
        by_team.setdefault(kind.team, []).extend(each.episodes)
        by_team[None].extend(each.episodes)
    rows = [{"team": team, **_forecast_row(each, days, until_ms)} for team, each in by_team.items()]
    return sorted(rows, key=lambda row: (row["team"] is not None, -row["letters"], row["team"] or ""))[: _TEAMS_MAX + 1]


def _forecast_row(episodes: Sequence[Episode], days: int, until_ms: int) -> dict[str, Any]:
    letters, recovered = [0] * days, [0] * days
    for each in episodes:
        day = (until_ms - each.start_ms) // _DAY_MS
        if 0 <= day < days:
            letters[day] += each.ends_of(1).ended + each.ends_of(1).unknown
            recovered[day] += sum(ends.recovered for ends in each.ends)
    sums = {"letters": forecast_sum(letters), "recovered": forecast_sum(recovered)}
    named = {
        f"{name}{suffix}": value for name, each in sums.items()
        for suffix, value in (("", each.likely), ("_low", each.low), ("_high", each.high))
    }  # fmt: skip
    return {**named, "episodes": len({(each.run_ms, each.block) for each in episodes}), "weeks": days / _WEEK_DAYS}


def forecast_sum(days: Iterable[int]) -> Chance:
    """Forecast what seven more days bring together, of what each day brought; the interval is the week's, not that of the mean.

    >>> [round(each) for each in forecast_sum([100] * 30)]
    [641, 700, 761]
    """
    seen = [*days]
    mean = sum(seen) / len(seen)
    if not mean:
        return Chance(0.0, 0.0, 0.0)
    # Of equal days it is that of independent letters.
    spread = max(mean, sum((each - mean) ** 2 for each in seen) / (len(seen) - 1))
    week = _WEEK_DAYS * mean
    variance = (_WEEK_DAYS + _WEEK_DAYS**2 / len(seen)) * spread * (t_quantile(len(seen) - 1) / Z) ** 2
    shape, scale = week**2 / variance, variance / week
    # Where most days bring nothing, so may all seven, of which that distribution knows nothing.
    is_quiet = (sum(not each for each in seen) / len(seen)) ** _WEEK_DAYS > _SIDE
    low = gamma_quantile(shape, _SIDE) * scale if shape > _SHAPE_LEAST and not is_quiet else 0.0
    return Chance(low, week, max(week, gamma_quantile(shape, 1 - _SIDE) * scale) if math.isfinite(scale) else math.inf)
