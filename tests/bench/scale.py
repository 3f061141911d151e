"""`python -m tests.bench.scale`: what grows with what waits, with topics and with shards; and a thundering herd.

    python -m tests.bench.scale [--sizes N,...] [--topics N,...] [--shards N,...] [--herd N] [--acted N] [--letter-bytes N]
        [--only PART,...] [--json FILE]

| part | what is compared |
| --- | --- |
| curve | so many waiting entries of 500 bytes in one worker: memory, disk, restore, sweep, lateness |
| topics | so many dead-letter topics, of one partition each, which one pattern attaches |
| shards | so many shards on two workers |
| herd | entries of one team that are all due within one second, while another team's letters trickle in |
| actions | letters of one team that an operator has moved, discarded and returned, while another team's trickle in |

Waiting entries are written to the changelog as an intake does it, and wait in 16 lanes. All values have a broker in common, and
topics and state of their own; the ratios are to the first. RSS and CPU are of all workers together, lateness is by the broker's
append time. Everything that is due must be there exactly once, byte for byte; exit code 1 says that it was not.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from retry.kafka.local_broker import LocalBroker

from . import arguments, letters, machine
from .actions import SETTINGS, actions
from .curve import TEAMS, curve
from .figures import Figure, number
from .herd import TEAM, herd
from .service import Service
from .wide import wide

_HEAP_MB = 1_024
_PARTS = ("curve", "topics", "shards", "herd", "actions")
Columns = dict[str, list[Figure]]
Run = Callable[[], list[Figure]]


def main() -> int:
    """Measure part by part, a table for each; exit code 1 where something was not there exactly once, or failed."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    letters.SIZE = asked.letter_bytes
    about, told, failed = machine.describe(), dict[str, Columns](), list[str]()
    print(about, flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="retry-scale-") as folder,
        LocalBroker(Path(folder) / "broker", heap_mb=_HEAP_MB, brief=False) as broker,
    ):
        for part in asked.only:
            columns: Columns = {}
            for column, run in _runs(part, asked, broker, Path(folder)):
                began = time.time()
                try:
                    columns[column] = run()
                except Exception as error:
                    failed.append(f"{part}, {column}: {type(error).__name__}: {error}")
                    print(f"FAILED {failed[-1]}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr, flush=True)
                print(f"{part}, {column}: {time.time() - began:.0f} s", file=sys.stderr, flush=True)
            told[part] = columns
            print(f"\n{table(part, columns)}", flush=True)
    for failure in failed:
        print(f"\nFAILED {failure}")
    if asked.json:
        asked.json.write_text(json.dumps({"machine": about, "failed": failed, "parts": _plain(told)}, indent=1) + "\n")
    return bool(failed)


def _runs(part: str, asked: argparse.Namespace, broker: LocalBroker, work: Path) -> Iterator[tuple[str, Run]]:
    """Yield what a part measures, by the names of its columns."""
    settings, steady = dict(asked.set), (asked.per_s, asked.seconds)

    def run_curve(size: int) -> list[Figure]:
        with Service(broker, work, settings, teams=TEAMS) as service:
            return curve(service, size, asked.due, *steady)

    def run_wide(topics: int) -> list[Figure]:
        with Service(broker, work, settings, topics=topics) as service:
            return wide(service, *steady)

    def run_shards(shards: int) -> list[Figure]:
        with Service(broker, work, {**settings, "RETRY_SHARDS": str(shards)}, workers=2) as service:
            return wide(service, *steady)

    def run_herd(size: int) -> list[Figure]:
        with Service(broker, work, settings, teams=[TEAM]) as service:
            return herd(service, size)

    def run_actions(size: int) -> list[Figure]:
        with Service(broker, work, {**settings, **SETTINGS}, teams=[TEAM]) as service:
            return actions(service, size)

    parts: dict[str, tuple[list[int], Callable[[int], list[Figure]]]] = {
        "curve": (asked.sizes, run_curve), "topics": (asked.topics, run_wide), "shards": (asked.shards, run_shards),
        "herd": ([asked.herd], run_herd), "actions": ([asked.acted], run_actions),
    }  # fmt: skip
    values, run = parts[part]
    for value in values:
        yield f"{value:,}", lambda value=value: run(value)  # type: ignore[misc]


def table(part: str, columns: Columns) -> str:
    """A line for each figure: its values, and behind each but the first the ratio to the first."""
    first = next(iter(columns.values()), [])
    lines = [f"| {part} | unit | {' | '.join(columns)} |", f"| --- | --- |{' ---: |' * len(columns)}"]
    for figure in first:
        values = [_value(figure, found) for found in columns.values()]
        cells = [number(values[0]), *(format_with_ratio(value, values[0]) for value in values[1:])]
        lines.append(f"| {figure.name} | {figure.unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _value(wanted: Figure, found: list[Figure]) -> float | None:
    return next((figure.value for figure in found if figure.name == wanted.name), None)


def format_with_ratio(value: float | None, first: float | None) -> str:
    if value is None:
        return ""
    return f"{number(value)} ({value / first:.2f}×)" if first else number(value)


def _plain(told: Mapping[str, Columns]) -> dict[str, object]:
    def plain(figures: list[Figure]) -> dict[str, dict[str, object]]:
        return {figure.name: {"value": figure.value, "unit": figure.unit} for figure in figures}

    return {part: {column: plain(figures) for column, figures in columns.items()} for part, columns in told.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description="What grows with what.")
    parser.add_argument("--sizes", type=_numbers, default=[10**4, 10**5, 10**6, 10**7], metavar="N,...", help="waiting entries")
    parser.add_argument("--due", type=int, default=50_000, help="letters due at one moment beside them")
    parser.add_argument("--topics", type=_numbers, default=[1, 1_000], metavar="N,...", help="dead-letter topics")
    parser.add_argument("--shards", type=_numbers, default=[4, 64], metavar="N,...", help="shards on two workers")
    parser.add_argument("--herd", type=int, default=10**6, help="entries due within one second")
    parser.add_argument("--acted", type=int, default=50_000, help="letters that an operator acts on, in one shard")
    parser.add_argument("--per-s", type=int, default=1_000, help="letters a second where lateness is measured")
    parser.add_argument("--letter-bytes", type=int, default=letters.SIZE, help="bytes of a letter's value")
    parser.add_argument("--seconds", type=float, default=15.0, help="and for how long")
    arguments.add(parser, _PARTS)
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
