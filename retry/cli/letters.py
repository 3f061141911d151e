"""`retry letters`, `retry failures` and `retry explain`: letters by the page, what fails by kind, and one letter in words."""

from __future__ import annotations

import sys
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import click

from retry.cli.options import FilterCommand, letter_options, listing
from retry.cli.output import say, say_json, say_lines
from retry.clock import iso, wall_ms
from retry.errors import RetryError
from retry.policies.policy_file import load
from retry.record import encode_base64, encode_base64_headers
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.delay_queue.envelope_codec import EnvelopeCodec
    from retry.delay_queue.envelopes import Call, Recurrence
    from retry.operations.explain.evidence import LetterEvidence
    from retry.operations.explain.explanation import Explained
    from retry.operations.found_letter import FailureGroup, FoundLetter
    from retry.operations.listing import Listing


@click.command(cls=FilterCommand)
@letter_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most letters on a page.")
@click.option("--after", metavar="CURSOR", help="The next page: what the last one ended with, or the cursor of a JSON line.")
@click.option("--show", metavar="NAME", help="Only the letter with this name, in full, payload included, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def letters(
    words: tuple[str, ...], policies: str | None, newest: int, limit: int, after: str | None, show: str | None, as_json: bool
) -> None:
    """List letters that wait, soonest first, then those that are parked, oldest first. No worker needs to run.

    FILTER says which, as in: retry letters team:payments -state:parked 'exception:*Timeout' 'age:>2h'. Without it, all but what
    operators discarded, which state:discarded lists: with it former versions of letters that were edited or patched
    (superseded), and what is left of erased ones. What waits besides letters (schedules, tasks, timers) is listed, too. Parked
    ones are read from the parking topics, the newest of each partition. Payloads are printed with --show alone.
    """
    from retry.operations.letter_filter.parse import parse
    from retry.operations.listing import Cursor

    letter_filter = parse(" ".join(words))
    try:
        begin = Cursor(after)
    except ValueError:
        raise click.BadParameter(f"{after!r} is no cursor; take one that a page ended with", param_hint="--after") from None
    where = listing(policies, newest)
    if show is not None:
        _print_letter(where, show)
        return
    with closing(where.find_letters(letter_filter, begin)) as found:
        last = None
        for last in islice(found, limit):
            say_json({**_build_row(last), "cursor": last.cursor}) if as_json else say(_format_letter(last))
        more = next(found, None) is not None
    if last is None:
        say("no letter is like this", err=True)
    elif more:
        say(f"there are more; the next page: --after {last.cursor}", err=True)


def _print_letter(where: Listing, key: str) -> None:
    """Print one letter, or end the process where it is not there."""
    from retry.delay_queue.entry_keys import parse_source
    from retry.delay_queue.envelope_codec import make_codec
    from retry.operations.explain.search import parse_location

    try:
        waits = parse_source(key) if key.count("/") == 3 else None
        parked = None if waits else parse_location(key)
    except ValueError:
        reason = f"{key!r} is not <due_ms>/<topic>/<partition>/<offset>, or of a parked letter <topic>/<partition>/<offset>"
        raise click.BadParameter(reason, param_hint="--show") from None
    found = where.waiting_at(waits) if waits else where.parked_at(parked) if parked else None
    if found is None:
        say(f"{key} is not there: it was delivered, or deleted, or never was", err=True)
        sys.exit(1)
    say_json(_describe_letter(found, make_codec(where.cluster.settings)), indented=True)


def _build_row(letter: FoundLetter) -> dict[str, object]:
    failure = letter.failure
    return {
        "name": letter.name, "state": letter.state, "letter": str(letter.source) if letter.source else None,
        "due": iso(letter.due_ms), "target": letter.target, "team": letter.team, "attempt": letter.attempt,
        "policy": letter.policy, "reason": letter.reason, "mark": letter.mark, "action": letter.action, "id": letter.lineage,
        "exception": failure.exception, "cause": failure.cause, "fingerprint": letter.fingerprint,
        "first_failed": iso(letter.first_failed_ms), "bytes": None if letter.sealed else letter.size_bytes,
        "sealed": letter.sealed,
    }  # fmt: skip


def _format_letter(letter: FoundLetter) -> str:
    from retry.delay_queue.envelopes import Named

    size, entry = f"{letter.size_bytes} bytes", letter.entry
    acted = f"action {letter.action}" if letter.action else None
    if entry is None:
        made = f"after {letter.attempt} retries" if letter.state == "parked" else f"attempt {letter.attempt}"
        made = made if letter.is_ours else f"of team {letter.team}" if letter.team else "of no known team"
        where = f"{letter.name}  {letter.source or 'of an unknown letter'}  {made}"
        return f"{letter.mark or letter.state:<29}  {where}  ({_list_filters(letter.policy, letter.reason, size, acted)})"
    due = iso(letter.due_ms or 0)
    if letter.sealed:
        return f"{due}  {letter.name}  {letter.team} to {letter.target}  (not read: {letter.sealed})"
    if isinstance(entry, Named):
        run = f"run {entry.plan.run}" if entry.plan else None
        return f"{due}  {letter.name}  {letter.team} to {letter.target}  ({_list_filters(size, run)})"
    about = _list_filters(letter.policy, size, acted)
    return f"{due}  {letter.name}  attempt {letter.attempt} to {letter.target}  ({about})"


def _list_filters(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))


