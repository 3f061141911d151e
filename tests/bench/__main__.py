"""`python -m tests.bench`: see the package."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from retry.errors import BrokerNotStarted
from retry.kafka.local_broker import LocalBroker

from . import arguments, machine, rates, spread, stock
from .figures import Figure, Line, lines, table
from .limit import copy
from .service import Service

_HEAP_MB = 1_024
_WITH_SERVICE: dict[str, Callable[[Service, int], list[Figure]]] = {
    "intake": rates.intake,
    "spring": rates.intake_of_spring,
    "sweep": rates.sweep,
    "drain": rates.drain,
    "lateness": spread.lateness,
    "memory": stock.memory,
    "restore": stock.restore,
}
_NAMES = ["copy", "fold", *_WITH_SERVICE]
# The limit beside everything that is told as a ratio to it, and once more at the end: the machine's speed drifts.
_ORDER = ["copy", "fold", "intake", "spring", "copy", "sweep", "copy", *list(_WITH_SERVICE)[3:]]


class _Bench(NamedTuple):
    broker: LocalBroker
    work: Path
    letters: int
    settings: dict[str, str]
    figures: list[Figure]
    failed: list[str]

    def measure(self, name: str) -> None:
        """Take one figure and say how it went; what is wrong is kept for the end."""
        began = time.time()
        try:
            found = self._taken(name)
        except Exception as error:
            self.failed.append(f"{name}: {type(error).__name__}: {error}")
            _say(f"FAILED {self.failed[-1]}", *getattr(error, "__notes__", ()))
            return
        self.figures.extend(found)
        _say(f"{name} {time.time() - began:.0f} s: " + ", ".join(f"{f.name} {f.value:,.4g} {f.unit}" for f in found))

    def _taken(self, name: str) -> list[Figure]:
        if name == "copy":
            return copy(self.broker, self.letters)
        if name == "fold":
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                return rates.fold(Path(folder), self.letters)
        with Service(self.broker, self.work, self.settings) as service:
            return _WITH_SERVICE[name](service, self.letters)


def main() -> int:
    """Measure, print the table, and say with the exit code whether every letter was there exactly once."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began, before_ms, about = time.time(), machine.calibrate_ms(), machine.describe()
    print(about, flush=True)
    with tempfile.TemporaryDirectory(prefix="retry-bench-") as folder:
        bench = measure_asked(asked, Path(folder))
    found = lines(bench.figures)
    calibration = f"calibration loop {before_ms:.1f} ms before, {machine.calibrate_ms():.1f} ms after"
    print(f"{asked.letters:,} letters, {asked.runs} runs, {time.time() - began:.0f} s; {calibration}\n\n{table(found)}")
    for failure in bench.failed:
        print(f"\nFAILED {failure}")
    if asked.json:
        asked.json.write_text(json.dumps(_document(asked, about, calibration, found, bench.failed), indent=1) + "\n")
    return 1 if bench.failed else 0


def measure_asked(asked: argparse.Namespace, work: Path) -> _Bench:
    with run_broker(LocalBroker(work / "broker", heap_mb=_HEAP_MB, brief=False)) as broker:
        bench = _Bench(broker, work, asked.letters, dict(asked.set), [], [])
        # A broker that has just begun is slow, and the first copy would make the limit look low.
        copy(broker, asked.letters)
        for _ in range(asked.runs):
            for name in _ORDER:
                if name in asked.only:
                    bench.measure(name)
        if "copy" in asked.only:
            bench.measure("copy")
        return bench


@contextmanager
def run_broker(broker: LocalBroker) -> Iterator[LocalBroker]:
    try:
        broker.start()
        yield broker
    except BrokerNotStarted:
        _say(*broker.log_file.read_text(errors="replace").splitlines()[-20:])
        raise
    finally:
        broker.stop()


def _document(
    asked: argparse.Namespace, about: str, calibration: str, found: list[Line], failed: list[str]
) -> dict[str, object]:
    how = {"letters": asked.letters, "runs": asked.runs, "settings": dict(asked.set)}
    told = [line._asdict() for line in found]
    return {"machine": about, "calibration": calibration, **how, "failed": failed, "figures": told}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="One worker beside the copy limit.")
    parser.add_argument("--letters", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=1, help="medians of so many, the copy limit between them")
    arguments.add(parser, _NAMES)
    return parser.parse_args()


def _say(*told: str) -> None:
    print(*told, sep="\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
