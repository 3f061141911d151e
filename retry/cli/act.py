"""`retry act`: letters that wait, or rest, are retried, redirected, parked, discarded, edited or patched by the workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retry import clock
from retry.cli import act_output, options
from retry.cli.options import FilterCommand, Moment, add_options
from retry.cli.output import REFUSED, exit_where_refused, say
from retry.cli.policies import Duration
from retry.errors import ActionRefused
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.operations.act.options import ActOptions
    from retry.operations.act.preview import Preview
    from retry.operations.act.request import Request, SchemaFrames
    from retry.operations.act.selection import Selection
    from retry.operations.control_requests import ShardNumbers

# Options → what is asked for; see `retry.operations.act.request`.

_NAMES = {"set_headers": "--set-header", "removed": "--remove-header", "value": "--value-file"}
FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


# What is to become of letters.
kind_options = add_options([
    click.option("--at", type=Moment(), help="retry, redirect: due at this time, or so long from now. By default now."),
    click.option("--spread", type=Duration(), help="retry, redirect: due evenly over so long from now on, in random order."),
    click.option("--postpone", type=Duration(), help="retry, redirect: due so much later than they are now."),
    click.option(
        "--ramp/--no-ramp", default=None,
        help="retry, redirect: in steps, a few first; each goes on if enough of those before recover. The default over "
        "1,000 letters that are due now.",
    ),
    click.option(
        "--keep", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
        help="ramp: the part of letters that must recover. By default 0.9.",
    ),
    click.option("--settle", type=Duration(), help="ramp: wait so long once consumers have read a step. By default 10s."),
    click.option("--silence", type=Duration(), help="ramp: wait so long where no consumer group is named. By default 2m."),
    click.option("--to", metavar="TOPIC", help="redirect: the topic; the policy of each letter must allow it."),
    click.option("--value-file", type=FILE, metavar="FILE", help="edit: the new value; - reads standard input."),
    click.option(
        "--header", "--set-header", "set_headers", multiple=True, metavar="NAME=VALUE", help="edit, patch: set a header.",
    ),
    click.option("--remove-header", "removed", multiple=True, metavar="NAME", help="edit, patch: remove a header."),
    click.option("--merge-patch", metavar="JSON", help="patch: a JSON merge patch (RFC 7396) of the value."),
    click.option("--now", is_flag=True, help="edit, patch: retried at once, and not when they were due before."),
])  # fmt: skip


def request(kind: str, options: ActOptions, framing: Callable[[], SchemaFrames] | None = None, **about: str) -> Request:
    """Build the request that the options of `retry act` ask for; `about` has the action's by, reason, filter and policies."""
    from retry.operations.act.options import AskedBy, OptionsInvalid, build_request

    try:
        return build_request(kind, options, AskedBy(**about), _option, framing)
    except OptionsInvalid as invalid:
        raise click.UsageError(str(invalid)) from None


def parse_options(options: dict[str, Any]) -> ActOptions:
    from retry.operations.act.options import ActOptions

    same = {name: value for name, value in options.items() if name not in ("value_file", "set_headers", "removed")}
    file, headers = options["value_file"], _parse_header_options(options["set_headers"])
    value = None if file is None else read_file(file)
    return ActOptions(**same, value=value, set_headers=headers, removed=list(options["removed"]))


def _option(name: str) -> str:
    return _NAMES.get(name, "--" + name.replace("_", "-"))


