"""Many seeds in several processes, and what they came to all together."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from retry.clock import MACHINE
from tests.simulation import mutants
from tests.simulation.run import Result, run

_CHUNK = 50


@dataclass
class Total:
    """The sum of what many seeds came to.

    Attributes:
      problems: by seed.
      happened, points, crashed: as in `Result`, of all.
      seconds: how long it took.
    """

    seeds: int = 0
    letters: int = 0
    problems: dict[int, str] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    crashed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: Total | Result) -> None:
        """Count what others found."""
        self.letters += other.letters
        self.happened.update(other.happened)
        self.points.update(other.points)
        self.crashed.update(other.crashed)
        if isinstance(other, Total):
            self.seeds += other.seeds
            self.problems |= other.problems
        else:
            self.seeds += 1
            self.problems |= {other.seed: other.problem} if other.problem else {}

    def describe(self) -> str:
        """Describe the run in one line."""
        rate = self.seeds / max(self.seconds, 1e-9)
        return f"{self.seeds:,} seeds, {self.letters:,} letters, {rate:.0f} seeds/s, {len(self.problems)} with a problem"


def run_all(first: int, count: int, mutant: str = "", *, stop_early: bool = False, processes: int | None = None) -> Total:
    """Run `count` seeds from `first` on.

    Args:
      mutant: a rule to switch off; see `mutants`.
      stop_early: end with the first problem.
    """
    begun_s, total = MACHINE.monotonic_s(), Total()
    for part in _parts(first, count, mutant, stop_early, processes or os.cpu_count() or 1):
        total.add(part)
        if stop_early and total.problems:
            break
    total.seconds = MACHINE.monotonic_s() - begun_s
    return total


def _parts(first: int, count: int, mutant: str, stop_early: bool, processes: int) -> Iterator[Total]:
    chunks = [(at, min(_CHUNK, first + count - at), mutant, stop_early) for at in range(first, first + count, _CHUNK)]
    if processes == 1 or len(chunks) == 1:
        yield from map(_run_some, chunks)
        return
    # Not forked: whoever asks may have threads of clients.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_run_some, chunk) for chunk in chunks]):
            yield done.result()
            if stop_early and done.result().problems:
                pool.shutdown(wait=False, cancel_futures=True)
                return


def _run_some(chunk: tuple[int, int, str, bool]) -> Total:
    first, count, mutant, stop_early = chunk
    total = Total()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with mutants.switched_off(mutant):
            for seed in range(first, first + count):
                total.add(run(seed))
                if stop_early and total.problems:
                    break
    finally:
        logging.disable(before)
    return total
