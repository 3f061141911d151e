"""Shards whose tables are at hand already are taken over sooner, and are the fold of the changelog like any other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from xxhash import xxh64_intdigest

from retry.clock import wall_ms
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import END_KEY, FIRST_KEY
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable
from retry.kafka import client_config, offset_ranges
from retry.settings import Settings
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import QUIET, Tail

pytestmark = pytest.mark.slow

SHARDS = 4
HOUR_MS = 3_600_000
ENTRIES, DELETED = 1_100_000, 100_000
PART = 50_000
PATIENCE_S = 240.0
_STAMP = r"(?P<at>[\d-]+ [\d:]+,\d+) "
_BEGUN = re.compile(r"shard \d+: from (?P<from>\d+) to (?P<to>\d+)")
_OURS, _READY = re.compile(_STAMP + r".* shards [\d, ]+: ours"), re.compile(_STAMP + r".* shard \d+: ready")


def test_copies_become_shards_and_shards_become_copies_under_load(deploy: Deploy) -> None:
    letters, environ = 3_000, {"RETRY_STANDBY": "1"}
    policy = "{backoff: {kind: constant, delay: 3s}, jitter: full}"
    deployment = deploy({"one": 1, "three": 3}, shards=SHARDS, defaults=policy, environ=environ)
    first, second = (deployment.worker(name).start() for name in ("first", "second"))
    await_that("each has the half, and a copy of the other", lambda: _halves(first) and _halves(second))
    sender = Sender(deployment.bootstrap_servers)
    send(sender, deployment, letters // 3, 3.0, 3_000)
    first.kill()
    await_that("the second has all", lambda: second.metric("retry_shards_ready") == SHARDS)
    assert second.metric("retry_shards_standby") == 0
    send(sender, deployment, letters // 3, 3.0, 3_000)
    first.start()
    await_that("it gives back the half, and keeps a copy", lambda: _halves(first) and _halves(second))
    send(sender, deployment, letters // 3, 3.0, 3_000)
    sent = sender.finish()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(letters)
    tail.close()
    for worker in (first, second):
        assert worker.metric("retry_shard_ready") == SHARDS / 2
        answers = [worker.get(f"/health/ready/{shard}")[0] for shard in range(SHARDS)]
        assert sorted(answers) == [200, 200, 404, 404]
    # Only then, since what the first leaves becomes the second's.
    for worker in (first, second):
        worker.terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables == 2 * SHARDS


# A million entries, twice: minutes.
def test_a_million_entries_are_taken_over_sooner_than_they_are_restored(deploy: Deploy, capsys: object) -> None:
    restored_s, restored, _ = _takeover_s(deploy, standby=0)
    taken_over_s, left, costs = _takeover_s(deploy, standby=1)
    with capsys.disabled():  # type: ignore[attr-defined]
        print(f"\n1,000,000 waiting entries, from the assignment to ready: standby {taken_over_s:.2f} s, "
              f"full restore {restored_s:.2f} s; a standby costs {costs}")  # fmt: skip
    assert taken_over_s < restored_s
    # How much sooner that is, the machine has a say in; what is left to be read tells it on every one.
    assert restored > ENTRIES and left < restored / 100


def _takeover_s(deploy: Deploy, standby: int) -> tuple[float, int, str]:
    """Seconds from the assignment until all shards are ready, of a worker that others left a million entries to; how many offsets
    of the changelog it had to read for that; what a standby costs."""
    deployment = deploy({"one": 1}, shards=SHARDS, environ={"RETRY_STANDBY": str(standby)})
    first, second = (deployment.worker(name).start() for name in ("first", "second"))
    await_that("each has the half", lambda: list_owned(first) and len(list_owned(first)) == len(list_owned(second)) == 2)
    before_mb = _rss_mb(second)
    _fill(deployment, list_owned(first))
    waiting = ENTRIES - DELETED
    await_that("all wait", lambda: first.metric("retry_entries_waiting") == waiting, PATIENCE_S)
    if standby:
        await_that("the copy is whole", lambda: count_copied(second) == waiting, PATIENCE_S)
    costs = f"{_rss_mb(second) - before_mb:.0f} MB of memory, {_disk_mb(second):.0f} MB of disk"
    first.kill()
    await_that("the second has all", lambda: second.metric("retry_shards_ready") == SHARDS, PATIENCE_S)
    assert second.metric("retry_entries_waiting") == waiting
    log = second.log()
    ours, ready = ([parse_log_time(found) for found in wanted.finditer(log)][-1] for wanted in (_OURS, _READY))
    to_read = sum(int(found["to"]) - int(found["from"]) for found in _BEGUN.finditer(log))
    second.terminate()
    _check_tables(deployment, second)
    return ready - ours, to_read, costs


def _fill(deployment: Deployment, partitions: list[int]) -> None:
    """Fill the changelog as intake would, only faster: entries due in an hour, and deletes of some."""
    [dead_letters] = deployment.dead_letters
    lane = entry_keys.lane("testers", dead_letters, deployment.retry_of(dead_letters), False)
    stem, due_ms = entry_keys.build_key_stem(dead_letters, 0), wall_ms() + HOUR_MS
    envelope = envelopes.encode(Entry(deployment.retry_of(dead_letters), b"k", b"v" * 100, [], None, "testers"))
    keys = [entry_keys.build_key(due_ms + n, stem, n, lane) for n in range(ENTRIES)]
    # Some of those in front and some in the middle are delivered meanwhile.
    rows = [(key, envelope) for key in keys] + [(key, None) for key in keys[: DELETED // 2] + keys[-DELETED // 2 :]]
    producer = Producer({
        "bootstrap.servers": deployment.bootstrap_servers, "transactional.id": f"{deployment.app_id}-intake-bulk",
        "compression.type": "lz4", "linger.ms": 20, "queue.buffering.max.messages": 2 * PART, "logger": QUIET,
    })  # fmt: skip
    producer.init_transactions(30.0)
    for at in range(0, len(rows), PART):
        producer.begin_transaction()
        for share, partition in enumerate(partitions):
            batch = [{"key": k, "value": v} for k, v in rows[at : at + PART] if k[-1] % len(partitions) == share]
            assert producer.produce_batch(deployment.names.changelog, batch, partition) == len(batch)
        producer.commit_transaction(60.0)


def _check_tables(deployment: Deployment, worker: WorkerProcess) -> None:
    """Each table against the fold of its partition, by a sum over rows that does not depend on their order."""
    config = client_config.build_reader_config(Settings(bootstrap_servers=deployment.bootstrap_servers))
    topic = deployment.names.changelog
    for span in offset_ranges.find_readable_spans(deployment.admin, topic, range(SHARDS)).values():
        folded: dict[int, int] = {}
        for messages in offset_ranges.read_batches(config, [span]):
            for message in messages:
                key, value = message.key() or b"", message.value()
                folded[xxh64_intdigest(key)] = xxh64_intdigest(key + value) if value is not None else 0
        rows = _rows(worker.data_dir / "tables" / f"{topic}-{span.partition}", span.partition)
        assert sum(folded.values()) == sum(xxh64_intdigest(key + value) for key, value in rows)


def _rows(path: Path, partition: int) -> Iterator[tuple[bytes, bytes]]:
    table, start = RocksTable(path, Identity("", "", partition), Memory(8 << 20)), FIRST_KEY
    try:
        # As they lie there: of a block there is one row.
        while found := table._db.scan(start, END_KEY, PART, 1 << 40)[0]:
            yield from found
            start = found[-1][0] + b"\0"
    finally:
        table.close()


def _health(worker: WorkerProcess) -> dict[str, dict[str, dict[str, int]]]:
    status, body = worker.get("/health/ready")
    return json.loads(body) if status else {"shards": {}, "standby": {}}


def list_owned(worker: WorkerProcess) -> list[int]:
    """Shards that it sweeps, once it is ready."""
    return [int(shard) for shard in _health(worker)["shards"]] if worker.ready() else []


def count_copied(worker: WorkerProcess) -> int:
    return sum(about["waiting"] for about in _health(worker)["standby"].values())


def _halves(worker: WorkerProcess) -> bool:
    return len(list_owned(worker)) == worker.metric("retry_shards_standby") == SHARDS / 2


def parse_log_time(found: re.Match[str]) -> float:
    return datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()


def _rss_mb(worker: WorkerProcess) -> float:
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1_024


def _disk_mb(worker: WorkerProcess) -> float:
    return sum(file.stat().st_size for file in (worker.data_dir / "tables").rglob("*") if file.is_file()) / (1 << 20)
