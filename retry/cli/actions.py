"""`retry actions` and `retry audit`: what was asked of letters, how far it has come, orders about it, and who did what."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from retry.cli.act import start_action, tell_undone
from retry.cli.act_output import print_preview, told_tally
from retry.cli.options import NEWEST, POLICIES, Moment, add_options, identify_user, listing
from retry.cli.output import REFUSED, exit_where_refused, say, say_json
from retry.cli.policies import Duration
from retry.clock import iso, wall_ms
from retry.settings import Settings, read_settings

if TYPE_CHECKING:
    from retry.operations.act.audit import AuditRecord
    from retry.operations.act.overview import ActionOverview
    from retry.operations.control_requests import ShardNumbers

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")


_add_order_options = add_options([
    click.argument("action", metavar="ID"), click.option("--reason", default="", help="Why, in your words."),
    click.option("--by", default=identify_user, metavar="NAME", help="Who orders it. By default user and host."),
])  # fmt: skip


@click.group(invoke_without_command=True)
@_JSON
@click.pass_context
def actions(context: click.Context, as_json: bool) -> None:
    """List what was asked of letters in the last 30 days, the last first. An id may be cut, as long as it is clear."""
    if context.invoked_subcommand is not None:
        return
    _, shards = _connect()
    from retry.operations.act.action_report import action_object
    from retry.operations.act.overview import list_overviews

    found = list_overviews(shards)
    for about in found:
        say_json(action_object(about)) if as_json else say(_format_action(about))
    if not found:
        say("no action was asked for", err=True)


@actions.command()
@click.argument("action", metavar="ID")
@POLICIES
@NEWEST
def show(action: str, policies: str | None, newest: int) -> None:
    """Show one action as JSON: who asked for what, how many letters, how far it has come, which shards are left.

    Of a ramp with its steps: letters sent, failed again and passed, and the most that may recover, 95 % sure. While it runs also
    how many letters like these wait or are parked that failed for the first time since: it leaves them alone.
    """
    _, shards, about = _find_action(action)
    from retry.operations.act.action_report import action_object, count_arrived, ramp_object
    from retry.operations.act.overview import add_failed_letters

    if about.action.ramp is not None:
        about = add_failed_letters(shards, about)
    new = count_arrived(listing(policies, newest), about.action, wall_ms()) if about.left else None
    say_json({**action_object(about), "new_failures": new, "ramp": ramp_object(about)}, indented=True)


@actions.command()
@click.argument("action", metavar="ID")
@_JSON
def members(action: str, as_json: bool) -> None:
    """Print each letter of an action and what became of it, as CSV.

    Results are `done`; `gone`, which was sent or moved before; `moved`, which waits under another key now; `not_yet`; and why
    nothing was done, as `changed`. docs/how-to/act.md has all.
    """
    settings, shards, about = _find_action(action)
    from retry.operations.act.action_report import MEMBER_COLUMNS, list_member_results, member_row

    if not as_json:
        say(_csv(MEMBER_COLUMNS))
    for each in list_member_results(settings, shards, about):
        row = member_row(each)
        say_json(row) if as_json else say(_csv(tuple(row.values())))


@actions.command()
@_add_order_options
def hold(action: str, by: str, reason: str) -> None:
    """Have an action wait: what is done stays done, the rest waits for `retry actions resume`."""
    _send_order("hold", action, by, reason)


@actions.command()
@_add_order_options
def resume(action: str, by: str, reason: str) -> None:
    """Let an action that is held go on."""
    _send_order("resume", action, by, reason)


@actions.command()
@_add_order_options
def cancel(action: str, by: str, reason: str) -> None:
    """End an action: what is done stays done, the other letters stay as they are."""
    _send_order("cancel", action, by, reason)


@actions.command()
@_add_order_options
@click.option("--yes", is_flag=True, help="Have the workers do it; without this the command only says what would come back.")
@click.option("--wait", "wait_ms", type=Duration(), default="10m", show_default=True, help="How long to wait for the workers.")
@_JSON
@exit_where_refused()
def undo(action: str, by: str, reason: str, yes: bool, wait_ms: int, as_json: bool) -> None:
    """Undo a discard: letters that were discarded less than ten minutes ago go back to where they were, due as before.

    Without --yes it only says which would. Of letters for which that is too late it prints the command that returns them. Other
    kinds cannot be undone, and say what can be done instead. Ends as `retry act`.
    """
    settings, shards, about = _find_action(action)
    from retry.operations.act import start
    from retry.operations.act.audit import Audit

    start.demand_readiness(shards.admin, settings.app_id)
    found, too_late = start.build_undo(Audit(settings, shards.admin), about, by, reason).preview(shards)
    if too_late:
        say(too_late, err=True)
    if not yes:
        print_preview(found, as_json=as_json)
        sys.exit(tell_undone(found))
    sys.exit(start_action(shards, found, wait_ms, as_json=as_json) if found.chosen.count else REFUSED)


def _connect() -> tuple[Settings, ShardNumbers]:
    from retry.operations.control_requests import ShardNumbers

    settings = read_settings()
    return settings, ShardNumbers(settings)


@exit_where_refused()
def _find_action(text: str) -> tuple[Settings, ShardNumbers, ActionOverview]:
    """The action that is meant; ends the process where there is none."""
    settings, shards = _connect()
    from retry.operations.act.overview import find, list_overviews

    return settings, shards, find(list_overviews(shards), text)


@exit_where_refused()
def _send_order(what: str, text: str, by: str, reason: str) -> None:
    _, shards, about = _find_action(text)
    from retry.operations.act import overview

    overview.ORDERS[what](shards, about, by, reason)
    say(f"asked of {len(about.left)} shards that are not done: {what} {about.id.hex()}")


def _format_action(about: ActionOverview) -> str:
    action = about.action
    target, reason = f" to {action.target}" if action.target else "", f": {action.reason}" if action.reason else ""
    what = f"{action.kind}{target} of {action.members:,} letters ({action.filter}) by {action.by}{reason}"
    step = "" if action.ramp is None else f"; step {about.open_step} of {len(action.ramp.steps)}"
    return f"{about.id.hex()}  {iso(action.asked_at_ms)}  {about.status:<9}  {what}; {told_tally(about.tally)}{step}"


def _csv(row: tuple[object, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row)
    return line.getvalue()


@click.command()
@click.option("--action", default="", metavar="ID", help="Only of this action; its whole id.")
@click.option("--since", type=Moment(ago=True), default="30d", show_default=True, help="From this time on, or so long ago.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, with each letter.")
def audit(action: str, since: int, as_json: bool) -> None:
    """Print what workers did for actions, a line for each transaction, who held, resumed or cancelled one, and what people did in
    the console: who was shown which payload, and who paused what. All of it as the audit topic has it: kept for a year."""
    from retry.kafka import client_config
    from retry.operations.act.audit import Audit

    settings, count = read_settings(), 0
    for record in Audit(settings, client_config.connect_admin(settings)).read_records(since, action):
        count += 1
        say_json(record) if as_json else say(_format_record(record))
    if not count:
        say("the audit has nothing of that", err=True)


def _format_record(record: AuditRecord) -> str:
    from retry.operations.act.audit import NO_SHARD

    results = Counter(each.result for each in record.letters)
    told = ", ".join(f"{number:,} {result}" for result, number in results.most_common())
    reason = f": {record.reason}" if record.reason else ""
    if record.shard == NO_SHARD:
        letters = "".join(f" {each.parked or each.letter}" for each in record.letters)
        return f"{iso(record.at_ms)}  {record.action or 'console':<16}  {record.kind} by {record.by}{reason}{letters}"
    return f"{iso(record.at_ms)}  {record.action}  {record.kind} by {record.by}{reason}; shard {record.shard}: {told}"
