"""What to do first: the advice that saves most, a sentence and a rule each; and what became of it a period later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from backoff import duration_text
from retry.analytics.advice.choose_attempts import Advice, merge_delays
from retry.analytics.advice.evidence import Cell, Evidence, Kind
from retry.analytics.advice.policy_rewrite import Advised, is_writable, list_amended_lines, rule_lines
from retry.analytics.html.format import at_most, count, duration, format_name, noun

# How sure the advice is that no more recoveries are lost than it says.
CONFIDENCE = 0.95
_ACTIONS_MAX = 5
# Fewer retries saved for each recovery that may be lost are not worth doing first.
_SAVED_PER_RECOVERY = 10
_CLASS_CHARS_MAX, _NAME_CHARS_MAX = 90, 40
_WEEK_MS, _DAY_MS = 604_800_000, 86_400_000
# Of a shorter period nobody can say what a week is like.
_WEEK_KNOWN_MS = 3 * _DAY_MS


class PerRetry(NamedTuple):
    """The average costs of one retry: bytes on the target topic, money, and time of a consumer; None where one is not known."""

    bytes: float = 0.0
    cost: float | None = None
    consumer_ms: float | None = None

    def scale_to(self, retries: float) -> dict[str, float | None]:
        """Return the costs of `retries` retries by name; a cost that is not known stays None."""
        return {name: None if each is None else each * retries for name, each in self._asdict().items()}


def choose_actions(
    advised: Iterable[Advised], *, period_ms: int = _WEEK_MS, per_retry: PerRetry | None = None,
    file: tuple[str, str] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Choose the five advices that save most retries, the largest first.

    What changes nothing, or saves no whole retry, is no action; nor is what saves fewer than ten retries for each recovery that
    it puts at risk, or is about an exception whose name no rule can hold. `worth` has all advices. `file` is text and name of the
    policy file of now, `period_ms` how long the letters failed.

    Gives `team`, `exception`, `topics`, `policies`, `sentence`, `rule` (lines of YAML, to be put before the other rules of these
    topics), `section` (lines of YAML that take the place of these topics in the policy file; none where there is no file, or it
    has nothing for such letters), `retries` that are saved, their `bytes`, `cost` and `consumer_ms` as in `PerRetry`, `letters`,
    `recoveries`: expected of them now, `recoveries_at_risk`: so many are lost at most, with `confidence`; `base`, what the advice
    was made of; and `verdict`, `attempts`, `attempts_now` and `delays_ms` as in the advice.
    """
    chosen = [each for each in advised if _is_worth_doing(each.advice) and is_writable(each)]
    chosen.sort(key=lambda each: (-each.advice.saved, each.team, each.exception, each.topics))
    alike = Counter((each.team, each.exception) for each in chosen)
    made: list[dict[str, Any]] = []
    for each in chosen[:_ACTIONS_MAX]:
        advice = each.advice
        where = each.topics if alike[each.team, each.exception] > 1 else ()
        made.append({
            "team": each.team, "exception": each.exception, "topics": list(each.topics), "policies": list(each.policies),
            "sentence": _describe_action(each, where, period_ms), "verdict": advice.verdict, "attempts": advice.attempts,
            "attempts_now": advice.attempts_now, "delays_ms": advice.delays_ms, "rule": rule_lines(each),
            "section": [] if file is None else list_amended_lines(*file, each),
            "retries": advice.saved, **(per_retry or PerRetry()).scale_to(advice.saved), "letters": advice.letters,
            "recoveries": advice.recoveries_now, "recoveries_at_risk": advice.recoveries_at_risk, "confidence": CONFIDENCE,
            "base": advice.base,
        })  # fmt: skip
    return made


def _is_worth_doing(advice: Advice) -> bool:
    return advice.changes and advice.saved >= max(1, _SAVED_PER_RECOVERY * advice.recoveries_at_risk)


def _describe_action(advised: Advised, where: Sequence[str], period_ms: int) -> str:
    """Say in one sentence what to do with which letters, why, and what that saves."""
    advice, letters = advised.advice, f"{count(advised.advice.letters)} {noun(advised.advice.letters, 'letter')}"
    more = f" and {len(where) - 1} more" if len(where) > 1 else ""
    topic = f" ({format_name(where[0], _NAME_CHARS_MAX)}{more})" if where else ""
    what = f"{format_name(advised.exception, _CLASS_CHARS_MAX)} in {format_name(advised.team, _NAME_CHARS_MAX)}{topic}"
    delays = ", ".join(
        f"{duration_text(delay_ms)} before attempt{f' {first}' if first == last else f's {first} to {last}'}"
        for first, last, delay_ms in merge_delays(advice.delays_ms)
    )
    waits = f" and wait {delays}" if delays else ""
    saves = describe_saving(advice.saved, period_ms)
    if advice.verdict != "fewer":
        return f"Wait {delays} of {what}: of {letters}, those that waited so long recovered more often; {saves}"
    times = f"{advice.attempts} {noun(advice.attempts, 'time')}"
    if not advice.recoveries_now:
        stop = f"Stop retrying {what}" if advice.attempts == 1 else f"Retry {what} only {times}"
        return f"{stop}{waits}: {letters}, none ever recovered; {saves}"
    lost = at_most(advice.recoveries_at_risk)
    risk = f"costs at most {lost} of {count(advice.recoveries_now)} recoveries"
    return f"Retry {what} only {times}, not {advice.attempts_now}{waits}: {risk}; {saves}"


