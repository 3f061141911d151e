"""`retry topics`: create the service's topics, or say what is wrong with them."""

from __future__ import annotations

import click

from retry.cli.output import say


@click.group()
def topics() -> None:
    """Create or check the topics of the service."""


@topics.command()
def create() -> None:
    """Create the topics that are missing, with the settings that exactly-once needs, then check all of them."""
    _run(make=True)


@topics.command()
def check() -> None:
    """Say whether the topics are as a worker needs them, or what differs and which command mends it."""
    _run(make=False)


def _run(*, make: bool) -> None:
    from retry import settings as environment
    from retry.kafka import client_config
    from retry.kafka import topics as kafka
    from retry.worker.policy_reload import loaded

    settings = environment.from_environment()
    parking = sorted(loaded(settings).parking())
    admin = client_config.admin(settings)
    for topic in kafka.create(admin, settings.app_id, settings.shards, parking) if make else []:
        say(f"created {topic}")
    names = kafka.names(settings.app_id)
    others = [names.calls, names.parked_timers, names.discarded, names.audit, names.notes, *parking]
    for topic, about in kafka.check(admin, settings.app_id, others).items():
        say(f"ok {topic} ({about.partitions} partitions)")
