"""The report as lines for a terminal: what became of each policy's letters, why they parked, and which attempts recovered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retry.analytics.html.format import count, duration, format_name, moment, noun, share
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
    if findings["assumed"]:
        yield ""
        assumed = findings["assumed"]
        what = noun(assumed, "retry counts as consumed when it was", "retries count as consumed when they were")
        yield f"{count(assumed)} recovered {what} sent: no group is named for {noun(assumed, 'it', 'them')}"
    if findings["not_counted"]:
        yield ""
        reasons = (f"{count(row['records'])} {format_name(row['why'])}" for row in findings["not_counted"])
        yield f"records not counted: {', '.join(reasons)}"
