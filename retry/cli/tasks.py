"""`retry tasks`: those that wait for their next run; one shown, paused, resumed or backfilled; and sample definitions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from backoff.recurrence import PAUSED_MS
from retry.cli.options import Moment
from retry.cli.output import exit_where_refused, say, say_json
from retry.clock import iso, wall_ms
from retry.delay_queue.envelopes import DUE_MS, Entry
from retry.errors import ActionRefused, SchemaUnavailable, SettingsInvalid, TaskInvalid
from retry.policies.policy_file import load
from retry.settings import Settings, read_settings

if TYPE_CHECKING:
    from retry.scheduling.tasks.waiting_tasks import Definitions, NewDefinition, SentRun, Task


@click.group()
def tasks() -> None:
    """List, show, pause and backfill recurring tasks, or make samples of their definitions."""


@tasks.command(name="list")
@click.option("--customer", help="Only tasks of this customer.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most tasks to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_(*, customer: str | None, limit: int, as_json: bool) -> None:
    """List tasks by their next run, soonest first, as the changelog has them. No worker needs to run."""
    from retry.delay_queue.envelope_codec import make_codec
    from retry.operations import waiting_entries
    from retry.scheduling.tasks.waiting_tasks import Definitions

    settings = read_settings()
    with waiting_entries.open_changelog_table(settings) as table:
        waiting = Definitions(settings).tasks(waiting_entries.iterate_entries(table, make_codec(settings)))
        waits = (t for t in waiting if customer is None or (t.name or "").startswith(f"{customer}/"))
        for task in islice(waits, limit):
            row = _describe_task(task)
            line = f"{row['next_run'] or 'paused':29}  {row['task']}  run {row['run']} to {row['target']}"
            say_json(row) if as_json else say(line)


@tasks.command()
@click.argument("name", metavar="CUSTOMER/NAME")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def show(name: str, *, as_json: bool) -> None:
    """Show a task: its definition, its next run, the key of the entry that waits, and its last runs on the output topic."""
    from retry.scheduling.tasks import waiting_tasks

    settings = read_settings()
    definitions = waiting_tasks.Definitions(settings)
    matching, shards = _find_tasks(settings, definitions, name), waiting_tasks.count_shards(settings)
    for task in matching:
        details = _details(
            task, definitions.read(task), definitions.shard(task, shards), waiting_tasks.list_last_runs(settings, task)
        )
        say_json(details, indented=not as_json)


@tasks.command(name="pause")
@click.argument("name", metavar="CUSTOMER/NAME")
def pause_named_task(name: str) -> None:
    """Pause a task: no run is made until it is resumed. Its definition is written again with `schedule.paused`."""
    from retry.scheduling.tasks.waiting_tasks import pause_task

    _change_definition(name, pause_task)
    say(f"{name} is paused as soon as a worker has read its new definition; retry tasks resume {name} ends that")


@tasks.command(name="resume")
@click.argument("name", metavar="CUSTOMER/NAME")
def resume_named_task(name: str) -> None:
    """Resume a task that is paused, in its rhythm; runs that were due meanwhile are not made: see `backfill`."""
    from retry.scheduling.tasks.waiting_tasks import resume_task

    _change_definition(name, resume_task)
    say(f"{name} goes on as soon as a worker has read its new definition")


@tasks.command()
@click.argument("name", metavar="CUSTOMER/NAME")
@click.option("--from", "from_ms", type=Moment(ago=True), required=True, help="Since when: ISO 8601, or 2d for two days ago.")
@click.option("--to", "to_ms", type=Moment(ago=True), help="Until when, not later than now; without it now.")
@click.option("--yes", is_flag=True, help="Send them. Without it they are only counted.")
def backfill(name: str, *, from_ms: int, to_ms: int | None, yes: bool) -> None:
    """Make the runs that a task has in a time that is past, all in one transaction, whether they were made before or not.

    They go out at once, whatever rates and pauses say, to the topic of its definition, which the policy file must still allow.
    """
    from retry.scheduling.tasks.waiting_tasks import Definitions, plan_backfill

    settings, now_ms = read_settings(), wall_ms()
    if to_ms is not None and to_ms > now_ms:
        raise click.BadParameter("it is later than now; what is still to come is made when it is due", param_hint="--to")
    (task,) = _find_tasks(settings, Definitions(settings), name, only_one=True)
    with exit_where_refused():
        runs = plan_backfill(task, from_ms, now_ms if to_ms is None else to_ms)
        _demand_allowed(settings, task.entry.destination)
    first, last = (dict(run.headers)[DUE_MS] for run in (runs[0], runs[-1]))
    count = "1 run" if len(runs) == 1 else f"{len(runs):,} runs"
    found = f"{count} of {name} to {task.entry.destination}, from {iso(int(first or 0))} to {iso(int(last or 0))}"
    if not yes:
        say(f"{found}; nothing was done, --yes sends them")
        return
    _write_entries(settings, runs, None)
    say(f"sent {found}")


def _demand_allowed(settings: Settings, topic: str) -> None:
    if settings.policies is None:
        raise SettingsInvalid("RETRY_POLICIES", "not set; it names the policy file whose tasks.allowed_targets count")
    registry = load(settings.policies)
    if registry.tasks is None or topic not in registry.tasks.allowed:
        raise ActionRefused(f"{topic} is not among tasks.allowed_targets of {settings.policies}; nothing was done")


def _change_definition(name: str, change: Callable[[Settings, Definitions, Task], NewDefinition]) -> None:
    from retry.scheduling.tasks.waiting_tasks import Definitions

    settings = read_settings()
    definitions = Definitions(settings)
    (task,) = _find_tasks(settings, definitions, name, only_one=True)
    with exit_where_refused():
        try:
            made = change(settings, definitions, task)
        except (TaskInvalid, SchemaUnavailable) as fault:
            raise ActionRefused(f"the definition of {name} cannot be written again: {fault}; nothing was done") from fault
    _write_entries(settings, [made.entry], [made.partition])


def _write_entries(settings: Settings, entries: Sequence[Entry], partitions: Sequence[int] | None) -> None:
    from retry.kafka import client_config
    from retry.kafka.transactional_producer import demand_arrival
    from retry.operations.control_requests import open_writer

    with open_writer(settings, client_config.connect_admin(settings), entries[0].destination) as writer:
        writer.begin()
        writer.publish(entries, wall_ms(), partitions)
        demand_arrival(writer)
        writer.commit()


def _find_tasks(settings: Settings, definitions: Definitions, name: str, *, only_one: bool = False) -> list[Task]:
    """Find tasks by their name, one in each topic of definitions that has it; end the process where there are none, or too many.
    """
    from retry.delay_queue.envelope_codec import make_codec
    from retry.operations import waiting_entries

    with waiting_entries.open_changelog_table(settings) as table:
        found = [
            task for task in definitions.tasks(waiting_entries.iterate_entries(table, make_codec(settings))) if task.name == name
        ]
    if not found:
        why = "it was deleted, had its last run, was parked, or never was"
        say(f"no task {name} waits: {why}; see retry tasks list", err=True)
        sys.exit(1)
    if only_one and len(found) > 1:
        topics = ", ".join(sorted(task.defined_at.topic for task in found))
        say(f"{name} is defined in {topics}; write its new definition there yourself", err=True)
        sys.exit(1)
    return found


def _describe_task(task: Task) -> dict[str, object]:
    plan = task.plan
    cron = {"cron": plan.cron, "zone": plan.zone} if plan.cron else {"once": True}
    period = {"every_ms": plan.every_ms} if plan.every_ms else cron
    next_run = None if task.defined_at.due_at_ms == PAUSED_MS else iso(task.defined_at.due_at_ms)
    return {
        "task": task.name or (task.entry.key or b"").hex(), "next_run": next_run, "run": plan.run, **period,
        "target": task.entry.destination, "topic": task.defined_at.topic, "name": str(task.defined_at),
    }  # fmt: skip


def _details(task: Task, definition: dict[str, Any] | None, shard: int, runs: list[SentRun]) -> dict[str, object]:
    plan = task.plan
    bounds = {"start": iso(plan.start_ms), "end": iso(plan.end_ms)}
    rules = {"jitter_ms": plan.jitter_ms, "misfire": plan.misfire, "late_ms": plan.late_ms, "catch_up_max": plan.catch_up_max}
    sent = [{"run": run.number, "due": iso(run.due_ms), "record": f"{run.topic}/{run.partition}/{run.offset}"} for run in runs]
    return {**_describe_task(task), **bounds, **rules, "shard": shard, "last_runs": sent, "definition": definition}


@tasks.command()
@click.option("--output-topic", "outputs", multiple=True, required=True, help="Topic that runs go to.")
@click.option("--count", type=click.IntRange(1, 1_000_000), default=8, show_default=True, help="Number of definitions.")
@click.option("--customers", type=click.IntRange(1, 1_000_000), default=3, show_default=True, help="Number of customers.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed always makes the same definitions.")
@click.option("--format", "form", type=click.Choice(["avro", "json"]), default="avro", show_default=True, help="Their form.")
@click.option("--send", "topic", help="Topic to send them to. Without it they are printed as JSON lines.")
def samples(*, outputs: tuple[str, ...], count: int, customers: int, seed: int, form: str, topic: str | None) -> None:
    """Make sample definitions: one for each of the six units, one by a cron expression, one that runs once, and so on."""
    from retry.scheduling.tasks import definition as made

    definitions = list(islice(made.make_samples(seed, outputs, customers), count))
    if topic is None:
        for each in definitions:
            say_json(each.definition)
        return
    from retry.kafka.record_producer import send_records

    send_records(read_settings(), topic, [made.encode_sample(each, form) for each in definitions])
    say(f"sent {count} definitions to {topic}")
