"""`retry size`: its figures are those of the page that they name, and it gives back the points that were measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from retry.__main__ import main
from retry.dead_letters import retry_headers
from retry.operations import size
from retry.operations import size as operations_size
from retry.operations.size import Figure, SizeRequest
from tests.support.chart import ROOT


def tables(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each row of a page's tables, with the heads of its columns."""
    heads: list[str] = []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if heads and set(line) - set("|-: "):
            yield heads, cells
        heads = heads or cells


def read_shown_figure(figure: Figure) -> list[float]:
    """Read what the page has where a figure says that it stands."""
    return [
        float(re.match(r"[\d.]+", cells[heads.index(figure.column)].replace(",", ""))[0])  # type: ignore[index]
        for heads, cells in tables(figure.page)
        if figure.column in heads and tuple(cells[: len(figure.row)]) == figure.row
    ]


@pytest.mark.parametrize("figure", operations_size.FIGURES, ids=lambda figure: ", ".join(figure.row))
def test_a_figure_is_the_one_of_its_page(figure: Figure) -> None:
    assert read_shown_figure(figure) == [figure.value]


def test_the_page_says_how_large_letters_were_and_how_many_came_where_lateness_was_measured() -> None:
    text = (ROOT / operations_size.DRAIN.page).read_text(encoding="utf-8")
    assert f"letters of {operations_size.LETTER_BYTES} bytes" in text
    assert f"| trickle | {operations_size.TRICKLE_PER_S:,} letters/s" in text


def size_request(**of: object) -> SizeRequest:
    return SizeRequest(**{"rate": 1_000.0, "delay_ms": 60_000, "peak": 1_000.0, **of})  # type: ignore[arg-type]


def test_the_points_that_were_measured_come_out_as_measured() -> None:
    full = operations_size.compute_size(
        size_request(rate=10_000_000 / 3_600, delay_ms=3_600_000, peak=10_000_000 / 3_600, copies=1)
    )
    assert (full.waiting, full.workers) == (10_000_000, 2)
    assert full.disk_mb_a_worker == operations_size.MERGING * operations_size.DISK.value
    assert full.restore_s == math.ceil(operations_size.RESTORE.value)
    assert full.beyond == ["lateness at 2,778 letters a second in a worker; it was measured at 2,000"]
    assert operations_size.estimate_cores(0) == operations_size.IDLE.value / 100
    assert operations_size.estimate_cores(500) == pytest.approx(0.494)
    assert operations_size.estimate_cores(300) == pytest.approx((0.3873 + 0.494) / 2)
    for per_s in (operations_size.DRAIN.value, 2 * operations_size.DRAIN.value):
        assert operations_size.estimate_cores(per_s) == pytest.approx(per_s * operations_size.DRAIN_CPU.value / 1e6)


def test_what_waits_is_the_rate_times_the_delay() -> None:
    assert operations_size.compute_size(size_request(rate=0.5, peak=0.5, delay_ms=3_600_000)).waiting == 1_800


def test_one_worker_may_be_away_and_shards_are_there_for_more() -> None:
    full = operations_size.DRAIN.value
    for rate, workers in ((1.0, 2), (full / 2, 2), (full / 2 + 1, 3), (full * 5, 11)):
        size = operations_size.compute_size(size_request(rate=rate, peak=rate))
        assert size.workers == workers and size.shards >= 8 and size.shards >= 4 * workers and size.shards % 8 == 0


def test_larger_letters_take_more_workers_and_disk_and_are_told_to_be_beyond_what_was_measured() -> None:
    small = operations_size.compute_size(size_request(peak=5_000.0, delay_ms=3_600_000))
    large = operations_size.compute_size(size_request(peak=5_000.0, delay_ms=3_600_000, letter_bytes=5_000))
    assert small.workers == 2 and large.workers > 4
    assert operations_size.estimate_disk_bytes(5_000) - operations_size.estimate_disk_bytes(500) == 4_500
    assert any("5,000 bytes" in each for each in large.beyond) and not any("bytes" in each for each in small.beyond)
    # Smaller ones are not taken to be faster than what was measured.
    assert operations_size.slow_down(operations_size.DRAIN.value, 50) == operations_size.DRAIN.value
    assert large.all_at_once_s * (large.workers - 1) >= 9 * small.all_at_once_s


def test_standby_and_copies_cost_disk_and_network() -> None:
    plain, safe = (
        operations_size.compute_size(size_request(copies=1)),
        operations_size.compute_size(size_request(copies=3, standby=1)),
    )
    assert safe.disk_mb_a_worker > plain.disk_mb_a_worker
    assert safe.changelog_mb >= 3 * plain.changelog_mb - 3
    assert plain.between_brokers_mb_s == 0 < safe.between_brokers_mb_s
    assert safe.from_brokers_mb_s > plain.from_brokers_mb_s and safe.to_brokers_mb_s == plain.to_brokers_mb_s


def test_records_are_as_large_as_the_service_writes_them() -> None:
    small, large = size.measure_letter(100), size.measure_letter(1_100)
    assert 1_000 <= large.entry - small.entry <= 1_004 and large.retry - small.retry == 1_000
    assert (large.null, large.outcome) == (small.null, small.outcome)
    named = sum(len(name) for name in (retry_headers.ID, retry_headers.SOURCE, retry_headers.POLICY))
    assert small.retry > 100 + named and small.entry > small.retry and 40 < small.outcome < 120


def run(*arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["size", *arguments])
    return ended.exit_code, ended.output


def test_it_is_told_in_lines_and_as_json() -> None:
    code, told = run("--rate", "500", "--delay", "10m")
    assert code == 0 and "300,000 letters: 500 a second, each for 10m" in told and "half busy at 1,500 a second" in told
    code, told = run("--rate", "500", "--delay", "10m", "--peak", "500", "--json")
    found = json.loads(told)
    assert (code, found["waiting"], found["asked"]["peak"], found["workers"]) == (0, 300_000, 500.0, 2)


@pytest.mark.parametrize("words", ["--rate 0 --delay 1m", "--rate 5 --delay soon", "--rate 5 --delay 1m --peak 1"])
def test_what_makes_no_sense_is_refused(words: str) -> None:
    assert run(*words.split())[0] == 2
