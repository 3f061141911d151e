"""`retry topics`: create the service's topics, or say what is wrong with them."""

from __future__ import annotations

import sys

import click

from retry.errors import RetryError


@click.group()
def topics() -> None:
    """The changelog, outcomes and parking topics."""


@topics.command()
def create() -> None:
    """Create the topics that are missing, with the settings that exactly-once needs, then check all of them."""
    _run(make=True)


@topics.command()
def check() -> None:
    """Say whether the topics are as a worker needs them, or what differs and what mends it."""
    _run(make=False)


def _run(*, make: bool) -> None:
    from retry import settings as environment
    from retry.kafka import client_config
    from retry.kafka import topics as kafka
    from retry.policies.policy_file import load

    try:
        settings = environment.from_environment()
        parking = sorted(load(settings.policies).parking()) if settings.policies else []
        admin = client_config.admin(settings)
        for topic in kafka.create(admin, settings.app_id, settings.shards, parking) if make else []:
            click.echo(f"created {topic}")
        for topic, found in kafka.check(admin, settings.app_id, parking).items():
            click.echo(f"ok {topic} ({found.partitions} partitions)")
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
