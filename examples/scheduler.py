"""Scheduled messages on one machine, in half a minute: `python -m examples.scheduler`.

A real broker, one `retry scheduler`, and four schedules: one that is sent, one that is replaced, one that is cancelled, and one
for the year 2030. The exit code is 0 only if what had to be sent was, once and not early, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from examples.lifetime import killed_on_failure, run_demo
from examples.stage import DemoFailed, Stage
from retry.clock import Deadline
from retry.kafka.local_broker import LocalBroker
from retry.scheduling import client

TARGET = "online-videos"
_ALL_S, _QUIET_S = 60.0, 3.0
_IN_2030 = 1_893_456_000

Say = Callable[[str], None]


def settings(bootstrap_servers: str, data_dir: Path) -> dict[str, str]:
    """The variables that a scheduler is started with."""
    return {"BOOTSTRAP_SERVERS": bootstrap_servers, "GROUP_ID": "example", "SERVER_ADDR": "127.0.0.1:0",
            "METRICS_ADDR": "127.0.0.1:0", "RETRY_SHARDS": "2", "RETRY_DATA_DIR": str(data_dir)}  # fmt: skip


def create_topics(bootstrap_servers: str) -> None:
    """The topic that messages are scheduled for."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic(TARGET, 1, 1)])[TARGET].result(20)


def play(stage: Stage, bootstrap_servers: str, say: Say, deadline: Deadline) -> None:
    """Schedule messages and check what arrives; a scheduler must be ready.

    Raises:
      DemoFailed: something else arrived.
    """
    now = int(time.time())
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    for id_, at, value in (("sent", now + 3, b"as written"), ("replaced", now + 3, b"old"), ("replaced", now + 5, b"new"),
                           ("cancelled", now + 4, b"never seen"), ("far", _IN_2030, b"later")):  # fmt: skip
        producer.produce(**client.schedule(topic=TARGET, key=id_.encode(), value=value, at=at, schedule_id=id_))
    producer.produce(**client.cancel(schedule_id="cancelled"))
    producer.flush(10)
    say("scheduled five times, cancelled once; 'replaced' was scheduled twice")
    messages = _received(stage, bootstrap_servers, deadline, now, say)
    if messages != {"sent": b"as written", "replaced": b"new"}:
        raise DemoFailed(f"not what was scheduled: {messages}")


def _received(stage: Stage, bootstrap_servers: str, deadline: Deadline, began: int, say: Say) -> dict[str, bytes]:
    """Messages on the target by id, until nothing more should arrive.

    Raises:
      DemoFailed: one came twice, or from somewhere else.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "example", "isolation.level": "read_committed",
                         "log_level": 2})  # fmt: skip
    consumer.assign([TopicPartition(TARGET, 0, 0)])
    values: dict[str, bytes] = {}
    quiet = Deadline(_ALL_S)
    while not (quiet.has_passed() or deadline.has_passed()):
        stage.check()
        message: Message | None = consumer.poll(0.2)
        if message is None or message.error():
            continue
        id_ = (message.key() or b"").decode()
        if id_ in values or not client.is_scheduled_message(message.headers()):
            raise DemoFailed(f"{id_} came twice, or from somewhere else")
        values[id_] = message.value() or b""
        say(f"after {time.time() - began:.1f} s: {id_}: {values[id_].decode()}")
        if len(values) == 2:
            quiet = Deadline(_QUIET_S)
    consumer.close()
    return values


def main(folder: Path) -> None:
    """Run it on a broker of its own."""
    deadline = Deadline(_ALL_S)
    with killed_on_failure(LocalBroker(folder / "broker")) as broker:
        servers = broker.bootstrap_servers
        create_topics(servers)
        with Stage(folder, settings(servers, folder / "data")) as stage:
            stage.start("scheduler", "retry", "scheduler")
            stage.await_ready("scheduler", deadline)
            play(stage, servers, print, deadline)
    print("all as it must be; nothing is left running")


if __name__ == "__main__":
    run_demo(main, print)
