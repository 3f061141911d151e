"""A scheduler that is told to end while its only broker is gone ends in time, and the next one sends what waits."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retry.kafka.local_broker import LocalBroker
from tests.support.process import await_that
from tests.support.scheduler import Scheduling

pytestmark = pytest.mark.check

_BY_ITSELF_S = 13.0


def _freeze(broker: LocalBroker) -> None:
    broker.signal(signal.SIGSTOP)


def _thaw(broker: LocalBroker) -> None:
    broker.signal(signal.SIGCONT)


OUTAGES = {"killed": (LocalBroker.kill, LocalBroker.start), "frozen": (_freeze, _thaw)}


@pytest.mark.parametrize(("take_away", "bring_back"), OUTAGES.values(), ids=OUTAGES.keys())
def test_it_does_not_wait_for_each_step_while_no_broker_answers_and_loses_nothing(
    take_away: Callable[[LocalBroker], object], bring_back: Callable[[LocalBroker], object], tmp_path: Path
) -> None:
    with LocalBroker(tmp_path / "broker") as broker:
        s = Scheduling(broker.bootstrap_servers, tmp_path)
        try:
            instance = s.instance()
            due = int(time.time()) + 4
            for n in range(20):
                s.schedule(f"id-{n}", due)
            s.flush()
            await_that("all wait", lambda: s.events(instance)["planned"] == 20)
            take_away(broker)
            # Its transaction of what is due is in flight by then.
            await_that("it has noticed", lambda: "brokers do not answer" in instance.log())
            ended_s = instance.terminate(60)
            print(f"ended after {ended_s:.1f} s")
            # Step after step, each would have waited as long as it may: 14 s and more. Where the broker's machine refuses
            # connections at once, or the transaction in flight has failed already, hardly a step waits, and it may have ended
            # by itself before it knew that no broker answers.
            assert "it ends without leaving its groups" in instance.log() or ended_s < _BY_ITSELF_S
            bring_back(broker)
            s.start(instance)
            assert sorted(record.key or b"" for record in s.await_sent(20)) == sorted(b"id-%d" % n for n in range(20))
        finally:
            broker.signal(signal.SIGCONT)
            s.close()
