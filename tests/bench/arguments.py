"""Arguments that several measurements take."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path


def add(parser: ArgumentParser, only: Iterable[str]) -> None:
    """Add `--only`, which takes some of these names, `--set` and `--json`."""
    known = list(only)
    parser.add_argument("--only", type=some(known), default=known, metavar="NAME,...", help=",".join(known))
    parser.add_argument("--set", action="append", type=setting, default=[], metavar="NAME=VALUE", help="of the workers")
    parser.add_argument("--json", type=Path, metavar="FILE")


def setting(text: str) -> tuple[str, str]:
    """Split `NAME=VALUE` into its two parts."""
    name, _, value = text.partition("=")
    return name, value


def some(known: list[str]) -> Callable[[str], list[str]]:
    """Names with commas between them, each one that is known."""

    def names(text: str) -> list[str]:
        if unknown := set(text.split(",")) - set(known):
            raise ArgumentTypeError(f"no such name: {', '.join(sorted(unknown))}")
        return text.split(",")

    return names
