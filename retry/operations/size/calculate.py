"""The arithmetic of sizes. What is measured comes from `figures`, what the service writes from `record_bytes`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil

import msgspec

from retry.operations.size import figures, record_bytes

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
      letter_bytes: bytes of a letter: key, value and headers.
      copies: copies of each partition on the brokers.
      standby: how many workers keep copies of all shards.
    """

    rate: float
    delay_ms: int
    peak: float
    letter_bytes: int = figures.LETTER_BYTES
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
    """Compute the resources that a load takes."""
    waiting = ceil(asked.rate * asked.delay_ms / 1_000)
    a_worker = slow_down(figures.DRAIN.value, asked.letter_bytes)
    # One more than are needed: one may be away.
    workers = ceil(asked.peak / (a_worker * BUSY_SHARE)) + 1
    shards = max(SHARDS_LEAST, 8 * ceil(workers * SHARDS_A_WORKER / 8))
    held = ceil(waiting / (workers - 1))
    row, record = disk_bytes(asked.letter_bytes), record_bytes.of_letter(asked.letter_bytes)
    memory = memory_mb()
    deleted = asked.rate * _DAY_S * (record.entry + record.null)
    return Size(
        waiting=waiting,
        workers=workers,
        shards=shards,
        cores=round(workers * cores(asked.rate / workers), 2),
        cores_a_worker=round(figures.INGEST.value * figures.BUSY_CPU.value / 1e6, 1),
        memory_mb_a_worker=memory,
        memory_limit_mb_a_worker=2 * memory,
        disk_mb_a_worker=ceil((held * MERGING + (waiting if asked.standby else 0)) * row / _MB),
        changelog_mb=ceil(waiting * record.entry * asked.copies / _MB),
        changelog_mb_most=ceil((waiting * record.entry + deleted) * asked.copies / _MB),
        outcomes_mb=ceil(asked.rate * _DAY_S * _OUTCOMES_DAYS * record.outcome * asked.copies / _MB),
        from_brokers_mb_s=_mb_s(asked.rate, asked.letter_bytes + (record.entry + record.null) * (1 + asked.standby)),
        to_brokers_mb_s=_mb_s(asked.rate, written := record.entry + record.null + record.retry + record.outcome),
        between_brokers_mb_s=_mb_s(asked.rate, written * (asked.copies - 1)),
        restore_s=ceil(restore_s(held, asked.letter_bytes)),
        all_at_once_s=ceil(waiting / (slow_down(figures.SWEEP.value, asked.letter_bytes) * (workers - 1))),
        beyond=list(_beyond(asked, held, workers)),
    )


def slow_down(rate: float, letter_bytes: int) -> float:
    """Lower a rate in letters a second for letters larger than those measured, as if bytes were all that counted."""
    return rate * figures.LETTER_BYTES / max(figures.LETTER_BYTES, letter_bytes)


def cores(rate: float) -> float:
    """Cores that a worker keeps busy at a rate in letters a second, interpolated between rates that were measured."""
    steady = ((per_s, per_s * figure.value / 1e6) for per_s, figure in figures.STEADY_CPU.items())
    fastest = (figures.DRAIN.value, figures.DRAIN.value * figures.DRAIN_CPU.value / 1e6)
    measured: list[tuple[float, float]] = [(0, figures.IDLE.value / 100), *steady, fastest]
    for (low, at_low), (high, at_high) in pairwise(measured):
        if rate <= high:
            return at_low + (at_high - at_low) * (rate - low) / (high - low)
    return rate * figures.DRAIN_CPU.value / 1e6


def memory_mb() -> int:
    """Resident memory of a worker at its busiest; what waits adds less to it, up to what was measured."""
    return ceil(max(figures.RSS.value, figures.PEAK_RSS.value * _MIB / _MB))


def disk_bytes(letter_bytes: int) -> float:
    """Disk of an entry in a table, merged: what it takes beside its letter does not grow with it."""
    beside = figures.DISK.value * _MB / figures.MOST_WAITING - figures.LETTER_BYTES
    return letter_bytes + beside


def restore_s(waiting: int, letter_bytes: int) -> float:
    """How long a worker whose disk is lost reads until it is ready."""
    per_s = figures.MOST_WAITING / (figures.RESTORE.value - figures.RESTART.value)
    return figures.RESTART.value + waiting / slow_down(per_s, letter_bytes)


def _mb_s(rate: float, size_bytes: float) -> float:
    return round(rate * size_bytes / _MB, 3)


def _beyond(asked: SizeRequest, held: int, workers: int) -> Iterator[str]:
    if held > figures.MOST_WAITING:
        yield f"{held:,} entries in a worker; {figures.MOST_WAITING:,} were measured"
    if asked.letter_bytes != figures.LETTER_BYTES:
        yield f"letters of {asked.letter_bytes:,} bytes; rates, memory and restore were measured with {figures.LETTER_BYTES}"
    if (most := asked.peak / (workers - 1)) > figures.TRICKLE_PER_S:
        yield f"lateness at {most:,.0f} letters a second in a worker; it was measured at {figures.TRICKLE_PER_S:,}"
    if asked.copies != 1:
        yield f"{asked.copies} copies of each partition; rates were measured with one, on one machine"
    if workers > 2:
        yield f"{workers} workers; two were measured together"
