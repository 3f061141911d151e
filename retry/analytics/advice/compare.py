"""What would have been: what two policy files make of the same failures, and what older advice would have done to newer ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from retry.analytics.advice.choose_attempts import Advice
from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.advice.replay import Expected, Start, list_unjudged_rules, replay
from retry.analytics.episodes import bound_share, compute_share
from retry.analytics.html.format import noun
from retry.analytics.statistics import Counts
from retry.policies.registry import Registry
from retry.printable import align_rows, escape_unprintable

_NAME_CHARS_MAX = 60
_NAMES = (
    "letters", "retries", "unobserved", "unobserved_attempts", "unobserved_delays", "recovered", "recovered_low",
    "recovered_high", "parked",
)  # fmt: skip


def compare_policies(
    now: Registry, tried: Registry, starts: Sequence[Start], evidence: Mapping[Kind, Evidence]
) -> dict[str, Any]:
    """Return what is expected under the policy file of now and under the one that is tried.

    `now` and `tried` have for all letters `letters`, `retries`, `unobserved` of them (of which it is not known what they bring:
    `unobserved_attempts` and `unobserved_delays`), `recovered` with `recovered_low` and `recovered_high`, `parked`, `p50_ms` and
    `p90_ms` of the time to recovery; `kinds` has these for each team and exception, where most retries differ first;
    `unjudged` names the rules of either with conditions that outcomes cannot answer.
    """
    both = replay(now, starts, evidence), replay(tried, starts, evidence)
    kinds = [
        {"team": kind.team, "exception": kind.exception, "now": _plain(both[0][kind]), "tried": _plain(both[1][kind])}
        for kind in sorted(both[0], key=lambda kind: (-abs(both[0][kind].retries - both[1][kind].retries), str(kind)))
    ]
    unjudged = sorted({*list_unjudged_rules(now, starts), *list_unjudged_rules(tried, starts)})
    return {"now": _plain(_sum(both[0])), "tried": _plain(_sum(both[1])), "kinds": kinds, "unjudged": unjudged}


def format_comparison(comparison: Mapping[str, Any]) -> list[str]:
    names = ("letters", "retries", "unobserved", "recovered", "parked", "p50", "p90")
    rows: list[tuple[str, ...]] = [("these same failures", "", *names)]
    for kind in [{"team": "all", "exception": ""} | {name: comparison[name] for name in ("now", "tried")}, *comparison["kinds"]]:
        for which in ("now", "tried"):
            # A name may hold anything, and this goes to a terminal and into comments.
            name = f"{kind['team']} {kind['exception']}".strip() if which == "now" else ""
            rows.append((escape_unprintable(name, _NAME_CHARS_MAX), which, *_cells(kind[which])))
    notes = [note for which in ("now", "tried") for note in _describe_unobserved(which, comparison[which])]
    if comparison["unjudged"]:
        unjudged = ", ".join(comparison["unjudged"])
        notes.append(f"not judged, since outcomes do not tell message, headers, stage or value: {unjudged}")
    return align_rows(rows, names=2) + notes


def _describe_unobserved(which: str, each: Mapping[str, Any]) -> Iterator[str]:
    if each["unobserved"] < 0.5:
        return
    attempts, delays = each["unobserved_attempts"], each["unobserved_delays"]
    retries = noun(attempts, "retry is of an attempt that was", "retries are of attempts that were")
    yield f"{which}: {attempts:,.0f} {retries} never made, {delays:,.0f} after delays that were never seen"
    yield (
        "  nobody knows what they bring: the bounds have them recover none, and all;"
        " the likely number is that of outages which end when they end"
    )


def _cells(each: Mapping[str, Any]) -> list[str]:
    times = ["-" if each[name] is None else f"{each[name] / 1000:,.1f} s" for name in ("p50_ms", "p90_ms")]
    bounds = f"{each['recovered']:,.0f} ({each['recovered_low']:,.0f} to {each['recovered_high']:,.0f})"
    letters, retries, unobserved, parked = (f"{each[name]:,.0f}" for name in ("letters", "retries", "unobserved", "parked"))
    return [letters, retries, unobserved, bounds, parked, *times]


def _plain(each: Expected) -> dict[str, Any]:
    return {name: getattr(each, name) for name in _NAMES} | {"p50_ms": each.find_wait_ms(0.5), "p90_ms": each.find_wait_ms(0.9)}


def _sum(by_kind: Mapping[Kind, Expected]) -> Expected:
    together = Expected()
    for each in by_kind.values():
        together.add(each)
    return together


# What advice that was made of older letters would have done to newer ones, which were really retried as often as before.
#
# Fewer attempts can be tried on the past: each retry of a newer letter beyond them would have been left out, and each recovery
# beyond them lost. Other delays cannot: nobody waited so long.

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
    of_rest = _replay_letters(list(rest.values()), None)
    rest_counts = of_rest["_counts"]
    for name in _SUMS:
        together[name] += of_rest[name]
    delays = sum(each.changes and bool(each.delays_ms) for each in advice.values())
    counts = [each for row in rows for each in row.pop("_counts")] + rest_counts
    return {"all": together | _share(together["kept"], together["recovered"], counts), "kinds": rows, "delays": delays}


def format_backtest(found: Mapping[str, Any]) -> Iterator[str]:
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
    """Sum up the letters of one advice, with so many attempts; None for all that they had."""
    every = [cell for each in met for cell in each.every]
    within = [cell for cell in every if attempts is None or cell.attempt <= attempts]
    retries, recovered = sum(cell.letters for cell in every), sum(cell.recovered for cell in every)
    kept = sum(cell.recovered for cell in within)
    left_out = retries - sum(cell.letters for cell in within)
    sums = {"letters": sum(each.letters for each in met), "retries": retries, "left_out": left_out}
    counts = [
        (sum(ends.recovered for ends in episode.ends[:attempts]), sum(ends.recovered for ends in episode.ends))
        for each in met for episode in each.episodes
    ]  # fmt: skip
    return {**sums, "recovered": recovered, "kept": kept, "_counts": counts, **_share(kept, recovered, counts)}


def _share(kept: int, recovered: int, counts: list[Counts]) -> dict[str, float | None]:
    """The share with its bounds, of what was kept and recovered in each episode; of letters, where no episodes are known."""
    bounds = compute_share(counts) if counts else bound_share(kept, recovered, recovered)
    low, likely, high = bounds if recovered else (None, None, None)
    return {"kept_share": likely, "kept_low": low, "kept_high": high}
