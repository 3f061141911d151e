"""What several commands take: a moment, who types, and which letters."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retry.cli.output import say
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.operations.listing import Listing

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Moment(click.ParamType):
    """A moment, as operators write it; a duration is counted from now on, or `ago`."""

    name = "moment"

    def __init__(self, *, ago: bool = False) -> None:
        self._direction = -1 if ago else 1

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert a moment, as an operator writes it, to milliseconds since 1970; see `retry.operations.moments`."""
        from retry.operations.moments import parse_moment_ms

        try:
            return parse_moment_ms(value, self._direction)
        except ValueError as wrong:
            return self.fail(str(wrong), param, ctx)


def identify_user() -> str:
    """Return who runs the command, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user that nobody has named.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def add_options(options: Sequence[Callable[[_Command], _Command]]) -> Callable[[_Command], _Command]:
    """Make a decorator of several options, which `--help` shows in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


POLICIES = click.option(
    "--file", "policies", envvar="RETRY_POLICIES", show_envvar=True, help="The policy file: of parking topics."
)
NEWEST = click.option(
    "--newest", type=click.IntRange(1), default=10_000, show_default=True,
    help="Parked records that are looked at: the newest of each partition.",
)  # fmt: skip


class FilterCommand(click.Command):
    """A command that takes a filter: terms that begin with - are no options; -header.tenant:acme asks for no help, -h does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        terms = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
        super().__init__(*args, **{**options, "context_settings": terms})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, ["--help" if each == "-h" else each for each in args[:end]] + args[end:])



letter_options = add_options([click.argument("words", nargs=-1, metavar="FILTER"), POLICIES, NEWEST])


def listing(policies: str | None, newest: int) -> Listing:
    """Build the listing that searches for letters; it reports on standard error what it leaves out."""
    from retry.operations.cluster import Cluster
    from retry.operations.listing import Listing

    registry = load(policies) if policies else Registry()
    return Listing(Cluster(read_settings()), registry, newest, lambda line: say(line, err=True))
