"""`retry tasks`: those that wait for their next run, one of them in full, and sample definitions, to see or to send."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from retry.cli.output import say, say_json
from retry.clock import iso
from retry.settings import from_environment

if TYPE_CHECKING:
    from retry.scheduling.tasks.waiting_tasks import SentRun, Task


@click.group()
def tasks() -> None:
    """List and show recurring tasks, or make samples of their definitions."""


@tasks.command(name="list")
@click.option("--customer", help="Only tasks of this customer.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most tasks to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_(*, customer: str | None, limit: int, as_json: bool) -> None:
    """List tasks by their next run, soonest first, as the changelog has them. No worker needs to run."""
    from retry.delay_queue.envelope_codec import make_codec
    from retry.operations import waiting_entries
    from retry.scheduling.tasks.waiting_tasks import Definitions

    settings = from_environment()
    with waiting_entries.open_changelog_table(settings) as table:
        waiting = Definitions(settings).tasks(waiting_entries.entries(table, make_codec(settings)))
        waits = (t for t in waiting if customer is None or (t.name or "").startswith(f"{customer}/"))
        for task in islice(waits, limit):
            row = _describe_task(task)
            line = f"{row['next_run']}  {row['task']}  run {row['run']} to {row['target']}"
            say_json(row) if as_json else say(line)


@tasks.command()
@click.argument("name", metavar="CUSTOMER/NAME")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def show(name: str, *, as_json: bool) -> None:
    """Show a task: its definition, its next run, the key of the entry that waits, and its last runs on the output topic."""
    from retry.delay_queue.envelope_codec import make_codec
    from retry.operations import waiting_entries
    from retry.scheduling.tasks import waiting_tasks

    settings = from_environment()
    definitions = waiting_tasks.Definitions(settings)
    with waiting_entries.open_changelog_table(settings) as table:
        # Topics of definitions have names of their own.
        matching = [task for task in definitions.tasks(waiting_entries.entries(table, make_codec(settings))) if task.name == name]
    if not matching:
        why = "it was deleted, had its last run, was parked, or never was"
        say(f"no task {name} waits: {why}; see retry tasks list", err=True)
        sys.exit(1)
    shards = waiting_tasks.count_shards(settings)
    for task in matching:
        details = _details(task, definitions.read(task), definitions.shard(task, shards), waiting_tasks.last_runs(settings, task))
        say_json(details, indented=not as_json)


def _describe_task(task: Task) -> dict[str, object]:
    plan = task.plan
    cron = {"cron": plan.cron, "zone": plan.zone} if plan.cron else {"once": True}
    period = {"every_ms": plan.every_ms} if plan.every_ms else cron
    return {
        "task": task.name or (task.entry.key or b"").hex(), "next_run": iso(task.defined_at.due_at_ms), "run": plan.run, **period,
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

    definitions = list(islice(made.samples(seed, outputs, customers), count))
    if topic is None:
        for each in definitions:
            say_json(each.definition)
        return
    from retry.kafka.record_producer import send_records

    send_records(from_environment(), topic, [made.encode_sample(each, form) for each in definitions])
    say(f"sent {count} definitions to {topic}")
