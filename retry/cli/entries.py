"""`retry entries`: what is waiting, and one entry in full."""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import click
import orjson

from retry.cli.output import say, say_json
from retry.clock import iso
from retry.dead_letters import retry_headers

if TYPE_CHECKING:
    from retry.delay_queue.entry_keys import Source
    from retry.delay_queue.envelopes import Call, Entry
    from retry.delay_queue.recurrence import Recurrence


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
@click.option("--due-before", type=Moment(), help="Only entries due before: ISO time, epoch ms, or 10m from now.")
@click.option("--topic", help="Only letters from this dead-letter topic.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most entries to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.pass_context
def entries(ctx: click.Context, due_before: int | None, topic: str | None, limit: int, as_json: bool) -> None:
    """List the entries that wait, soonest first, as the changelog has them. No worker needs to run."""
    if ctx.invoked_subcommand is not None:
        return
    from retry import settings as environment
    from retry.operations import waiting_entries

    with waiting_entries.folded(environment.from_environment()) as table:
        waiting = waiting_entries.entries(table, due_before, topic)
        for where, entry in islice(waiting, limit):
            say_json(orjson.dumps(_row(where, entry))) if as_json else say(_line(where, entry))
        say(f"{table.waiting} waiting", err=True)


@entries.command()
@click.argument("key")
def show(key: str) -> None:
    """Show one entry in full, as JSON. `retry entries` prints the KEY."""
    from retry import settings as environment
    from retry.delay_queue.entry_keys import source_from_text
    from retry.operations import waiting_entries

    try:
        wanted = source_from_text(key)
        with waiting_entries.folded(environment.from_environment()) as table:
            entry = waiting_entries.find(table, wanted)
    except ValueError:
        raise click.BadParameter(f"{key!r} is not <due_ms>/<topic>/<partition>/<offset>", param_hint="KEY") from None
    if entry is None:
        say(f"{key} is not waiting: it was delivered, or never was", err=True)
        sys.exit(1)
    say_json(orjson.dumps(_whole(wanted, entry), option=orjson.OPT_INDENT_2))


def _row(where: Source, entry: Entry) -> dict[str, object]:
    ours = {name: value for name, value in entry.headers if name in retry_headers.OURS and value is not None}
    labels = {name[6:]: value.decode("utf-8", "replace") for name, value in ours.items()}
    size = len(entry.value or b"")
    return {
        "key": str(where),
        "due": iso(where.due_at_ms),
        "target": entry.destination,
        "team": entry.team,
        "attempt": labels.get("attempt"),
        "policy": labels.get("policy"),
        "id": labels.get("id"),
        "bytes": size,
    }


def _line(where: Source, entry: Entry) -> str:
    from retry.delay_queue.envelopes import Named

    row = _row(where, entry)
    if isinstance(entry, Named):
        run = f", run {entry.plan.run}" if entry.plan else ""
        return f"{row['due']}  {where}  {row['team']} to {row['target']}  ({row['bytes']} bytes{run})"
    return f"{row['due']}  {where}  attempt {row['attempt']} to {row['target']}  ({row['policy']}, {row['bytes']} bytes)"


def _whole(where: Source, entry: Entry) -> dict[str, object]:
    from retry.delay_queue.envelopes import Named

    named = {}
    if isinstance(entry, Named):
        also = [{"topic": each.topic, "partition": each.partition} for each in entry.also]
        named = {"also": also, "plan": _fields(entry.plan), "call": _fields(entry.call)}
    headers = [[name, _base64(value)] for name, value in entry.headers]
    return {**_row(where, entry), "timestamp_ms": entry.timestamp_ms, "record_key": _base64(entry.key),
            "record_value": _base64(entry.value), "headers": headers, **named}  # fmt: skip


def _fields(part: Recurrence | Call | None) -> dict[str, object] | None:
    return None if part is None else {name: getattr(part, name) for name in part.__struct_fields__}


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()
