"""`retry pause`, `retry resume`, `retry pauses` and `retry reschedule`: what operators ask of all that waits."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from retry.cli.options import Moment, add_options, identify_user
from retry.cli.output import exit_where_refused, say, say_json
from retry.cli.policies import Duration
from retry.clock import Deadline, iso, wall_ms
from retry.delay_queue import control_records
from retry.errors import PolicyFileInvalid, SettingsInvalid
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.settings import Settings, read_settings

if TYPE_CHECKING:
    from retry.delivery.redecide import Move
    from retry.operations.control_requests import Answers
    from retry.operations.waiting_entries import Example, Rehearsed


def check_name(settings: Settings, named: Iterable[tuple[str, str]], *, force: bool) -> None:
    """End the process where the policy file does not know a (`team` | `topic` | `target`, name); only warn with `force`.

    Raises:
      PolicyFileInvalid: the file cannot be read, and `force` is not given.
    """
    from retry.operations.control_requests import describe_unknown

    if settings.policies is None:
        return
    try:
        registry = load(settings.policies)
    except PolicyFileInvalid as invalid:
        if not force:
            raise
        say(f"names are not checked: {invalid}", err=True)
        return
    for scope, name in named:
        if wrong := describe_unknown(registry, settings, scope, name):
            say(f"{settings.policies} {wrong}", err=True)
            if not force:
                say("nothing was done; --force does it all the same", err=True)
                sys.exit(1)


_scope = add_options([
    click.option("--all", "everything", is_flag=True, help="Everything."),
    click.option("--team", help="All letters of this team."),
    click.option("--topic", help="All letters from this dead-letter topic."),
    click.option("--target", help="All that goes to this topic; of timers, to this origin."),
])


def _find_scope(everything: bool, scopes: dict[str, str | None]) -> tuple[str, str]:
    given = [("all", "")] * everything + [(scope, name) for scope, name in scopes.items() if name]
    if len(given) != 1:
        raise click.UsageError("give one of --all, --team, --topic and --target")
    return given[0]


@click.command()
@_scope
@click.option("--reason", default="", help="Why, in your words. `retry pauses` and the health of workers show it.")
@click.option("--until", type=Moment(), help="When it ends by itself: so long from now, or a time, UTC where no zone is said.")
@click.option("--by", default=identify_user, metavar="NAME", help="Who asks for it. By default user and host.")
@click.option("--force", is_flag=True, help="Accept a name that the policy file does not know.")
def pause(everything: bool, reason: str, until: int | None, by: str, force: bool, **scopes: str | None) -> None:
    """Stop deliveries of what is named, until `retry resume`, or --until. Letters are still taken in and wait.

    Survives restarts. Another pause of the same takes the place of the former one, its end included. Ends with 3 where --until is
    over by the brokers' time.
    """
    scope, name = _find_scope(everything, scopes)
    shards = _change_pause(scope, name, control_records.Pause(wall_ms(), reason, until, by), force)
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
    from retry.operations import waiting_entries
    from retry.operations.control_requests import describe_pauses

    with waiting_entries.open_changelog_table(read_settings()) as table:
        standing = control_records.read_pauses(table.controls, wall_ms())
    if as_json:
        for row in describe_pauses(standing):
            say_json(row)
        return
    for (scope, name), paused in sorted(standing.items(), key=lambda each: each[1].since_ms):
        say(f"{iso(paused.since_ms)}  {_words(scope, name)}{paused.describe()}")
    say(f"{len(standing)} paused", err=True)


@exit_where_refused()
def _change_pause(scope: str, name: str, asked: control_records.Pause | None, force: bool) -> int:
    from retry.operations import control_requests
    from retry.operations.control_requests import ShardNumbers

    settings = read_settings()
    check_name(settings, [(scope, name)] if name else [], force=force)
    shards = ShardNumbers(settings)
    control_requests.resume(shards, scope, name) if asked is None else control_requests.pause(shards, scope, name, asked)
    return shards.count


def _words(scope: str, name: str) -> str:
    from retry.operations.control_requests import describe_scope

    return describe_scope(scope, name)


@click.command()
@click.option("--team", help="Only letters of this team.")
@click.option("--topic", help="Only letters from this dead-letter topic.")
@click.option("--acted", is_flag=True, help="Letters that operators acted on, too: moved, redirected, edited or patched.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen. The default.")
@click.option("--yes", is_flag=True, help="Have the workers do it.")
@click.option("--wait", "wait_ms", type=Duration(), default="10m", show_default=True, help="How long to wait for the workers.")
@click.option("--force", is_flag=True, help="Accept a name that the policy file does not know.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def reschedule(
    team: str | None, topic: str | None, acted: bool, dry_run: bool, yes: bool, wait_ms: int, force: bool, as_json: bool
) -> None:
    """Decide again on every letter that waits, by the policy file that RETRY_POLICIES names.

    Without --yes it only says what would become of them. With it the workers do it, those that have read the same file;
    what is delivered meanwhile is delivered as it was due. Letters that operators acted on stay as they are, without --acted;
    with it, too, those that are to be discarded, that a ramp counts, or that were returned.
    """
    if dry_run and yes:
        raise click.UsageError("give --dry-run or --yes")
    from retry.process.policy_reload import load_policies

    settings = read_settings()
    if settings.policies is None:
        raise SettingsInvalid("RETRY_POLICIES", "not set; it names the policy file to reschedule by")
    check_name(settings, [(s, n) for s, n in (("team", team), ("topic", topic)) if n], force=force)
    registry = load_policies(settings)
    request = control_records.Reschedule(wall_ms(), team, topic, registry.digest, acted)
    done = _do(settings, request, wait_ms, as_json) if yes else _print_dry_run(settings, registry, request, as_json)
    sys.exit(0 if done else 1)


def _print_dry_run(settings: Settings, registry: Registry, request: control_records.Reschedule, as_json: bool) -> bool:
    from retry.operations import waiting_entries

    redecider = waiting_entries.make_redecider(settings, registry)
    with waiting_entries.open_changelog_table(settings) as table:
        rehearsal = waiting_entries.rehearse_request(table, redecider, request)
    if as_json:
        say_json(_object(rehearsal, request))
        return True
    for (team, policy), counts in sorted(rehearsal.counts.items()):
        say(f"{team}, {policy}: " + _format_counts(counts))
    for move, examples in rehearsal.examples.items():
        say(f"{move.value}, for example:")
        for example in examples:
            say(f"  {_format_example(example)}")
    say(f"all: {_format_counts(_sum(rehearsal)) or 'nothing waits'}; {rehearsal.left_alone} left alone", err=True)
    say("nothing was done; --yes does it", err=True)
    return True


def _do(settings: Settings, request: control_records.Reschedule, wait_ms: int, as_json: bool) -> bool:
    from retry.operations.control_requests import ShardNumbers

    shards = ShardNumbers(settings)
    key = control_records.reschedule_key(request.since_ms)
    answers = shards.follow_answers(key)
    try:
        shards.put_control_record(key, control_records.encode(request))
        say(f"asked of {shards.count} shards, policy file with sha256 {request.policies}", err=True)
        _await(answers, shards.count, wait_ms)
    finally:
        answers.close()
    done, missing = len(answers.done), sorted(set(range(shards.count)) - answers.done)
    if as_json:
        say_json({"policies": request.policies, "shards": shards.count, "shards_left": missing})
    elif not missing:
        say(f"rescheduled in {done} shards")
    if missing:
        say(
            f"not done yet in shards {', '.join(map(str, missing))}: a worker does it once it has read this policy file; "
            "its /health/ready says what it waits for", err=True,
        )  # fmt: skip
    return not missing


def _await(answers: Answers, count: int, wait_ms: int) -> None:
    deadline = Deadline(wait_ms / 1_000)
    while len(answers.done) < count and not deadline.has_passed():
        if answers.poll_answers():
            say(f"{len(answers.done)} of {count} shards done", err=True)


def _sum(rehearsal: Rehearsed) -> Counter[Move]:
    return sum(rehearsal.counts.values(), Counter())


def _format_counts(counts: Counter[Move]) -> str:
    return ", ".join(f"{number:,} {move.value}" for move, number in counts.most_common())


def _format_example(example: Example) -> str:
    to = f"to {example.target}" + (f" ({example.reason})" if example.reason else "")
    return f"{example.was}  due {iso(example.was.due_at_ms)} → {iso(example.due_at_ms)}  {to}"


def _object(rehearsal: Rehearsed, request: control_records.Reschedule) -> dict[str, Any]:
    counts = [
        {"team": team, "policy": policy, **{move.name.lower(): number for move, number in counts.items()}}
        for (team, policy), counts in sorted(rehearsal.counts.items())
    ]
    examples = [
        {"change": move.name.lower(), "name": str(e.was), "due": iso(e.was.due_at_ms), "new_due": iso(e.due_at_ms),
         "target": e.target, "reason": e.reason}
        for move, some in rehearsal.examples.items() for e in some
    ]  # fmt: skip
    total = {move.name.lower(): number for move, number in _sum(rehearsal).items()}
    return {
        "policies": request.policies, "counts": counts, "total": total, "left_alone": rehearsal.left_alone, "examples": examples,
    }  # fmt: skip
