"""`retry discover`: the dead-letter topics that a cluster already has, and a policy file that would attach them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from retry.cli.output import say, say_json, say_lines
from retry.settings import from_environment

if TYPE_CHECKING:
    from retry.operations.discover.policy_text import Discovery
    from retry.operations.discover.proposal import ProposedTopic


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
    cluster = Cluster(from_environment())
    found = discovered(cluster, topics.cluster_id(cluster.admin), globs, newest, lambda line: say(line, err=True))
    if found.unreadable:
        say(f"not looked at, for want of the right to read: {', '.join(found.unreadable)}; retry acls --for discover", err=True)
    if not found.topics:
        say("no topic looks like dead letters, by its name or by its letters; what this user may not see is not found", err=True)
    if out is not None:
        _write(out, found.text)
    if as_json:
        _print_json(found)
    elif out is None:
        say_lines(found.text.removesuffix("\n").split("\n"))
    else:
        _print_lines(found, out)


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        say(f"{out}: {error.strerror}; give another name to --out", err=True)
        sys.exit(1)


def _group_by_topic(found: Discovery) -> dict[str, tuple[str, ProposedTopic]]:
    return {each.found.topic: (team, each) for team, topics in found.teams.items() for each in topics}


def _print_json(found: Discovery) -> None:
    import msgspec

    attached = _group_by_topic(found)
    for topic in found.topics:
        team, proposed = attached.get(topic.topic, (None, None))
        to, questions = (proposed.retry_to, proposed.questions) if proposed else (None, topic.questions)
        say_json(orjson.dumps({**msgspec.to_builtins(topic), "team": team, "retry_to": to, "questions": questions}))


def _print_lines(found: Discovery, out: Path) -> None:
    from retry.operations.discover.policy_text import facts_of

    attached = _group_by_topic(found)
    for topic in found.topics:
        team, proposed = attached.get(topic.topic, (None, None))
        where = f"{team}, to {proposed.retry_to}" if proposed else f"not attached: {topic.why}"
        say(f"{topic.topic}: {where}; {'; '.join(facts_of(topic, found.now_ms))}")
    questions = sum(len(each.questions) for _, each in attached.values())
    say(f"{out}: {len(attached)} topics, {questions} questions; next: retry policies check {out}, retry try --file {out}")
