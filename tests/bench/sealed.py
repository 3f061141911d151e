"""What encryption at rest costs a worker, as CPU time of one letter: `python -m tests.bench.sealed`. It needs no broker.

The same letters are taken in, and the same entries made ready to be sent, in turn with and without keys; told are medians, and
the median of the ratios of neighbouring turns, which a machine that does other work besides changes least.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delivery.transaction_batch import decode_batch
from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.build_entry import EntryBuilder
from retry.intake.intake import Intake
from retry.kafka.topics import TopicNames
from retry.testing.kafka import MemoryRecord
from tests.support.plans import registry_of
from tests.support.sealed import NEW, KeyFile

from . import letters

_LETTERS, _TURNS = 5_000, 15
_POLICIES = "{teams: {bench: {topics: [{dead_letters: bench.DLT, retry_to: bench.retry}]}}}"
_NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table")
_NOW_MS = 1_700_000_000_000


def _taken_in(codec: EnvelopeCodec, records: list[MemoryRecord]) -> tuple[list[tuple[bytes, bytes]], float]:
    """Rows of the changelog, and microseconds a letter."""
    registry = registry_of(_POLICIES)
    counter = AttemptCounter(RecentLineages(_LETTERS), "cluster", registry.retry_targets_by_team())
    builder = EntryBuilder("changelog", "parked", {"changelog": 1 << 20}, codec)
    intake = Intake(registry, counter, builder, None, _NAMES, {"changelog": 1, "outcomes": 1, "lineage": 1})
    began = time.process_time()
    result = intake.prepare(records, _NOW_MS)
    used = time.process_time() - began
    return [(row["key"], row["value"]) for row in result.iterate_entries()], used / len(records) * 1e6


def _made_ready(codec: EnvelopeCodec, rows: list[tuple[bytes, bytes]]) -> float:
    """Microseconds an entry, from the bytes of the table to what is published."""
    began = time.process_time()
    batch = decode_batch([], rows, codec)
    used = time.process_time() - began
    assert len(batch.entries) == len(rows)
    return used / len(rows) * 1e6


def measure_turns(headers: letters.Headers) -> dict[str, list[tuple[float, float, float]]]:
    """With and without keys: of each turn, both times, and bytes of an entry."""
    entry = lambda n: Entry("bench.DLT", letters.key(n), letters.letter(n, 0), headers, None, "")  # noqa: E731
    file, found = KeyFile(NEW), dict[str, list[tuple[float, float, float]]](clear=[], sealed=[])
    for _ in range(_TURNS):
        for name, codec in (("clear", PLAIN), ("sealed", file.codec)):
            rows, taken = _taken_in(codec, [MemoryRecord(entry(n), 0, n, _NOW_MS) for n in range(_LETTERS)])
            size = sum(len(key) + len(value) for key, value in rows) / len(rows)
            found[name].append((taken, _made_ready(codec, rows), size))
    return found


def main() -> None:
    """Print what each costs."""
    for name, headers in (("500 bytes", letters.PLAIN), ("of Spring, 3 KB", letters.SPRING)):
        turns: Any = {kind: list(zip(*of, strict=True)) for kind, of in measure_turns(headers).items()}
        names = "taken in, µs", "made ready, µs", "entry, bytes"
        for what, clear, sealed in zip(names, turns["clear"], turns["sealed"], strict=True):
            ratio = median(after / before for before, after in zip(clear, sealed, strict=True))
            print(f"{name:<16} {what:<16} {median(clear):8.2f} in clear {median(sealed):8.2f} sealed  {ratio:5.2f}×")


if __name__ == "__main__":
    main()
