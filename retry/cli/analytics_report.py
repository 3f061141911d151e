"""`retry analytics report`: what became of every retry, on one HTML page or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff import PolicyInvalid, duration_ms
from retry.cli.analytics_options import JSON, Sources, counted, decided, period, told, write
from retry.errors import RetryError

if TYPE_CHECKING:
    from retry.analytics.decisions import Decisions


@click.command("report")
@period
@click.option(
    "--html", "file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), default=Path("retry-report.html"),
    show_default=True, help="Where the page is written.",
)  # fmt: skip
@click.option(
    "--retention",
    metavar="TOPIC=7d",
    multiple=True,
    help="How long a topic keeps records; repeatable. Kafka is asked where it is read.",
)
@JSON
def page(file: Path, retention: Sequence[str], as_json: bool, **sources: Any) -> None:
    """Write one HTML page: which retries are worth making, and what became of all of them. With --json print the same numbers
    instead."""
    from retry.analytics.advice.summary import judged, saving, worth

    with told():
        kept = _told(retention)
    with decided("retry-report", Sources(**sources)) as (spark, decisions):
        from retry.analytics.findings import findings

        kinds = counted(decisions)
        advice = judged(kinds)
        if sources["data"] is None:
            kept = _asked(decisions) | kept
        found = findings(spark, decisions, kept) | {"worth": worth(kinds, advice), "saving": saving(advice)}
    if as_json:
        click.echo(json.dumps(found))
        return
    from retry.analytics.html.render import page as rendered

    write(file, rendered(found))
    click.echo(str(file.absolute()))


def _told(retention: Sequence[str]) -> dict[str, int]:
    """By topic, what the options say.

    Raises:
      RetryError: one cannot be read.
    """
    found = {}
    for each in retention:
        topic, _, duration = each.partition("=")
        try:
            found[topic] = duration_ms(duration)
        except PolicyInvalid as invalid:
            raise RetryError(f"--retention {each}: {invalid.reason}") from None
    return found


def _asked(decisions: Decisions) -> dict[str, int]:
    """By topic, what Kafka says of those that letters went to."""
    from retry import settings as environment
    from retry.kafka import client_config, topics

    targets = decisions.attempts.select("target").union(decisions.parked.select("target")).distinct()
    known = topics.describe(client_config.admin(environment.from_environment()), [row["target"] for row in targets.collect()])
    # A topic that is compacted alone keeps what is newest for ever.
    return {
        topic: int(about.config["retention.ms"]) if "delete" in about.config["cleanup.policy"] else -1
        for topic, about in known.items()
    }
