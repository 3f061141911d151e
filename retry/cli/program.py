"""The program `retry`: commands by what they are for, options that all of them take, and one line for what one could not do."""

from __future__ import annotations

import errno
import os
import re
import sys
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from retry.cli.output import WAITING, discard_output, say, say_lines
from retry.errors import RetryError
from retry.printable import is_text

# What the system says of a file or a terminal that takes no more.
_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_NO_COMMAND = re.compile(r"No such command '(.+)'\.")


class Program(click.Group):
    """A group of commands by headings, whose own options may stand anywhere among a command's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.headings: dict[str, list[click.Command]] = {}

    def add_commands(self, headings: dict[str, list[click.Command]]) -> None:
        """Add commands, which `--help` shows under their headings, in this order."""
        self.headings = headings
        for each in (command for commands in headings.values() for command in commands):
            self.add_command(each)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        # Names are filled up with spaces: in all sections the same column.
        width = max(map(len, self.commands))
        for heading, commands in self.headings.items():
            with formatter.section(heading):
                rows = [(f"{each.name:{width}}", each.get_short_help_str(formatter.width - 6 - width)) for each in commands]
                formatter.write_dl(rows)

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            return super().__call__(*args, **options)
        except OSError as error:
            if error.errno not in _NOT_WRITTEN:
                raise
            discard_output()
            where = f" to {error.filename}" if error.filename else ""
            say(f"what this command says could not be written{where}: {error.strerror}; write it elsewhere", err=True)
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for place, text in enumerate(args, 1):
            if not is_text(text):
                raise click.UsageError(f"argument {place} is not UTF-8 text: {os.fsencode(text)!r:.60}")
        return super().parse_args(ctx, self._own_first(args))

    def _own_first(self, args: list[str]) -> list[str]:
        """The arguments with the options that all commands take before all others."""
        names = {name for each in self.params if isinstance(each, click.Option) and not each.is_flag for name in each.opts}
        own, others, left = list[str](), list[str](), iter(args)
        for each in left:
            if each == "--":
                others.append(each)
                break
            if each in names:
                own += [each, *([value] if (value := next(left, None)) is not None else [])]
            else:
                (own if each.partition("=")[0] in names else others).append(each)
        return [*own, *others, *left]

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _suggest_command(error)
            raise
        except Exception as error:
            if not (told := describe_failure(error)):
                raise
            _tell_end(told)
        finally:
            WAITING.end()
            _tell_unreadable()
        sys.exit(1)


def _suggest_command(error: click.UsageError) -> None:
    """Add to the message about a command that there is not which one may be meant."""
    group = error.ctx.command if error.ctx else None
    if isinstance(group, click.Group) and (found := _NO_COMMAND.match(error.message)):
        for near in get_close_matches(found[1], group.commands, 1):
            error.message += f" Did you mean {near!r}?"


def _tell_end(why: str) -> None:
    """Say on standard error what ended the command, as a server that logs JSON says everything there."""
    # Not imported here: of most commands nothing is logged.
    logs = sys.modules.get("retry.process.logs")
    if logs and logs.is_json():
        logs.tell_end(why)
    else:
        say(why, err=True)


def _tell_unreadable() -> None:
    """Say which records of the service's own topics a command has passed over."""
    # Not imported here: most commands read none.
    if read := sys.modules.get("retry.telemetry.unreadable_records"):
        for each in read.UNREADABLE.list_topics():
            say(each.sentence, err=True)


def describe_failure(error: Exception) -> str:
    """Describe in one sentence what could not be done, or what brokers answered; empty where the error is of another kind."""
    if isinstance(error, RetryError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "no broker answered in time; look at the brokers, then try again"
    # Not imported here: most commands begin sooner without it.
    kafka = sys.modules.get("confluent_kafka")
    if kafka is None or not isinstance(error, kafka.KafkaException):
        return ""
    return f"the brokers answered: {error.args[0].str()}; look at them and at this user's rights, then try again"


@click.command()
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what a shell runs to complete commands and options.

    For bash: eval "$(retry completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc; for fish: retry completion fish | source
    in ~/.config/fish/config.fish.
    """
    made = _SHELLS[shell](context.find_root().command, {}, "retry", "_RETRY_COMPLETE")
    say_lines(made.source().splitlines())
