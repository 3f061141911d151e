"""`retry explain`: one letter, in words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from retry.operations.explain.explanation import Explained
    from retry.operations.explain.evidence import Known


@click.command()
@click.argument("letter", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with the same, and what it is about.")
def explain(letter: str, policies: str | None, as_json: bool) -> None:
    """Say why a letter is due when it is, by which rule, where it is now and what happens next. No worker needs to run.

    The letter is named as the header retry-source has it. Payloads are not printed.
    """
    from confluent_kafka import KafkaException

    from retry import settings as environment
    from retry.clock import wall_ms
    from retry.operations.cluster import Cluster
    from retry.operations.explain.explanation import explained
    from retry.operations.explain.evidence import known
    from retry.operations.explain.search import place
    from retry.errors import RetryError
    from retry.policies.policy_file import load

    try:
        wanted = place(letter)
        registry = load(policies) if policies else None
        cluster = Cluster(environment.from_environment())
        found = known(cluster, wanted, registry)
        forecast = None
        if found.record is not None and registry is not None:
            forecast = next(cluster.inspector(registry).decided([found.record], wall_ms()))
        told = explained(found, registry, forecast, wall_ms())
    except (RetryError, KafkaException, ValueError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    if as_json:
        import orjson

        click.echo(orjson.dumps(_object(found, told), option=orjson.OPT_INDENT_2))
    else:
        for line in (line for section in told.says.values() for line in section):
            click.echo(_plain(line))


def _object(found: Known, told: Explained) -> dict[str, object]:
    from retry.delay_queue.entry import source

    failure = found.letter.failure if found.letter else None
    return {
        **found.place._asdict(),
        "state": told.state.name.lower(),
        "family": failure.family if failure else None,
        "exception": failure.exception if failure else None,
        "cause": failure.cause if failure else None,
        "decided": told.decided._asdict() if told.decided else None,
        "key": str(source(found.waiting.key)) if found.waiting else None,
        "behind": str(source(found.waiting.head)) if found.waiting and found.waiting.head else None,
        "held": found.held,
        "sent_to": str(found.sent.place) if found.sent else None,
        "sent_ms": found.sent.at_ms if found.sent else None,
        "says": told.says,
    }


def _plain(line: str) -> str:
    """What headers say must not command the terminal."""
    return "".join(character if character.isprintable() else "�" for character in line)
