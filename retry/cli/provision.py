"""`retry topics`, `retry acls` and `retry keys`: what has to be there before the service runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
import yaml

from retry.cli.options import Moment, identify_user
from retry.cli.output import say, say_json, say_lines
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.printable import align_rows
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.operations.waiting_entries import KeyUse
    from retry.process.acls import AclLine
    from retry.sealing.key_file import Keys


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
@click.argument("cluster")
@click.option("--copies", type=click.IntRange(1, 15), default=3, show_default=True, help="How many brokers keep each record.")
def strimzi(cluster: str, copies: int) -> None:
    """Print a KafkaTopic of Strimzi for each topic of the service, for the Kafka CLUSTER of that name. Asks no broker.

    Topics that are made so are not to be made by `retry topics create`. The user is printed by `retry acls --strimzi`.
    """
    from retry.kafka.topics import plan_topics
    from retry.process.strimzi import build_topics

    settings = read_settings()
    registry = load(settings.policies) if settings.policies else Registry()
    plans = plan_topics(settings.app_id, settings.shards, sorted(registry.parking()))
    _say_yaml(build_topics(plans, cluster, copies))


@topics.command()
@click.argument("topic")
@click.option("--from", "since", type=Moment(ago=True), help="Letters since then: so long ago, or a time.")
@click.option("--from-offset", type=click.IntRange(0), help="Letters from this offset on; give --partition, too.")
@click.option("--partition", type=click.IntRange(0), help="Only of this partition.")
@click.option("--by", default=identify_user, metavar="NAME", help="Who asks for it. By default user and host.")
@click.option("--yes", is_flag=True, help="Do it; without this the command only says what would be taken in again.")
def reread(topic: str, since: int | None, from_offset: int | None, partition: int | None, by: str, yes: bool) -> None:
    """Take in letters of a dead-letter TOPIC again that were taken in before, from some point on.

    Workers never do that by themselves. What was retried or parked before is retried or parked once more: its attempts go on from
    where they are. Without --from and --from-offset it is from the beginning. Workers follow within some seconds, or when they
    are started.
    """
    from retry.operations.cluster import Cluster, LetterRange
    from retry.operations.read_positions import find_read_offsets, request_reread

    if from_offset is not None and (since is not None or partition is None):
        raise click.UsageError("give --from-offset with --partition, and without --from")
    cluster = Cluster(read_settings())
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


def _say_yaml(resources: Iterable[dict[str, Any]]) -> None:
    say_lines(yaml.safe_dump_all(resources, sort_keys=False, explicit_start=True).splitlines())


def _run(*, make: bool) -> None:
    from retry.kafka import client_config
    from retry.kafka import topics as kafka
    from retry.operations.cluster import Cluster
    from retry.operations.read_positions import check_positions
    from retry.process.policy_reload import load_policies

    settings = read_settings()
    registry = load_policies(settings)
    parking = sorted(registry.parking())
    admin = client_config.connect_admin(settings)
    for topic in kafka.create(admin, settings.app_id, settings.shards, parking) if make else []:
        say(f"created {topic}")
    names = kafka.build_topic_names(settings.app_id)
    others = [names.calls, names.parked_timers, names.discarded, names.audit, names.notes, *parking]
    for topic, about in kafka.check(admin, settings.app_id, others).items():
        say(f"ok {topic} ({about.partitions} partitions)")
    for found in check_positions(Cluster(settings), registry.reads_topic):
        say(f"note: {found}")


_PARTS = (
    "worker", "topics create", "commands", "analytics", "api", "console", "scheduler", "discover", "migrate", "migrate scheduler",
)  # fmt: skip
_COLUMNS = ("for", "resource", "pattern", "name", "operation", "what stops without it")


@click.command()
@click.option(
    "--for", "parts", multiple=True, type=click.Choice(_PARTS),
    help="Only the rights of this part. By default all parts but the scheduler, which has settings of its own, discover, "
    "which looks at all topics, and migrate, which is done once.",
)  # fmt: skip
@click.option("--from", "globs", metavar="GLOB", multiple=True, help="For migrate: the topics to move from.")
@click.option("--to", "target", metavar="TOPIC", help="For migrate: the topic that it is to move to.")
@click.option("--group", "group", metavar="GROUP", help="For migrate: as it has it; for migrate scheduler by default GROUP_ID.")
@click.option("--principal", help="The user to grant them to, as User:name. By default the one of RETRY_KAFKA_SASL_USERNAME.")
@click.option("--bootstrap-command", "as_commands", is_flag=True, help="Print kafka-acls.sh commands that grant the rights.")
@click.option("--strimzi", "cluster", metavar="CLUSTER", help="Print a KafkaUser of Strimzi for the Kafka cluster of that name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def acls(
    parts: tuple[str, ...], globs: tuple[str, ...], target: str | None, group: str | None, principal: str | None, *,
    as_commands: bool, cluster: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List the least rights on the brokers that the settings and the policy file need. Works without a broker.

    No right on the cluster itself is needed. Grant each part to a user of its own, or all parts to one.
    """
    from retry.kafka import authorization
    from retry.process import acls as needed
    from retry.process.strimzi import build_user

    apart = (needed.SCHEDULER, needed.MIGRATE, needed.MIGRATE_SCHEDULER)
    wanted = parts or tuple(part for part in _PARTS if part not in (*apart, needed.DISCOVER))
    settings = read_settings()
    registry = load(settings.policies) if settings.policies else Registry()
    lines = [*needed.list_rights([p for p in wanted if p not in apart], needed.resolve_names(settings.app_id, registry))]
    lines += _of_scheduler() if needed.SCHEDULER in wanted else []
    for part in wanted:
        if part in (needed.MIGRATE, needed.MIGRATE_SCHEDULER):
            lines += _of_migration(part, settings.app_id, globs, target, group)
    principal = principal or f"User:{settings.kafka.get('sasl.username', 'retry')}"
    if as_commands:
        say_lines(authorization.build_commands([line.right for line in lines], principal, settings.bootstrap_servers))
        return
    if cluster is not None:
        _say_yaml([build_user(principal.removeprefix("User:"), [line.right for line in lines], cluster)])
        return
    rows = [
        (line.who, r.resource, "prefixed" if r.prefixed else "literal", r.name, r.operation, line.without)
        for line in lines for r in (line.right,)
    ]  # fmt: skip
    if as_json:
        for row in rows:
            say_json(dict(zip(("for", "resource", "pattern", "name", "operation", "without"), row, strict=True)))
        return
    say_lines(align_rows([_COLUMNS, *rows], names=len(_COLUMNS)))


