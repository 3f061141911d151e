"""A worker meets what a newer version wrote: nothing is lost or guessed, and the work goes on where it can be read."""

from __future__ import annotations

from collections import Counter
from itertools import count

import msgspec
import orjson
import pytest
from confluent_kafka import Producer

from retry.clock import wall_ms
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from tests.conftest import Deploy
from tests.support.blocks import list_entry_records
from tests.support.checker import check, fold
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Sender
from tests.support.process import WorkerProcess
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.check

LETTERS = 40
SHARDS = 2
QUIET_S = 2.0
AT_ONCE = "{backoff: {kind: constant, delay: 100ms}, jitter: none}"
LATER = "{backoff: {kind: constant, delay: 4s}, jitter: none}"


def newer(kind: str, topic: str) -> tuple[bytes, bytes]:
    """A changelog record of a version that does not exist yet."""
    key = entry_keys.build_key(wall_ms() - 1_000, entry_keys.build_key_stem(topic, 0), 1_000_000)
    fields = msgspec.msgpack.decode(envelopes.encode(Entry("nowhere", b"k", b"v", [], None, "testers")))
    return (b"\x10hold/all/", b"{}") if kind == "control" else (key, msgspec.msgpack.encode([5, *fields[1:]]))


def write(deployment: Deployment, topic: str, key: bytes | None, value: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": deployment.bootstrap_servers})
    producer.produce(topic, value, key, 0)
    assert producer.flush(10) == 0


def send(deployment: Deployment) -> Sender:
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(*deployment.dead_letters, b"key %d" % n, b"letter %d" % n)
    assert len(sender.finish()) == LETTERS
    return sender


def count_entries(deployment: Deployment) -> Counter[int]:
    """Entries in the changelog by partition, whoever can read them."""
    every = read(deployment.bootstrap_servers, [deployment.names.changelog], COMMITTED)
    records = list_entry_records(r for r in every if r.key)
    place = {record.key: record.partition for record in records}
    return Counter(place[key] for key, value in fold(records).items() if key[:1] in (b"\x01", b"\x02") and value is not None)


def health(worker: WorkerProcess) -> dict[str, object]:
    return orjson.loads(worker.get("/health/ready")[1] or b"{}")


def unreadable(worker: WorkerProcess) -> dict[str, str]:
    """Read what a worker says of each topic of which it has passed records over."""
    told = health(worker).get("unreadable", {})
    assert isinstance(told, dict)
    return told


def phases(worker: WorkerProcess) -> dict[str, str]:
    told = health(worker).get("shards", {})
    assert isinstance(told, dict)
    return told


@pytest.mark.parametrize("kind", ["envelope", "control"])
def test_a_shard_with_a_newer_record_is_read_only_until_a_worker_can_read_it(deploy: Deploy, kind: str) -> None:
    # Their keys choose where letters wait; others would be kept out of the way of that shard.
    deployment = deploy({"orders": 2}, shards=SHARDS, defaults=AT_ONCE, topic_keys="ordered: true")
    worker = deployment.worker().start().await_ready()
    (topic,) = deployment.dead_letters
    key, value = newer(kind, topic)
    write(deployment, deployment.names.changelog, key, value)
    await_that("one shard is read-only", lambda: worker.metric("retry_shards_read_only") == 1)
    sent = send(deployment).sent
    await_that("the other is ready", lambda: phases(worker).get("1") == "ready")
    told = phases(worker)["0"]
    assert told.startswith("read-only: offset ")
    assert "written by a newer version of this service; upgrade this worker" in told
    assert (worker.get("/health/ready")[0], worker.metric("retry_shards_halted")) == (503, 0)

    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    known = kind == "envelope"

    def others_wait() -> bool:
        tail.read()
        return count_entries(deployment) == {0: LETTERS - len(tail.seen) + known}

    await_that("the other shard's letters come back, all others wait in the changelog", others_wait)
    assert 0 < len(tail.seen) < LETTERS
    assert tail.quiet(QUIET_S) == []

    # A restart, and the loss of all that was on disk, change nothing.
    worker.kill()
    deployment.wipe(worker)
    worker.start()
    await_that("the shard is read-only again", lambda: worker.metric("retry_shards_read_only") == 1)
    assert tail.quiet(QUIET_S) == []
    worker.terminate()
    # The newer version has done with its record; from here on this one can read everything.
    write(deployment, deployment.names.changelog, key, None)
    worker.start().await_ready()
    tail.await_seen(LETTERS)
    tail.close()
    worker.terminate()
    found = {finding: count for finding, (count, _) in check(deployment, sent).wrong().items()}
    # The newer entry is of no letter, and was ended without a delivery.
    assert (found.pop("verify", 0) > 0) == known
    assert found == ({"phantom": 1, "torn": 1} if known else {})


def test_lineages_of_a_newer_version_are_passed_over_and_told_and_stop_nothing(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2}, shards=SHARDS, defaults=AT_ONCE)
    worker, topic = deployment.worker().start().await_ready(), deployment.names.lineage
    write(deployment, topic, None, b"\x02 of a newer version")
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    sent = send(deployment).sent
    tail.await_seen(LETTERS)
    await_that("it is told", lambda: topic in unreadable(worker))
    assert "written by a newer version of this service; upgrade this worker" in unreadable(worker)[topic]
    assert f'retry_unreadable_records_total{{topic="{topic}"}} 1.0' in worker.get("/metrics")[1]
    worker.terminate()
    tail.close()
    assert check(deployment, sent).wrong() == {}


