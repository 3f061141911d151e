"""`retry entries`: what is waiting, and one entry in full."""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import click
import orjson

from retry.clock import iso

if TYPE_CHECKING:
    from retry.delay_queue.entry import Call, Entry, Source
    from retry.delay_queue.recurrence import Plan


class Moment(click.ParamType):
    """A moment, as operators write it; a duration is counted from now on, or `ago`."""

    name = "moment"

    def __init__(self, *, ago: bool = False) -> None:
        self._direction = -1 if ago else 1

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since 1970 from an ISO 8601 date and time, from milliseconds, or from a duration."""
        from backoff import duration_ms
        from retry.clock import wall_ms

        if value.isdigit():
            return int(value)
        try:
            return wall_ms() + self._direction * duration_ms(value)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return self.fail(f"{value!r} is no moment; give 2026-01-31T12:00:00+00:00, 1767225600000 or 10m", param, ctx)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


@click.group(invoke_without_command=True)
@click.option("--due-before", type=Moment(), help="ISO date and time (UTC if it names no zone), epoch ms, or 10m from now.")
@click.option("--topic", help="Only letters from this dead-letter topic.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def entries(ctx: click.Context, due_before: int | None, topic: str | None, limit: int, as_json: bool) -> None:
    """List what is waiting, soonest first, read from the changelog. No worker needs to run."""
    if ctx.invoked_subcommand is not None:
        return
    from retry import settings as environment
    from retry.operations import waiting_entries
    from retry.errors import RetryError

    try:
        with waiting_entries.folded(environment.from_environment()) as table:
            found = waiting_entries.entries(table, due_before, topic)
            for where, entry in islice(found, limit):
                click.echo(orjson.dumps(_row(where, entry)) if as_json else _line(where, entry))
            click.echo(f"{table.waiting} waiting", err=True)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


@entries.command()
@click.argument("key")
def show(key: str) -> None:
    """Show one entry in full, as JSON; KEY is as `retry entries` prints it."""
    from retry import settings as environment
    from retry.operations import waiting_entries
    from retry.delay_queue.entry import source_from_text
    from retry.errors import RetryError

    try:
        wanted = source_from_text(key)
        with waiting_entries.folded(environment.from_environment()) as table:
            found = waiting_entries.find(table, wanted)
    except ValueError:
        raise click.BadParameter(f"{key!r} is not <due_ms>/<topic>/<partition>/<offset>", param_hint="KEY") from None
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    if found is None:
        click.echo(f"{key} is not waiting: it was delivered, or never was", err=True)
        sys.exit(1)
    click.echo(orjson.dumps(_whole(wanted, found), option=orjson.OPT_INDENT_2))


def _row(where: Source, entry: Entry) -> dict[str, object]:
    ours = {name: value for name, value in entry.headers if name.startswith("retry-") and value is not None}
    told = {name[6:]: value.decode("utf-8", "replace") for name, value in ours.items()}
    size = len(entry.value or b"")
    return {
        "key": str(where),
        "due": iso(where.due_at_ms),
        "target": entry.destination,
        "team": entry.team,
        "attempt": told.get("attempt"),
        "policy": told.get("policy"),
        "id": told.get("id"),
        "bytes": size,
    }


def _line(where: Source, entry: Entry) -> str:
    from retry.delay_queue.entry import Named

    row = _row(where, entry)
    if isinstance(entry, Named):
        run = f", run {entry.plan.run}" if entry.plan else ""
        return f"{row['due']}  {where}  {row['team']} to {row['target']}  ({row['bytes']} bytes{run})"
    return f"{row['due']}  {where}  attempt {row['attempt']} to {row['target']}  ({row['policy']}, {row['bytes']} bytes)"


def _whole(where: Source, entry: Entry) -> dict[str, object]:
    from retry.delay_queue.entry import Named

    named = {}
    if isinstance(entry, Named):
        also = [{"topic": each.topic, "partition": each.partition} for each in entry.also]
        named = {"also": also, "plan": _fields(entry.plan), "call": _fields(entry.call)}
    headers = [[name, _base64(value)] for name, value in entry.headers]
    return {**_row(where, entry), "timestamp_ms": entry.timestamp_ms, "record_key": _base64(entry.key),
            "record_value": _base64(entry.value), "headers": headers, **named}  # fmt: skip


def _fields(told: Plan | Call | None) -> dict[str, object] | None:
    return None if told is None else {name: getattr(told, name) for name in told.__struct_fields__}


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()
