"""Runs of two systems → medians, spread and the ratio between them, against what it should be."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from .figures import number

US, PEER = "retry worker", "Kafka Streams"


class Wanted(NamedTuple):
    """One figure of a run, and the ratio to the peer that it should have.

    Attributes:
      fields: of the run's line; their sum counts.
      a_letter_us: whether it is told in microseconds a letter.
    """

    figure: str
    fields: tuple[str, ...]
    unit: str
    target: str
    a_letter_us: bool = False




def _ingest_fire(ingest: str, first: str, cpu: str) -> list[Wanted]:
    return [
        Wanted("ingest", ("ingest_committed_rate",), "letters/s", ingest),
        Wanted("fire", ("fire_rate",), "letters/s", ">= 0.9"),
        Wanted("first visible after due", ("fire_first_s",), "s", first),
        Wanted("peak RSS", ("rss_peak_mib",), "MiB", "<= 0.55"),
        Wanted("CPU, ingest and fire", ("ingest_cpu_s", "fire_cpu_s"), "us a letter", cpu, True),
    ]


def _drain(rate: str, cpu: str) -> list[Wanted]:
    return [
        Wanted("drain from process start", ("drain_rate_with_start",), "letters/s", rate),
        Wanted("CPU, drain", ("drain_cpu_s",), "us a letter", cpu, True),
    ]


def _trickle(p99: str) -> list[Wanted]:
    return [Wanted("lateness p50", ("late_p50_ms",), "ms", ""), Wanted("lateness p99", ("late_p99_ms",), "ms", p99)]


WANTED = {
    "ingest_fire": _ingest_fire(">= 0.9", "<= 0.3", "<= 1.2"),
    "ingest_fire/spring": _ingest_fire(">= 0.7", "<= 0.4", "<= 1.3"),
    "ingest_fire/4": _ingest_fire(">= 0.9", "<= 0.3", "<= 1.2"),
    "drain": _drain(">= 1.3", "<= 1.2"),
    "drain/spring": _drain(">= 1.0", "<= 1.3"),
    "drain/4": _drain(">= 1.3", "<= 1.2"),
    "trickle": _trickle("<= 0.4"),
    "trickle/spring": _trickle("<= 0.5"),
    "restore": [
        Wanted("restart, state kept", ("restart_kept_s",), "s", "<= 1.0"),
        Wanted("restart, state wiped", ("restart_wiped_s",), "s", "<= 1.0"),
    ],
    "kill": [Wanted("first record after kill -9 and restart", ("recover_first_s",), "s", "<= 0.4")],
}


class Line(NamedTuple):
    """One figure of both systems; None where a system never got so far."""

    name: str
    wanted: Wanted
    us: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float | None:
        """Ours to the peer's, medians."""
        return median(self.us) / median(self.peer) if self.us and self.peer else None

    @property
    def verdict(self) -> str:
        """Whether the ratio is what it should be."""
        if not self.wanted.target or self.ratio is None:
            return ""
        way, bound = self.wanted.target.split()
        return "ok" if (self.ratio >= float(bound) if way == ">=" else self.ratio <= float(bound)) else "missed"


def compared(runs: Sequence[dict[str, Any]]) -> list[Line]:
    """A line for each figure of each test that was run."""
    found = []
    for name, wanted in WANTED.items():
        of_test = [run for run in runs if run["name"] == name]
        found += [Line(name, each, _values(of_test, US, each), _values(of_test, PEER, each)) for each in wanted if of_test]
    return found


def _values(runs: list[dict[str, Any]], system: str, wanted: Wanted) -> list[float]:
    told = [run for run in runs if run["system"] == system and all(run.get(field) is not None for field in wanted.fields)]
    return [sum(run[field] for field in wanted.fields) / (run["n"] / 1e6 if wanted.a_letter_us else 1) for run in told]


def table(lines: Sequence[Line]) -> str:
    """The lines as Markdown; median, and the extremes of all runs."""
    rows = ["| test | figure | unit | retry worker | Kafka Streams | ratio | target | |", "|---|---|---|---|---|---|---|---|"]
    for line in lines:
        ratio = "-" if line.ratio is None else f"{line.ratio:.2f}"
        cells = [line.name, line.wanted.figure, line.wanted.unit, _cell(line.us), _cell(line.peer), ratio]
        rows.append(f"| {' | '.join(cells)} | {line.wanted.target} | {line.verdict} |")
    return "\n".join(rows)


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ({number(min(values))} .. {number(max(values))})" if len(values) > 1 else ""
    return number(median(values)) + spread
