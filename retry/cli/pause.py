"""`retry pause`, `retry resume`, `retry pauses`: deliveries held back, and let go again."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
import orjson

from retry import clock
from retry.delay_queue import control_records
from retry.clock import iso
from retry.delay_queue.control_records import Pause
from retry.errors import RetryError

Named = tuple[str, str]


def _scope(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is meant."""
    for option in (
        click.option("--target", help="Whatever goes to this topic."),
        click.option("--topic", help="Letters from this dead-letter topic."),
        click.option("--team", help="Letters of this team."),
        click.option("--all", "everything", is_flag=True, help="Everything."),
    ):
        command = option(command)
    return command


def _named(everything: bool, told: dict[str, str | None]) -> Named:
    """The one scope that the options name, and its name."""
    given = [("all", "")] * everything + [(scope, name) for scope, name in told.items() if name]
    if len(given) != 1:
        raise click.UsageError("give one of --all, --team, --topic and --target")
    return given[0]


@click.command()
@_scope
@click.option("--reason", default="", help="For whoever asks why; shown by `retry pauses` and by the workers' health.")
@click.option("--force", is_flag=True, help="Even if the policy file does not know the name.")
def pause(everything: bool, reason: str, force: bool, **told: str | None) -> None:
    """Hold back deliveries, until they are resumed: letters are still taken in, and wait. Survives restarts."""
    scope, name = _named(everything, told)
    shards = _ask(scope, name, control_records.encode(Pause(clock.wall_ms(), reason)), force)
    click.echo(f"paused {_words(scope, name)} in {shards} shards")


@click.command()
@_scope
@click.option("--force", is_flag=True, help="Even if the policy file does not know the name.")
def resume(everything: bool, force: bool, **told: str | None) -> None:
    """End a pause; give it the name that the pause was given. What else is paused stays so."""
    scope, name = _named(everything, told)
    shards = _ask(scope, name, None, force)
    click.echo(f"resumed {_words(scope, name)} in {shards} shards")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def pauses(as_json: bool) -> None:
    """List what is paused, since when and why, read from the changelog. No worker needs to run."""
    from retry import settings as environment
    from retry.operations import waiting_entries

    try:
        with waiting_entries.folded(environment.from_environment()) as table:
            found = control_records.pauses(table.controls)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    for (scope, name), paused in sorted(found.items(), key=lambda each: each[1].since_ms):
        since = iso(paused.since_ms)
        if as_json:
            row = {"scope": scope, "name": name or None, "since": since, "reason": paused.reason or None}
            click.echo(orjson.dumps(row))
        else:
            click.echo(f"{since}  {_words(scope, name)}" + (f": {paused.reason}" if paused.reason else ""))
    if not as_json:
        click.echo(f"{len(found)} paused", err=True)


def _ask(scope: str, name: str, value: bytes | None, force: bool) -> int:
    from retry import settings as environment
    from retry.cli import name_check
    from retry.operations.control_requests import Shards

    try:
        settings = environment.from_environment()
        name_check.check(settings, [(scope, name)] if name else [], force=force)
        shards = Shards(settings)
        shards.ask(control_records.pause_key(scope, name), value)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    return shards.count


def _words(scope: str, name: str) -> str:
    return {"all": "everything", "topic": f"dead-letter topic {name}"}.get(scope, f"{scope} {name}")
