"""Letters that only say where their record lies: it is fetched and retried as if it had come along, or it is said why not."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import TopicPartition

from retry.clock import monotonic_s, wall_ms
from tests.conftest import Deploy
from tests.support import policies
from tests.support.deployment import Deployment
from tests.support.letters import Headers, Letter, Sender
from tests.support.reading import Record, Tail

pytestmark = pytest.mark.check

HOUR_MS = 3_600_000
KEEPS_TIME = {"message.timestamp.type": "CreateTime"}
OURS = ["retry-id", "retry-attempt", "retry-source", "retry-due-ms", "retry-policy", "retry-first-failed-ms"]
POINTERS, WHOLE = 1_000, 1_000


def share(topic: str, partition: int, offset: int) -> Headers:
    """Make the headers that a broker writes of a record that a share group gave up (KIP-1191)."""
    said = {"topic": topic, "partition": partition, "offset": offset, "group": "billing", "delivery.count": 5}
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in said.items()]


def streams(topic: str, partition: int, offset: int) -> Headers:
    """Make the headers that Kafka Streams writes of a record that was too large to be dead-lettered whole."""
    said = {"exception": "org.apache.kafka.common.errors.RecordTooLargeException", "message": "too large"}
    said |= {"topic": topic, "partition": str(partition), "offset": str(offset)}
    return [(f"__streams.errors.{name}", value.encode()) for name, value in said.items()]


def pointing(deploy: Deploy, **dead_letters: int) -> tuple[Deployment, str]:
    """A deployment whose letters point into a topic of two partitions; that topic."""
    deployment = deploy(dead_letters, shards=2, retry_partitions=2, retry_config=KEEPS_TIME)
    source = f"{deployment.app_id}.source"
    deployment.create({source: (2, dict(KEEPS_TIME))})
    keys = f"origins: [{source}]"
    topics = [policies.topic(deployment, name, keys) for name in deployment.dead_letters]
    deployment.policy_file.write_text(policies.text({"t": policies.team(*topics)}))
    return deployment, source


def write_sources(deployment: Deployment, source: str, records: list[tuple[bytes | None, bytes | None, Headers]]) -> list[Letter]:
    """Records of an hour ago in the source topic, in that order."""
    sender, stamp_ms = Sender(deployment.bootstrap_servers), wall_ms() - HOUR_MS
    for n, (key, value, headers) in enumerate(records):
        sender.send(source, key, value, headers, timestamp_ms=stamp_ms + n, partition=n % 2)
    return sorted(sender.finish().values(), key=lambda letter: letter.timestamp_ms)


def first_failed_ms(record: Record) -> int:
    """When the letter failed, as the service has it."""
    return int(record.header("retry-first-failed-ms"))


def test_a_pointer_is_retried_as_the_record_that_it_names(deploy: Deploy) -> None:
    deployment, source = pointing(deploy, share=1, streams=1)
    shared, streamed = deployment.dead_letters
    headers: Headers = [("a", None), ("trace", b"1"), ("a", b"\xff")]
    origins = write_sources(
        deployment, source, [(b"k1", b"v1", headers), (None, b"v2", []), (b"k3", None, []), (b"k4", b"v4", [])]
    )
    sender, began_ms = Sender(deployment.bootstrap_servers), wall_ms()
    wanted: dict[str, tuple[Letter, Headers]] = {}
    for name, says in ((shared, share), (streamed, streams)):
        for n, origin in enumerate(origins):
            said = says(source, origin.partition, origin.offset)
            # Streams writes with the time of the record that failed, a broker with its own.
            stamp_ms = origin.timestamp_ms if name == streamed else wall_ms()
            sender.send(name, None, None, said, timestamp_ms=stamp_ms)
            wanted[f"{name}/0/{n}"] = origin, said
    sent = sender.finish()
    assert sent.keys() == wanted.keys()
    worker = deployment.worker().start()
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    tail.await_seen(len(wanted))
    tail.close()
    for record in tail.records:
        origin, said = wanted[record.header("retry-source")]
        assert (record.key, record.value, record.timestamp_ms) == (origin.key, origin.value, origin.timestamp_ms)
        theirs = [*origin.headers, *said]
        assert record.headers[: len(theirs)] == theirs
        assert [name for name, _ in record.headers[len(theirs) :]] == OURS
        assert record.header("retry-attempt") == "1"
        assert began_ms <= first_failed_ms(record) <= wall_ms()
        if record.topic == deployment.retry_of(shared):
            assert first_failed_ms(record) == sent[record.header("retry-source")].timestamp_ms
        assert int(record.header("retry-due-ms")) == first_failed_ms(record) + 100
    worker.terminate()


def test_a_letter_with_the_timestamp_of_its_origin_is_not_an_hour_late(deploy: Deploy) -> None:
    deployment, _ = pointing(deploy, connect=1)
    (name,), sender, began_ms = deployment.dead_letters, Sender(deployment.bootstrap_servers), wall_ms()
    said = {"topic": "orders", "partition": "0", "offset": "7", "connector.name": "sink", "stage": "TASK_PUT"}
    headers = [(f"__connect.errors.{what}", value.encode()) for what, value in said.items()]
    sender.send(name, b"k", b"v", headers, timestamp_ms=began_ms - HOUR_MS)
    sender.finish()
    worker = deployment.worker().start()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(1)
    (record,) = tail.records
    assert record.timestamp_ms == began_ms - HOUR_MS
    assert began_ms <= first_failed_ms(record) == int(record.header("retry-due-ms")) - 100
    tail.close()
    worker.terminate()


def test_a_record_that_is_gone_or_not_allowed_parks_its_letter(deploy: Deploy) -> None:
    deployment, source = pointing(deploy, share=1)
    other = f"{deployment.app_id}.secret"
    deployment.create({other: (1, dict(KEEPS_TIME))})
    origins = write_sources(deployment, source, [(b"k%d" % n, b"v", []) for n in range(4)])
    elsewhere = written_to_one(deployment, other)
    deleted, kept = origins[0], origins[2]
    assert (deleted.partition, kept.partition) == (0, 0)
    for done in deployment.admin.delete_records([TopicPartition(source, 0, kept.offset)]).values():
        done.result(20)
    (name,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    cases = {
        "source_gone": share(source, 0, deleted.offset), "": share(source, 0, kept.offset),
        "source_not_allowed": share(other, 0, elsewhere.offset),
    }  # fmt: skip
    for said in cases.values():
        sender.send(name, None, None, said)
    sender.send(name, None, None, share(source, 1, 1_000_000))
    sender.send(name, None, None, share(source, 9, 0))
    sender.finish()
    worker = deployment.worker().start()
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    tail.await_seen(5)
    reasons = Counter(record.header("retry-parked-reason") for record in tail.records)
    assert reasons == {"source_gone": 3, "": 1, "source_not_allowed": 1}
    for record in tail.records:
        reason = record.header("retry-parked-reason")
        assert record.topic == (deployment.parked if reason else deployment.retry_of(name))
        assert (record.key, record.value) == ((None, None) if reason else (kept.key, b"v"))
        if reason == "source_not_allowed":
            assert record.headers[: len(cases[reason])] == cases[reason]
    tail.close()
    worker.terminate()


def written_to_one(deployment: Deployment, topic: str) -> Letter:
    """A record of a topic of one partition."""
    sender = Sender(deployment.bootstrap_servers)
    sender.send(topic, b"k", b"secret")
    (letter,) = sender.finish().values()
    return letter


def test_a_pointer_into_the_retry_topic_goes_on_with_its_lineage(deploy: Deploy) -> None:
    deployment, source = pointing(deploy, share=1)
    (origin,) = write_sources(deployment, source, [(b"k", b"v", [("trace", b"1")])])
    (name,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    worker = deployment.worker().start()
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    at, seen = (source, origin.partition, origin.offset), list[Record]()
    for attempt in (1, 2, 3, 4, 5, 6):
        sender.send(name, None, None, share(*at))
        sender.finish()
        tail.await_seen(attempt)
        record = tail.records[-1]
        at = record.topic, record.partition, record.offset
        seen.append(record)
    assert [record.header("retry-attempt") for record in seen] == ["1", "2", "3", "4", "5", "5"]
    assert [record.header("retry-parked-reason") for record in seen] == [""] * 5 + ["max_attempts"]
    assert {record.header("retry-id") for record in seen} == {seen[0].header("retry-id")}
    assert {first_failed_ms(record) for record in seen} == {first_failed_ms(seen[0])}
    assert {(record.key, record.value, record.header("trace")) for record in seen} == {(b"k", b"v", "1")}
    assert {record.timestamp_ms for record in seen} == {origin.timestamp_ms}
    # Neither ours nor those of the pointers are stacked.
    for record in seen:
        counted = Counter(header for header, _ in record.headers)
        assert max(counted.values()) == 1, counted
    tail.close()
    worker.terminate()


def test_many_pointers_among_other_letters_are_fetched_together(deploy: Deploy) -> None:
    deployment, source = pointing(deploy, share=1)
    origins = write_sources(deployment, source, [(b"k%d" % n, b"v%d" % n, []) for n in range(POINTERS)])
    (name,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n, origin in enumerate(origins):
        sender.send(name, None, None, share(source, origin.partition, origin.offset))
        sender.send(name, b"whole %d" % n, b"v")
    sender.finish()
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    worker = deployment.worker().start()
    tail.await_seen(1)
    began_s = monotonic_s()
    tail.await_seen(POINTERS + WHOLE)
    took_s = monotonic_s() - began_s
    print(f"{POINTERS} pointers beside {WHOLE} letters: {took_s:.1f} s")
    # One record that is asked for by itself and waited for takes longer than all of these together.
    assert took_s < 60.0
    keys = {record.key for record in tail.records}
    assert keys == {origin.key for origin in origins} | {b"whole %d" % n for n in range(WHOLE)}
    assert len(tail.records) == POINTERS + WHOLE
    tail.close()
    worker.terminate()
