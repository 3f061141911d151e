"""What was measured, each figure with the page, the row and the column of the table that has it; a test holds them equal.

They are of virtual machines of two cores, which worker, broker and clients shared: read them as what is there at least.
"""

from __future__ import annotations

from typing import NamedTuple

_BENCHMARKS, _BESIDE_STREAMS = "docs/evidence/benchmarks.md", "docs/evidence/beside-streams.md"
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
DRAIN = Figure(30_662, "letters/s", ("drain", "drain from process start"), _WORKER, _BESIDE_STREAMS)
DRAIN_CPU = Figure(27.3, "µs a letter", ("drain", "CPU, drain"), _WORKER, _BESIDE_STREAMS)
BUSY_CPU = Figure(33.9, "µs a letter", ("ingest_fire", "CPU, start to end"), _WORKER, _BESIDE_STREAMS)
INGEST = Figure(59_935, "letters/s", ("ingest_fire", "ingest"), _WORKER, _BESIDE_STREAMS)
PEAK_RSS = Figure(250, "MiB", ("ingest_fire", "peak RSS"), _WORKER, _BESIDE_STREAMS)
# So many letters a second were late by 97.0 ms at p99 (the row trickle).
TRICKLE_PER_S = 2_000
SWEEP = Figure(40_718, "entries/s", ("sweep, due to last", "entries/s"), _MOST)
IDLE = Figure(3.00, "% of a core", ("idle", "% of a core"), _MOST)
# By letters a second that come and go. Most of it is what a batch costs, whether one letter is in it or a hundred.
STEADY_CPU = {
    per_s: Figure(cpu_us, "µs a letter", ("CPU, in and out", "µs a letter"), f"{per_s:,}/s")
    for per_s, cpu_us in {10: 14_333, 100: 3_873, 500: 988, 1_000: 530, 2_000: 322}.items()
}
DISK = Figure(5_315, "MB", ("disk, waiting", "MB"), _MOST)
RESTORE = Figure(113, "s", ("restart, tables wiped", "s"), _MOST)
RESTART = Figure(1.75, "s", ("restart, state kept", "s"), _MOST)
RSS = Figure(261, "MB", ("RSS waiting", "MB"), _MOST)
MOST_WAITING = 10**7
FIGURES = (DRAIN, DRAIN_CPU, BUSY_CPU, INGEST, PEAK_RSS, SWEEP, IDLE, *STEADY_CPU.values(), DISK, RESTORE, RESTART, RSS)
