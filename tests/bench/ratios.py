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
      most: what ours should be at most, whatever the peer's is.
    """

    figure: str
    fields: tuple[str, ...]
    unit: str
    target: str
    a_letter_us: bool = False
    most: float | None = None


def _ingest_fire(ingest: str, fire: str, first: str, cpu: str) -> list[Wanted]:
    return [
        Wanted("ingest", ("ingest_committed_rate",), "letters/s", ingest),
        Wanted("fire", ("fire_rate",), "letters/s", fire),
        Wanted("first visible after due", ("fire_first_s",), "s", first),
        Wanted("peak RSS", ("rss_peak_mib",), "MiB", "<= 0.4"),
        Wanted("CPU, ingest", ("ingest_cpu_s",), "us a letter", "", True),
        Wanted("CPU, fire", ("fire_cpu_s",), "us a letter", "", True),
        Wanted("CPU, start to end", ("all_cpu_s",), "us a letter", cpu, True),
    ]


def _drain(rate: str, cpu: str) -> list[Wanted]:
    return [
        Wanted("drain from process start", ("drain_rate_with_start",), "letters/s", rate),
        Wanted("CPU, drain", ("drain_cpu_s",), "us a letter", cpu, True),
    ]


def _trickle(p99: str) -> list[Wanted]:
    return [Wanted("lateness p50", ("late_p50_ms",), "ms", ""), Wanted("lateness p99", ("late_p99_ms",), "ms", p99)]


def _low(application: str, broker: str, p99: str = "<= 0.55") -> list[Wanted]:
    return [
        Wanted("CPU of the application", ("application_percent",), "% of a core", application),
        Wanted("CPU of the broker", ("broker_percent",), "% of a core", broker),
        Wanted("transactions", ("transactions_per_s",), "1/s", ""),
        Wanted("requests to the broker", ("requests_per_s",), "1/s", ""),
        Wanted("voluntary context switches", ("switches_per_s",), "1/s", ""),
        Wanted("lateness p99", ("late_p99_ms",), "ms", p99, most=110),
    ]


_AT_100 = {"transactions": 20, "requests to the broker": 420, "voluntary context switches": 1_800}
WANTED = {
    "ingest_fire": _ingest_fire(">= 0.8", ">= 0.75", "<= 0.3", "<= 0.8"),
    "ingest_fire/spring": _ingest_fire(">= 0.85", ">= 0.86", "<= 0.4", "<= 0.9"),
    "ingest_fire/4": _ingest_fire(">= 0.8", ">= 0.75", "<= 0.3", "<= 0.8"),
    "drain": _drain(">= 1.0", ""),
    "drain/spring": _drain(">= 0.9", ""),
    "drain/4": _drain(">= 1.0", ""),
    "low/10": _low("<= 0.7", "<= 1.0"),
    "low/100": [each._replace(most=_AT_100.get(each.figure, each.most)) for each in _low("<= 0.5", "<= 0.9")],
    "low/1000": _low("<= 0.5", "<= 0.9"),
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
        if self.ratio is None or not self.target:
            return ""
        way, bound = (self.wanted.target or "<= inf").split()
        holds = self.ratio >= float(bound) if way == ">=" else self.ratio <= float(bound)
        return "ok" if holds and median(self.us) <= (self.wanted.most or float("inf")) else "missed"

    @property
    def target(self) -> str:
        """The ratio that it should have, and the most that it should be."""
        most = f"at most {number(self.wanted.most)}" if self.wanted.most else ""
        return ", ".join(filter(None, (self.wanted.target, most)))


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
        rows.append(f"| {' | '.join(cells)} | {line.target} | {line.verdict} |")
    return "\n".join(rows)


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ({number(min(values))} .. {number(max(values))})" if len(values) > 1 else ""
    return number(median(values)) + spread
