"""`retry topics`: create the service's topics, say what is wrong with them, and have letters taken in once more."""

from __future__ import annotations

import click

from retry.cli import operator
from retry.cli.moment import Moment
from retry.cli.output import say


@click.group()
def topics() -> None:
    """Create or check the topics of the service, or have dead letters taken in again."""


@topics.command()
def create() -> None:
    """Create the topics that are missing, with the settings that exactly-once needs, then check all of them."""
    _run(make=True)


@topics.command()
def check() -> None:
    """Say whether the topics are as a worker needs them, or what differs and which command mends it."""
    _run(make=False)


@topics.command()
@click.argument("topic")
@click.option("--from", "since", type=Moment(ago=True), help="Letters since then: so long ago, or a time.")
@click.option("--from-offset", type=click.IntRange(0), help="Letters from this offset on; give --partition, too.")
@click.option("--partition", type=click.IntRange(0), help="Only of this partition.")
@click.option("--by", default=operator.identify_user, metavar="NAME", help="Who asks for it. By default user and host.")
@click.option("--yes", is_flag=True, help="Do it; without this the command only says what would be taken in again.")
def reread(topic: str, since: int | None, from_offset: int | None, partition: int | None, by: str, yes: bool) -> None:
    """Take in letters of a dead-letter TOPIC again that were taken in before, from some point on.

    Workers never do that by themselves. What was retried or parked before is retried or parked once more: its attempts go on from
    where they are. Without --from and --from-offset it is from the beginning. Workers follow within some seconds, or when they
    are started.
    """
    from retry import settings as environment
    from retry.operations.cluster import Cluster, LetterRange
    from retry.operations.read_positions import find_read_offsets, request_reread

    if from_offset is not None and (since is not None or partition is None):
        raise click.UsageError("give --from-offset with --partition, and without --from")
    cluster = Cluster(environment.from_environment())
    spans = cluster.spans(LetterRange(topic, partition, from_offset))
    if since is not None:
        spans = cluster.cut_spans(spans, since)
    reached = find_read_offsets(cluster).reached
    for span in spans:
        again = max(0, reached.get((topic, span.partition), 0) - span.start)
        say(f"{topic}/{span.partition} from {span.start:,} on: {again:,} offsets that were taken in before")
    if yes:
        say(f"asked for {request_reread(cluster, spans, by)} partitions")
    else:
        say("nothing is asked for yet; give the same command with --yes")


def _run(*, make: bool) -> None:
    from retry import settings as environment
    from retry.kafka import client_config
    from retry.kafka import topics as kafka
    from retry.operations.cluster import Cluster
    from retry.operations.read_positions import check_positions
    from retry.worker.policy_reload import load_policies

    settings = environment.from_environment()
    registry = load_policies(settings)
    parking = sorted(registry.parking())
    admin = client_config.admin(settings)
    for topic in kafka.create(admin, settings.app_id, settings.shards, parking) if make else []:
        say(f"created {topic}")
    names = kafka.build_topic_names(settings.app_id)
    others = [names.calls, names.parked_timers, names.discarded, names.audit, names.notes, *parking]
    for topic, about in kafka.check(admin, settings.app_id, others).items():
        say(f"ok {topic} ({about.partitions} partitions)")
    for found in check_positions(Cluster(settings), registry.reads_topic):
        say(f"note: {found}")
