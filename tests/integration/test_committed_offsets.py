"""What groups have committed is learnt on a cluster that makes its first group; a client that asks by itself is gone then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from retry.kafka import client_config, committed_offsets, consumer_groups
from retry.kafka.committed_offsets import IsolatedAdminClient
from retry.kafka.local_broker import LocalBroker
from retry.settings import Settings
from tests.support.committed_offsets import commit_offsets
from tests.support.process import await_that
from tests.support.reading import QUIET, admin
from tests.support.topics import create
from tests.unit.kafka.test_child_process import alive

pytestmark = pytest.mark.check

PATIENT_S = 60.0
ASKS = """
import sys
from confluent_kafka import ConsumerGroupTopicPartitions
from retry.kafka.committed_offsets import IsolatedAdminClient
client = IsolatedAdminClient({"bootstrap.servers": sys.argv[1]})
for n in range(20):
    asked = [client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{n}-{i}")]) for i in range(50)]
    for each in asked:
        (answer,) = each.values()
        answer.exception(60)
"""


ENDS = """
import ctypes, sys
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from retry.kafka.committed_offsets import IsolatedAdminClient
from tests.support.reading import QUIET
client = IsolatedAdminClient({"bootstrap.servers": "127.0.0.1:1", "logger": QUIET})
ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
libc = ctypes.CDLL(None)
libc.on_exit(libc.sleep, None)
client.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}, request_timeout=1)
sys.exit(3)
"""

ASKS_ON = """
import atexit, os, sys, threading
closed = threading.Event()
# Before all that is registered from here on: it comes last.
atexit.register(lambda: (closed.set(), thread.join(2)))
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from retry.kafka.committed_offsets import IsolatedAdminClient
from tests.support.reading import QUIET
client = IsolatedAdminClient({"bootstrap.servers": "127.0.0.1:1", "logger": QUIET})
def watch():
    closed.wait()
    try:
        client.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}, request_timeout=1)
    except BaseException:
        os._exit(1)
thread = threading.Thread(target=watch, daemon=True)
thread.start()
sys.exit(3)
"""

# What a client of librdkafka does that waits for a thread of its own that waits for ever.
HANGS = """
import sys, threading
from retry.kafka import committed_offsets
from tests.support.reading import QUIET
class Endless(committed_offsets.IsolatedAdminClient):
    def __exit__(self, *_):
        threading.Event().wait()
committed_offsets._CLOSED_WITHIN_S = 0.5
others = [committed_offsets.IsolatedAdminClient({"bootstrap.servers": "127.0.0.1:1", "logger": QUIET}) for _ in range(2)]
client = Endless({"bootstrap.servers": "127.0.0.1:1", "logger": QUIET})
sys.exit(3)
"""


@pytest.fixture
def groups(broker: LocalBroker) -> consumer_groups.Committed:
    """Return a reader of committed offsets that asks a broker."""
    client = client_config.connect_admin(Settings(bootstrap_servers=broker.bootstrap_servers))
    assert isinstance(client, IsolatedAdminClient)
    return consumer_groups.Committed(client)


def asking(parent: int) -> list[int]:
    """The processes that ask for this one."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            is_one = each.name.isdigit() and b"committed_offsets_process" in (each / "cmdline").read_bytes()
            if is_one and int((each / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(each.name))
        except OSError:
            continue
    return found


def committed_group(broker: LocalBroker) -> tuple[str, str]:
    """A group that has committed offset 3 of a topic with four records, and the topic."""
    group, topic = (f"t{uuid.uuid4().hex[:8]}" for _ in range(2))
    create(admin(broker.bootstrap_servers), topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "logger": QUIET})
    for _ in range(4):
        producer.produce(topic, b"", partition=1)
    assert producer.flush(PATIENT_S) == 0
    commit_offsets(broker.bootstrap_servers, group, [TopicPartition(topic, 1, 3)])
    return group, topic


@pytest.mark.slow
def test_a_cluster_that_makes_its_first_group_ends_no_process(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "kafka") as fresh:
        asks = [sys.executable, "-c", ASKS, fresh.bootstrap_servers]
        asked = subprocess.run(asks, capture_output=True, text=True, timeout=300, check=False)
        assert (asked.returncode, asked.stderr) == (0, "")


def test_an_answer_that_comes_when_python_has_gone_does_not_end_the_process(tmp_path: Path) -> None:
    """The process sleeps once Python has gone, with a client that somebody still has; nobody listens at the broker's address."""
    program = tmp_path / "ends.py"
    program.write_text(ENDS)
    assert subprocess.run([sys.executable, program], check=False, timeout=PATIENT_S).returncode == 3


def test_a_thread_that_asks_while_its_process_ends_waits_for_that(tmp_path: Path) -> None:
    """Ask while the process ends, as a watchdog does; an error would have it end the process with another code."""
    program = tmp_path / "asks_on.py"
    program.write_text(ASKS_ON)
    ended = subprocess.run([sys.executable, program], check=False, timeout=PATIENT_S, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (3, "")


@pytest.mark.parametrize("ask", [
    lambda client: client.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}),
    lambda client: client.list_topics(timeout=1),
    lambda client: client.describe_topics(TopicCollection(["t"])),
    lambda client: client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]),
])  # fmt: skip
def test_a_process_that_does_not_end_is_told_so_at_each_question(
    ask: Callable[[IsolatedAdminClient], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_offsets, "_ENDING_S", 0.0)
    client = IsolatedAdminClient({"bootstrap.servers": "127.0.0.1:1", "logger": QUIET})
    client.close()
    with pytest.raises(KafkaException, match="this process ends"):
        ask(client)


def test_what_a_group_has_committed_is_told_again_after_the_process_that_asks_has_ended(
    broker: LocalBroker, groups: consumer_groups.Committed
) -> None:
    group, topic = committed_group(broker)
    expected = {group: {(topic, 1): 3}, f"not {group}": {}}, dict[str, str]()
    assert groups(list(expected[0]), PATIENT_S) == expected
    (process,) = asking(os.getpid())
    os.kill(process, signal.SIGSTOP)
    found, failed = groups([group], 0.5)
    assert (found, failed) == ({}, {group: "no answer in time"})
    os.kill(process, signal.SIGKILL)
    assert groups(list(expected[0]), PATIENT_S) == expected
    assert process not in asking(os.getpid())


def test_a_process_ends_whose_client_cannot_be_closed(tmp_path: Path) -> None:
    program = tmp_path / "hangs.py"
    program.write_text(HANGS)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=PATIENT_S, check=False)
    assert (done.returncode, done.stderr) == (3, "an admin client has not closed within 0 s, and is left behind\n")


def test_the_process_ends_with_who_asks(broker: LocalBroker) -> None:
    keeps = ASKS.replace("range(20)", "range(1)") + "print(0, flush=True); import time; time.sleep(600)"
    asks = [sys.executable, "-c", keeps, broker.bootstrap_servers]
    with subprocess.Popen(asks, stdout=subprocess.PIPE) as who:
        assert who.stdout is not None and who.stdout.readline() == b"0\n"
        (process,) = asking(who.pid)
        who.kill()
        await_that("it ends", lambda: not alive(process))


def test_a_client_that_is_given_up_asks_no_more(broker: LocalBroker) -> None:
    client = IsolatedAdminClient({"bootstrap.servers": broker.bootstrap_servers, "logger": QUIET})
    before = set(asking(os.getpid()))
    consumer_groups.read_positions(client, "nobody's")
    (process,) = set(asking(os.getpid())) - before
    assert before == set(asking(os.getpid())) - {process}
    del client
    await_that("it ends", lambda: not alive(process))