def _parse_header_options(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--set-header")
        found[name] = text
    return found


def read_file(file: Path) -> bytes:
    return click.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()


KINDS = ("retry", "redirect", "park", "discard", "edit", "patch")
NOT_YET, HELD = 1, 4


@click.command(cls=FilterCommand)
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("words", nargs=-1, metavar="FILTER")
@click.option(
    "--letter", "letters", multiple=True, metavar="NAME",
    help="One letter: its name or its letter, as `retry letters --json` prints them.",
)
@kind_options
@click.option("--dry-run", is_flag=True, help="Only say what would happen. The default.")
@click.option("--yes", is_flag=True, help="Have the workers do it.")
@click.option("--expect", type=click.IntRange(0), metavar="N", help="How many letters it must be; else nothing is done.")
@click.option("--reason", default="", help="Why, in your words. The audit keeps it.")
@click.option("--by", default=options.identify_user, metavar="NAME", help="Who asks for it. By default user and host.")
@click.option("--wait", "wait_ms", type=Duration(), default="10m", show_default=True, help="How long to wait for the workers.")
@click.option("--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file.")
@click.option(
    "--newest", type=click.IntRange(1), default=1_000_000, show_default=True,
    help="Parked records that are looked at: the newest of each partition.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@exit_where_refused()
def act(
    kind: str, words: tuple[str, ...], letters: tuple[str, ...], dry_run: bool, yes: bool, expect: int | None, reason: str,
    by: str, wait_ms: int, policies: str | None, newest: int, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Have letters retried now or at another time, redirected, parked, discarded, edited or patched.

    KIND is retry, redirect, park, discard, edit or patch. FILTER says which letters, as for `retry letters`. Without --yes it
    only says what would become of them: how many, whose, and some in full. What is shown is what is done; letters that come later
    are left alone. Over 1,000 letters their number must be typed, or given with --expect; retried or redirected now they go in
    steps, a few first, as long as enough of them recover. Letters that wait are meant, unless the filter says state:parked or
    state:discarded; those are returned: retried once more, redirected, discarded or patched.

    Ends with 0 where letters were acted on (or shown), with 3 where none was, with 4 where the action is held, and with 1 where
    workers were not done in time, or something else failed.
    """
    if dry_run and yes:
        raise click.UsageError("give --dry-run or --yes")
    if not words and not letters:
        raise click.UsageError("say which letters: a FILTER as team:payments, or --letter KEY; state:waiting means all that wait")
    from retry.operations.act import start
    from retry.operations.act.letter_sources import AllLetters
    from retry.operations.act.options import add_ramp
    from retry.operations.act.preview import preview
    from retry.operations.cluster import Cluster
    from retry.operations.control_requests import ShardNumbers
    from retry.operations.listing import Listing
    from retry.scheduling.tasks.framed_values import FramedValues

    settings = read_settings()
    shown = " ".join((*words, *(f"--letter {each}" for each in letters)))
    registry = load_workers_policies(policies)
    given = parse_options(options)
    framing = partial(FramedValues, settings.registry)
    asked = request(kind, given, framing, by=by, reason=reason, filter=shown, policies=registry.digest)
    shards = ShardNumbers(settings)
    start.demand_readiness(shards.admin, settings.app_id)
    # A dry run writes nothing, and brokers tell their time where something is written.
    now_ms = shards.now_ms() if yes else clock.wall_ms()
    selection = _parse_selection(words, letters, now_ms)
    where = Listing(Cluster(settings), registry, newest, lambda line: say(line, err=True))
    source = AllLetters(shards, where if selection.rests else None, waits="waiting" in selection.states)
    found = preview(settings, registry, asked, selection.selects, now_ms, source)
    found = add_ramp(found, given, registry)
    if not as_json or not yes:
        act_output.print_preview(found, as_json=as_json)
    if expect is not None and found.chosen.count != expect:
        raise ActionRefused(f"{found.chosen.count:,} letters are like this, not {expect:,}; nothing was done")
    sys.exit(_do(shards, found, expect, wait_ms, as_json) if yes else tell_undone(found))


def load_workers_policies(policies: str | None) -> Registry:
    """Load the policy file of the workers: without it nothing is decided as they do it, and no team's parking topic is known.

    Raises:
      ActionRefused: no file is given.
      PolicyFileInvalid: it cannot be used.
    """
    if not policies:
        raise ActionRefused("say which policy file the workers have, with RETRY_POLICIES or --file; nothing was done")
    return load(policies)


def _parse_selection(words: tuple[str, ...], letters: tuple[str, ...], now_ms: int) -> Selection:
    from retry.operations.act.selection import select_letters

    try:
        return select_letters(" ".join(words), letters, now_ms)
    except ValueError as wrong:
        forms = "take TOPIC/PARTITION/OFFSET or DUE/TOPIC/PARTITION/OFFSET from `retry letters --json` or `retry explain`"
        raise click.BadParameter(f"{wrong.args[0]!r} names no letter; {forms}", param_hint="--letter") from None


def tell_undone(found: Preview) -> int:
    """Say that a preview was shown and nothing was done; the exit code."""
    if found.chosen.count:
        say("nothing was done; --yes does it", err=True)
    return 0 if found.chosen.count else REFUSED


def _do(shards: ShardNumbers, found: Preview, expect: int | None, wait_ms: int, as_json: bool) -> int:
    from retry.operations.act.options import UNASKED_MAX

    count = found.chosen.count
    if not count:
        if as_json:
            act_output.print_preview(found, as_json=True)
        return REFUSED
    if expect is None and count > UNASKED_MAX:
        confirm_count(count)
    return start_action(shards, found, wait_ms, as_json=as_json)


def start_action(shards: ShardNumbers, found: Preview, wait_ms: int, *, as_json: bool) -> int:
    """Start an action, wait for the workers to carry it out, print what became of it, and return the exit code."""
    from retry.operations.act.overview import Following
    from retry.operations.act.start import start_preview

    action_id = found.request.id
    say(f"action {action_id.hex()}: {found.chosen.count:,} letters", err=True)
    with Following(shards, action_id) as following:
        action = start_preview(shards, found)
        left = act_output.wait(following, action, wait_ms)
        act_output.result(action_id, action, following, left, as_json=as_json)
    if following.held is not None:
        return HELD
    if left:
        return NOT_YET
    return 0 if following.tally.done else REFUSED


def confirm_count(count: int) -> None:
    if not sys.stdin.isatty():
        raise ActionRefused(f"these are {count:,} letters: give --expect {count}, or type the number at a terminal")
    if click.prompt("How many letters are these?", type=int, err=True) != count:
        raise ActionRefused("that is another number; nothing was done")
