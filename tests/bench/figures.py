"""What was measured, against what it should be; and the table of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

LIMIT = "copy limit"


class Figure(NamedTuple):
    """One number of a benchmark, with its name and unit.

    Attributes:
      rated: whether it is told as a ratio to the copy limit.
      least_ratio: what that ratio should be at least.
      most: what the value should be at most.
    """

    name: str
    value: float
    unit: str
    rated: bool = False
    least_ratio: float | None = None
    most: float | None = None


class Line(NamedTuple):
    """One line of the table: a figure's median over all runs, and the verdict."""

    figure: str
    value: float
    unit: str
    ratio: float | None
    target: str
    verdict: str
    runs: list[float]


def rate(name: str, records: int, seconds: float, unit: str, least_ratio: float | None = None) -> Figure:
    """Records per second, as a ratio to the copy limit."""
    return Figure(name, records / max(seconds, 1e-3), unit, rated=True, least_ratio=least_ratio)


def lines(figures: Iterable[Figure]) -> list[Line]:
    """A line for each name, in the order of first appearance."""
    by_name: dict[str, list[Figure]] = {}
    for figure in figures:
        by_name.setdefault(figure.name, []).append(figure)
    limit = median(f.value for f in by_name[LIMIT]) if LIMIT in by_name else None
    return [_line(found, limit) for found in by_name.values()]


def _line(found: list[Figure], limit: float | None) -> Line:
    first, values = found[0], [f.value for f in found]
    value = median(values)
    ratio = value / limit if first.rated and limit else None
    target, verdict = "", ""
    if first.least_ratio is not None:
        target = f">= {first.least_ratio:g} x"
        verdict = "" if ratio is None else "ok" if ratio >= first.least_ratio else "below"
    elif first.most is not None:
        target = f"<= {first.most:,g} {first.unit}"
        verdict = "ok" if value <= first.most else "above"
    return Line(first.name, value, first.unit, ratio, target, verdict, values)


def table(of: Sequence[Line]) -> str:
    """The lines, aligned; with several runs also the lowest and the highest."""
    rows = [("figure", "value", "unit", "x copy", "target", "", "all runs")]
    for line in of:
        spread = f"{number(min(line.runs))} .. {number(max(line.runs))}" if len(line.runs) > 1 else ""
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        rows.append((line.figure, number(line.value), line.unit, ratio, line.target, line.verdict, spread))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [str.ljust, str.rjust, str.ljust, str.rjust, str.ljust, str.ljust, str.ljust]
    return "\n".join("  ".join(map(_cell, aligned, row, widths)).rstrip() for row in rows)


def _cell(aligned: Callable[[str, int], str], text: str, width: int) -> str:
    return aligned(text, width)


def number(value: float) -> str:
    """Three digits or more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
