"""`retry policies` and `retry size`: what a policy file says, and how large a deployment has to be; without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff import PolicyInvalid, duration_ms, duration_text
from retry.cli.output import format_json, say, say_json, say_lines, write_file
from retry.dead_letters.failure import Failure
from retry.policies.explain import explain as explain_lines
from retry.policies.policy_file import load
from retry.policies.route import MatchInput
from retry.record import Header
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.operations.discover.policy_text import Discovery
    from retry.operations.discover.proposal import ProposedTopic
    from retry.operations.size import Size, SizeRequest


@click.group()
def policies() -> None:
    """Check a policy file, or ask what it decides. Works without a broker."""


@policies.command()
@click.argument("file")
def check(file: str) -> None:
    """Say whether FILE can be used. If not, print its first mistake with the line, and end with exit code 1."""
    registry = load(file)
    routes = registry.list_routes()
    teams, topics = len({route.team for route in routes}), len(routes)
    tasks = f", {_count(len(registry.tasks.topics), 'topic')} of tasks" if registry.tasks else ""
    say(f"{file}: {_count(teams, 'team')}, {_count(topics, 'topic')}{tasks}: OK")


@policies.command(name="schema")
def print_schema() -> None:
    """Print the JSON Schema of policy files, by which editors complete and check them.

    Write it beside the file, and name it in the file's first line: # yaml-language-server: $schema=policy-file.schema.json
    """
    from retry.policies.schema import build_schema

    say_lines(format_json(build_schema(), indented=True).splitlines())


class Duration(click.ParamType):
    """Milliseconds, from a duration as the policy file writes them."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else duration_ms(value)
        except PolicyInvalid as invalid:
            self.fail(invalid.reason, param, ctx)


class _Header(click.ParamType):
    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Header:
        name, equals, text = value.partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not name=value", param, ctx)
        return name, text.encode(errors="replace")


