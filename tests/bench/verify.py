"""What `retry verify` takes: `python -m tests.bench.verify LETTERS [BOOTSTRAP]`, on a broker of its own or one that runs.

Topics are filled by a plain producer with what the service would have written: letters, of which nine in ten were delivered.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from retry.clock import wall_ms
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.kafka import topics
from retry.kafka.local_broker import LocalBroker
from retry.telemetry import outcomes
from retry.telemetry.outcomes import SharedFields

APP, DEAD, RETRY, PARTITIONS, BATCH = "verify-bench", "orders.DLT", "orders.retry", 4, 500
POLICIES = f"teams: {{payments: {{topics: [{{dead_letters: {DEAD}, retry_to: {RETRY}}}]}}}}\n"
VALUE = b"v" * 200


def fill(bootstrap: str, letters: int) -> None:
    """Write what the service would have written for so many letters."""
    admin, names = AdminClient({"bootstrap.servers": bootstrap}), topics.build_topic_names(APP)
    topics.create(admin, APP, PARTITIONS)
    wanted = [NewTopic(DEAD, PARTITIONS, 1), NewTopic(RETRY, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})]
    for done in admin.create_topics(wanted).values():
        done.result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4", "enable.idempotence": True})
    now_ms, lane, stem = (
        wall_ms(),
        entry_keys.lane("payments", DEAD, RETRY),
        [entry_keys.build_key_stem(DEAD, n) for n in range(PARTITIONS)],
    )

    def produce(topic: str, partition: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        while True:
            try:
                return producer.produce(topic, value, key, partition, headers=headers)
            except BufferError:
                producer.poll(0.05)

    told: outcomes.LettersByShared = defaultdict(list)
    for n in range(letters):
        partition, offset, delivered = n % PARTITIONS, n // PARTITIONS, n % 10 > 0
        due_ms = now_ms - 60_000 if delivered else now_ms + 86_400_000
        source, name = f"{DEAD}/{partition}/{offset}", b"%016x" % (n * 2)
        ours = [("retry-id", name), ("retry-attempt", b"1"), ("retry-source", source.encode()), ("retry-due-ms", b"%d" % due_ms),
                ("retry-policy", b"payments/orders.DLT"), ("retry-first-failed-ms", b"%d" % now_ms)]  # fmt: skip
        key = entry_keys.build_key(due_ms, stem[partition], offset, lane)
        produce(DEAD, partition, name, VALUE, [])
        produce(
            names.changelog, partition, key, envelopes.encode(Entry(RETRY, name, VALUE, ours, now_ms, "payments", now_ms)), []
        )
        shared = SharedFields("payments", DEAD, partition, "payments/orders.DLT", 1, None, "retry", None, RETRY, None, None, None)
        told[shared].append((name, offset, now_ms, now_ms, due_ms))
        if len(told[shared]) == BATCH or n >= letters - PARTITIONS:
            for value in outcomes.encode_outcomes(told, now_ms):
                produce(names.outcomes, partition, None, value, [])
            told.clear()
        if delivered:
            produce(RETRY, partition, name, VALUE, ours)
            produce(names.changelog, partition, key, None, [])
        if n % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": names.intake_group})
    read = [TopicPartition(DEAD, n, len(range(n, letters, PARTITIONS))) for n in range(PARTITIONS)]
    group.commit(offsets=read, asynchronous=False)
    group.close()


def measure(bootstrap: str) -> dict[str, object]:
    """Seconds and peak memory of one run, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policies.yaml"
        file.write_text(POLICIES)
        environ = {**os.environ, "RETRY_APP_ID": APP, "RETRY_BOOTSTRAP_SERVERS": bootstrap, "RETRY_POLICIES": str(file)}
        began = time.monotonic()
        command = [sys.executable, "-m", "retry", "verify", "--json"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1_024
    return {"seconds": round(time.monotonic() - began, 1), "peak_mb": round(peak_mb), "said": done.stdout + done.stderr}


def main(letters: int, bootstrap: str | None) -> None:
    """Fill and measure; with 0 letters measure what is there."""
    if bootstrap is not None:
        if letters:
            fill(bootstrap, letters)
        print(measure(bootstrap))
        return
    with tempfile.TemporaryDirectory() as folder, LocalBroker(Path(folder), brief=False) as broker:
        main(letters, broker.bootstrap_servers)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
