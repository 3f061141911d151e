"""Options of `retry act` → what is asked for; see `retry.operations.act.options`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retry.cli.moment import Moment
from retry.cli.policies import Duration

if TYPE_CHECKING:
    from retry.delay_queue.ramp_records import Ramp
    from retry.operations.act.options import ActOptions
    from retry.operations.act.request import Request

_NAMES = {"set_headers": "--set-header", "removed": "--remove-header", "value": "--value-file"}
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


def request(kind: str, options: dict[str, Any], **about: str) -> Request:
    """Build the request that the options of `retry act` ask for.

    Args:
      about: fields of the action: by, reason, filter, policies.
    """
    from retry.operations.act.options import AskedBy, OptionsInvalid, build_request

    try:
        return build_request(kind, _parse_options(options), AskedBy(**about), _option)
    except OptionsInvalid as invalid:
        raise click.UsageError(str(invalid)) from None


def ramp(kind: str, options: dict[str, Any], letters: int) -> Ramp | None:
    """How so many letters are retried in steps; None where they are all due as they are asked for."""
    from retry.operations.act import options as act_options

    return act_options.ramp(kind, _parse_options(options), letters)


def _parse_options(options: dict[str, Any]) -> ActOptions:
    from retry.operations.act.options import ActOptions

    same = {name: value for name, value in options.items() if name not in ("value_file", "set_headers", "removed")}
    file, headers = options["value_file"], _parse_header_options(options["set_headers"])
    value = None if file is None else _read(file)
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


def _read(file: Path) -> bytes:
    return click.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()
