"""The advice of every kind of failure as people read it: rows, and a sentence each; most saved, first told."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backoff import duration_text
from retry.analytics.advice.choose_attempts import ENOUGH, KEEP, Advice, choose, count_tried_delays, merge_delays, refuse
from retry.analytics.advice.evidence import OTHER, Evidence, Kind
from retry.analytics.advice.grounds import Coverage
from retry.analytics.html.format import at_most, noun

_TOO_MANY = "these are more kinds of failure than are told apart"


def choose_advice_by_kind(
    evidence: Mapping[Kind, Evidence], planned: Mapping[Kind, Sequence[Sequence[int]]] | None = None,
    *, keep: float = KEEP, enough: int = ENOUGH,
) -> dict[Kind, Advice]:  # fmt: skip
    """Choose the advice for each kind, where most is saved first, and of those alike the kind with more letters. `planned` is
    what the policy file of now has for a kind, see `retry.analytics.advice.replay`; None where there is none."""
    tried = sum(count_tried_delays(each) for each in evidence.values() if each.count_ended(1) >= enough)
    plans = planned or {}
    # A night is seen where a letter of any kind failed in it.
    coverage = Coverage.from_episodes(episode for each in evidence.values() for episode in each.episodes)
    advice = {
        kind: refuse(each, plans.get(kind), _TOO_MANY) if kind.exception == OTHER
        else choose(each, planned=plans.get(kind), keep=keep, enough=enough, comparisons=tried, coverage=coverage)
        for kind, each in evidence.items()
    }
    return dict(sorted(advice.items(), key=lambda one: (-one[1].saved, -one[1].letters, str(one[0]))))


def make_advice_rows(evidence: Mapping[Kind, Evidence], advice: Mapping[Kind, Advice]) -> list[dict[str, Any]]:
    """Make a row for each advice.

    It has the fields of the advice, `team`, `exception`, `topics` and `policies` that it is about, `where` (these as a text where
    letters of this exception differ by them, else empty), `saved`, `changes`, `recovery` (the part of the letters that recovers
    now), `recoveries_at_risk`, and `hazards`: of each attempt `attempt`, `at_risk`, `hazard`, `hazard_low`, `hazard_high`.
    """
    rows = []
    alike = Counter((kind.team, kind.exception) for kind in advice)
    for kind, each in advice.items():
        observed = evidence[kind]
        hazards = [
            dict(zip(("hazard_low", "hazard", "hazard_high"), observed.hazard(n), strict=True))
            | {"attempt": n, "at_risk": observed.count_ended(n)}
            for n in range(1, observed.attempts + 1)
        ]
        recovery = each.recoveries_now / each.letters if each.letters else None
        more = {"saved": each.saved, "recoveries_at_risk": each.recoveries_at_risk, "changes": each.changes, "recovery": recovery}
        named = kind._asdict() | {"topics": list(kind.topics), "policies": list(kind.policies)}
        where = _where(kind, advice) if alike[kind.team, kind.exception] > 1 else ""
        rows.append({**named, "where": where, **dataclasses.asdict(each), **more, "hazards": hazards})
    return rows


def _where(kind: Kind, kinds: Iterable[Kind]) -> str:
    """Name the topics that tell a kind from others of its exception, or its policies."""
    others = [each for each in kinds if each[:2] == kind[:2] and each is not kind]
    is_by_topic = not any({*kind.topics} & {*each.topics} for each in others)
    first, *more = kind.topics if is_by_topic else kind.policies
    return f"{first} and {len(more)} more" if more else first


def sum_saving(advice: Mapping[Kind, Advice], keep: float = KEEP) -> dict[str, float]:
    """Sum up all of it: `retries` that need not be made, `of` how many, their `share`, and what is `kept_low` of the recoveries
    of each kind."""
    saved = sum(each.saved for each in advice.values() if each.changes)
    made = sum(each.retries_now for each in advice.values())
    return {"retries": saved, "of": made, "share": saved / made if made else 0.0, "kept_low": keep}


# Advice on one kind of failure, in words.

def describe_advice(row: Mapping[str, Any]) -> str:
    """Say in words what to do, what that saves, and what it keeps; the row is one of `make_advice_rows`."""
    if row["verdict"] == "unknown":
        few = f"too few; {row['missing']:,} more whose end is known {noun(row['missing'], 'is', 'are')} needed"
        return f"not sure yet: {row['reason']}" if row["reason"] else few
    is_fewer = row["verdict"] == "fewer"
    attempts = f"keep {row['attempts']} {noun(row['attempts'], 'attempt')}"
    parts = [f"{row['attempts']} of {row['attempts_now']} attempts" if is_fewer else attempts]
    for first, last, delay_ms in merge_delays(row["delays_ms"]):
        parts.append(f"attempt{f' {first}' if first == last else f's {first} to {last}'} after {duration_text(delay_ms)}")
    if is_fewer:
        parts.append(f"saves {row['saved']:,.0f} {noun(row['saved'], 'retry', 'retries')}")
        kept = f"keeps at least {row['kept_low']:.1%} of the recoveries"
        never = f"none ever recovered, at most {at_most(row['recoveries_at_risk'])} would; one stays as a probe"
        parts.append(kept if row["recoveries_now"] else never)
    if row["base"] and row["verdict"] != "keep":
        parts.append(row["base"])
    if row["missing"]:
        parts.append(f"{row['missing']:,} more last {noun(row['missing'], 'attempt')} would tell whether that one is worth it")
    return ", ".join(parts)
