"""What to do first: the advice that saves most, each with the rule to write, what it saves, and what it may lose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from retry.analytics.advice.policy_rewrite import Advised, difference, is_writable, rule_lines

# How sure the advice is that no more recoveries are lost than it says.
CONFIDENCE = 0.95
_ACTIONS_MAX = 5


def actions(
    advised: Iterable[Advised], *, bytes_per_retry: float = 0.0, cost_per_retry: float | None = None,
    file: tuple[str, str] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """The five advices that save most retries, the largest first; those that change or save nothing are no actions,
    and none is of an exception whose name no rule can hold.

    Args:
      file: text and name of the policy file of now.

    Gives `team`, `exception`, `topics`, `rule` (lines of YAML, to be put before the other rules of these topics), `diff` (lines
    of a unified diff against the policy file; none where there is no file, or it has nothing for such letters), `retries` that
    are saved, their `bytes` at the mean size of all retries, their `cost` or None, `recoveries`: expected now,
    `recoveries_at_risk`: of these at most so many are lost, with `confidence`; and `verdict` as in the advice.
    """
    chosen = [each for each in advised if each.advice.changes and each.advice.saved > 0 and is_writable(each)]
    chosen.sort(key=lambda each: (-each.advice.saved, each.team, each.exception, each.topics))
    made = []
    for each in chosen[:_ACTIONS_MAX]:
        advice = each.advice
        lost = advice.recoveries_now * (1 - advice.kept_low) if advice.verdict == "fewer" else 0.0
        made.append({
            "team": each.team,
            "exception": each.exception,
            "topics": list(each.topics),
            "verdict": advice.verdict,
            "rule": rule_lines(each),
            "diff": [] if file is None else difference(*file, [each]),
            "retries": advice.saved,
            "bytes": advice.saved * bytes_per_retry,
            "cost": None if cost_per_retry is None else advice.saved * cost_per_retry,
            "recoveries": advice.recoveries_now,
            "recoveries_at_risk": lost,
            "confidence": CONFIDENCE,
        })
    return made
