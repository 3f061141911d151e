"""`retry acls`: the rights that the service needs, and the commands that grant them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from retry.cli.output import say, say_json

if TYPE_CHECKING:
    from retry.worker.acls import AclLine

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
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def acls(
    parts: tuple[str, ...], globs: tuple[str, ...], target: str | None, group: str | None, principal: str | None, *,
    as_commands: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the least rights on the brokers that the settings and the policy file need. Works without a broker.

    No right on the cluster itself is needed. Grant each part to a user of its own, or all parts to one.
    """
    from retry import settings as environment
    from retry.kafka import authorization
    from retry.policies.policy_file import load
    from retry.policies.registry import Registry
    from retry.worker import acls as needed

    apart = (needed.SCHEDULER, needed.MIGRATE, needed.MIGRATE_SCHEDULER)
    wanted = parts or tuple(part for part in _PARTS if part not in (*apart, needed.DISCOVER))
    settings = environment.from_environment()
    registry = load(settings.policies) if settings.policies else Registry()
    lines = [*needed.list_rights([p for p in wanted if p not in apart], needed.resolve_names(settings.app_id, registry))]
    lines += _of_scheduler() if needed.SCHEDULER in wanted else []
    for part in wanted:
        if part in (needed.MIGRATE, needed.MIGRATE_SCHEDULER):
            lines += _of_migration(part, settings.app_id, globs, target, group)
    if as_commands:
        principal = principal or f"User:{settings.kafka.get('sasl.username', 'retry')}"
        for command in authorization.command([line.right for line in lines], principal, settings.bootstrap_servers):
            say(command)
        return
    rows = [
        (line.who, r.resource, "prefixed" if r.prefixed else "literal", r.name, r.operation, line.without)
        for line in lines for r in (line.right,)
    ]  # fmt: skip
    if as_json:
        for row in rows:
            say_json(orjson.dumps(dict(zip(("for", "resource", "pattern", "name", "operation", "without"), row, strict=True))))
        return
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _of_scheduler() -> list[AclLine]:
    """List the rights that a scheduler with the variables of this environment needs."""
    from retry.policies.registry import Registry
    from retry.scheduling.messages import settings as environment
    from retry.worker import acls as needed

    settings = environment.from_environment()

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
    from retry.policies.registry import Registry
    from retry.scheduling.messages import settings as environment
    from retry.worker import acls as needed

    groups = [needed.begin_of_glob(group or needed.ALL_NAMES)]
    if part == needed.MIGRATE_SCHEDULER:
        app_id = environment.from_environment().worker.app_id
        own = topics.build_topic_names(group or app_id)
        groups = [(name, False) for name in (group or app_id, own.intake_group, own.table_group)]
    elif target is None:
        raise click.UsageError("give --to with --for migrate: the dead-letter topic that letters move to")
    if not globs:
        raise click.UsageError(f"give --from with --for {part!r}: the topics that it is to move from")
    names = {
        **needed.resolve_names(app_id, Registry()),
        needed.MOVED_FROM: [needed.begin_of_glob(glob) for glob in globs],
        needed.MOVED_TO: [(target, False)] if target else [],
        needed.MOVED_GROUPS: groups,
    }
    return [*needed.list_rights([part], names)]