@policies.command()
@click.option("--topic", required=True, help="The dead-letter topic.")
@click.option("--attempt", type=click.IntRange(1, 2**31 - 1), required=True, help="Number of the retry, from 1.")
@click.option("--exception", help="Full class name of the exception, as the letter's headers have it.")
@click.option("--cause", help="Full class name of the root cause.")
@click.option("--message", help="Message of the exception.")
@click.option("--stage", help="Stage of its framework at which the record failed.")
@click.option("--age", type=Duration(), default="0s", help="Time since the first failure, like 2h30m.")
@click.option("--header", "headers", type=_Header(), multiple=True, help="A header of the letter.")
@click.option("--group", "consumer_group", help="The consumer group that failed.")
@click.option("--origin", "origin_topic", help="The topic that the record first came from.")
@click.option("--null-value", is_flag=True, help="The letter has no value.")
@click.option("--file", envvar="RETRY_POLICIES", required=True, help="The policy file.", show_envvar=True)
def explain(topic: str, attempt: int, age: int, headers: tuple[Header, ...], null_value: bool, file: str, **failure: Any) -> None:
    """Say in words what happens to a letter, by which rule and why, and how long this retry and the next ones wait."""
    say_lines(explain_lines(load(file), topic, MatchInput(Failure(**failure), attempt, age, headers, null_value)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@click.command()
@click.option("--rate", type=click.FloatRange(0, 1e7, min_open=True), metavar="N", required=True,
              help="Letters a second on average, those that fail again included.")  # fmt: skip
@click.option("--delay", "delay_ms", type=Duration(), required=True, help="How long a letter waits on average, like 5m.")
@click.option("--peak", type=click.FloatRange(0, 1e8, min_open=True), metavar="N",
              help="Letters a second at the peak. By default three times the average.")  # fmt: skip
@click.option("--letter-bytes", type=click.IntRange(1, 100_000_000), default=500, show_default=True,
              help="Bytes of a letter: key, value and headers.")  # fmt: skip
@click.option("--copies", type=click.IntRange(1, 10), default=3, show_default=True, help="Copies of a partition on the brokers.")
@click.option("--standby", type=click.IntRange(0, 100), default=0, show_default=True, help="Workers with RETRY_STANDBY=1.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def size(rate: float, delay_ms: int, peak: float | None, letter_bytes: int, copies: int, standby: int, *, as_json: bool) -> None:
    """Work out what so many letters take: workers, shards, memory, disk, network. Works without a broker.

    What was measured is in docs/evidence/benchmarks.md; docs/explanation/sizing.md tells how this follows from it, and what
    was checked. The last lines say which of these inputs lie beyond that.
    """
    import msgspec

    from retry.operations.size import SizeRequest
    from retry.operations.size import compute_size as worked_out

    peak = 3 * rate if peak is None else peak
    if peak < rate:
        raise click.BadParameter("the peak is no less than the average", param_hint="--peak")
    asked = SizeRequest(rate=rate, delay_ms=delay_ms, peak=peak, letter_bytes=letter_bytes, copies=copies, standby=standby)
    result = worked_out(asked)
    if as_json:
        say_json({"asked": asked, **msgspec.to_builtins(result)})
        return
    say_lines(_format_size(asked, result))


def _format_size(asked: SizeRequest, size: Size) -> Iterator[str]:
    wait = duration_text(asked.delay_ms)
    rows = {
        "waiting": f"{size.waiting:,} letters: {asked.rate:,g} a second, each for {wait}",
        "workers": f"{size.workers}: one may be away, and the others are half busy at {asked.peak:,g} a second",
        "shards": f"{size.shards} (RETRY_SHARDS, before retry topics create)",
        "processor": f"{size.cores} cores on average for all; {size.cores_a_worker} cores for each at its busiest",
        "memory": f"{size.memory_mb_a_worker:,} MB a worker; limit it at {size.memory_limit_mb_a_worker:,} MB",
        "disk": f"{size.disk_mb_a_worker:,} MB a worker",
        "brokers' disk": f"changelog {size.changelog_mb:,} MB, at most {size.changelog_mb_most:,} MB before it is compacted; "
                         f"outcomes {size.outcomes_mb:,} MB in 30 days; all copies, uncompressed",
        "network": f"{size.to_brokers_mb_s:,g} MB/s to brokers, {size.from_brokers_mb_s:,g} MB/s from them, "
                   f"{size.between_brokers_mb_s:,g} MB/s between them",
        "after a lost disk": f"ready in {duration_text(size.restore_s * 1_000)}, where one worker reads all that it has",
        "all due at once": f"sent within {duration_text(size.all_at_once_s * 1_000)}",
    }  # fmt: skip
    width = max(map(len, rows))
    yield from (f"{name.ljust(width)}  {text}" for name, text in rows.items())
    yield from (f"not measured: {each}" for each in size.beyond)


@click.command()
@click.option(
    "--topics", "globs", metavar="GLOB", multiple=True, default=("*",),
    help="Look only at topics whose names match, as 'payments.*'. By default at all but those of Kafka and of this service.",
)  # fmt: skip
@click.option(
    "--newest", type=click.IntRange(1, 10_000), default=20, show_default=True,
    help="Letters that are looked at: the newest of each partition. Of topics with other names fewer.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="NEW",
    help="Write the policy file here, and print what was found in lines. Without it the policy file is printed.",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Write over a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found, one JSON object a topic, and not the policy file.")
def discover(globs: tuple[str, ...], newest: int, out: Path | None, *, overwrite: bool, as_json: bool) -> None:
    """Find the dead-letter topics of a cluster, and write a policy file that attaches them.

    Topics are found by their names and by the headers of their newest letters. The file says who writes them, how many a
    second, how old they are and what fails, and asks where it cannot know. Nothing is changed: no group is joined, nothing
    committed, sent or created.
    """
    from retry.kafka import topics
    from retry.operations.cluster import Cluster
    from retry.operations.discover.policy_text import discover as discovered

    if out is not None and out.exists() and not overwrite:
        raise click.UsageError(f"{out} is there; give --overwrite to write over it, or another name")
    cluster = Cluster(read_settings())
    found = discovered(cluster, topics.read_cluster_id(cluster.admin), globs, newest, lambda line: say(line, err=True))
    if found.unreadable:
        say(f"not looked at, for want of the right to read: {', '.join(found.unreadable)}; retry acls --for discover", err=True)
    if not found.topics:
        say("no topic looks like dead letters, by its name or by its letters; what this user may not see is not found", err=True)
    if out is not None:
        write_file(out, found.text)
    if as_json:
        _print_json(found)
    elif out is None:
        say_lines(found.text.removesuffix("\n").split("\n"))
    else:
        _print_lines(found, out)


def _group_by_topic(found: Discovery) -> dict[str, tuple[str, ProposedTopic]]:
    return {each.found.topic: (team, each) for team, topics in found.teams.items() for each in topics}


def _print_json(found: Discovery) -> None:
    import msgspec

    attached = _group_by_topic(found)
    for topic in found.topics:
        team, proposed = attached.get(topic.topic, (None, None))
        to, questions = (proposed.retry_to, proposed.questions) if proposed else (None, topic.questions)
        say_json({**msgspec.to_builtins(topic), "team": team, "retry_to": to, "questions": questions})


def _print_lines(found: Discovery, out: Path) -> None:
    from retry.operations.discover.policy_text import facts_of

    attached = _group_by_topic(found)
    for topic in found.topics:
        team, proposed = attached.get(topic.topic, (None, None))
        where = f"{team}, to {proposed.retry_to}" if proposed else f"not attached: {topic.why}"
        say(f"{topic.topic}: {where}; {'; '.join(facts_of(topic, found.now_ms))}")
    questions = sum(len(each.questions) for _, each in attached.values())
    say(f"{out}: {len(attached)} topics, {questions} questions; next: retry policies check {out}, retry try --file {out}")
