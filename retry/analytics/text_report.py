"""The report as lines for a terminal, and as ten lines for mail and chat."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from retry.analytics.html.format import count, duration, format_name, moment, noun, share
from retry.analytics.quality import describe_quality
from retry.printable import align_rows

_NAME_CHARS_MAX = 40
_COUNTS = ("letters", "recovered", "parked", "expired", "discarded", "unknown", "waiting", "retries")
_POLICIES = ("team", "policy", "letters", "recovered", "parked", "old", "gone", "open", "wait", "retries", "late p99")
_ACTED = ("letters", "recovered", "failed", "open", "parked", "discarded")


def format_report(findings: Mapping[str, Any]) -> Iterator[str]:
    """Format what `retry.analytics.findings` gives, in lines of at most a hundred columns for names of usual length."""
    totals, period, saving = findings["totals"], findings["period"], findings["saving"]
    yield f"Letters that failed from {moment(period['since_ms'])} to {moment(period['until_ms'])} UTC: {count(totals['letters'])}"
    yield f"{share(totals['recovery'])} of those that ended recovered, half of them within {duration(totals['p50_ms'])}"
    retries, wasted = f"{count(totals['retries'])} {noun(totals['retries'], 'retry', 'retries')}", totals["wasted"]
    yield f"{count(wasted)} of {retries} {noun(wasted, 'was', 'were')} sent for letters that parked in the end"
    for row in findings["actions"]:
        yield from _wrap_sentence(f"To do: {row['sentence']}")
    if saving["retries"] > 0:
        yield f"{count(saving['retries'])} of {count(saving['of'])} can be left out: see `retry analytics advise`"
    yield ""
    yield from align_rows([_POLICIES, *_policies(findings)], names=2)
    if findings["parked_by_reason"]:
        yield ""
        rows = [(*_format_names(row, "team", "policy", "reason"), count(row["letters"])) for row in findings["parked_by_reason"]]
        yield from align_rows([("team", "policy", "parked because of", "letters"), *rows], names=3)
    if findings["acted"]:
        yield ""
        rows = [(*_format_names(row, "team", "action_kind"), *(count(row[each]) for each in _ACTED)) for row in findings["acted"]]
        yield from align_rows([("team", "operators asked for", *_ACTED), *rows], names=2)
    if findings["incidence_by_attempt"]:
        yield ""
        rows = [(*_format_names(row, "team"), *_attempt(row)) for row in findings["incidence_by_attempt"] if row["attempt"]]
        head = ("team", "attempt", "retries that ended", "recovered", "chance", "recovered so far", "parked so far")
        yield from align_rows([head, *rows], names=1)
    yield from _notes(findings)


def _policies(findings: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    late = {(row["team"], row["policy"]): row["p99_ms"] for row in findings["lateness"]}
    for row in findings["comparison"]:
        late_ms = late.get((row["team"], row["policy"]))
        yield (*_format_names(row, "team", "policy"), *(count(row[each]) for each in _COUNTS), duration(late_ms))
    if len(findings["comparison"]) > 1:
        yield ("all", "", *(count(findings["totals"][each]) for each in _COUNTS), "")


def _attempt(row: Mapping[str, Any]) -> tuple[str, ...]:
    parts = row["part_recovered"], row["part_parked"] + row["part_expired"]
    return str(row["attempt"]), count(row["at_risk"]), count(row["recovered"]), share(row["hazard"]), *map(share, parts)


def _format_names(row: Mapping[str, Any], *columns: str) -> tuple[str, ...]:
    return tuple(format_name(row[column], _NAME_CHARS_MAX) for column in columns)


def _notes(findings: Mapping[str, Any]) -> Iterator[str]:
    for each in describe_quality(findings):
        yield ""
        yield from _wrap_sentence(each)


def _wrap_sentence(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


_COLUMNS = 100
_LINES_MAX = 10
_STATES = {
    "done": "done", "part": "done in part", "open": "not done", "gone": "of which none was retried since",
    "unknown": "not known yet",
}  # fmt: skip


def format_summary(findings: Mapping[str, Any]) -> list[str]:
    """Format in ten lines at most what failed, what to do, and what became of the last advice."""
    totals, period = findings["totals"], findings["period"]
    old: Mapping[str, Any] = findings["totals_before"] or {}
    days = f"{moment(period['since_ms'])} to {moment(period['until_ms'])} UTC"
    letters = f"{count(totals['letters'])} {noun(totals['letters'], 'letter')} failed from {days}"
    ended = f"{share(totals['recovery'])} of those that ended recovered{_format_before(old.get('recovery'), share)}"
    retries = f"{count(totals['retries'])} {noun(totals['retries'], 'retry', 'retries')}"
    sent = f"{retries} sent{_format_before(old.get('retries'), count)}"
    head = [
        f"{_shorten_name(findings['about']['app'])}: {letters}{_format_before(old.get('letters'), count)}",
        f"{ended}, half of them within {duration(totals['p50_ms'])}",
        f"{sent}, {count(totals['wasted'])} of them for letters that parked in the end",
    ]
    tail = [*_describe_follow_up(findings["followed_up"]), *_describe_forecast(findings["forecast"])]
    unwatched, quality = findings["unwatched"], describe_quality(findings)
    if unwatched:
        lost = sum(row["retries"] for row in unwatched)
        known = f"Of {count(lost)} {noun(lost, 'retry', 'retries')} nobody knows yet whether {noun(lost, 'it', 'they')} recovered"
        topic = _shorten_name(unwatched[0]["topic"])
        tail.append(f"{known}: no sample of the group has passed {noun(lost, 'it', 'them')}; which one reads {topic}?")
    elif quality:
        more = f" (and {len(quality) - 1} more about the data)" if len(quality) > 1 else ""
        tail.append(f"Data: {quality[0]}{more}")
    todo = [f"To do: {row['sentence']}" for row in findings["actions"]] or ["To do: nothing yet"]
    return [*head, *todo[: _LINES_MAX - len(head) - len(tail)], *tail]


def _format_before(before: float | None, shown: Callable[[float], str]) -> str:
    return "" if before is None else f" (before: {shown(before)})"


def _describe_follow_up(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if rows:
        states = Counter(row["state"] for row in rows)
        told = ", ".join(f"{states[state]} {words}" for state, words in _STATES.items() if states[state])
        yield f"Of the {len(rows)} {noun(len(rows), 'action', 'actions')} of the period before: {told}"


def _describe_forecast(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if rows:
        whole = rows[0]
        bounds = f"{count(whole['letters_low'])} to {count(whole['letters_high'])}"
        yield f"Forecast of next week, if nothing is changed: {count(whole['letters'])} letters ({bounds}, 19 of 20 weeks)"


def _shorten_name(text: str | None) -> str:
    return format_name(text, _NAME_CHARS_MAX)
