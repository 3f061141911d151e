"""`retry pause`, `retry resume`, `retry pauses`: deliveries held back, and let go again."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
import orjson

from retry import clock
from retry.cli import operator
from retry.cli.moment import Moment
from retry.cli.output import say, say_json
from retry.clock import iso
from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause

NamedPause = tuple[str, str]
_REFUSED = 3


def _scope(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is meant."""
    for option in (
        click.option("--target", help="All that goes to this topic; of timers, to this origin."),
        click.option("--topic", help="All letters from this dead-letter topic."),
        click.option("--team", help="All letters of this team."),
        click.option("--all", "everything", is_flag=True, help="Everything."),
    ):
        command = option(command)
    return command


def _find_scope(everything: bool, scopes: dict[str, str | None]) -> NamedPause:
    """The one scope that the options name, and its name."""
    given = [("all", "")] * everything + [(scope, name) for scope, name in scopes.items() if name]
    if len(given) != 1:
        raise click.UsageError("give one of --all, --team, --topic and --target")
    return given[0]


@click.command()
@_scope
@click.option("--reason", default="", help="Why, in your words. `retry pauses` and the health of workers show it.")
@click.option("--until", type=Moment(), help="When it ends by itself: so long from now, or a time, UTC where no zone is said.")
@click.option("--by", default=operator.identify_user, metavar="NAME", help="Who asks for it. By default user and host.")
@click.option("--force", is_flag=True, help="Accept a name that the policy file does not know.")
def pause(everything: bool, reason: str, until: int | None, by: str, force: bool, **scopes: str | None) -> None:
    """Stop deliveries of what is named, until `retry resume`, or --until. Letters are still taken in and wait.

    Survives restarts. Another pause of the same takes the place of the former one, its end included. Ends with 3 where --until is
    over by the brokers' time.
    """
    scope, name = _find_scope(everything, scopes)
    asked = Pause(clock.wall_ms(), reason, until, by)
    shards = _change_pause(scope, name, asked, force)
    say(f"paused {_words(scope, name)} in {shards} shards" + ("" if until is None else f" until {iso(until)}"))


@click.command()
@_scope
@click.option("--force", is_flag=True, help="Accept a name that the policy file does not know.")
def resume(everything: bool, force: bool, **scopes: str | None) -> None:
    """End a pause. Give the same option as to `retry pause`; other pauses stay."""
    scope, name = _find_scope(everything, scopes)
    shards = _change_pause(scope, name, None, force)
    say(f"resumed {_words(scope, name)} in {shards} shards")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def pauses(as_json: bool) -> None:
    """List what is paused, since when, until when, why and by whom, as the changelog has it. No worker needs to run."""
    from retry import settings as environment
    from retry.operations import waiting_entries

    with waiting_entries.open_changelog_table(environment.from_environment()) as table:
        standing = control_records.pauses(table.controls, clock.wall_ms())
    for (scope, name), paused in sorted(standing.items(), key=lambda each: each[1].since_ms):
        since = iso(paused.since_ms)
        if as_json:
            until = None if paused.until_ms is None else iso(paused.until_ms)
            row = {"scope": scope, "name": name or None, "since": since, "reason": paused.reason or None}
            say_json(orjson.dumps({**row, "until": until, "by": paused.by or None}))
        else:
            say(f"{since}  {_words(scope, name)}{paused.describe()}")
    if not as_json:
        say(f"{len(standing)} paused", err=True)


def _change_pause(scope: str, name: str, asked: Pause | None, force: bool) -> int:
    from retry import settings as environment
    from retry.cli import name_check
    from retry.errors import ActionRefused
    from retry.operations import pauses
    from retry.operations.control_requests import ShardNumbers

    settings = environment.from_environment()
    name_check.check(settings, [(scope, name)] if name else [], force=force)
    shards = ShardNumbers(settings)
    try:
        pauses.resume(shards, scope, name) if asked is None else pauses.pause(shards, scope, name, asked)
    except ActionRefused as refused:
        say(str(refused), err=True)
        sys.exit(_REFUSED)
    return shards.count


def _words(scope: str, name: str) -> str:
    from retry.operations.pauses import describe_scope

    return describe_scope(scope, name)
