"""`retry inspect` and `retry try`: what a worker would make of letters, before one is attached."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import click

from backoff import duration_text
from retry.cli.output import discard_output, format_json, say, say_json, say_lines
from retry.clock import iso, wall_ms
from retry.errors import RetryError
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.printable import align_rows, escape_unprintable
from retry.settings import Settings, read_settings

if TYPE_CHECKING:
    from retry.operations.cluster import LetterRange
    from retry.operations.inspect import InspectedLetter
    from retry.operations.try_letters import OutcomeKey, Tried


@click.command()
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--topic", help="Read this topic instead of a file: committed records up to its present end.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of --topic.")
@click.option("--from-offset", type=click.IntRange(0), help="Begin at this offset in every partition of --topic.")
@click.option(
    "--limit", type=click.IntRange(1),
    help="Most letters: the first of a file; of --topic the newest of each partition, or the first from --from-offset on.",
)  # fmt: skip
@click.option("--now", "now_ms", type=int, metavar="MS", help="Decide as of this time, in epoch ms, instead of now.")
@click.option("--cluster-id", help="Cluster id that lineages are made from. By default that of the brokers, with --topic.")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file; without it all are parked.")
def inspect(
    file: BinaryIO | None, topic: str | None, partition: int | None, from_offset: int | None, limit: int | None,
    now_ms: int | None, cluster_id: str | None, policies: str | None,
) -> None:  # fmt: skip
    """Say of each letter who wrote it, what failed, and what a worker would do with it, as JSON lines without payloads.

    Letters come from --topic or from FILE (- for standard input), one JSON object a line: topic, partition, offset,
    timestamp, key, value, headers. Key, value and the headers' values are base64 or null; all but the topic may be left
    out. Nothing is changed: no group is joined, nothing committed, nothing sent.
    """
    from retry.kafka.interface import KafkaException
    from retry.operations.cluster import LetterRange

    if (file is None) == (topic is None):
        raise click.UsageError("give either FILE (- for standard input) or --topic")
    if file is not None and (partition is not None or from_offset is not None):
        raise click.UsageError("--partition and --from-offset are for --topic")
    faults = _Faults()
    try:
        settings, registry = read_settings(), load(policies) if policies else Registry()
        if topic is not None:
            part = LetterRange(topic, partition, from_offset, limit)
            _print(_of_topic(settings, registry, part, now_ms, cluster_id))
        elif file is not None:
            _print(_of_file(settings, registry, file, limit, now_ms, cluster_id or "", faults))
    except (RetryError, KafkaException) as error:
        say(str(error), err=True)
        sys.exit(1)
    sys.exit(1 if faults.count else 0)


class _Faults:
    """Prints and counts the lines that cannot be read."""

    count = 0

    def report_fault(self, line: int, why: str) -> None:
        self.count += 1
        say(f"line {line}: {why}", err=True)


def _of_topic(
    settings: Settings, registry: Registry, part: LetterRange, now_ms: int | None, cluster_id: str | None
) -> Iterator[InspectedLetter]:
    from retry.operations.cluster import Cluster

    cluster = Cluster(settings)
    inspector = cluster.inspector(registry, cluster_id)
    for letters in cluster.read_letters(part):
        yield from inspector.inspect_letters(letters, wall_ms() if now_ms is None else now_ms)


def _of_file(
    settings: Settings, registry: Registry, file: BinaryIO, limit: int | None, now_ms: int | None, cluster_id: str,
    faults: _Faults,
) -> Iterator[InspectedLetter]:  # fmt: skip
    from retry.operations.inspect import Inspector
    from retry.operations.json_lines import parse_records

    inspector = Inspector(registry, settings.app_id, cluster_id, {})
    for letter in islice(parse_records(file, faults.report_fault), limit):
        yield from inspector.inspect_letters([letter], wall_ms() if now_ms is None else now_ms)


def _print(rows: Iterator[InspectedLetter]) -> None:
    """Print rows until there are no more, or nobody reads them."""
    out = click.get_binary_stream("stdout")
    try:
        for row in rows:
            out.write(format_json(row).encode() + b"\n")
        out.flush()
    except BrokenPipeError:
        discard_output()


_SECOND_MS, _MINUTE_MS = 1_000, 60_000


@click.command("try")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, required=True, help="The policy file to try.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only letters of this topic, not all that it attaches.")
@click.option(
    "--newest", type=click.IntRange(1), default=1_000, show_default=True,
    help="Letters that are tried: the newest of each partition.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most exceptions to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all exceptions.")
def try_letters(policies: str, topics: tuple[str, ...], newest: int, limit: int, *, as_json: bool) -> None:
    """Say what would have become of the newest letters under a policy file: how many retried and parked, when, and where to.

    Each is decided as when it was written; the last line says what a worker would do with them that begins now. A letter
    that came back without its retry-id counts as a first failure. Nothing is changed: no group is joined, nothing committed,
    nothing sent.
    """
    from retry.operations.cluster import Cluster
    from retry.operations.try_letters import try_newest

    registry = load(policies)
    result = try_newest(Cluster(read_settings()), registry, topics, newest, lambda line: say(line, err=True))
    say_json(tried_object(result)) if as_json else say_lines(tried_lines(result, limit))


def tried_object(result: Tried) -> dict[str, object]:
    return {
        "letters": result.letters, "retried": result.retried, "parked": result.letters - result.retried,
        "by_policy": [_outcome(result, key, count) for key, count in result.counts.most_common()],
        "by_exception": [
            {"exception": name, "letters": of.total(), "retried": of[None],
             "parked": {reason: count for reason, count in of.items() if reason is not None}}
            for name, of in sorted(result.exceptions.items(), key=lambda each: -each[1].total())
        ],
        "topics": dict(result.topics), "families": dict(result.families), "now": result.now,
    }  # fmt: skip


def _outcome(result: Tried, key: OutcomeKey, count: int) -> dict[str, object]:
    row: dict[str, object] = {"policy": key.policy, "decision": "park" if key.reason else "retry", "reason": key.reason,
                              "target": key.target, "letters": count}  # fmt: skip
    if waits := result.waits.get(key):
        least, half, most = waits.spread()
        row["wait_ms"] = {"least": least, "median": half, "most": most}
        row["first_due"], row["last_due"] = iso(waits.first_due_ms), iso(waits.last_due_ms)
    return row


def tried_lines(result: Tried, limit: int) -> Iterator[str]:
    parked = result.letters - result.retried
    topics = f"{len(result.topics)} topic{'' if len(result.topics) == 1 else 's'}"
    yield f"{result.letters:,} letters of {topics}: {result.retried:,} retried, {parked:,} parked"
    if not result.letters:
        return
    yield from _table(("policy", "becomes", "to", "letters", "waits least", "half", "most"), [
        (key.policy, f"parked: {key.reason}" if key.reason else "retried", key.target, f"{count:,}", *_waits(result, key))
        for key, count in result.counts.most_common()
    ])
    most = sorted(result.exceptions.items(), key=lambda each: -each[1].total())
    yield from _table(("exception", "letters", "retried", "parked"), [
        (name or "(not told)", f"{of.total():,}", f"{of[None]:,}", _format_parked({r: n for r, n in of.items() if r is not None}))
        for name, of in most[:limit]
    ])
    if len(most) > limit:
        yield f"and {len(most) - limit:,} more exceptions; --limit shows them"
    now = result.now
    yield (
        f"By a worker that begins now: {now['at_once']:,} at once, {now['within_an_hour']:,} within an hour, "
        f"{now['later']:,} later, {now['parked']:,} parked"
    )


def _waits(result: Tried, key: OutcomeKey) -> tuple[str, ...]:
    waits = result.waits.get(key)
    return tuple(map(_round_wait, waits.spread())) if waits else ("", "", "")


def _round_wait(wait_ms: int) -> str:
    unit_ms = _SECOND_MS if wait_ms >= _MINUTE_MS else 100
    return duration_text(wait_ms // unit_ms * unit_ms)


def _format_parked(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items(), key=lambda each: -each[1])) or "0"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from align_rows([head, *([escape_unprintable(cell, 80) for cell in row] for row in rows)], names=len(head))
