"""What folds never claims more than readers see, and is Live only while that holds: over a log in memory, with its own time.

Records are committed at any moment, brokers answer late or not at all, reading is slow, and the process is started again from its
file. `tests/acceptance/test_freshness.py` does the same with the real ones.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from retry import clock
from retry.console.folding import follower as following
from retry.console.folding.folding_process import LIVE, FoldingProcess
from retry.console.folding.follower import Follower
from retry.console.folding.reports import Report
from retry.errors import BrokersUnreachable
from retry.kafka.interface import Partition
from retry.policies.registry import Registry
from retry.settings import Settings
from tests.support.replicas import AGE_MS_MAX, NOW_MS, OWN, GivenMessage, GivenReplica, entry

PLACE: Partition = (OWN.changelog, 0)
STARTS, STEPS, BEHIND_MS = 3, 40, 2_000
_COUNT, _POSITION = "SELECT count(*) FROM letters", "SELECT coalesce(sum(next_offset), 0) FROM positions"


class Log:
    """One partition, its own clock, and brokers that are away at times.

    Attributes:
      committed_ms: when each record was committed.
    """

    def __init__(self, seed: int) -> None:
        self.draw, self.now_ms = random.Random(seed), NOW_MS
        self.committed_ms: list[int] = []
        self._messages: list[GivenMessage] = []
        self.position, self.steps, self.is_away = 0, 0, False
        self.closing = threading.Event()

    def pass_time(self, ms_max: int) -> None:
        """Let some time go by, in which a few records may be committed."""
        for _ in range(4):
            self.now_ms += self.draw.randrange(max(1, ms_max // 4))
            if self.draw.random() < 0.3:
                self.commit(self.draw.randrange(8))

    def commit(self, letters: int) -> None:
        """So many letters begin to wait now."""
        for _ in range(letters):
            offset = len(self._messages)
            self._messages.append(GivenMessage(*PLACE, offset, *entry(offset), None, self.now_ms))
            self.committed_ms.append(self.now_ms)

    def read(self, records_max: int, _wait_s: float) -> list[Any]:
        """Read records as a reader of it has them."""
        self.steps += 1
        if self.steps > STEPS:
            self.closing.set()
        self.is_away = self.is_away != (self.draw.random() < 0.1)
        self.pass_time(self.draw.choice((250, 250, 4_000)))
        if self.is_away:
            return []
        given = self._messages[self.position : self.position + self.draw.choice((3, records_max))]
        self.position += len(given)
        return given

    def find_ends(self, *_: object) -> Mapping[Partition, int]:
        """The end as brokers have it; the answer arrives later."""
        if self.is_away:
            raise BrokersUnreachable("b:1", "away")
        ends = {PLACE: len(self._messages)}
        self.pass_time(self.draw.choice((100, 100, 3_000)))
        return ends

    def count_before(self, at_ms: int) -> int:
        """How many letters were committed before that."""
        return sum(committed < at_ms for committed in self.committed_ms)


@pytest.mark.parametrize("seed", range(10))
def test_no_report_claims_more_than_readers_see(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, states = Log(seed), set[str]()
    monkeypatch.setattr(clock, "wall_ms", lambda: log.now_ms)
    monkeypatch.setattr(clock, "monotonic_s", lambda: log.now_ms / 1_000)
    monkeypatch.setattr(following, "_BULK_RECORDS_MIN", 20)
    monkeypatch.setattr(following.offset_ranges, "find_stable_offsets", log.find_ends)
    monkeypatch.setattr(Follower, "_topics_changed", lambda *_: False)
    process = FoldingProcess(Settings(policies=tmp_path / "policies.yaml"), tmp_path / "replica.sqlite", lambda _: None)

    for start in range(STARTS):
        replica = GivenReplica(tmp_path)
        if start == 0:
            replica.finish()

        def check(report: Report, replica: GivenReplica = replica) -> None:
            process._accept_report(report)
            found = process.freshness()
            # Not by the connection that folds, which sees also what no reader does yet.
            with replica.readers.reading(0.0) as connection:
                (seen,), (folded,) = (connection.execute(query).fetchone() for query in (_COUNT, _POSITION))
            assert [place.next_offset for place in report.places] == [folded], "readers see something else than what is told"
            assert seen >= log.count_before(found.as_of_ms or 0), "as of then it had more"
            if found.state == LIVE and found.lag_records:
                assert log.now_ms - (found.as_of_ms or 0) <= BEHIND_MS
            states.add(found.state)

        log.closing.clear()
        log.steps, log.is_away = 0, False
        log.position = replica.folds.positions.get(PLACE, 0)
        follower = Follower(Settings(), Registry, replica.file, check, log.closing)
        follower._age_ms_max = AGE_MS_MAX
        sources = replica.sources._replace(described={OWN.changelog: replica.sources.described[OWN.changelog]})
        monkeypatch.setattr(type(sources), "spans", lambda _self, _admin: [(*PLACE, 0, log.find_ends()[PLACE])])
        while not log.closing.is_set():
            try:
                assert follower._begin_reading(Following(log), replica.folds, sources, None)  # type: ignore[arg-type]
                follower._read(log, replica.folds, sources, None)  # type: ignore[arg-type]
                assert log.closing.is_set()
            except BrokersUnreachable:
                log.pass_time(2_000)
                log.is_away = False
        replica.file.close()
        # Nobody folds for a while.
        log.commit(log.draw.randrange(100))
        log.pass_time(10_000)
    assert {"live", "catching_up"} <= states


class Following:
    """The reader as it is told where to begin."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def follow_partition(self, _topic: str, _partition: int, offset: int) -> None:
        """Reading goes on from there."""
        self._log.position = offset
