"""`retry context`: settings of several clusters in one file, and which of them commands have."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from retry.cli.output import say, write_file
from retry.errors import SettingsInvalid
from retry.policies.yaml_document import suggest_word
from retry.settings import find_config_dir, find_unknown_setting, set_variables

_NAME = "RETRY_CONTEXT"


class _ContextFile(msgspec.Struct, forbid_unknown_fields=True):
    contexts: dict[str, dict[str, str | int]]


def find_default_file() -> Path:
    """Return the path of this user's file of contexts, whether the file exists or not."""
    return find_config_dir() / "contexts.yaml"


def apply_context(file: Path | None, name: str | None) -> None:
    """Set the variables of a context in the environment of this process, except those that are already set.

    The context is the one called `name`, else the one that `retry context use` chose, else the only one in the file. Where none
    is found and no file was named, nothing is set.

    Raises:
      SettingsInvalid: the file cannot be used, has no such context, or was named and no context of it is in use.
    """
    path = file or find_default_file()
    if file is None and name is None and not path.exists():
        return
    contexts = read_contexts(path)
    chosen = name or find_current(path) or (next(iter(contexts)) if len(contexts) == 1 else None)
    if chosen is None:
        if file is None:
            return
        raise SettingsInvalid(str(path), f"say which context: --context {' or '.join(contexts)}, or retry context use NAME")
    set_variables(contexts[check_name(path, contexts, chosen)], over=False)


def read_contexts(path: Path) -> dict[str, dict[str, str]]:
    """Read the variables of each context of a file; raises SettingsInvalid where it cannot be used, and says why."""
    try:
        read = msgspec.yaml.decode(path.read_bytes(), type=_ContextFile).contexts
    except OSError as error:
        raise SettingsInvalid(str(path), f"{error.strerror}; docs/reference/settings.md says what is in it") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # A file that is no YAML may hold a secret where the message would quote it.
        why = str(error) if isinstance(error, msgspec.ValidationError) else "it is no YAML"
        raise SettingsInvalid(str(path), f"{why}; docs/reference/settings.md says what is in it") from None
    found = {name: {f"RETRY_{key.upper()}": str(value) for key, value in of.items()} for name, of in read.items()}
    for name, variables in found.items():
        for variable in variables:
            if wrong := find_unknown_setting(variable):
                raise SettingsInvalid(f"{path}: contexts.{name}.{variable.removeprefix('RETRY_').lower()}", wrong)
    return found


def find_current(path: Path) -> str | None:
    """Read the name of the context that `retry context use` chose for a file of contexts; None where none was chosen."""
    current = path.with_suffix(".current")
    return current.read_text(encoding="utf-8").strip() if current.is_file() else None


def check_name(path: Path, contexts: dict[str, dict[str, str]], name: str) -> str:
    if name in contexts:
        return name
    known = ", ".join(contexts) or "none"
    raise SettingsInvalid(str(path), f"has no context {name!r}, only {known}{suggest_word(name, contexts)}")


@click.group()
def context() -> None:
    """List the contexts of a file of settings, or choose one: which cluster commands talk to."""


@context.command(name="list")
@click.pass_context
def list_contexts(ctx: click.Context) -> None:
    """List contexts and their brokers; the one in use has a star. Variables of the environment go before it."""
    path = ctx.find_root().params["config"] or find_default_file()
    current, contexts = find_current(path), read_contexts(path)
    width = max(map(len, contexts), default=0)
    for name, variables in contexts.items():
        say(f"{'*' if name == current else ' '} {name:{width}}  {variables.get('RETRY_BOOTSTRAP_SERVERS', '')}".rstrip())


@context.command()
@click.argument("name")
@click.pass_context
def use(ctx: click.Context, name: str) -> None:
    """Have commands take their settings from the context NAME, from now on, wherever neither option nor environment says more."""
    path = ctx.find_root().params["config"] or find_default_file()
    write_file(path.with_suffix(".current"), f"{check_name(path, read_contexts(path), name)}\n")
    say(f"context {name} of {path} is in use")
