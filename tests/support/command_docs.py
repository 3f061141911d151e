"""What click knows of each command, as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

from retry.__main__ import main
from tests.support.markdown import table

_COLUMNS = 120
_METAVARS = {"integer": "N", "integer range": "N", "float range": "SHARE", "directory": "DIR", "file": "FILE"}


def section(*names: str) -> str:
    """Describe some of the top commands, and which arguments and options they and their own commands take."""
    return "\n".join(part for name in names for part in list_described(main.commands[name], f"retry {name}"))


def list_described(command: click.Command, path: str) -> Iterator[str]:
    parameters = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = " ".join(_argument(each) for each in parameters if isinstance(each, click.Argument))
    yield f"### {path} {arguments}".rstrip() + "\n"
    for paragraph in re.split(r"\n\s*\n", command.help or ""):
        yield textwrap.fill(" ".join(paragraph.split()), _COLUMNS, break_on_hyphens=False) + "\n"
    if options := [each for each in parameters if isinstance(each, click.Option)]:
        yield table(("option", "meaning"), ((f"`{_option(each)}`", _meaning(each)) for each in options))
    for name, each in getattr(command, "commands", {}).items():
        yield from list_described(each, f"{path} {name}")


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _option(option: click.Option) -> str:
    if option.is_flag:
        return option.opts[-1]
    choices = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else None
    kind = option.type.name
    return f"{option.opts[-1]} {option.metavar or choices or _METAVARS.get(kind, kind.upper())}"


def _meaning(option: click.Option) -> str:
    """Return the help of an option, and what click shows in brackets."""
    notes = [
        "required" if option.required else "",
        "may be repeated" if option.multiple else "",
        f"default `${option.envvar}`" if option.envvar else "",
        f"default `{option.default}`" if option.show_default else "",
    ]
    known = ", ".join(filter(None, notes))
    return f"{option.help} ({known})" if known else option.help or ""