def test_a_position_of_a_newer_version_stops_intake_and_no_other_record_there_does(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2}, shards=SHARDS, defaults=LATER)
    worker, topic = deployment.worker().start().await_ready(), deployment.names.positions
    (dead_letters,) = deployment.dead_letters
    for value in (b"\xff", b'{"v": 1, "topic_id": 3}', b"[]"):
        write(deployment, topic, f"{dead_letters}/0".encode(), value)
    first = send(deployment).sent
    await_that("they are told", lambda: unreadable(worker).get(topic, "").startswith("3 passed over"))
    # Waiting for four seconds, the first may be gone by the time that the last is taken in.
    await_that("all are taken in", lambda: worker.metric("retry_letters_consumed_total") == LETTERS)
    write(deployment, topic, b"of a kind to come", b'{"v": 2}')
    # The record is read in its own time; every letter from then on stays where it is.
    sender = Sender(deployment.bootstrap_servers)
    tail, numbers = Tail(deployment.bootstrap_servers, deployment.retry_topics()), count()

    def has_stopped() -> bool:
        # No two are equal: one of which an equal one is back already would count as its failure.
        sender.send(*deployment.dead_letters, b"key", b"one more: %d" % next(numbers))
        return worker.metric("retry_intake_read_only") == 1

    await_that("intake has stopped", has_stopped)
    later = sender.finish()
    assert "upgrade this worker" in str(health(worker)["intake"])
    assert worker.get("/health/ready")[0] == 503

    def all_delivered() -> bool:
        tail.read()
        taken = worker.metric("retry_letters_consumed_total")
        return len(tail.seen) == taken and worker.metric("retry_entries_waiting") == 0

    # What was taken in before is delivered as ever, and nothing else. A batch may have been on its way into the changelog when
    # intake stopped: it is there long before the last is due.
    await_that("what was taken in is delivered", all_delivered)
    assert tail.quiet(QUIET_S) == []
    # The batch by which it was noticed is left, at least.
    assert len(tail.seen) == worker.metric("retry_letters_consumed_total") < len(first) + len(later)
    # A restart changes nothing.
    worker.kill()
    worker.start()
    await_that("intake has stopped again", lambda: worker.metric("retry_intake_read_only") == 1)
    assert tail.quiet(QUIET_S) == []
    tail.close()
