"""`retry worker` as its users meet it: what it refuses, what it answers, and what a retried record looks like."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from retry.clock import wall_ms
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.deployment import Deployment
from tests.support.letters import Headers, Sender
from tests.support.lineage_ids import silent_id
from tests.support.load import Load
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Record, Tail

pytestmark = pytest.mark.check

# Of the Java client: org.apache.kafka.common.utils.UtilsTest.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
AT_ONCE = "{backoff: {kind: constant, delay: 100ms}, jitter: none, max_attempts: 3}"
OURS = ["retry-id", "retry-attempt", "retry-source", "retry-due-ms", "retry-policy", "retry-first-failed-ms"]


def test_a_changelog_that_forgets_is_refused_with_the_command_that_mends_it(deployment: Deployment) -> None:
    changelog = deployment.names.changelog
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    wrong = ConfigResource(ResourceType.TOPIC, changelog, incremental_configs=[entry])
    for done in deployment.admin.incremental_alter_configs([wrong]).values():
        done.result(20)
    await_that("the setting is known", lambda: deployment.command("topics", "check").returncode != 0)
    refused = deployment.command("worker")
    assert refused.returncode == 1
    assert "cleanup.policy is delete, not compact" in refused.stderr
    assert f"--topic {changelog} --add-config cleanup.policy=compact" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_missing_topics_are_refused_with_the_command_that_creates_them(deployment: Deployment) -> None:
    refused = deployment.command("worker", RETRY_APP_ID=f"{deployment.app_id}x")
    assert refused.returncode == 1
    assert f"{deployment.app_id}x-changelog is missing" in refused.stderr
    assert "retry topics create" in refused.stderr


@pytest.mark.fault("one data directory used twice")
def test_a_data_directory_in_use_is_refused_with_its_path_and_owner(deployment: Deployment) -> None:
    owner = deployment.worker().start().await_ready()
    before = _table_files(owner)
    refused = deployment.command("worker", RETRY_DATA_DIR=str(owner.data_dir))
    assert refused.returncode == 1
    assert before and before <= _table_files(owner)
    assert str(owner.data_dir) in refused.stderr
    assert re.search(rf"\b{owner.pid}\b", refused.stderr)
    assert owner.ready()
    owner.terminate()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"RETRY_SWEEP_INTERVAL_MS": "soon"}, "RETRY_SWEEP_INTERVAL_MS: 'soon' is not a whole number"),
        ({"RETRY_POLICIES": "/nowhere/policies.yaml"}, "/nowhere/policies.yaml"),
        ({"RETRY_POLICIES": ""}, "RETRY_POLICIES: not set"),
    ],
)
def test_a_wrong_setting_is_refused_in_a_line(deployment: Deployment, wrong: dict[str, str], told: str) -> None:
    refused = deployment.command("worker", **wrong)
    assert refused.returncode == 1
    assert told in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_broker_that_is_not_there_is_said_in_a_line(deployment: Deployment) -> None:
    refused = deployment.command("worker", RETRY_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert refused.returncode == 1
    assert "127.0.0.1:1" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_health_and_metrics_are_served_on_loopback_alone(deployment: Deployment) -> None:
    worker = deployment.worker().start().await_ready()
    assert worker.get("/health/live") == (200, '{"live": true}')
    status, body = worker.get("/health/ready")
    assert status == 200
    assert json.loads(body)["shards_owned"] == deployment.shards
    assert "retry_entries_waiting 0.0" in worker.get("/metrics")[1]
    assert worker.get("/nothing")[0] == 404
    listening = _listening(worker.pid)
    assert listening == {f"127.0.0.1:{worker.port()}"}
    worker.terminate()


@pytest.mark.slow
def test_sigterm_under_load_hands_over_in_time_and_loses_nothing(deploy: Deploy) -> None:
    deployment = deploy({"one": 1, "three": 3}, defaults="{backoff: {kind: constant, delay: 1s}, jitter: full}")
    worker = deployment.worker().start().await_ready()
    # Letters come all the time: when it ends there are some to be taken in and entries due, on every machine.
    with Load(deployment, 400, 1_000) as load:
        await_that("entries are sent", lambda: worker.metric("retry_entries_sent_total") > 1_000)
        worker.terminate()
        worker.start()
        await_that("entries are sent again", lambda: worker.metric("retry_entries_sent_total") > 1_000)
    nothing_is_wrong(deployment, load.sender)


@pytest.mark.essential
def test_a_retried_record_is_the_letter_and_ours(deploy: Deploy) -> None:
    # Broker time would replace the letter's own.
    deployment = deploy({"orders": 1}, defaults=AT_ONCE, retry_config={"message.timestamp.type": "CreateTime"})
    stamp_ms, wish = wall_ms() - 60_000, b"%d" % (wall_ms() + 300)
    headers: Headers = [
        ("b", b"2"), ("a", None), ("b", b"1"), ("", b"nameless"),
        ("retry-at-ms", wish), ("bin", b"\xff\xfe\x00"), ("b", b""),
    ]  # fmt: skip
    cases: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"key", b"value", headers),
        (None, b"value", []),
        (b"", b"", []),
        (b"\xff\xfe\x00", None, []),
    ]
    sender = Sender(deployment.bootstrap_servers)
    for key, value, case in cases:
        sender.send(*deployment.dead_letters, key, value, case, timestamp_ms=stamp_ms)
    sent = sender.finish()
    worker = deployment.worker().start()
    by_source = read_retried(deployment, len(cases))
    assert by_source.keys() == sent.keys()
    for source, letter in sent.items():
        record = by_source[source]
        kept = [header for header in letter.headers if header[0] != "retry-at-ms"]
        assert (record.key, record.value, record.timestamp_ms) == (letter.key, letter.value, stamp_ms)
        assert record.headers[: len(kept)] == kept
        assert [name for name, _ in record.headers[len(kept) :]] == OURS
        lineage = silent_id("testers", letter.topic, letter.key, letter.value).decode()
        assert (record.header("retry-id"), record.header("retry-attempt")) == (lineage, "1")
        assert record.header("retry-policy") == f"testers/{letter.topic}"
        due = wish.decode() if letter.headers else str(stamp_ms + 100)
        assert record.header("retry-due-ms") == due
    worker.terminate()


def test_the_key_decides_the_partition_as_the_java_client_would(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2}, defaults=AT_ONCE, retry_partitions=7)
    sender = Sender(deployment.bootstrap_servers)
    for key in MURMUR2:
        sender.send(*deployment.dead_letters, key, b"value")
    sender.finish()
    worker = deployment.worker().start()
    found = {record.key: record.partition for record in read_retried(deployment, len(MURMUR2)).values()}
    assert found == {key: (hashed & 0x7FFFFFFF) % 7 for key, hashed in MURMUR2.items()}
    worker.terminate()


@pytest.mark.essential
def test_3_11_attempts_are_counted_until_the_letter_parks(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, defaults=AT_ONCE)
    [dead_letters], sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    worker = deployment.worker().start()
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    headers: Headers = [("exception-class", b"TimeoutError")]
    lineage = silent_id("testers", dead_letters, b"key", b"value").decode()
    for attempt in (1, 2, 3):
        sender.send(dead_letters, b"key", b"value", headers)
        tail.await_seen(attempt)
        record = tail.records[-1]
        assert record.topic == deployment.retry_of(dead_letters)
        assert (record.header("retry-id"), record.header("retry-attempt")) == (lineage, str(attempt))
        assert [name for name, _ in record.headers] == ["exception-class", *OURS]
        # A consumer that fails again sends back what it was given.
        headers = record.headers
    sender.send(dead_letters, b"key", b"value", headers)
    tail.await_seen(4)
    parked = tail.records[-1]
    assert parked.topic == deployment.parked
    assert parked.header("retry-parked-reason") == "max_attempts"
    assert (parked.header("retry-id"), parked.header("retry-attempt")) == (lineage, "3")
    assert (parked.key, parked.value) == (b"key", b"value")
    tail.close()
    worker.terminate()


def read_retried(deployment: Deployment, count: int) -> dict[str, Record]:
    """Read what came back, by the coordinates of its letter."""
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(count)
    tail.close()
    assert len(tail.records) == count
    return {record.header("retry-source"): record for record in tail.records}


def _table_files(worker: WorkerProcess) -> set[tuple[str, int]]:
    """Files of the tables and which ones they are: what is wiped and made again is another."""
    return {(str(file), file.stat().st_ino) for file in (worker.data_dir / "tables").rglob("*") if file.is_file()}


def _listening(pid: int) -> set[str]:
    """Addresses on which a process listens, as the kernel has them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            continue
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            host, port = columns[1].split(":")
            if columns[3] == "0A" and columns[9] in inodes:
                packed = b"".join(bytes.fromhex(host[n : n + 8])[::-1] for n in range(0, len(host), 8))
                found.add(f"{socket.inet_ntop(family, packed)}:{int(port, 16)}")
    return found