def _describe_letter(letter: FoundLetter, codec: EnvelopeCodec) -> dict[str, object]:
    from retry.delay_queue.envelopes import Named
    from retry.delivery.act_records import list_digests

    entry, named = letter.entry, {}
    if isinstance(entry, Named):
        also = [{"topic": each.topic, "partition": each.partition} for each in entry.also]
        named = {"also": also, "plan": _fields(entry.plan), "call": _fields(entry.call)}
    digests = list_digests(letter.key, letter.value, letter.headers, codec)
    return {**_build_row(letter), "message": letter.failure.message, "timestamp_ms": letter.timestamp_ms,
            "digest": digests[0], "digests": digests,
            "key_base64": encode_base64(letter.key), "value_base64": encode_base64(letter.value),
            "headers": encode_base64_headers(letter.headers), **named}  # fmt: skip


def _fields(part: Recurrence | Call | None) -> dict[str, object] | None:
    return None if part is None else {name: getattr(part, name) for name in part.__struct_fields__}


@click.command(cls=FilterCommand)
@letter_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most kinds of failures to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def failures(words: tuple[str, ...], policies: str | None, newest: int, limit: int, as_json: bool) -> None:
    """List what fails, by kind, most letters first: root cause, message, since when, from where, whose. No worker needs to run.

    Letters that wait and letters that are parked count, those that FILTER says, as for retry letters. A kind is a fingerprint:
    the class and the message of the root cause, the latter without numbers, ids and quoted data.
    """
    from retry.operations.found_letter import group_failures
    from retry.operations.letter_filter.parse import parse
    from retry.operations.listing import Cursor

    letter_filter = parse(" ".join(words))
    found = group_failures(listing(policies, newest).find_letters(letter_filter, Cursor()))
    for group in found.groups[:limit]:
        say_json(_describe_group(group)) if as_json else say_lines(_format_group(group))
    if len(found.groups) > limit:
        say(f"{len(found.groups) - limit:,} more kinds; --limit shows them", err=True)
    if found.unknown:
        say(f"{found.unknown:,} tell nothing of a failure", err=True)
    if found.others:
        say(f"{found.others:,} are of further kinds, which are not told apart; give a narrower filter", err=True)


def _describe_group(group: FailureGroup) -> dict[str, object]:
    return {
        "fingerprint": group.fingerprint, "cause": group.cause, "message": group.message, "count": group.count,
        "waiting": group.waiting, "parked": group.parked, "first_seen": iso(group.first_ms), "last_seen": iso(group.last_ms),
        "topics": sorted(group.topics), "teams": sorted(group.teams),
    }  # fmt: skip


def _format_group(group: FailureGroup) -> list[str]:
    first, last = (iso(at_ms) or "unknown" for at_ms in (group.first_ms, group.last_ms))
    whose, where = (", ".join(sorted(names)) for names in (group.teams, group.topics))
    return [
        f"{group.count:>7,}  {group.fingerprint}  {group.cause or 'no class'}: {group.message or 'no message'}",
        f"         {group.waiting:,} waiting, {group.parked:,} parked; {first} to {last}; {whose}: {where}",
    ]


@click.command()
@click.argument("letter", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with more fields.")
def explain(letter: str, policies: str | None, as_json: bool) -> None:
    """Explain one letter: what failed, by which rule it is due when, where it is now, and what happens next.

    The letter is named as the header retry-source names it, or by its name of `retry letters`. Payloads are not printed. No
    worker needs to run.
    """
    from retry.kafka.interface import KafkaException
    from retry.operations.cluster import Cluster
    from retry.operations.explain.evidence import gather_evidence
    from retry.operations.explain.explanation import explain_evidence
    from retry.operations.explain.search import parse_place

    try:
        location = parse_place(letter)
        registry = load(policies) if policies else None
        cluster = Cluster(read_settings())
        evidence = gather_evidence(cluster, location, registry)
        forecast = None
        if evidence.record is not None and registry is not None:
            forecast = next(cluster.inspector(registry).decide_letters([evidence.record], wall_ms()))
        explanation = explain_evidence(evidence, registry, forecast, wall_ms())
    except (RetryError, KafkaException, ValueError) as error:
        say(str(error), err=True)
        sys.exit(1)
    if as_json:
        say_json(_object(evidence, explanation), indented=True)
    else:
        say_lines(line for section in explanation.sentences.values() for line in section)


def _object(evidence: LetterEvidence, explanation: Explained) -> dict[str, object]:
    from retry.delay_queue.entry_keys import read_source

    failure = evidence.letter.failure if evidence.letter else None
    return {
        "letter": str(evidence.location), "state": explanation.state.name.lower(), "family": failure.family if failure else None,
        "exception": failure.exception if failure else None, "cause": failure.cause if failure else None,
        "decision": explanation.decision._asdict() if explanation.decision else None,
        "name": str(read_source(evidence.waiting.key)) if evidence.waiting else None,
        "head": str(read_source(evidence.waiting.head)) if evidence.waiting and evidence.waiting.head else None,
        "blocked": evidence.blocked, "sent_to": str(evidence.delivery.place) if evidence.delivery else None,
        "sent_ms": evidence.delivery.at_ms if evidence.delivery else None,
        "former": [{"name": str(each.place), "action": each.action} for each in evidence.former],
        "sentences": explanation.sentences,
    }  # fmt: skip
