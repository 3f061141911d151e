"""Compares what two policy files would have made of the same failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.advice.replay import Expected, Start, replay, unjudged_rules
from retry.analytics.html.format import noun
from retry.analytics.text_table import align_rows
from retry.policies.registry import Registry
from retry.printable import escape_unprintable

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
    unjudged = sorted({*unjudged_rules(now, starts), *unjudged_rules(tried, starts)})
    return {"now": _plain(_sum(both[0])), "tried": _plain(_sum(both[1])), "kinds": kinds, "unjudged": unjudged}


def format_comparison(comparison: Mapping[str, Any]) -> list[str]:
    """The comparison as a table for people."""
    rows: list[tuple[str, ...]] = [("", "", "letters", "retries", "unobserved", "recovered", "parked", "p50", "p90")]
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
    never = f"{attempts:,.0f} {retries} never made, {delays:,.0f} after delays that were never seen"
    yield f"{which}: {never}"
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
    return {name: getattr(each, name) for name in _NAMES} | {"p50_ms": each.wait_ms(0.5), "p90_ms": each.wait_ms(0.9)}


def _sum(by_kind: Mapping[Kind, Expected]) -> Expected:
    together = Expected()
    for each in by_kind.values():
        together.add(each)
    return together
