"""`retry migrate scheduler`: what waits in the Go scheduler's topic, and how it comes to another one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
import orjson

from retry.cli.output import say, say_json

if TYPE_CHECKING:
    from retry.operations.cluster import Cluster
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
    from retry.clock import wall_ms
    from retry.operations.cluster import Cluster
    from retry.operations.migrate.move import await_empty
    from retry.scheduling.messages import migrate as schedules
    from retry.scheduling.messages.composition import rules_of
    from retry.scheduling.messages.settings import from_environment

    if yes and target is None:
        raise click.UsageError("give --to with --yes: without another topic there is nothing to move")
    settings = from_environment()
    group = group or settings.worker.app_id
    cluster, rules = Cluster(settings.worker), rules_of(settings, wall_ms())

    def build_topic(name: str) -> SchedulesTopic:
        return schedules.SchedulesTopic(settings.worker, cluster.admin, name, rules)

    names = [name for name in (source, target) if name]
    before = _count_topics(map(build_topic, names))
    told: dict[str, object] = {"before": _object(before)}
    lines = [*_format_counts(before), *([] if yes else _advice(cluster, group, target))]
    if yes and target is not None:
        for each in _list_scheduler_groups(group):
            await_empty(cluster, each, lambda line: say(line, err=True))
        moved = schedules.move_schedules(settings.worker, build_topic(source), build_topic(target))
        after = _count_topics(map(build_topic, names))
        told |= {**moved._asdict(), "after": _object(after)}
        ended = f"moved {moved.moved:,}, ended {moved.replaced:,} whose key was used in {target} since; now:"
        lines += [ended, *_format_counts(after)]
    if as_json:
        say_json(orjson.dumps(told))
        return
    for line in lines:
        say(line)


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


def _advice(cluster: Cluster, group: str, target: str | None) -> Iterator[str]:
    from retry.operations.migrate.waiting import list_group_members

    if present := sum(len(list_group_members(cluster, each)) for each in _list_scheduler_groups(group)):
        yield f"{present} members of the scheduler {group} run: stop them before anything is moved, or before another one starts"
    yield f"nothing was written; --yes moves the schedules to {target}" if target else "nothing was written"
