"""The end of a soak: everything has come back, `retry verify` has looked, and one line says what was found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import OffsetSpec

from retry.clock import Deadline, iso, wall_ms
from tests.soak.downstream import Downstream
from tests.soak.faults import Faults
from tests.soak.load import Load
from tests.support.deployment import Deployment
from tests.support.process import await_that
from tests.support.reading import admin

_DRAIN_S = 600.0
_READY_S = 120.0
_VERIFY_S = 1_800.0
_ASK_S = 20.0
_QUIET, _TELL_S = 3, 10.0
KINDS = ("lost", "duplicate", "torn", "early", "phantom", "wrong_topic", "stuck")
_HEAD = """\
# Soaks

This page lists long runs under load and random faults, for operators who ask how the service holds over time. Each line
is one run of `make soak`: the letters, what was done to workers and broker meanwhile, and what `retry verify` found
afterwards.

*Undone records* are those of aborted transactions, which `read_committed` consumers never see. Lateness is by the
broker's clock, faults and outages included. The workers and the broker share one machine.

"""
_COLUMNS = (
    "begun", "minutes", "letters", "deliveries", "faults", "lost", "duplicate", "torn, early, phantom, wrong topic, stuck",
    "undone records", "tables equal to their fold", "late p50 / p99 / worst",
)  # fmt: skip


def drain(deployment: Deployment, downstream: Downstream) -> None:
    """Wait until no letter is unread, waiting, or delivered and not yet consumed."""
    for worker in deployment.workers.values():
        if worker.running():
            worker.await_ready(_READY_S)
    seen: list[tuple[int, int]] = []
    told = Deadline(_TELL_S)

    def nothing_under_way() -> bool:
        nonlocal told
        unread, waiting = count_behind(deployment.bootstrap_servers, deployment.names.intake_group), count_waiting(deployment)
        if told.has_passed():
            print(f"{unread:,} letters unread, {waiting:,.0f} waiting", flush=True)
            told = Deadline(_TELL_S)
        if unread or waiting:
            seen.clear()
            return False
        seen.append((downstream.done, downstream.failed_again))
        return len(seen) > _QUIET and len(set(seen[-_QUIET:])) == 1

    await_that("everything has come back", nothing_under_way, _DRAIN_S)


def count_waiting(deployment: Deployment) -> float:
    return sum(worker.metric("retry_entries_waiting") for worker in deployment.workers.values() if worker.running())


def count_behind(bootstrap_servers: str, group: str) -> int:
    """How many records a group has not read yet; one at least while it cannot be asked."""
    # A client that has lost a broker now and then no longer gets an answer about groups.
    client = admin(bootstrap_servers)
    try:
        told = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=_ASK_S)
        offsets = told[group].result(_ASK_S).topic_partitions
        ends = client.list_offsets({p: OffsetSpec.latest() for p in offsets}, request_timeout=_ASK_S)
        return sum(max(0, ends[p].result(_ASK_S).offset - p.offset) for p in offsets)
    except (KafkaException, TimeoutError):
        return 1


def verify(deployment: Deployment) -> dict[str, Any]:
    """Run `retry verify`, the tables of all workers included, which have ended."""
    folders = [arg for w in deployment.workers.values() if w.data_dir.exists() for arg in ("--data-dir", str(w.data_dir))]
    told = deployment.command("verify", "--json", *folders, timeout_s=_VERIFY_S)
    assert told.stdout, told.stderr
    found: dict[str, Any] = orjson.loads(told.stdout)
    assert (told.returncode == 0) == (not wrong(found)), told.stderr
    return found


def wrong(found: dict[str, Any]) -> dict[str, Any]:
    """List what is not as it was promised."""
    kinds = {kind: found[kind] for kind in KINDS if found[kind]}
    return kinds | ({"tables": found["tables"]} if found["tables"]["differing"] else {})


def write(
    file: Path, began_ms: int, load: Load, downstream: Downstream, faults: Faults, found: dict[str, Any]
) -> str:
    """Add the line to a file, and return it."""
    begun = iso(began_ms)[:16].replace("T", " ")
    done = ", ".join(f"{kind} {count}" for kind, count in faults.done.most_common())
    late = " / ".join(
        f"{ms / 1_000:.1f} s" for ms in (downstream.late_ms_at(0.5), downstream.late_ms_at(0.99), downstream.worst_late_ms)
    )
    rest = ", ".join(str(found[kind]) for kind in KINDS[2:])
    tables = found["tables"]
    cells = (
        f"{begun} UTC", f"{(wall_ms() - began_ms) / 60_000:.0f}", f"{load.acknowledged + downstream.failed_again:,}",
        f"{downstream.done + downstream.failed_again:,}", f"{faults.done.total()}: {done}", found["lost"], found["duplicate"],
        rest, f"{found['aborted']:,}", f"{tables['checked'] - tables['differing']} of {tables['checked']}", late,
    )  # fmt: skip
    before = file.read_text() if file.exists() else _HEAD + _row(_COLUMNS) + _row(["---"] * len(_COLUMNS))
    file.write_text(before + _row(cells))
    return _row(cells)


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"
