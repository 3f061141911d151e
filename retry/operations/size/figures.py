"""What was measured, each figure with the page, the row and the column of the table that has it; a test holds them equal.

All are of one machine, two cores that worker, broker and clients shared: read them as what is there at least.
"""

from __future__ import annotations

from typing import NamedTuple

_BENCHMARKS = "docs/evidence/benchmarks.md"
_WORKER, _MOST = "retry worker", "10,000,000"


class Figure(NamedTuple):
    """A figure of a page.

    Attributes:
      row: the first cells of its row, up to what tells it from the others.
      column: the head of its column.
    """

    value: float
    unit: str
    row: tuple[str, ...]
    column: str
    page: str = _BENCHMARKS


LETTER_BYTES = 500
# In and out at once, as in a steady stream, with four shards and everything that a start takes.
DRAIN = Figure(20_064, "letters/s", ("drain", "drain from process start"), _WORKER)
DRAIN_CPU = Figure(49.0, "µs a letter", ("drain", "CPU, drain"), _WORKER)
BUSY_CPU = Figure(49.5, "µs a letter", ("ingest_fire", "CPU, ingest and fire"), _WORKER)
INGEST = Figure(36_054, "letters/s", ("ingest_fire", "ingest"), _WORKER)
PEAK_RSS = Figure(288, "MiB", ("ingest_fire", "peak RSS"), _WORKER)
# So many letters a second were late by 71.8 ms at p99 (the row trickle).
TRICKLE_PER_S = 2_000
SWEEP = Figure(33_881, "entries/s", ("sweep, due to last", "entries/s"), _MOST)
IDLE = Figure(10.1, "% of a core", ("idle", "% of a core"), _MOST)
STEADY_CPU = Figure(835, "µs a letter", ("CPU, steady", "µs a letter"), _MOST)
DISK = Figure(5_312, "MB", ("disk, waiting", "MB"), _MOST)
RESTORE = Figure(194, "s", ("restart, tables wiped", "s"), _MOST)
RESTART = Figure(2.30, "s", ("restart, state kept", "s"), _MOST)
RSS = Figure(279, "MB", ("RSS waiting", "MB"), _MOST)
MOST_WAITING = 10**7
FIGURES = (DRAIN, DRAIN_CPU, BUSY_CPU, INGEST, PEAK_RSS, SWEEP, IDLE, STEADY_CPU, DISK, RESTORE, RESTART, RSS)
