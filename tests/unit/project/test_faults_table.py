"""The table at the end of `make faults`."""

from __future__ import annotations

import pytest

from tests.support.faults import Row, Runs, Tally, table


def test_a_test_counts_how_often_it_made_its_fault(runs: Runs, request: pytest.FixtureRequest) -> None:
    runs.add()
    runs.add()
    assert request.getfixturevalue("runs").count == 2


def test_a_fault_is_broken_if_one_of_its_tests_is() -> None:
    lines = table({"kill": Row(3, 2.0), "freeze": Row(1, 9.0, ["test_freeze"])})
    assert [line.split(" | ")[1].strip() for line in lines[1:]] == ["3", "1", "4"]
    assert [line.split(" | ")[3] for line in lines[1:]] == ["holds", "BROKEN: test_freeze", "1 BROKEN"]


def test_a_fault_whose_test_was_interrupted_does_not_hold() -> None:
    lines = table({"storm": Row(0, 40.0)})
    assert [line.split(" | ")[3] for line in lines[1:]] == ["did not end", "1 BROKEN"]


def test_what_several_processes_report_is_one_table() -> None:
    tally = Tally()
    for when, count, outcome in (("setup", 0, "passed"), ("call", 3, "passed"), ("teardown", 0, "failed")):
        tally.pytest_runtest_logreport(_report(when, count, outcome))
    tally.pytest_runtest_logreport(_report("setup", 0, "skipped"))
    assert tally.rows == {"kill": Row(3, 3.0, ["test_kill"])}


def _report(when: str, count: int, outcome: str) -> pytest.TestReport:
    properties = [("fault", ["kill", "test_kill", count])]
    return pytest.TestReport("id", ("f", 1, "d"), {}, outcome, None, when, user_properties=properties, duration=1.0)  # type: ignore[arg-type]
