"""A broker that is frozen past its session comes back with another leader epoch, and is not in its own list for a moment."""

from __future__ import annotations

import signal
import threading
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from retry import settings
from retry.clock import monotonic_s, pause
from retry.kafka import client_config, offset_ranges
from retry.kafka.local_broker import LocalBroker
from retry.kafka.renewed_admin import RenewedAdmin
from tests.support.process import await_that
from tests.support.topics import create_all

pytestmark = pytest.mark.check

TOPIC = "letters"
# A broker's session lasts 9 s.
FROZEN_S = 12.0
# What was in flight may still be answered; a client that is deaf is so by then.
AFTER_S = 15.0
# The client asks for all it knows anew after five minutes.
HEARS_WITHIN_S = 150.0


class Asking:
    """A thread that asks where a partition ends, again and again, as the watchdog of a worker does."""

    def __init__(self, admin: RenewedAdmin) -> None:
        self._admin, self._end = admin, threading.Event()
        self.heard_at_s = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._end.is_set():
            ends = offset_ranges.readable(cast(AdminClient, self._admin), [(TOPIC, 0)])
            self._admin.heard(any_broker=bool(ends))
            if ends:
                self.heard_at_s = monotonic_s()
            pause(0.05)

    def stop(self) -> None:
        self._end.set()


def test_a_client_that_a_frozen_broker_has_made_deaf_is_replaced(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker") as broker:
        about = settings.from_environment({"RETRY_BOOTSTRAP_SERVERS": broker.bootstrap_servers})
        first = client_config.admin(about)
        create_all(first, [NewTopic(TOPIC, 1, 1)])
        asking = Asking(RenewedAdmin(first, partial(client_config.admin, about)))
        await_that("it hears", lambda: asking.heard_at_s > 0)
        broker.signal(signal.SIGSTOP)
        frozen_at_s = monotonic_s()
        await_that("the broker's session is over", lambda: monotonic_s() - frozen_at_s > FROZEN_S)
        broker.signal(signal.SIGCONT)
        awake_at_s = monotonic_s()
        await_that("it hears again", lambda: asking.heard_at_s > awake_at_s + AFTER_S, HEARS_WITHIN_S)
        asking.stop()
