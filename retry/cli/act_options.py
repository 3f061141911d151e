"""Options of `retry act` → what is asked for; options that do not go with a kind are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retry.cli.moment import Moment
from retry.cli.policies import Duration

if TYPE_CHECKING:
    from retry.operations.act.request import Request

# Which options go with which kind.
_OF = {
    "retry": {"at", "spread", "postpone"},
    "redirect": {"to", "at", "spread", "postpone"},
    "park": set(),
    "discard": set(),
    "edit": {"value_file", "set_headers", "removed"},
    "patch": {"set_headers", "removed", "merge_patch"},
}
_NAMES = {"set_headers": "--set-header", "removed": "--remove-header"}
_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


def kind_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is to become of letters."""
    for option in reversed([
        click.option("--at", type=Moment(), help="retry, redirect: due at this time, or so long from now. By default now."),
        click.option("--spread", type=Duration(), help="retry, redirect: due evenly over so long from now on, in random order."),
        click.option("--postpone", type=Duration(), help="retry, redirect: due so much later than they are now."),
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
    if len(given & {"at", "spread", "postpone"}) > 1:
        raise click.UsageError("give one of --at, --spread and --postpone")
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
