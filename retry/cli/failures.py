"""`retry failures`: what fails, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from retry.cli.letter_options import TERMS, letter_options, listing
from retry.cli.output import say, say_json
from retry.clock import iso

if TYPE_CHECKING:
    from retry.operations.letters.failure_groups import FailureGroup


@click.command(context_settings=TERMS)
@letter_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most kinds of failures to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def failures(words: tuple[str, ...], policies: str | None, newest: int, limit: int, as_json: bool) -> None:
    """List what fails, by kind, most letters first: root cause, message, since when, from where, whose. No worker needs to run.

    Letters that wait and letters that are parked count, those that FILTER says, as for retry letters. A kind is a fingerprint:
    exception, root cause, and the message without numbers, ids and quoted text.
    """
    from retry.operations.letter_filter.parse import parse
    from retry.operations.letters.failure_groups import group_failures
    from retry.operations.letters.listing import Cursor

    meant = parse(" ".join(words))
    found = group_failures(listing(policies, newest).find_letters(meant, Cursor()))
    for group in found.groups[:limit]:
        if as_json:
            say_json(orjson.dumps(_describe_group(group)))
        else:
            for line in _format_group(group):
                say(line)
    if len(found.groups) > limit:
        say(f"{len(found.groups) - limit:,} more kinds; --limit shows them", err=True)
    if found.unknown:
        say(f"{found.unknown:,} tell nothing of a failure", err=True)
    if found.others:
        say(f"{found.others:,} are of further kinds, which are not told apart; give a narrower filter", err=True)


def _describe_group(group: FailureGroup) -> dict[str, object]:
    return {
        "fingerprint": group.fingerprint,
        "cause": group.cause,
        "message": group.message,
        "count": group.count,
        "waiting": group.waiting,
        "parked": group.parked,
        "first_seen": _iso(group.first_ms),
        "last_seen": _iso(group.last_ms),
        "topics": sorted(group.topics),
        "teams": sorted(group.teams),
    }


def _format_group(group: FailureGroup) -> list[str]:
    first, last = (_iso(at_ms) or "unknown" for at_ms in (group.first_ms, group.last_ms))
    whose, where = (", ".join(sorted(names)) for names in (group.teams, group.topics))
    return [
        f"{group.count:>7,}  {group.fingerprint}  {group.cause or 'no class'}: {group.message or 'no message'}",
        f"         {group.waiting:,} waiting, {group.parked:,} parked; {first} to {last}; {whose}: {where}",
    ]


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
