"""Scheduled messages on one machine, in half a minute: `python -m examples.scheduler`.

A real broker, one `retry scheduler`, and four schedules: one that is sent, one that is replaced, one that is cancelled, and one
for the year 2030. The exit code is 0 only if what had to be sent was, once and not early, and nothing else.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from examples.stage import DemoFailed, Stage
from retry.scheduling import client
from retry.clock import Deadline
from retry.errors import RetryError
from retry.kafka.local_broker import LocalBroker

TARGET = "online-videos"
_ALL_S, _QUIET_S = 60.0, 3.0
_IN_2030 = 1_893_456_000

Say = Callable[[str], None]


def show(stage: Stage, bootstrap_servers: str, say: Say, deadline: Deadline) -> None:
    """Start a scheduler on a stage, schedule, and look at what comes.

    Raises:
      DemoFailed: something else came.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TARGET, 1, 1)])[TARGET].result(20)
    stage.start("scheduler", "retry", "scheduler")
    stage.await_ready("scheduler", deadline)
    now = int(time.time())
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for id_, at, value in (("sent", now + 3, b"as written"), ("replaced", now + 3, b"old"), ("replaced", now + 5, b"new"),
                           ("cancelled", now + 4, b"never seen"), ("far", _IN_2030, b"later")):  # fmt: skip
        producer.produce(**client.schedule(topic=TARGET, key=id_.encode(), value=value, at=at, schedule_id=id_))
    producer.produce(**client.cancel(schedule_id="cancelled"))
    producer.flush(10)
    say("scheduled five times, cancelled once; 'replaced' was scheduled twice")
    came = _came(bootstrap_servers, deadline, now, say)
    if came != {"sent": b"as written", "replaced": b"new"}:
        raise DemoFailed(f"not what was scheduled: {came}")


def _came(bootstrap_servers: str, deadline: Deadline, began: int, say: Say) -> dict[str, bytes]:
    """What comes to the target until nothing more should, each once."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "example", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(TARGET, 0, 0)])
    found: dict[str, bytes] = {}
    quiet = Deadline(_ALL_S)
    while not (quiet.passed() or deadline.passed()):
        message: Message | None = consumer.poll(0.2)
        if message is None or message.error():
            continue
        id_ = (message.key() or b"").decode()
        if id_ in found or not client.is_scheduled_message(message.headers()):
            raise DemoFailed(f"{id_} came twice, or from somewhere else")
        found[id_] = message.value() or b""
        say(f"  after {time.time() - began:.1f} s: {id_}: {found[id_].decode()}")
        if len(found) == 2:
            quiet = Deadline(_QUIET_S)
    consumer.close()
    return found


def main() -> int:
    """Run it on a broker of its own; 0 if all went as it must."""
    deadline = Deadline(_ALL_S)
    try:
        with tempfile.TemporaryDirectory(prefix="retry-scheduler-") as folder, LocalBroker(Path(folder) / "broker") as broker:
            settings = {"BOOTSTRAP_SERVERS": broker.bootstrap_servers, "GROUP_ID": "example", "SERVER_ADDR": "127.0.0.1:0",
                        "METRICS_ADDR": "127.0.0.1:0", "RETRY_SHARDS": "2", "RETRY_DATA_DIR": f"{folder}/data"}  # fmt: skip
            with Stage(Path(folder), settings) as stage:
                show(stage, broker.bootstrap_servers, print, deadline)
    except (DemoFailed, RetryError, KafkaException) as failed:
        print(f"FAILED: {failed}")
        return 1
    print("all as it must be; nothing is left running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
