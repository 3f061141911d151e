"""Ratios of two trees are of pairs, and above 1 is better whatever the unit."""

from __future__ import annotations

from tests.bench.compare import ratios, table


def test_a_ratio_above_one_is_better_for_rates_and_for_times():
    before = [{"sweep": (100.0, "letters/s"), "lateness": (20.0, "ms")}, {"sweep": (50.0, "letters/s"), "lateness": (40.0, "ms")}]
    now = [{"sweep": (110.0, "letters/s"), "lateness": (10.0, "ms")}, {"sweep": (60.0, "letters/s"), "lateness": (10.0, "ms")}]
    sweep, lateness = ratios(before, now)
    assert sweep.ratios == [1.1, 1.2]
    assert lateness.ratios == [2.0, 4.0]
    assert "| sweep | letters/s | 75.0 | 85.0 | 1.15 | 1.10, 1.20 |" in table([sweep, lateness])


def test_a_figure_that_one_tree_does_not_have_is_left_out():
    assert [line.figure for line in ratios([{"a": (1.0, "s")}], [{"a": (1.0, "s"), "b": (2.0, "s")}])] == ["a"]
