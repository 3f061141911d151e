"""The state directory full, gone, damaged and put back from yesterday; and a worker that gets too little memory."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from rocksdict import Options, Rdict

from retry.clock import Deadline, pause, wall_ms
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable
from retry.delay_queue.table.table_state import TableState
from retry.kafka import topics as own_topics
from retry.kafka.local_broker import LocalBroker
from tests.conftest import Deploy
from tests.support import topics
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Letter, Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.slow

MB = 1 << 20
DELAY_MS = 12_000
POLICY = "{backoff: {kind: constant, delay: 12s}, jitter: none, max_attempts: 5}"
# So that tables write files soon.
SMALL = {"RETRY_TABLE_CACHE_BYTES": str(8 * MB)}
DAY_MS = 86_400_000
# For letters that have to be there, all together, before the first of them is due.
LATE_MS = 60_000
LATE = POLICY.replace("12s", "60s")


def send(
    deployment: Deployment, count: int, size: int, seconds: float = 0.0, delay_ms: int = DELAY_MS, seed: int = 4_711
) -> dict[str, Letter]:
    """Letters that cannot be compressed, and that are due after the delay; those of another seed are equal to none of these."""
    sender, names, draw = Sender(deployment.bootstrap_servers), list(deployment.dead_letters), random.Random(seed)

    def one(n: int) -> None:
        sender.send(names[n % len(names)], b"k%d" % n, draw.randbytes(size), delays_ms=(delay_ms, delay_ms))

    sender.paced(count, seconds, one)
    return sender.finish()


def await_back(deployment: Deployment, count: int, timeout_s: float = 180.0) -> None:
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(count, timeout_s)
    tail.close()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.fault("disk of the state directory full")
def test_a_full_disk_ends_the_worker_and_a_larger_one_lets_it_go_on(deploy: Deploy, full: Path, runs: Runs) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults=LATE)
    worker = deployment.worker()
    worker.data_dir.symlink_to(full)
    worker.start(**SMALL).await_ready()
    sent = send(deployment, 6_000, 4_000, delay_ms=LATE_MS)
    for _ in range(2):
        assert worker.wait(120.0) not in (0, -9)
        assert "No space left on device" in worker.log()
        assert "make room" in worker.log()
        runs.add()
        worker.start(**SMALL)
    worker.kill()
    subprocess.run(["mount", "-o", "remount,size=300m", full], check=True)
    worker.start(**SMALL).await_ready()
    await_back(deployment, len(sent))
    worker.terminate()
    assert check(deployment, sent).wrong() == {}


@pytest.mark.fault("state directory removed")
@pytest.mark.parametrize("running", [True, False])
def test_a_state_directory_that_is_removed_is_restored(deploy: Deploy, running: bool) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults=POLICY)
    worker = deployment.worker().start(**SMALL).await_ready()
    sent: dict[str, Letter] = {}
    load = Thread(target=lambda: sent.update(send(deployment, 6_000, 2_000, 10.0)))
    load.start()
    await_that("some wait", lambda: worker.metric("retry_entries_waiting") > 1_000)
    if not running:
        worker.kill()
    remove(worker.data_dir)
    if not running:
        worker.start(**SMALL)
    load.join()

    def has_noticed() -> bool:
        # Only a new file shows that its directory is gone: letters arrive until each table was to have one.
        if all(f"shard {n}: to be opened again" in worker.log() for n in range(2)):
            return True
        sent.update(send(deployment, 300, 2_000, 0.5, seed=len(sent)))
        return False

    if running:
        await_that("it is noticed", has_noticed)
    await_back(deployment, len(sent))
    worker.terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables == 2


def remove(folder: Path) -> None:
    """All of it at once: while a worker runs, files come and go in it between two steps of `rm -rf`."""
    gone = folder.with_name(f"{folder.name}-gone")
    folder.rename(gone)
    shutil.rmtree(gone)


@pytest.mark.fault("table file damaged, worker restarted")
@pytest.mark.parametrize("seed", range(3))
def test_a_worker_restores_tables_whose_files_are_damaged(deploy: Deploy, seed: int, runs: Runs) -> None:
    # Their keys share them out to all shards.
    deployment, draw = deploy({"orders": 3}, shards=4, defaults=LATE, topic_keys="ordered: true"), random.Random(seed)
    worker = deployment.worker().start(**SMALL).await_ready()
    sent = send(deployment, 4_000, 500, delay_ms=LATE_MS)
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == len(sent))
    worker.terminate()
    patterns = "*.sst", "MANIFEST-*", "CURRENT", "*.sst"
    for table, pattern in zip(sorted((worker.data_dir / "tables").iterdir()), patterns, strict=True):
        file = max(table.glob(pattern), key=lambda each: each.stat().st_size)
        content = bytearray(file.read_bytes())
        at = draw.randrange(len(content))
        content[at : at + 4_096] = bytes(byte ^ 0xFF for byte in content[at : at + 4_096])
        file.write_bytes(content if draw.random() < 0.7 else content[:at])
        runs.add()
    worker.start(**SMALL)
    await_back(deployment, len(sent))
    worker.terminate()
    assert "wiped" in worker.log()
    assert check(deployment, sent).wrong() == {}


@pytest.mark.fault("state directory of yesterday put back after compaction")
def test_a_state_directory_that_is_too_old_brings_nothing_to_life(deploy: Deploy, tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", heap_mb=384, overrides=["log.cleaner.backoff.ms=200"]) as broker:
        deployment = deploy({"orders": 1}, on=broker, shards=1, defaults=LATE)
        changelog, worker = deployment.names.changelog, deployment.worker().start().await_ready()
        send(deployment, 300, 100, delay_ms=LATE_MS)
        await_that("all wait", lambda: worker.metric("retry_entries_waiting") == 300)
        worker.terminate()
        shutil.copytree(worker.data_dir / "tables", tmp_path / "stale")
        worker.start()
        await_back(deployment, 300)
        sent = 300 + compact(deployment)
        worker.terminate()

        assert count_resurrected(deployment, tmp_path / "stale", tmp_path / "looked-at") == 300, "nothing was at stake"
        shutil.rmtree(worker.data_dir / "tables")
        shutil.copytree(tmp_path / "stale", worker.data_dir / "tables")
        let_age(worker.data_dir / "tables" / f"{changelog}-0", DAY_MS + 60_000)
        worker.start().await_ready()
        assert "wiped" in worker.log()
        await_that("nothing waits", lambda: worker.metric("retry_entries_waiting") == 0)
        tail = Tail(broker.bootstrap_servers, deployment.retry_topics())
        tail.await_seen(sent)
        tail.quiet(3.0)
        tail.close()
        worker.terminate()
        came = Counter(record.header("retry-source") for record in tail.records)
        assert set(came.values()) == {1}
        deployment.close()


def compact(deployment: Deployment) -> int:
    """Have the changelog forget what was deleted, as it does after two days; then set it as it was. How many letters it took."""
    changelog, (topic,), sender = deployment.names.changelog, deployment.dead_letters, Sender(deployment.bootstrap_servers)
    before = own_topics.describe(deployment.admin, [changelog])[changelog].config["delete.retention.ms"]
    topics.configure(deployment.admin, changelog, delete_retention_ms="1000", segment_ms="500", min_cleanable_dirty_ratio="0.01",
                     max_compaction_lag_ms="1000")  # fmt: skip
    first = {record.key for record in read(deployment.bootstrap_servers, [changelog], COMMITTED)}
    deadline = Deadline(180.0)
    # Only segments that are no longer written are compacted, and only what is written ends one.
    while first & {record.key for record in read(deployment.bootstrap_servers, [changelog], COMMITTED)}:
        assert not deadline.has_passed(), "the changelog is not compacted"
        # Due at once, and no two are equal.
        sender.send(topic, b"late", b"%d" % sender.acknowledged(), [("retry-at-ms", b"%d" % wall_ms())])
        sender.finish()
        pause(0.5)
    came = len(sender.finish())
    # None of them may be on its way still: what is stale is folded on from here.
    await_back(deployment, 300 + came)
    topics.configure(deployment.admin, changelog, delete_retention_ms=before)
    return came


def count_resurrected(deployment: Deployment, stale: Path, copy: Path) -> int:
    """How many delivered entries a table has that is folded on from a stale directory."""
    shutil.copytree(stale, copy)
    changelog = deployment.names.changelog
    about = own_topics.describe(deployment.admin, [changelog])[changelog]
    identity = Identity(own_topics.read_cluster_id(deployment.admin), about.topic_id, 0)
    table = RocksTable(copy / f"{changelog}-0", identity, Memory(8 * MB))
    rows = [r for r in read(deployment.bootstrap_servers, [changelog], COMMITTED) if r.offset >= table.next_offset]
    table.apply_records([(r.key or b"", r.value) for r in rows], rows[-1].offset + 1, 0)
    found = table.waiting
    table.close()
    return found


def let_age(table: Path, by_ms: int) -> None:
    """Have a table say that it was last current so much earlier."""
    database = Rdict(str(table), options=Options(raw_mode=True))
    state = msgspec.msgpack.decode(database[b"\0"], type=TableState)
    aged = msgspec.structs.replace(state, current_at_ms=state.current_at_ms - by_ms)
    database[b"\0"] = msgspec.msgpack.encode(aged)
    database.close()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A control group that may use 512 MB, of either version."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    group = (old if old.is_dir() else new) / f"retry-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(str(512 * MB))
    except OSError:
        pytest.skip("control groups cannot be made here")
    yield group
    group.rmdir()


@pytest.mark.fault("512 MB for letters of 1 MB")
def test_letters_of_a_megabyte_come_back_in_little_memory(cgroup: Path, deploy: Deploy, runs: Runs) -> None:
    deployment = deploy({"orders": 2}, shards=4, defaults=POLICY.replace("12s", "6s"))
    worker = deployment.worker()

    def start() -> None:
        worker.start()
        (cgroup / "cgroup.procs").write_text(str(worker.pid))

    start()
    sent = send(deployment, 600, 990_000)
    sent = {source: letter._replace(due_ms=None) for source, letter in sent.items()}
    tail, deadline, kills = Tail(deployment.bootstrap_servers, deployment.retry_topics()), Deadline(300.0), 0
    while len(tail.seen) < len(sent):
        assert not deadline.has_passed(), f"{len(tail.seen)} of {len(sent)} came back, {kills} kills"
        tail.read()
        tail.records.clear()
        if not worker.running():
            assert worker.exit_code() == -signal.SIGKILL, worker.tail()
            kills += 1
            start()
    tail.close()
    peaks = [cgroup / name for name in ("memory.max_usage_in_bytes", "memory.peak")]
    peak_mb = max(int(file.read_text()) >> 20 for file in peaks if file.exists())
    print(f"peak with page cache {peak_mb} MB, RSS {resident_mb(worker)} MB, killed {kills} times")
    runs.add(max(1, kills))
    worker.terminate()
    assert check(deployment, sent).wrong() == {}


def resident_mb(worker: WorkerProcess) -> int:
    """The most that it had at once."""
    (line,) = [line for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) >> 10
