"""Lays out rows as a table for a terminal: columns of equal width, two spaces between them."""

from __future__ import annotations

from collections.abc import Sequence


def align_rows(rows: Sequence[Sequence[str]], *, names: int) -> list[str]:
    """A line for each row; the first `names` columns are set to the left, the numbers after them to the right.

    >>> align_rows([("team", "letters"), ("shop", "12")], names=1)
    ['team  letters', 'shop       12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column < names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
