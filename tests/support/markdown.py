"""Markdown, as the generated parts of pages have it."""

from __future__ import annotations

from collections.abc import Iterable


def table(columns: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    """A table with a head; bars within cells are escaped."""
    lines = (columns, ["---"] * len(columns), *rows)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
