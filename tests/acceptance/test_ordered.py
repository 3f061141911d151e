"""Letters of one key wait for each other: 1,000 keys with 20 letters each, consumers that fail, workers that are killed."""

from __future__ import annotations

import random
from collections import defaultdict
from threading import Thread

import pytest
from confluent_kafka import Producer

from retry.clock import Deadline, pause, wall_ms
from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.reading import COMMITTED, Record, Tail, read

pytestmark = pytest.mark.slow

KEYS, EACH = 1_000, 20
DELAY_MS = 6_000
FAILS = 0.1
KILLS = 4
SEED = 17
DEFAULTS = f"{{backoff: {{kind: constant, delay: {DELAY_MS}ms}}, jitter: full, ordered: true, max_attempts: 5}}"


def test_the_order_of_every_key_is_kept_through_failures_and_kills(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3}, shards=4, retry_partitions=3, defaults=DEFAULTS)
    workers = [deployment.worker(name).start() for name in ("a", "b")]
    for worker in workers:
        worker.await_ready()
    (topic,) = deployment.dead_letters
    sender = Sender(deployment.bootstrap_servers)
    draw = random.Random(SEED)
    load = Thread(target=send, args=(sender, topic))
    load.start()
    consumer = Consumer(deployment, draw)
    for n in range(KILLS):
        consumer.work(3.0)
        victim = workers[n % 2]
        victim.kill()
        if n == 1:
            deployment.wipe(victim)
        victim.start()
    load.join()
    sent = sender.finish()
    assert len(sent) == KEYS * EACH
    consumer.work_until_quiet()
    for worker in workers:
        # The one that was killed last may still be starting, while what it had came by the other: SIGTERM would end it then.
        worker.await_ready().terminate()
    letters = read(deployment.bootstrap_servers, [topic], COMMITTED)
    assert len(letters) == KEYS * EACH + consumer.failed
    in_order_and_once(letters, consumer.tail.records)


def send(sender: Sender, topic: str) -> None:
    """A letter of each key in turn; the later ones are often due before the earlier ones."""

    def one(n: int) -> None:
        sender.send(topic, b"key %d" % (n % KEYS), b"letter %d" % n, timestamp_ms=wall_ms())

    sender.paced(KEYS * EACH, 8.0, one)


class Consumer:
    """Reads the retries; some fail, and are dead-lettered again with all their headers."""

    def __init__(self, deployment: Deployment, draw: random.Random) -> None:
        self.tail, self.failed = Tail(deployment.bootstrap_servers, deployment.retry_topics()), 0
        self._draw, (self._dead_letters,) = draw, deployment.dead_letters
        self._producer = Producer({
            "bootstrap.servers": deployment.bootstrap_servers, "enable.idempotence": True, "partitioner": "murmur2_random",
        })  # fmt: skip

    def work(self, seconds: float) -> None:
        """Take what comes for a while."""
        deadline = Deadline(seconds)
        while not deadline.has_passed():
            self._take()
            pause(0.01)

    def work_until_quiet(self) -> None:
        """Take what comes until everything that was sent and that failed has come back."""
        deadline = Deadline(300.0)
        while len(self.tail.seen) < KEYS * EACH + self.failed:
            assert not deadline.has_passed(), f"{len(self.tail.seen)} of {KEYS * EACH + self.failed}"
            self._take()
        assert self.tail.quiet(2.0) == []

    def _take(self) -> None:
        for record in self.tail.read():
            if record.header("retry-attempt") == "1" and self._draw.random() < FAILS:
                self.failed += 1
                self._producer.produce(self._dead_letters, record.value, record.key, headers=list(record.headers))
        self._producer.flush(10)


def in_order_and_once(letters: list[Record], retries: list[Record]) -> None:
    """Check of each key that the retries are the letters, each once, in the order in which they were dead-lettered."""
    wanted: dict[bytes | None, list[str]] = defaultdict(list)
    for letter in sorted(letters, key=lambda each: (each.partition, each.offset)):
        wanted[letter.key].append(f"{letter.topic}/{letter.partition}/{letter.offset}")
    came: dict[bytes | None, list[str]] = defaultdict(list)
    for retry in sorted(retries, key=lambda each: (each.partition, each.offset)):
        came[retry.key].append(retry.header("retry-source"))
    assert len(wanted) == KEYS
    wrong = [key for key in wanted if came[key] != wanted[key]]
    assert not wrong, f"{len(wrong)} keys; {wrong[0]!r}: wanted {wanted[wrong[0]]}, came {came[wrong[0]]}"
