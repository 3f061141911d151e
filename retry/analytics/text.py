"""The report as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from retry.analytics.report import Line, Report

_HEADS = ("team", "policy", "letters", "retries", "recovered by attempt", "parked by reason", "waiting")
_LATE_HEADS = ("late p50", "p90", "p99", "max ms")
_NUMBERS = frozenset({"letters", "retries", "waiting", *_LATE_HEADS})
_NONE = "-"


def table(report: Report) -> str:
    """Lines of at most a screen's width for names of usual length; the last says what could not be counted."""
    heads = _HEADS + _LATE_HEADS
    rows = [_row(line) for line in report.lines]
    if len(rows) > 1:
        rows.append(_total(report.lines))
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    lines = [_laid_out(cells, widths) for cells in (heads, ["-" * width for width in widths], *rows)]
    return "\n".join([*lines, *_notes(report)])


def _row(line: Line) -> list[str]:
    late = line.lateness
    times = [late.p50_ms, late.p90_ms, late.p99_ms, late.max_ms] if late else [_NONE] * 4
    counts = [line.letters, line.retries, _counted(line.recovered), _counted(line.parked), line.waiting]
    return [line.team, line.policy, *map(str, counts), *map(str, times)]


def _total(lines: Sequence[Line]) -> list[str]:
    recovered, parked = (str(sum(sum(each.values()) for each in counts)) for counts in _fates(lines))
    letters, retries, waiting = (str(sum(getattr(x, n) for x in lines)) for n in ("letters", "retries", "waiting"))
    return ["all", "", letters, retries, recovered, parked, waiting, *[""] * len(_LATE_HEADS)]


def _fates(lines: Iterable[Line]) -> tuple[list[dict[int, int]], list[dict[str, int]]]:
    return [line.recovered for line in lines], [line.parked for line in lines]


def _counted(counts: Mapping[int, int] | Mapping[str, int]) -> str:
    """Each value with its number, after the sum: `12 (1: 9, 2: 3)`."""
    if not counts:
        return "0"
    return f"{sum(counts.values())} ({', '.join(f'{value}: {number}' for value, number in counts.items())})"


def _laid_out(cells: Iterable[str], widths: Iterable[int]) -> str:
    heads = _HEADS + _LATE_HEADS
    laid = (
        cell.rjust(width) if head in _NUMBERS else cell.ljust(width)
        for head, cell, width in zip(heads, cells, widths, strict=True)
    )
    return "  ".join(laid).rstrip()


def _notes(report: Report) -> list[str]:
    notes = [f"retries read from {', '.join(report.retry_topics) or 'no topic: none was decided'}"]
    if report.unreadable or report.other_version:
        notes.append(f"not counted: {report.unreadable} unreadable outcomes, {report.other_version} of another version")
    return notes
