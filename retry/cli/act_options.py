"""Options of `retry act` → what is asked for; options that do not go with a kind are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retry.cli.moment import Moment
from retry.cli.policies import Duration

if TYPE_CHECKING:
    from retry.delay_queue.ramp_records import Ramp
    from retry.operations.act.request import Request

_DUE, _RAMP = {"at", "spread", "postpone"}, {"ramp", "keep", "settle", "silence"}
# Which options go with which kind.
_OF = {
    "retry": {"at", "spread", "postpone", *_RAMP},
    "redirect": {"to", "at", "spread", "postpone", *_RAMP},
    "park": set(),
    "discard": set(),
    "edit": {"value_file", "set_headers", "removed"},
    "patch": {"set_headers", "removed", "merge_patch"},
}
# Of more letters than this nobody has looked at each.
UNASKED_MAX = 1_000
_SETTLE_MS, _SILENCE_MS = 10_000, 120_000
_NAMES = {"set_headers": "--set-header", "removed": "--remove-header"}
_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


def kind_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is to become of letters."""
    for option in reversed([
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
        click.option("--value-file", type=_FILE, metavar="FILE", help="edit: the new value; - reads standard input."),
        click.option(
            "--header", "--set-header", "set_headers", multiple=True, metavar="NAME=VALUE", help="edit, patch: set a header.",
        ),
        click.option("--remove-header", "removed", multiple=True, metavar="NAME", help="edit, patch: remove a header."),
        click.option("--merge-patch", metavar="JSON", help="patch: a JSON merge patch (RFC 7396) of the value."),
    ]):  # fmt: skip
        command = option(command)
    return command


def request(kind: str, options: dict[str, Any], **about: Any) -> Request:
    """What the options ask for.

    Args:
      about: of the action: by, reason, filter, policies.
    """
    from retry.delay_queue.action_records import Action, Patch
    from retry.operations.act.request import DueTimes, Edit, new

    given = {name for name, value in options.items() if value not in (None, ())}
    if wrong := sorted(given - _OF[kind]):
        raise click.UsageError(f"{', '.join(map(_option, wrong))} does not go with {kind}")
    if len(given & _DUE) > 1:
        raise click.UsageError("give one of --at, --spread and --postpone")
    details = given & (_RAMP - {"ramp"})
    if given & _DUE and (details or options["ramp"]):
        raise click.UsageError("a ramp sends letters now: it does not go with --at, --spread or --postpone")
    if options["ramp"] is False and details:
        raise click.UsageError("--keep, --settle and --silence are of a ramp, and do not go with --no-ramp")
    if kind == "redirect" and not options["to"]:
        raise click.UsageError("redirect needs --to TOPIC")
    if kind == "edit" and not given:
        raise click.UsageError("edit needs --value-file, --set-header or --remove-header")
    headers = _headers(options["set_headers"], options["removed"])
    patch = Patch(headers, options["merge_patch"] or "") if kind == "patch" else None
    if patch is not None:
        _check(patch)
    action = Action(kind, asked_at_ms=0, slices=[], members=0, target=options["to"], patch=patch, **about)
    due = DueTimes(options["at"], options["spread"] or 0, options["postpone"] or 0)
    file = options["value_file"]
    edit = Edit(None if file is None else _read(file), headers) if kind == "edit" else None
    return new(action, due, edit)


def ramp(kind: str, options: dict[str, Any], letters: int) -> Ramp | None:
    """How so many letters are retried in steps; None where they are all due as they are asked for."""
    from retry.delay_queue import ramp_records
    from retry.delay_queue.ramp_records import Ramp

    if "ramp" not in _OF[kind] or options["ramp"] is False or any(options[each] for each in _DUE):
        return None
    asked = options["ramp"] or any(options[each] is not None for each in _RAMP)
    if not asked and letters <= UNASKED_MAX:
        return None
    keep, settle_ms, silence_ms = options["keep"], options["settle"], options["silence"]
    return Ramp(
        ramp_records.KEEP if keep is None else keep, ramp_records.steps(letters),
        _SETTLE_MS if settle_ms is None else settle_ms, _SILENCE_MS if silence_ms is None else silence_ms,
    )


def _option(name: str) -> str:
    return _NAMES.get(name, "--" + name.replace("_", "-"))


def _headers(given: tuple[str, ...], removed: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(removed)
    for each in given:
        name, equals, text = each.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--set-header")
        found[name] = text
    return found


def _check(patch: Any) -> None:
    from retry.delivery.patch import fault
    from retry.errors import ActionRefused

    if wrong := fault(patch):
        raise ActionRefused(wrong)


def _read(file: Path) -> bytes:
    return click.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()
