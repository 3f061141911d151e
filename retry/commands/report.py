"""`retry report`: what became of every letter."""

from __future__ import annotations

import json
import sys

import click

from retry.errors import RetryError


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--retry-topic", multiple=True, help="Look for retries here, not where outcomes say; repeatable.")
def report(as_json: bool, retry_topic: tuple[str, ...]) -> None:
    """Count letters, retries, recovered and parked, and how late retries were, by team and policy."""
    try:
        # Spark is an extra, and loading it takes a second that no other command should wait.
        from retry.analytics import connection, text
        from retry.analytics import report as analytics
        from retry.analytics.session import session
    except ModuleNotFoundError as missing:
        click.echo(f"{missing.name} is not installed; pip install 'dead-letter-retry[analytics]'", err=True)
        sys.exit(1)
    from retry import settings as environment
    from retry.kafka.topics import names

    try:
        settings = environment.from_environment()
        options = connection.options(settings.bootstrap_servers, settings.kafka)
        with session() as spark:
            found = analytics.run(spark, options, names(settings.app_id).outcomes, retry_topic)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(json.dumps(found.as_dict()) if as_json else text.table(found))
