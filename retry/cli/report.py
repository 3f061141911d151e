"""`retry report`: what became of every letter."""

from __future__ import annotations

import json

import click

from retry.cli.analytics import spark


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--retry-topic", multiple=True, help="Look for retries here, not where outcomes say; repeatable.")
def report(as_json: bool, retry_topic: tuple[str, ...]) -> None:
    """Count letters, retries, recovered and parked, and how late retries were, by team and policy."""
    with spark("retry-report") as (session, settings):
        from retry.analytics import spark_kafka_options, text
        from retry.analytics import report as analytics
        from retry.kafka.topics import names

        options = spark_kafka_options.options(settings.bootstrap_servers, settings.kafka)
        found = analytics.run(session, options, names(settings.app_id).outcomes, retry_topic)
    click.echo(json.dumps(found.as_dict()) if as_json else text.table(found))
