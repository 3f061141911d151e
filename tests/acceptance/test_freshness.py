"""The console never says Live while it is behind: through restarts of its own, kills of what folds, and stops of the broker."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from retry import clock
from retry.kafka.local_broker import LocalBroker
from tests.bench.machine import family
from tests.conftest import Deploy
from tests.support.committed_letters import CommittedLetters
from tests.support.console_process import ConsoleProcess
from tests.support.process import await_that, let_pass

# By its own knowledge; what passes between two steps of a process that waits for a core is not known to it.
BEHIND_MS, STEP_MS, SILENT_MS = 2_000, 500, 5_000
FLOOD, LOOKS = 3_000, 12


class Watch:
    """Looks at a console, and holds each answer that says Live against what was committed by then."""

    def __init__(self, console: ConsoleProcess, committed: CommittedLetters) -> None:
        self._console, self._committed = console, committed
        self.states: Counter[str] = Counter()

    def look(self) -> str:
        """Ask what the console says of itself now; empty where it does not answer, or shows nothing yet."""
        asked_ms = clock.wall_ms()
        try:
            with httpx2.Client(base_url=self._console.origin, timeout=30.0) as client:
                answer = client.get("/api/now")
        except (httpx2.HTTPError, OSError):
            return ""
        if answer.status_code != 200:
            return ""
        now: dict[str, Any] = json.loads(answer.text)
        fresh = now["freshness"]
        self.states[fresh["state"]] += 1
        as_of_ms = int(datetime.fromisoformat(fresh["as_of"]).timestamp() * 1_000) if fresh["as_of"] else 0
        told = f"{fresh}, {now['waiting']:,} waiting, {asked_ms - as_of_ms} ms after that"
        there = self._committed.count_before(as_of_ms)
        assert now["waiting"] >= there, f"less than the {there:,} that there were when it says that it had all: {told}"
        if fresh["state"] == "live":
            limit_ms = BEHIND_MS if fresh["lag_records"] else SILENT_MS + BEHIND_MS
            assert asked_ms - as_of_ms <= limit_ms + STEP_MS, f"Live, and behind by its own knowledge: {told}"
        return str(fresh["state"])

    def look_for(self, looks: int) -> None:
        for _ in range(looks):
            self.look()
            let_pass(0.1)

    def until_live(self) -> None:
        await_that("it is live", lambda: self.look() == "live", 180)


def shake(deploy: Deploy, folder: Path, rounds: int, seed: int) -> Counter[str]:
    """Restart the console, kill what folds and stop the broker, in turns that a seed draws, while letters come."""
    draw = random.Random(seed)
    with LocalBroker(folder / "broker", heap_mb=384) as own:
        deployment = deploy({"slow": 1}, on=own, shards=2)
        console = ConsoleProcess(deployment, RETRY_CONSOLE_SESSION_S="600").start()
        with CommittedLetters(deployment) as committed:
            watch = Watch(console, committed)
            watch.until_live()
            for n in range(rounds):
                what = ("restart", "stop", "kill")[n % 3] if rounds <= 3 else draw.choice(("restart", "restart", "stop", "kill"))
                if what == "restart":
                    assert console.process.terminate() < 30
                    committed.commit_many(FLOOD)
                    console.start()
                elif what == "kill":
                    folding = [pid for pid in family(console.process.pid) if b"folding.program" in _command(pid)]
                    for pid in folding:
                        os.kill(pid, signal.SIGKILL)
                    committed.commit_many(FLOOD)
                else:
                    own.kill()
                    watch.look_for(LOOKS)
                    own.start()
                watch.look_for(LOOKS)
                watch.until_live()
            return watch.states


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.mark.check
def test_it_never_says_live_while_it_is_behind(deploy: Deploy, tmp_path: Path) -> None:
    states = shake(deploy, tmp_path, rounds=3, seed=1)
    assert states["live"] > 0 and states["catching_up"] + states["old"] > 0


# Where other tests share the cores, a round takes more than a minute.
@pytest.mark.timeout(7_200)
@pytest.mark.slow
def test_it_never_says_live_while_it_is_behind_in_thirty_restarts_and_stops(deploy: Deploy, tmp_path: Path) -> None:
    states = shake(deploy, tmp_path, rounds=30, seed=20_261_130)
    assert states["live"] > 30 and states["catching_up"] > 0 and states["old"] > 0
