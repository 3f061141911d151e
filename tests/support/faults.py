"""What was done to the service in a test run, how often, and what came of it: a table at the end.

    @pytest.mark.fault("worker killed")
    def test_…(runs: Runs, …):
        …
        runs.add()          # after each time that the fault was made; a test that never says so counts as one

Tests of the same fault are one row. `--faults-table PATH` writes the table there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_HOLDS, _BROKEN, _UNFINISHED = "holds", "BROKEN", "did not end"


@dataclass
class Runs:
    """How often one test has made its fault."""

    count: int = 0

    def add(self, count: int = 1) -> None:
        """Count that a fault was caused so often again."""
        self.count += count


@dataclass
class Row:
    """One fault: how often it was made, for how long its tests ran, and which of them failed."""

    runs: int = 0
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)


_RUNS = pytest.StashKey[Runs]()
_TALLY: pytest.StashKey[Tally] = pytest.StashKey()
_PROPERTY = "fault"


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Runs:
    """The counter of this test."""
    return request.node.stash.setdefault(_RUNS, Runs())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-table", type=Path, metavar="PATH", help="write the table of faults there, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(name): what is done to the service; a row of the table at the end")
    config.stash[_TALLY] = Tally()
    config.pluginmanager.register(config.stash[_TALLY], "faults tally")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    marker = item.get_closest_marker("fault")
    if marker is not None and not report.skipped:
        # With several processes this is how a test tells the one that writes the table.
        count = max(1, item.stash.get(_RUNS, Runs()).count) if report.when == "call" else 0
        report.user_properties.append((_PROPERTY, [marker.args[0], item.name, count]))
    return report


class Tally:
    """Adds up what the reports of all processes say; its rows are in the order in which they came."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A later phase of a test repeats what its earlier ones said.
        told = [value for name, value in report.user_properties if name == _PROPERTY]
        if not told or report.skipped:
            return
        fault, name, count = told[-1]
        row = self.rows.setdefault(str(fault), Row())
        row.seconds += report.duration
        row.runs += count
        if report.failed:
            row.failed.append(str(name))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[_TALLY].rows
    if not rows:
        return
    lines = table(rows)
    terminalreporter.section("faults")
    terminalreporter.write_line("\n".join(lines))
    path = config.getoption("--faults-table")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


def table(rows: dict[str, Row]) -> list[str]:
    """The rows as lines of text, in the order in which they were run, and their sum."""
    width = max(map(len, [*rows, "together"]))
    lines = [f"{'fault':{width}} | runs | seconds | result"]
    for name, row in rows.items():
        # Set up and then interrupted: that proves nothing.
        well = _HOLDS if row.runs else _UNFINISHED
        result = f"{_BROKEN}: {', '.join(row.failed)}" if row.failed else well
        lines.append(f"{name:{width}} | {row.runs:4} | {row.seconds:7.0f} | {result}")
    broken = sum(bool(row.failed) or not row.runs for row in rows.values())
    runs, seconds = sum(row.runs for row in rows.values()), sum(row.seconds for row in rows.values())
    return [*lines, f"{'together':{width}} | {runs:4} | {seconds:7.0f} | {f'{broken} {_BROKEN}' if broken else _HOLDS}"]