def _of_scheduler() -> list[AclLine]:
    """List the rights that a scheduler with the variables of this environment needs."""
    from retry.process import acls as needed
    from retry.scheduling.messages import settings as environment

    settings = environment.read_scheduler_settings()

    def topics(written: tuple[str, ...]) -> list[needed.Name]:
        return [needed.extract_prefix(each) if each.startswith("^") else (each, False) for each in written]

    names = {
        **needed.resolve_names(settings.worker.app_id, Registry()),
        needed.SCHEDULES: topics(settings.topics),
        needed.HISTORY: [(settings.history, False)],
        needed.SCHEDULED_TARGETS: topics(settings.allowed) or [(needed.ALL_NAMES, False)],
    }
    return [*needed.list_rights([needed.SCHEDULER], names)]


def _of_migration(part: str, app_id: str, globs: tuple[str, ...], target: str | None, group: str | None) -> list[AclLine]:
    """List the rights that `retry migrate`, or `retry migrate scheduler`, needs with the same options."""
    from retry.kafka import topics
    from retry.process import acls as needed
    from retry.scheduling.messages import settings as environment

    groups = [needed.extract_glob_prefix(group or needed.ALL_NAMES)]
    if part == needed.MIGRATE_SCHEDULER:
        app_id = environment.read_scheduler_settings().worker.app_id
        own = topics.build_topic_names(group or app_id)
        groups = [(name, False) for name in (group or app_id, own.intake_group, own.table_group)]
    elif target is None:
        raise click.UsageError("give --to with --for migrate: the dead-letter topic that letters move to")
    if not globs:
        raise click.UsageError(f"give --from with --for {part!r}: the topics that it is to move from")
    names = {
        **needed.resolve_names(app_id, Registry()),
        needed.MOVED_FROM: [needed.extract_glob_prefix(glob) for glob in globs],
        needed.MOVED_TO: [(target, False)] if target else [],
        needed.MOVED_GROUPS: groups,
    }
    return [*needed.list_rights([part], names)]


@click.group()
def keys() -> None:
    """Make keys that payloads are encrypted with at rest, and list which are needed."""


@keys.command("new")
@click.argument("key_id", metavar="ID")
def make_key(key_id: str) -> None:
    """Make a key called ID, for the file that RETRY_ENCRYPTION_KEYS names. An id is never used again for another key."""
    from retry.sealing.key_file import make_key_line

    say(make_key_line(key_id))


@keys.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_keys(as_json: bool) -> None:
    """List keys, and how much waits under each. Those of the file come first, the one that seals before all.

    A key under which nothing waits can be taken out of the file, once no process writes with it: each has read the file anew
    within six seconds. What waits is read from the changelog, and no key is needed for that.
    """
    from retry.operations.waiting_entries import KeyUse, count_by_key
    from retry.sealing.key_file import Keys, read

    settings = read_settings()
    held = read(settings.encryption_keys) if settings.encryption_keys else Keys(None, {})
    used = count_by_key(settings)
    for key_id in (*held.by_id, *sorted(key for key in used if key is not None and key not in held.by_id), None):
        use = used.get(key_id, KeyUse())
        if as_json:
            about = {"key_id": key_id, "in_file": key_id in held.by_id, "seals": key_id is not None and key_id == held.newest}
            say_json({**about, "entries": use.entries, "held": use.held, "edits": use.edits})
        elif key_id is not None or use.entries:
            say(_format_key(key_id, held, use))


def _format_key(key_id: str | None, held: Keys, use: KeyUse) -> str:
    if key_id is None:
        return f"{'(in clear)':<40}  {use.entries:,} entries"
    where = "seals" if key_id == held.newest else "opens" if key_id in held.by_id else "NOT IN THE FILE"
    if not use.entries and not use.edits:
        return f"{key_id:<40}  {where}  nothing waits under it"
    edits = f", {use.edits:,} edits of actions that are not done" if use.edits else ""
    return f"{key_id:<40}  {where}  {use.entries:,} entries, {use.held:,} of them held{edits}"
