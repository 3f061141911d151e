"""How good the data of a report is, in sentences: what was not recorded, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retry.analytics.html.format import count, duration, format_name, moment, noun, share

_NAMED_MAX, _CHARS_MAX = 3, 40
# Of the period before so much must have been recorded that a change against it means something.
_ENOUGH = 0.8


def describe_quality(findings: Mapping[str, Any]) -> list[str]:
    """Say what is missing of the data, the gravest first; nothing where all that happened was recorded."""
    parts = (_describe_groups, _describe_days, _describe_open, _describe_unread, _describe_clocks)
    return [told for describe in parts for told in describe(findings)]


def _describe_groups(findings: Mapping[str, Any]) -> Iterator[str]:
    assumed = findings["assumed"]
    if assumed:
        them = noun(assumed, "it: it counts as passed when it was", "them: they count as passed when they were")
        retries = noun(assumed, "retry", "retries")
        yield (
            f"Of {count(assumed)} recovered {retries} nobody says whether the consumer group has passed {them} sent."
            " Name the group in the policy file."
        )
    rows = findings["unsampled"]
    if rows:
        named = [
            f"{format_name(row['target'], _CHARS_MAX)} of {format_name(row['team'], _CHARS_MAX)} ({count(row['retries'])})"
            for row in rows[:_NAMED_MAX]
        ]
        yield f"No committed offsets are known of who reads {_join(named, len(rows))}."


def _describe_days(findings: Mapping[str, Any]) -> Iterator[str]:
    days = findings["days_missing"]
    if days:
        nothing = f"Nothing at all was recorded on {_join(days[:_NAMED_MAX], len(days))}"
        yield f"{nothing}: either nothing failed, or Kafka deleted it before it was ingested."
    before, period = findings["before"], findings["period"]
    if before is None:
        yield "There is no period before to compare with: --since 7d makes a report of a week, beside the week before."
        return
    known_ms, whole_ms = before["until_ms"] - before["since_ms"], period["until_ms"] - before["until_ms"]
    if known_ms < _ENOUGH * whole_ms:
        known = f"records begin {duration(known_ms)} before this period, which has {duration(whole_ms)}"
        yield f"Of the period before only a part was recorded ({known}): numbers beside it seem to have grown."


def _describe_open(findings: Mapping[str, Any]) -> Iterator[str]:
    open_, letters = findings["totals"]["unknown"], findings["totals"]["letters"]
    if open_:
        what = noun(open_, "letter has", "letters have")
        yield f"{count(open_)} {what} no end yet ({share(open_ / letters)}), and count neither as recovered nor as lost."


def _describe_unread(findings: Mapping[str, Any]) -> Iterator[str]:
    if findings["not_counted"]:
        reasons = ", ".join(f"{count(row['records'])} {format_name(row['why'], _CHARS_MAX)}" for row in findings["not_counted"])
        yield f"Records not counted: {reasons}."


def _describe_clocks(findings: Mapping[str, Any]) -> Iterator[str]:
    odd = findings["odd"]
    if odd["letters"]:
        letters = f"{count(odd['letters'])} {noun(odd['letters'], 'letter')}"
        say = noun(odd["letters"], "says that it", "say that they")
        yield (
            f"{letters} {say} failed long before all others, the first at {moment(odd['first_ms'])} UTC."
            " Pictures begin with the others."
        )


def _join(named: list[str], number: int) -> str:
    more = number - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