def describe_saving(retries: float, period_ms: int) -> str:
    """Say how many retries less that is in a week; where so little was seen that nobody can tell, in the period.

    >>> describe_saving(1_000, 14 * 86_400_000), describe_saving(1, 86_400_000)
    ('saves 500 retries a week', 'would have saved 1 retry in 1 d')
    """
    if period_ms < _WEEK_KNOWN_MS:
        return f"would have saved {count(retries)} {noun(retries, 'retry', 'retries')} in {duration(period_ms)}"
    weekly = retries * _WEEK_MS / period_ms
    return f"saves {count(weekly)} {noun(weekly, 'retry', 'retries')} a week"


# What became of the actions that a report of the period before would have named: has anybody done them.
#
# Outcomes do not say what a policy file says. An action was done where letters that failed that often since got no more.

# Delays within 41 % are counted together; jitter spreads them.
_NEAR = 1.42
_DONE, _IN_PART = 0.9, 0.1


def follow_up(actions: Iterable[Mapping[str, Any]], evidence: Mapping[Kind, Evidence]) -> list[dict[str, Any]]:
    """Tell of each action of the period before what became of it since.

    Args:
      evidence: of the letters since, each topic and policy alone.

    Gives `team`, `exception`, `sentence` of the action; `state`: done, part, open, gone (none was retried since) or unknown (none
    has failed that often since); `letters` since, `retries` that were made beyond the action, and `became`: all that in words.
    """
    made = []
    for action in actions:
        met = [each for kind, each in evidence.items() if _is_about(action, kind)]
        every = [cell for each in met for cell in each.every]
        letters = sum(each.letters for each in met)
        beyond = _list_beyond(action, every)
        retries = sum(cell.letters for cell in beyond)
        state = _judge(action, every, beyond) if letters else "gone"
        row = {"team": action["team"], "exception": action["exception"], "sentence": action["sentence"]}
        made.append(row | {
            "state": state, "letters": letters, "retries": retries, "became": _describe_state(state, letters, retries),
        })  # fmt: skip
    return made


def _is_about(action: Mapping[str, Any], kind: Kind) -> bool:
    is_same = (kind.team, kind.exception) == (action["team"], action["exception"])
    is_meant = not action["policies"] or {*kind.policies} <= {*action["policies"]}
    return is_same and is_meant and {*kind.topics} <= {*action["topics"]}


def _list_beyond(action: Mapping[str, Any], every: Sequence[Cell]) -> list[Cell]:
    """List what the action would have left out, or had wait otherwise."""
    if action["verdict"] == "fewer":
        return [cell for cell in every if cell.attempt > action["attempts"]]
    delays = action["delays_ms"]
    return [cell for cell in every if cell.attempt in delays and not _is_near(cell.delay_ms, delays[cell.attempt])]


def _is_near(one_ms: int, other_ms: int) -> bool:
    shorter, longer = sorted((max(1, one_ms), max(1, other_ms)))
    return longer <= _NEAR * shorter


def _judge(action: Mapping[str, Any], every: Sequence[Cell], beyond: Sequence[Cell]) -> str:
    if action["verdict"] == "fewer":
        came = sum(cell.failed for cell in every if cell.attempt == action["attempts"])
        more = sum(cell.letters for cell in beyond if cell.attempt == action["attempts"] + 1)
    else:
        came = sum(cell.letters for cell in every if cell.attempt in action["delays_ms"])
        more = sum(cell.letters for cell in beyond)
    if not came and not more:
        return "unknown"
    kept = 1 - more / max(came, more)
    return "done" if kept >= _DONE else "part" if kept >= _IN_PART else "open"


def _describe_state(state: str, letters: int, retries: int) -> str:
    since = f"{count(letters)} {noun(letters, 'letter')} since"
    cost = f"{count(retries)} {noun(retries, 'retry', 'retries')} that it would have changed"
    return {
        "done": f"Done: {since}",
        "part": f"Done in part: {since}, {cost}",
        "open": f"Not done yet: {since}, {cost}",
        "gone": "None was retried since: they are parked at once, or no such letter failed",
        "unknown": f"Nobody can tell yet: {since}, none of which has failed that often",
    }[state]
