"""`retry tasks`: sample definitions, to see or to send."""

from __future__ import annotations

import sys
from itertools import islice

import click
import orjson

from retry.errors import RetryError


@click.group()
def tasks() -> None:
    """Recurring tasks."""


@tasks.command()
@click.option("--output-topic", "outputs", multiple=True, required=True, help="Where runs are to go; may be repeated.")
@click.option("--count", type=click.IntRange(1, 1_000_000), default=8, show_default=True, help="How many definitions.")
@click.option("--customers", type=click.IntRange(1, 1_000_000), default=3, show_default=True, help="Of how many customers.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same one always makes the same definitions.")
@click.option("--format", "form", type=click.Choice(["avro", "json"]), default="avro", show_default=True)
@click.option("--send", "topic", help="The topic to send them to; else they are printed, one JSON object a line.")
def samples(*, outputs: tuple[str, ...], count: int, customers: int, seed: int, form: str, topic: str | None) -> None:
    """Make definitions: the six units in turn, one by a cron expression, one that is done once, and so on."""
    from retry.scheduling.tasks import samples as made

    found = list(islice(made.samples(seed, outputs, customers), count))
    if topic is None:
        for each in found:
            click.echo(orjson.dumps(each.definition))
        return
    from retry import settings as environment
    from retry.kafka.sending import send

    try:
        send(environment.from_environment(), topic, [made.encoded(each, form) for each in found])
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(f"sent {count} definitions to {topic}")
