"""What a consumer group has committed is written to the outcomes topic, and a whole worker tells of itself what is declared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from retry.kafka.consumer_groups import Committed
from retry.telemetry import offset_records, prometheus
from retry.telemetry.offset_records import Position
from retry.telemetry.outcomes import read as letters_of
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.metrics import read_exported
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, QUIET, Record, read

pytestmark = pytest.mark.slow

LETTERS = 20
# Nobody else who uses the broker commits for it, at topics that this deployment does not know.
GROUP = "sampled"


def test_what_a_group_commits_is_sampled_and_outcomes_stay_readable(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(
        {"orders": 3}, shards=2, defaults=f"{{group: {GROUP}, backoff: {{kind: constant, delay: 500ms}}, jitter: none}}",
        environ={"RETRY_POSITIONS_EVERY_S": "1"},
    )  # fmt: skip
    (dead_letters,), (retries,) = deployment.dead_letters, deployment.retry_topics()
    workers = [deployment.worker(name).start() for name in "ab"]
    for worker in workers:
        worker.await_ready()
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(dead_letters, b"%d" % n, b"%d" % n)
    sender.finish()
    consumer = Consumer({
        "bootstrap.servers": deployment.bootstrap_servers, "group.id": GROUP, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "logger": QUIET,
    })  # fmt: skip
    try:
        consumer.subscribe([retries])
        # Places, not messages: a group that begins anew reads again.
        seen: set[tuple[str, int, int]] = set()

        def all_back() -> bool:
            came = [m for m in consumer.consume(50, 0.2) if m.error() is None]
            seen.update((m.topic() or "", m.partition() or 0, m.offset() or 0) for m in came)
            return len(seen) == LETTERS

        await_that("all come back", all_back)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    ask, committed = Committed(deployment.admin), dict[str, dict[tuple[str, int], int]]()

    def told_of_both() -> bool:
        # A coordinator that is being loaded cannot say yet.
        committed.update(ask([GROUP, "nobody"], 20.0)[0])
        return committed.keys() == {GROUP, "nobody"}

    await_that("both groups are told of", told_of_both)
    assert committed["nobody"] == {}
    try:
        await_that("all of it is sampled", lambda: read_samples(deployment) == committed[GROUP])
    except AssertionError as error:
        ages_s = [worker.metric("retry_offset_sample_age_seconds") for worker in workers]
        raise AssertionError(
            f"{read_samples(deployment)} of {committed[GROUP]}; the oldest samples are {ages_s} s old"
        ) from error
    # Marks of transactions have offsets, too: what was read lies below.
    assert {(topic, partition) for topic, partition, _ in seen} <= committed[GROUP].keys()
    assert all(offset < committed[GROUP][topic, partition] for topic, partition, offset in seen)
    left_ms = max(r.timestamp_ms for r in read(deployment.bootstrap_servers, [deployment.names.changelog], COMMITTED))
    await_that("it is told that all is passed", lambda: passed_ms(deployment) >= left_ms)
    records = [record for record in outcomes(deployment) if record.key != offset_records.KEY]
    letters = [letter for record in records for letter in letters_of(record.value or b"")]
    assert len(letters) == LETTERS
    assert {(letter["v"], letter["group"], letter["delay_ms"]) for letter in letters} == {(1, GROUP, 500)}
    # Nobody takes a sample for a letter.
    verified = deployment.command("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert_declared(workers)
    for worker in workers:
        worker.terminate()


def outcomes(deployment: Deployment) -> list[Record]:
    return read(deployment.bootstrap_servers, [deployment.names.outcomes], COMMITTED)


def read_samples(deployment: Deployment) -> dict[tuple[str, int], int]:
    """The last sample of each partition."""
    found: list[Position] = [offset_records.read(r.value or b"") for r in outcomes(deployment) if r.key == offset_records.KEY]
    assert {position.group for position in found} <= {GROUP}
    return {(p.topic, p.partition): p.offset for p in sorted(found, key=lambda p: p.at_ms)}


def passed_ms(deployment: Deployment) -> int:
    """Up to when all retries are passed, as samples tell."""
    found = [offset_records.read(r.value or b"").passed_ms for r in outcomes(deployment) if r.key == offset_records.KEY]
    return max((until_ms for until_ms in found if until_ms is not None), default=0)


def assert_declared(workers: list[WorkerProcess]) -> None:
    """Each page has what is declared of a worker, with its type and its labels."""
    pages = [read_exported(worker.get("/metrics")[1]) for worker in workers]
    for page in pages:
        assert page.keys() == {metric.name for metric in (*prometheus.WORKER, *prometheus.EVERY)}
        for name, (kind, labels) in page.items():
            metric = prometheus.DECLARED[name]
            assert kind == metric.type, name
            assert labels in ((), tuple(sorted(metric.labels))), name
    assert sum(worker.metric("retry_retries_sent_total") for worker in workers) == LETTERS
    assert sum(worker.metric("retry_offset_samples_written_total") for worker in workers) > 0
    # A broker that is busy may not answer in its five seconds, or be loading a coordinator: that is told, and asked again.
    failed = sum(worker.metric("retry_offset_samples_failed_total") for worker in workers)
    assert failed <= sum(worker.log().count(f"cannot learn what group {GROUP} has committed: ") for worker in workers)
    labelled = {name for page in pages for name, (_, labels) in page.items() if labels}
    assert {"retry_retries_sent_total", "retry_entries_due_soon", "retry_paused", "retry_shard_restored_ratio"} <= labelled
