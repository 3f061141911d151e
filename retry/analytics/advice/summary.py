"""The advice of every kind of failure as people read it: rows, a sentence each, and what to do first; most saved, first told."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from backoff import duration_text
from retry.analytics.advice.choose_attempts import ENOUGH, KEEP, Advice, choose, delays_tried, merge_delays
from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.advice.grounds import Coverage
from retry.analytics.advice.policy_rewrite import Advised, difference, is_writable, rule_lines
from retry.analytics.html.format import at_most, noun


def advice_by_kind(
    evidence: Mapping[Kind, Evidence], planned: Mapping[Kind, Sequence[Sequence[int]]] | None = None,
    *, keep: float = KEEP, enough: int = ENOUGH,
) -> dict[Kind, Advice]:  # fmt: skip
    """Choose the advice for each kind, where most is saved first, and of those alike the kind with more letters. `planned` is
    what the policy file of now has for a kind, see `retry.analytics.advice.replay`; None where there is none."""
    tried = sum(delays_tried(each) for each in evidence.values() if each.count_ended(1) >= enough)
    plans = planned or {}
    # A night is seen where a letter of any kind failed in it.
    coverage = Coverage.from_episodes(episode for each in evidence.values() for episode in each.episodes)
    advice = {
        kind: choose(each, planned=plans.get(kind), keep=keep, enough=enough, comparisons=tried, coverage=coverage)
        for kind, each in evidence.items()
    }
    return dict(sorted(advice.items(), key=lambda one: (-one[1].saved, -one[1].letters, str(one[0]))))


def worth(evidence: Mapping[Kind, Evidence], advice: Mapping[Kind, Advice]) -> list[dict[str, Any]]:
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


def saving(advice: Mapping[Kind, Advice], keep: float = KEEP) -> dict[str, float]:
    """Sum up all of it: `retries` that need not be made, `of` how many, their `share`, and what is `kept_low` of the recoveries
    of each kind."""
    saved = sum(each.saved for each in advice.values() if each.changes)
    made = sum(each.retries_now for each in advice.values())
    return {"retries": saved, "of": made, "share": saved / made if made else 0.0, "kept_low": keep}


# Advice on one kind of failure, in words.

def describe_advice(row: Mapping[str, Any]) -> str:
    """Say in words what to do, what that saves, and what it keeps; the row is one of `worth`."""
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


# What to do first: the advice that saves most, each with the rule to write, what it saves, and what it may lose.

# How sure the advice is that no more recoveries are lost than it says.
CONFIDENCE = 0.95
_ACTIONS_MAX = 5
# Fewer retries saved for each recovery that may be lost are not worth doing first.
_SAVED_PER_RECOVERY = 10


class PerRetry(NamedTuple):
    """The average costs of one retry: bytes on the target topic, money, and time of a consumer; None where one is not known."""

    bytes: float = 0.0
    cost: float | None = None
    consumer_ms: float | None = None

    def scale_to(self, retries: float) -> dict[str, float | None]:
        """Return the costs of `retries` retries by name; a cost that is not known stays None."""
        return {name: None if each is None else each * retries for name, each in self._asdict().items()}


def choose_actions(
    advised: Iterable[Advised], *, per_retry: PerRetry | None = None, file: tuple[str, str] | None = None
) -> list[dict[str, Any]]:
    """Choose the five advices that save most retries, the largest first.

    What changes nothing, or saves no whole retry, is no action; nor is what saves fewer than ten retries for each recovery that
    it puts at risk, or is about an exception whose name no rule can hold. `worth` has all advices. `file` is text and name of the
    policy file of now.

    Gives `team`, `exception`, `topics`, `rule` (lines of YAML, to be put before the other rules of these topics), `diff` (lines
    of a unified diff against the policy file; none where there is no file, or it has nothing for such letters), `retries` that
    are saved, their `bytes`, `cost` and `consumer_ms` as in `PerRetry`, `letters`, `recoveries`: expected of them now,
    `recoveries_at_risk`: so many are lost at most, with `confidence`; and `verdict` as in the advice.
    """
    chosen = [each for each in advised if _is_worth_doing(each.advice) and is_writable(each)]
    chosen.sort(key=lambda each: (-each.advice.saved, each.team, each.exception, each.topics))
    made = []
    for each in chosen[:_ACTIONS_MAX]:
        advice = each.advice
        made.append({
            "team": each.team, "exception": each.exception, "topics": list(each.topics), "verdict": advice.verdict,
            "rule": rule_lines(each), "diff": [] if file is None else difference(*file, [each]),
            "retries": advice.saved, **(per_retry or PerRetry()).scale_to(advice.saved), "letters": advice.letters,
            "recoveries": advice.recoveries_now, "recoveries_at_risk": advice.recoveries_at_risk, "confidence": CONFIDENCE,
        })  # fmt: skip
    return made


def _is_worth_doing(advice: Advice) -> bool:
    return advice.changes and advice.saved >= max(1, _SAVED_PER_RECOVERY * advice.recoveries_at_risk)
