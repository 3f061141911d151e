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
from retry.kafka.cluster import RenewedAdmin
from retry.kafka.interface import Partition
from retry.kafka.local_broker import LocalBroker
from tests.support.cluster import NODES, Cluster
from tests.support.process import await_that
from tests.support.topics import create_all

pytestmark = pytest.mark.slow

TOPIC = "letters"
# A broker's session lasts 9 s.
FROZEN_S = 12.0
# What was in flight may still be answered; a client that is deaf is so by then.
AFTER_S = 15.0
# New clients come after 10, 20, 40 and 80 s; a client asks for all it knows anew after five minutes by itself.
HEARS_WITHIN_S = 240.0


class Asking:
    """A thread that asks where partitions end, again and again, as the watchdog of a worker does."""

    def __init__(self, bootstrap_servers: str, topic: NewTopic) -> None:
        about = settings.read_settings({"RETRY_BOOTSTRAP_SERVERS": bootstrap_servers})
        self._partitions: set[Partition] = {(topic.topic, n) for n in range(topic.num_partitions)}
        first = client_config.connect_admin(about)
        create_all(first, [topic])
        self._admin, self._end = RenewedAdmin(first, partial(client_config.connect_admin, about)), threading.Event()
        self.answered_at_s = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._end.is_set():
            ends = offset_ranges.find_stable_offsets(cast(AdminClient, self._admin), self._partitions)
            self._admin.note_answered(all_answered=ends.keys() == self._partitions)
            if ends.keys() == self._partitions:
                self.answered_at_s = monotonic_s()
            pause(0.05)

    def await_answers(self, after_s: float = 0.0) -> None:
        """Wait until all partitions were answered for, later than a moment."""
        await_that("all is answered", lambda: self.answered_at_s > after_s, HEARS_WITHIN_S)

    def stop(self) -> None:
        self._end.set()


def freeze_past_its_session(broker: LocalBroker) -> None:
    """SIGSTOP, and SIGCONT when the others have given it up."""
    broker.signal(signal.SIGSTOP)
    frozen_at_s = monotonic_s()
    await_that("the broker's session is over", lambda: monotonic_s() - frozen_at_s > FROZEN_S)
    broker.signal(signal.SIGCONT)


def test_a_client_that_a_frozen_broker_has_made_deaf_is_replaced(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker") as broker:
        asking = Asking(broker.bootstrap_servers, NewTopic(TOPIC, 1, 1))
        asking.await_answers()
        freeze_past_its_session(broker)
        asking.await_answers(monotonic_s() + AFTER_S)
        asking.stop()


def test_a_client_that_one_of_three_nodes_answers_no_more_is_replaced(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        asking = Asking(cluster.bootstrap_servers, NewTopic(TOPIC, 2 * len(NODES), len(NODES)))
        asking.await_answers()
        freeze_past_its_session(cluster.nodes[NODES[0]])
        asking.await_answers(monotonic_s() + AFTER_S)
        asking.stop()
