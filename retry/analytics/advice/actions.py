"""What to do first: the advice that saves most, each with the rule to write, what it saves, and what it may lose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from retry.analytics.advice.choose_attempts import Advice
from retry.analytics.advice.policy_rewrite import Advised, difference, is_writable, rule_lines

# How sure the advice is that no more recoveries are lost than it says.
CONFIDENCE = 0.95
_ACTIONS_MAX = 5
# Fewer retries saved for each recovery that may be lost are not worth doing first.
_SAVED_PER_RECOVERY = 10


class PerRetry(NamedTuple):
    """The average costs of one retry; None where a cost is not known.

    Attributes:
      bytes: the size of its record on the target topic.
      cost: in any currency.
      consumer_ms: how long a consumer works on it.
    """

    bytes: float = 0.0
    cost: float | None = None
    consumer_ms: float | None = None

    def scale_to(self, retries: float) -> dict[str, float | None]:
        """Return the costs of `retries` retries by name; a cost that is not known stays None."""
        return {name: None if each is None else each * retries for name, each in self._asdict().items()}


def choose_actions(
    advised: Iterable[Advised], *, per_retry: PerRetry | None = None, file: tuple[str, str] | None = None
) -> list[dict[str, Any]]:
    """The five advices that save most retries, the largest first.

    What changes nothing, or saves no whole retry, is no action; nor is what saves fewer than ten retries for each recovery that
    it puts at risk, or is about an exception whose name no rule can hold. `worth` has all advices.

    Args:
      file: text and name of the policy file of now.

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
            "team": each.team,
            "exception": each.exception,
            "topics": list(each.topics),
            "verdict": advice.verdict,
            "rule": rule_lines(each),
            "diff": [] if file is None else difference(*file, [each]),
            "retries": advice.saved,
            **(per_retry or PerRetry()).scale_to(advice.saved),
            "letters": advice.letters,
            "recoveries": advice.recoveries_now,
            "recoveries_at_risk": advice.recoveries_at_risk,
            "confidence": CONFIDENCE,
        })
    return made


def _is_worth_doing(advice: Advice) -> bool:
    return advice.changes and advice.saved >= max(1, _SAVED_PER_RECOVERY * advice.recoveries_at_risk)
