"""What advice that was made of older letters would have done to newer ones, which were really retried as often as before.

Fewer attempts can be tried on the past: each retry of a newer letter beyond them would have been left out, and each recovery
beyond them lost. Other delays cannot: nobody waited so long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retry.analytics.advice.choose_attempts import Advice
from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.html.format import noun
from retry.analytics.statistics.proportions import chance

_SUMS = ("letters", "retries", "left_out", "recovered", "kept")


def backtest(advice: Mapping[Kind, Advice], newer: Mapping[Kind, Evidence]) -> dict[str, Any]:
    """Count the retries that fewer attempts would have left out, and the recoveries that they would have kept.

    Args:
      newer: the evidence of each topic and policy alone; kinds of failure that are not advised on go on as they were.

    Gives `kinds`, a row for each advice of fewer attempts that meets newer letters, and `all`, every newer letter. Both have
    `letters`, `retries`, `left_out` of them, `recovered`, `kept` of them with its share `kept_share`, `kept_low` and `kept_high`
    (95 %; None where nothing recovered). A row of `kinds` also has `team`, `exception`, `topics`, `policies`, `attempts_now`,
    `attempts`. `delays` is the number of advices that are about delays too, which are not tried.
    """
    rows, rest = [], dict(newer)
    for kind, each in advice.items():
        if each.verdict != "fewer":
            continue
        met = [rest.pop(other) for other in list(rest) if _is_of(other, kind)]
        if met:
            named = kind._asdict() | {"topics": list(kind.topics), "policies": list(kind.policies)}
            now = {"attempts_now": each.attempts_now, "attempts": each.attempts}
            rows.append({**named, **now, **_replay_letters(met, each.attempts)})
    together = {name: sum(row[name] for row in rows) for name in _SUMS}
    for name, number in _replay_letters(list(rest.values()), None).items():
        if name in _SUMS:
            together[name] += number
    delays = sum(each.changes and bool(each.delays_ms) for each in advice.values())
    return {"all": together | _share(together["kept"], together["recovered"]), "kinds": rows, "delays": delays}


def format_backtest(found: Mapping[str, Any]) -> Iterator[str]:
    """Render the result of a backtest as lines of text."""
    yield f"all: {_sentence(found['all'])}"
    for row in found["kinds"]:
        where = f" ({', '.join(row['topics'])})" if row["topics"] else ""
        yield f"{row['team']} {row['exception']!r}{where}: {row['attempts']} of {row['attempts_now']} attempts, {_sentence(row)}"
    if found["delays"]:
        advices = f"{found['delays']} {noun(found['delays'], 'advice', 'advices')} of other delays"
        yield f"{advices} {noun(found['delays'], 'was', 'were')} not tried: nobody has waited so long"


def _sentence(row: Mapping[str, Any]) -> str:
    letters, retries = f"{row['letters']:,} {noun(row['letters'], 'letter')}", noun(row["retries"], "retry", "retries")
    said = f"{letters}, {row['left_out']:,} of {row['retries']:,} {retries} left out, "
    if row["kept_share"] is None:
        return said + "nothing recovered"
    bounds = f"{row['kept_low']:.1%} to {row['kept_high']:.1%}"
    recoveries = noun(row["recovered"], "recovery", "recoveries")
    return said + f"{row['kept']:,} of {row['recovered']:,} {recoveries} kept ({row['kept_share']:.1%}, {bounds})"


def _is_of(newer: Kind, kind: Kind) -> bool:
    return newer[:2] == kind[:2] and {*newer.topics} <= {*kind.topics} and {*newer.policies} <= {*kind.policies}


def _replay_letters(met: list[Evidence], attempts: int | None) -> dict[str, Any]:
    """Letters of one advice, with so many attempts; None for all that they had."""
    every = [cell for each in met for cell in each.every]
    within = [cell for cell in every if attempts is None or cell.attempt <= attempts]
    retries, recovered, kept = (
        sum(cell.letters for cell in every), sum(cell.recovered for cell in every), sum(cell.recovered for cell in within)
    )  # fmt: skip
    left_out = retries - sum(cell.letters for cell in within)
    sums = {"letters": sum(each.letters for each in met), "retries": retries, "left_out": left_out}
    return {**sums, "recovered": recovered, "kept": kept, **_share(kept, recovered)}


def _share(kept: int, recovered: int) -> dict[str, float | None]:
    low, likely, high = chance(kept, recovered) if recovered else (None, None, None)
    return {"kept_share": likely, "kept_low": low, "kept_high": high}
