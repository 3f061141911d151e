"""`retry inspect`: what a worker would make of letters, before one is attached."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import click

from retry.cli.output import discard_output, say
from retry.printable import visible_json

if TYPE_CHECKING:
    from retry.operations.cluster import LetterRange
    from retry.operations.inspect import InspectedLetter
    from retry.policies.registry import Registry
    from retry.settings import Settings


@click.command()
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--topic", help="Read this topic instead of a file: committed records up to its present end.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of --topic.")
@click.option("--from-offset", type=click.IntRange(0), help="Begin at this offset in every partition of --topic.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="Most letters: the first of a file; of --topic the newest of each partition, or the first from --from-offset on.",
)
@click.option("--now", "now_ms", type=int, metavar="MS", help="Decide as of this time, in epoch ms, instead of now.")
@click.option("--cluster-id", help="Cluster id that lineages are made from. By default that of the brokers, with --topic.")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file; without it all are parked.")
def inspect(
    file: BinaryIO | None,
    topic: str | None,
    partition: int | None,
    from_offset: int | None,
    limit: int | None,
    now_ms: int | None,
    cluster_id: str | None,
    policies: str | None,
) -> None:
    """Say of each letter who wrote it, what failed, and what a worker would do with it, as JSON lines without payloads.

    Letters come from --topic or from FILE (- for standard input), one JSON object a line: topic, partition, offset,
    timestamp, key, value, headers. Key, value and the headers' values are base64 or null; all but the topic may be left
    out. Nothing is changed: no group is joined, nothing committed, nothing sent.
    """
    from retry import settings as environment
    from retry.errors import RetryError
    from retry.kafka.interface import KafkaException
    from retry.operations.cluster import LetterRange
    from retry.policies.policy_file import load
    from retry.policies.registry import Registry

    if (file is None) == (topic is None):
        raise click.UsageError("give either FILE (- for standard input) or --topic")
    if file is not None and (partition is not None or from_offset is not None):
        raise click.UsageError("--partition and --from-offset are for --topic")
    faults = _Faults()
    try:
        settings, registry = environment.from_environment(), load(policies) if policies else Registry()
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
    from retry.clock import wall_ms
    from retry.operations.cluster import Cluster

    cluster = Cluster(settings)
    inspector = cluster.inspector(registry, cluster_id)
    for letters in cluster.read_letters(part):
        yield from inspector.inspect_letters(letters, wall_ms() if now_ms is None else now_ms)


def _of_file(
    settings: Settings,
    registry: Registry,
    file: BinaryIO,
    limit: int | None,
    now_ms: int | None,
    cluster_id: str,
    faults: _Faults,
) -> Iterator[InspectedLetter]:
    from itertools import islice

    from retry.clock import wall_ms
    from retry.operations.inspect import Inspector
    from retry.operations.json_lines import parse_records

    inspector = Inspector(registry, settings.app_id, cluster_id, {})
    for letter in islice(parse_records(file, faults.report_fault), limit):
        yield from inspector.inspect_letters([letter], wall_ms() if now_ms is None else now_ms)


def _print(rows: Iterator[InspectedLetter]) -> None:
    """Print rows until there are no more, or nobody reads them."""
    import msgspec

    out = click.get_binary_stream("stdout")
    try:
        for row in rows:
            out.write(visible_json(msgspec.json.encode(row).decode()).encode() + b"\n")
        out.flush()
    except BrokenPipeError:
        discard_output()
