"""`retry size`: letters a second and how long they wait → workers, shards, memory, disk, network. Asks no broker.

First what was measured, each figure with the page and the row that has it; then how large the records are that the service
writes of a letter, by writing some; then the arithmetic, and which of the inputs lie beyond what was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import msgspec

from retry.dead_letters.retry_headers import make_retry_headers
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.intake.attempts import format_retry_id
from retry.telemetry import outcomes

# What was measured, each figure with the page, the row and the column of the table that has it; a test holds them equal.
#
# They are of virtual machines of two cores, which worker, broker and clients shared: read them as what is there at least.

_BENCHMARKS, _BESIDE_STREAMS = "docs/evidence/benchmarks.md", "docs/evidence/beside-streams.md"
_WORKER, _MOST = "retry worker", "10,000,000"


class Figure(NamedTuple):
    """A figure of a page: the first cells of its row, up to what tells it from the others, and the head of its column."""

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
SWEEP = Figure(49_954, "entries/s", ("sweep, due to last", "entries/s"), _MOST)
IDLE = Figure(5.00, "% of a core", ("idle", "% of a core"), _MOST)
# By letters a second that come and go. Most of it is what a batch costs, whether one letter is in it or a hundred.
STEADY_CPU = {
    per_s: Figure(cpu_us, "µs a letter", ("CPU, in and out", "µs a letter"), f"{per_s:,}/s")
    for per_s, cpu_us in {10: 14_333, 100: 3_873, 500: 988, 1_000: 530, 2_000: 322}.items()
}
DISK = Figure(5_320, "MB", ("disk, waiting", "MB"), _MOST)
RESTORE = Figure(92.1, "s", ("restart, tables wiped", "s"), _MOST)
RESTART = Figure(1.07, "s", ("restart, state kept", "s"), _MOST)
RSS = Figure(239, "MB", ("RSS waiting", "MB"), _MOST)
MOST_WAITING = 10**7
FIGURES = (DRAIN, DRAIN_CPU, BUSY_CPU, INGEST, PEAK_RSS, SWEEP, IDLE, *STEADY_CPU.values(), DISK, RESTORE, RESTART, RSS)


# How large the records are that the service writes of a letter: some are made by its own code, and measured. Uncompressed.

# Names as teams have them, and the headers of a framework.
_TOPIC, _TEAM, _POLICY, _TARGET = "payments.orders.DLT", "payments", "payments/payments.orders.DLT", "payments.orders.retry"
_CAUSE, _GROUP = "java.net.SocketTimeoutException", "order-service"
_NOW_MS, _LETTERS = 1_795_284_700_000, 500
# What a record batch adds to a record, at most, where few share one.
_RECORD = 70


class RecordBytes(NamedTuple):
    """Bytes for each letter.

    Attributes:
      entry, null: on the changelog, key included, and what deletes it there.
      retry: on the retry topic.
      outcome: on the outcomes topic, of which one record tells of many letters.
    """

    entry: int
    null: int
    retry: int
    outcome: int


def measure_letter(letter_bytes: int) -> RecordBytes:
    """Measure the records of a letter whose key, value and headers together have so many bytes."""
    at, source = b"%d" % _NOW_MS, f"{_TOPIC}/0/123456789".encode()
    ours = make_retry_headers(format_retry_id(_NOW_MS, _TEAM), b"1", source, at, _POLICY.encode(), at)
    entry = Entry(_TARGET, None, bytes(letter_bytes), ours, _NOW_MS, _TEAM, _NOW_MS)
    lane = entry_keys.lane(_TEAM, _TOPIC, _TARGET)
    key = entry_keys.build_key(_NOW_MS, entry_keys.build_key_stem(_TOPIC, 0), 123_456_789, lane)
    headers = sum(len(name) + len(value or b"") + 2 for name, value in ours)
    entry_bytes, null_bytes = len(key) + len(envelopes.encode(entry)) + _RECORD, len(key) + _RECORD
    return RecordBytes(entry_bytes, null_bytes, retry=letter_bytes + headers + _RECORD, outcome=_outcome_bytes())


def _outcome_bytes() -> int:
    shared = outcomes.SharedFields(
        _TEAM, _TOPIC, 0, policy=_POLICY, attempt=1, exception=_CAUSE, decision="retry", reason=None, target=_TARGET,
        cause=_CAUSE, fingerprint="0123456789abcdef", group=_GROUP,
    )  # fmt: skip
    rows: outcomes.LetterRows = [
        (format_retry_id(n, _TEAM), 123_456_789 + n, _NOW_MS, _NOW_MS, _NOW_MS + n) for n in range(_LETTERS)
    ]
    return sum(len(value) for value in outcomes.encode_outcomes(defaultdict(list, {shared: rows}), _NOW_MS)) // _LETTERS + 1


# The arithmetic of sizes.

# A worker that has no more than this to do at the peak takes in what comes while another one is away.
BUSY_SHARE = 0.5
# RocksDB holds old and new files while it merges them.
MERGING = 2
# Shards for each worker, so that there can be more workers one day, and work is shared out evenly.
SHARDS_A_WORKER, SHARDS_LEAST = 4, 8
_DAY_S, _OUTCOMES_DAYS, _MB = 86_400, 30, 1_000_000
_MIB = 1_048_576


class SizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The load that a deployment is to carry.

    Attributes:
      rate: letters a second on average, those that fail again included.
      delay_ms: how long a letter waits on average.
      peak: letters a second at the peak.
      letter_bytes: of key, value and headers.
      copies: of each partition on the brokers.
      standby: how many workers keep copies of all shards.
    """

    rate: float
    delay_ms: int
    peak: float
    letter_bytes: int = LETTER_BYTES
    copies: int = 3
    standby: int = 0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a load takes; `beyond` says which of the inputs lie outside what was measured."""

    waiting: int
    workers: int
    shards: int
    cores: float
    cores_a_worker: float
    memory_mb_a_worker: int
    memory_limit_mb_a_worker: int
    disk_mb_a_worker: int
    changelog_mb: int
    changelog_mb_most: int
    outcomes_mb: int
    from_brokers_mb_s: float
    to_brokers_mb_s: float
    between_brokers_mb_s: float
    restore_s: int
    all_at_once_s: int
    beyond: list[str]


def compute_size(asked: SizeRequest) -> Size:
    waiting = ceil(asked.rate * asked.delay_ms / 1_000)
    a_worker = slow_down(DRAIN.value, asked.letter_bytes)
    # One more than are needed: one may be away.
    workers = ceil(asked.peak / (a_worker * BUSY_SHARE)) + 1
    shards = max(SHARDS_LEAST, 8 * ceil(workers * SHARDS_A_WORKER / 8))
    held = ceil(waiting / (workers - 1))
    row, record = estimate_disk_bytes(asked.letter_bytes), measure_letter(asked.letter_bytes)
    memory = estimate_memory_mb()
    deleted = asked.rate * _DAY_S * (record.entry + record.null)
    return Size(
        waiting=waiting, workers=workers, shards=shards, cores=round(workers * estimate_cores(asked.rate / workers), 2),
        cores_a_worker=round(INGEST.value * BUSY_CPU.value / 1e6, 1),
        memory_mb_a_worker=memory, memory_limit_mb_a_worker=2 * memory,
        disk_mb_a_worker=ceil((held * MERGING + (waiting if asked.standby else 0)) * row / _MB),
        changelog_mb=ceil(waiting * record.entry * asked.copies / _MB),
        changelog_mb_most=ceil((waiting * record.entry + deleted) * asked.copies / _MB),
        outcomes_mb=ceil(asked.rate * _DAY_S * _OUTCOMES_DAYS * record.outcome * asked.copies / _MB),
        from_brokers_mb_s=_mb_s(asked.rate, asked.letter_bytes + (record.entry + record.null) * (1 + asked.standby)),
        to_brokers_mb_s=_mb_s(asked.rate, written := record.entry + record.null + record.retry + record.outcome),
        between_brokers_mb_s=_mb_s(asked.rate, written * (asked.copies - 1)),
        restore_s=ceil(restore_s(held, asked.letter_bytes)),
        all_at_once_s=ceil(waiting / (slow_down(SWEEP.value, asked.letter_bytes) * (workers - 1))),
        beyond=list(_beyond(asked, held, workers)),
    )  # fmt: skip


def slow_down(rate: float, letter_bytes: int) -> float:
    """Lower a rate in letters a second for letters larger than those measured, as if bytes were all that counted."""
    return rate * LETTER_BYTES / max(LETTER_BYTES, letter_bytes)


def estimate_cores(rate: float) -> float:
    """Estimate how many cores a worker keeps busy at a rate in letters a second, interpolated between measured rates."""
    steady = ((per_s, per_s * figure.value / 1e6) for per_s, figure in STEADY_CPU.items())
    fastest = (DRAIN.value, DRAIN.value * DRAIN_CPU.value / 1e6)
    measured: list[tuple[float, float]] = [(0, IDLE.value / 100), *steady, fastest]
    for (low, at_low), (high, at_high) in pairwise(measured):
        if rate <= high:
            return at_low + (at_high - at_low) * (rate - low) / (high - low)
    return rate * DRAIN_CPU.value / 1e6


def estimate_memory_mb() -> int:
    """Return the resident memory in MB of a worker at its busiest; waiting letters add less, up to the number measured."""
    return ceil(max(RSS.value, PEAK_RSS.value * _MIB / _MB))


def estimate_disk_bytes(letter_bytes: int) -> float:
    """Estimate the disk space in bytes of one entry in a merged table; the part beside the letter does not grow with it."""
    beside = DISK.value * _MB / MOST_WAITING - LETTER_BYTES
    return letter_bytes + beside


def restore_s(waiting: int, letter_bytes: int) -> float:
    """Estimate how many seconds a worker that lost its disk reads until it is ready."""
    per_s = MOST_WAITING / (RESTORE.value - RESTART.value)
    return RESTART.value + waiting / slow_down(per_s, letter_bytes)


def _mb_s(rate: float, size_bytes: float) -> float:
    return round(rate * size_bytes / _MB, 3)


def _beyond(asked: SizeRequest, held: int, workers: int) -> Iterator[str]:
    if held > MOST_WAITING:
        yield f"{held:,} entries in a worker; {MOST_WAITING:,} were measured"
    if asked.letter_bytes != LETTER_BYTES:
        yield f"letters of {asked.letter_bytes:,} bytes; rates, memory and restore were measured with {LETTER_BYTES}"
    if (most := asked.peak / (workers - 1)) > TRICKLE_PER_S:
        yield f"lateness at {most:,.0f} letters a second in a worker; it was measured at {TRICKLE_PER_S:,}"
    if asked.copies != 1:
        yield f"{asked.copies} copies of each partition; rates were measured with one, on one machine"
    if workers > 2:
        yield f"{workers} workers; two were measured together"
