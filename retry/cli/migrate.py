"""`retry migrate`: what waits in another retry service, or in the Go scheduler's topic, moves here, once each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from retry.cli.inspect import tried_lines, tried_object
from retry.cli.options import add_options
from retry.cli.output import say, say_json, say_lines
from retry.clock import wall_ms
from retry.errors import MigrationStopped
from retry.policies.policy_file import load
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.operations.cluster import Cluster
    from retry.operations.migrate.plan import Conversion, LetterHeaders, Plan, UnreadRecords
    from retry.scheduling.messages.migrate import Counts, SchedulesTopic

_TARGETS_MAX, _PLACES_MAX = 20, 5
_Counted = dict[str, "Counts"]


@click.command()
@click.option("--from", "source", metavar="TOPIC", required=True, help="The schedules topic of the Go scheduler.")
@click.option(
    "--to", "target", metavar="TOPIC",
    help="The schedules topic to move to. Without it only what waits is told: retry scheduler reads the same topic.",
)  # fmt: skip
@click.option("--group", metavar="GROUP", help="The GROUP_ID of the scheduler that reads --from. By default of the environment.")
@click.option("--yes", is_flag=True, help="Move it. Stop the scheduler that reads --from before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def scheduler(source: str, target: str | None, group: str | None, *, yes: bool, as_json: bool) -> None:
    """Say what waits in a schedules topic of the Go scheduler, and what retry scheduler makes of it; or move it to another.

    Settings come from the environment, as those of retry scheduler do. What is no schedule stays where it is. The way back is
    the same command with the topics the other way round.
    """
    from retry.operations.cluster import Cluster
    from retry.operations.migrate.move import await_empty
    from retry.scheduling.messages import migrate as schedules
    from retry.scheduling.messages import settings as environment
    from retry.scheduling.messages.composition import build_rules

    if yes and target is None:
        raise click.UsageError("give --to with --yes: without another topic there is nothing to move")
    settings = environment.read_scheduler_settings()
    group = group or settings.worker.app_id
    cluster, rules = Cluster(settings.worker), build_rules(settings, wall_ms())

    def build_topic(name: str) -> SchedulesTopic:
        return schedules.SchedulesTopic(settings.worker, cluster.admin, name, rules)

    names = [name for name in (source, target) if name]
    before = _count_topics(map(build_topic, names))
    told: dict[str, object] = {"before": _object(before)}
    lines = [*_format_counts(before), *([] if yes else _advise_schedules(cluster, group, target))]
    if yes and target is not None:
        for each in _list_scheduler_groups(group):
            await_empty(cluster, each, lambda line: say(line, err=True))
        moved = schedules.move_schedules(settings.worker, build_topic(source), build_topic(target))
        after = _count_topics(map(build_topic, names))
        told |= {**moved._asdict(), "after": _object(after)}
        ended = f"moved {moved.moved:,}, ended {moved.replaced:,} whose key was used in {target} since; now:"
        lines += [ended, *_format_counts(after)]
    say_json(told) if as_json else say_lines(lines)


def _list_scheduler_groups(app_id: str) -> tuple[str, ...]:
    """The groups of a scheduler: of the Go one, and of ours."""
    from retry.kafka import topics

    names = topics.build_topic_names(app_id)
    return app_id, names.intake_group, names.table_group


def _count_topics(topics: Iterable[SchedulesTopic]) -> _Counted:
    found = {}
    for topic in topics:
        topic.read()
        found[topic.topic] = topic.count_waiting()
    return found


def _object(counted: _Counted) -> dict[str, object]:
    return {topic: {"schedules": counts.schedules, **vars(counts)} for topic, counts in counted.items()}


def _format_counts(counted: _Counted) -> Iterator[str]:
    for topic, counts in counted.items():
        when = counts.when
        yield (
            f"{topic}: {counts.schedules:,} schedules wait: {when['at_once']:,} are due, {when['within_an_hour']:,} within an "
            f"hour, {when['later']:,} later"
        )
        yield from (f"  {count:,} to {target}" for target, count in counts.targets.most_common(_TARGETS_MAX))
        if counts.others:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.others.most_common())
            yield f"  no schedules, which stay where they are: {reasons}; {', '.join(counts.places[:_PLACES_MAX])}"


def _advise_schedules(cluster: Cluster, group: str, target: str | None) -> Iterator[str]:
    from retry.operations.migrate.plan import list_group_members

    if present := sum(len(list_group_members(cluster, each)) for each in _list_scheduler_groups(group)):
        yield f"{present} members of the scheduler {group} run: stop them before anything is moved, or before another one starts"
    yield f"nothing was written; --yes moves the schedules to {target}" if target else "nothing was written"


_EXCEPTIONS_MAX = 20


@click.group()
def migrate() -> None:
    """Move what waits in another retry service or scheduler here, once each.

    Without --yes nothing is written: it says what waits, and what would become of it.
    """


migrate.add_command(scheduler)


_options = add_options([
    click.option(
        "--from", "globs", metavar="GLOB", multiple=True, required=True, help="Topics where they wait, as 'orders-retry-*'.",
    ),
    click.option("--to", "target", metavar="TOPIC", required=True, help="The dead-letter topic that they move to."),
    click.option(
        "--group", metavar="GROUP",
        help="The consumer group of the other service, as a name or a glob. By default the only one that has read a topic.",
    ),
    click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, required=True, help="The policy file."),
    click.option(
        "--others", type=click.Choice(["move", "leave"]),
        help="What to do with records that the other service has not written: move them as they are, or pass over them. "
        "By default nothing is moved where there are any.",
    ),
    click.option("--yes", is_flag=True, help="Move it. Stop the consumers of the other service before."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
])  # fmt: skip


@migrate.command("spring-retry-topics")
@_options
def spring_retry_topics(**options: Any) -> None:
    """Move what waits in the retry topics of Spring Kafka (@RetryableTopic).

    Each is due when Spring would have processed it, as far as its policy allows, and its retries are counted on.
    """
    from retry.operations.migrate.plan import convert_spring_headers

    _migrate(convert_spring_headers, **options)


@migrate.command()
@_options
def cronsumer(**options: Any) -> None:
    """Move what waits in the topic of kafka-cronsumer.

    Its policy says when each is due, counted from when it was written; its retries are counted on.
    """
    from retry.operations.migrate.plan import convert_cronsumer_headers

    _migrate(convert_cronsumer_headers, **options)


def _migrate(
    convert: LetterHeaders, globs: tuple[str, ...], target: str, group: str | None, policies: str, others: str | None, *,
    yes: bool, as_json: bool,
) -> None:  # fmt: skip
    from retry.operations.cluster import Cluster
    from retry.operations.migrate.plan import Conversion, count_unread, demand_target, find_unread, plan_migration

    registry, cluster = load(policies), Cluster(read_settings())
    demand_target(cluster, registry, target)
    found = find_unread(cluster, registry, globs, group, target)
    conversion = Conversion(convert, target, others=others == "move")
    plan = plan_migration(cluster, registry, found, conversion)
    before = {topic: {"group": each.group, "records": plan.topics[topic]} for each in found for topic in each.topics}
    told: dict[str, object] = {
        "before": before, "would": tried_object(plan.tried), "other_times": plan.other_times, "others": dict(plan.others),
        "places": plan.places, "unread": [topic for each in found for topic in each.unread],
    }  # fmt: skip
    lines = list(_plan_lines(found, plan))
    if not yes:
        lines += _advice(cluster, found, plan, others, target)
    if not as_json:
        say_lines(lines)
    if yes:
        moved, left = _move_records(cluster, found, plan, conversion, others)
        after = count_unread(cluster, find_unread(cluster, registry, globs, group, target))
        told |= {"moved": moved, "left": left, "after": {topic: after[topic] for topic in plan.topics}}
        if not as_json:
            say_lines(_describe_result(moved, left, after.total(), target))
    if as_json:
        say_json(told)


def _move_records(
    cluster: Cluster, found: Sequence[UnreadRecords], plan: Plan, conversion: Conversion, others: str | None
) -> tuple[int, int]:
    """Move it; how many records became letters, and how many were passed over."""
    from retry.operations.migrate.move import Move, await_empty

    if (plan.others and others is None) or (plan.unreadable and others == "move"):
        raise MigrationStopped(_others(plan, others) + "; nothing was moved")
    for each in found:
        await_empty(cluster, each.group, lambda line: say(line, err=True))
    moves = [Move(cluster, each, conversion, leave=others == "leave") for each in found]
    for move in moves:
        move.run()
    return sum(move.moved for move in moves), sum(move.left for move in moves)


def _describe_result(moved: int, left: int, waits: int, target: str) -> Iterator[str]:
    yield f"moved {moved:,} to {target}, passed over {left:,}; {waits:,} wait now where they were"
    if waits:
        yield "what waits now came meanwhile: see that nobody writes there any more, then give the command again"


def _plan_lines(found: Sequence[UnreadRecords], plan: Plan) -> Iterator[str]:
    for each in found:
        for topic in each.topics:
            yield f"{topic}: {plan.topics[topic]:,} wait for the group {each.group}"
        for topic in each.unread:
            yield (
                f"{topic}: the group {each.group} has committed nothing there, so all that lies there counts. If it has ever "
                "read the topic, brokers have forgotten how far, and what it has processed would be processed again"
            )
    yield from tried_lines(plan.tried, _EXCEPTIONS_MAX)
    if plan.other_times:
        yield (
            f"{plan.other_times:,} would be due at another time than they are now: their policy has a max_delay that is shorter, "
            "honour_retry_at: false, or hours in which nothing is sent"
        )


def _advice(cluster: Cluster, found: Sequence[UnreadRecords], plan: Plan, others: str | None, target: str) -> Iterator[str]:
    from retry.operations.migrate.move import build_instance
    from retry.operations.migrate.plan import list_group_members

    if plan.others:
        yield _others(plan, others)
    for each in found:
        present = [name for name in list_group_members(cluster, each.group) if name != build_instance(cluster.settings.app_id)]
        if present:
            yield f"{len(present)} consumers are in the group {each.group}: stop them before you give --yes"
    yield f"nothing was written; --yes moves them to {target}"


def _others(plan: Plan, others: str | None) -> str:
    count, places = plan.others.total(), plan.places[:_PLACES_MAX]
    shown = ", ".join([*places, "…"] if count > len(places) else places)
    told = f"{count:,} records are not of the other service, or cannot be read: {shown}"
    if others == "leave":
        return f"{told}; they are passed over, and stay where they are"
    unreadable = f", but not the {plan.unreadable:,} whose headers cannot be read" if plan.unreadable else ""
    return f"{told}; --others move moves them as they are{unreadable}, --others leave passes over them"
