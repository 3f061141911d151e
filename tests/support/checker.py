"""The checker: what was sent, beside what a reader finds on the topics and on disk when all is over.

| finding | meaning |
| --- | --- |
| lost | a letter without a retry or a parked record |
| duplicate | one lineage and attempt more than once |
| early | appended, by the broker's clock, before it was due; all share that clock, so there is no tolerance |
| phantom | a record that goes back to no letter of ours |
| wrong_topic | a record on another topic than the policy says |
| changed | key, value or headers are not the letter's |
| torn | a delivery without its delete in the changelog, or a delete without its delivery |
| taken_twice | an entry or an outcome written twice |
| waiting | an entry that the changelog's fold still has |
| table | a row on disk that differs from the fold up to the table's own offset |
| verify | what `retry verify` finds, which does not know what was sent |

A read_uncommitted reader sees in addition what was undone. That proves nothing wrong, but it must not be early either,
nor come from nowhere; `Findings.undone` counts it and says whether faults have hit anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import END_KEY
from retry.delay_queue.table.interface import CONTROL, Identity
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import open_stored
from retry.errors import EntryUnreadable
from retry.kafka import topics
from retry.telemetry import offset_records, outcomes
from tests.support.blocks import list_entry_records
from tests.support.deployment import Deployment
from tests.support.letters import Letter
from tests.support.reading import COMMITTED, UNCOMMITTED, Record, read

_SHOWN = 3
_WRITTEN = (names.ID, names.ATTEMPT, names.SOURCE, names.DUE_MS, names.POLICY, names.FIRST_FAILED_MS)


@dataclass
class Findings:
    """The findings by kind, each with what tells where; `undone` and `tables` say what was looked at."""

    lost: list[str] = field(default_factory=list)
    duplicate: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    wrong_topic: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    taken_twice: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    table: list[str] = field(default_factory=list)
    verify: list[str] = field(default_factory=list)
    undone: int = 0
    tables: int = 0

    def wrong(self) -> dict[str, tuple[int, list[str]]]:
        """How many of each kind there are, and some of them; empty when all is well."""
        kinds = {kind: found for kind, found in vars(self).items() if isinstance(found, list) and found}
        return {kind: (len(found), found[:_SHOWN]) for kind, found in kinds.items()}


def check(deployment: Deployment, sent: Mapping[str, Letter]) -> Findings:
    """Compare everything; the workers have ended, and each letter was to be retried once.

    Letters whose retry is parked count as come back where they are parked.
    """
    found = Findings()
    servers = deployment.bootstrap_servers
    targets = [*deployment.retry_topics(), deployment.parked, deployment.names.parked]
    committed = read(servers, targets, COMMITTED)
    uncommitted = read(servers, targets, UNCOMMITTED)
    found.undone = len(uncommitted) - len(committed)
    _check_deliveries(found, deployment, sent, committed)
    _check_undone(found, sent, uncommitted)
    changelog = list_entry_records(read(servers, [deployment.names.changelog], COMMITTED))
    _check_changelog(found, sent, committed, changelog)
    _check_outcomes(found, sent, read(servers, [deployment.names.outcomes], COMMITTED))
    _check_tables(found, deployment, changelog)
    said = verify_deployment(deployment)["findings"]
    found.verify = [f"{kind}: {each}" for kind, some in said.items() for each in some]
    return found


def verify_deployment(deployment: Deployment, *options: str) -> dict[str, Any]:
    """Run `retry verify`, tables of all workers included; its exit code goes with what it says."""
    dirs = [worker.data_dir for worker in deployment.workers.values() if worker.data_dir.exists()]
    data_dirs = (option for path in dirs for option in ("--data-dir", str(path)))
    done = deployment.command("verify", "--json", *data_dirs, *options)
    assert done.stdout, done.stderr
    told: dict[str, Any] = orjson.loads(done.stdout)
    assert done.returncode == bool(told["findings"]), told
    return told


def _check_deliveries(found: Findings, deployment: Deployment, sent: Mapping[str, Letter], committed: list[Record]) -> None:
    came = Counter(record.header(names.SOURCE) for record in committed)
    found.duplicate = [f"{source}: {n} times" for source, n in came.items() if n > 1]
    back = set(came)
    found.lost = [source for source in sent if source not in back]
    for record in committed:
        letter = sent.get(record.header(names.SOURCE))
        if letter is None:
            found.phantom.append(_place(record))
            continue
        parking = deployment.parked, deployment.names.parked
        expected = parking if record.header(names.PARKED_REASON) else (deployment.retry_of(letter.topic),)
        if record.topic not in expected:
            found.wrong_topic.append(f"{_place(record)} of {letter.source}")
        found.changed += _changes(record, letter)
        found.early += _earliness(record, letter)


def _check_undone(found: Findings, sent: Mapping[str, Letter], uncommitted: list[Record]) -> None:
    for record in uncommitted:
        letter = sent.get(record.header(names.SOURCE))
        if letter is None:
            found.phantom.append(f"undone: {_place(record)}")
        else:
            found.early += [f"undone: {early}" for early in _earliness(record, letter)]


def _changes(record: Record, letter: Letter) -> list[str]:
    kept = [header for header in letter.headers if header[0] not in names.OURS]
    ours = [header for header, _ in record.headers[len(kept) :]]
    wanted = [*_WRITTEN, names.PARKED_REASON] if names.PARKED_REASON in ours else list(_WRITTEN)
    pairs = {
        "key": (record.key, letter.key),
        "value": (record.value, letter.value),
        "headers": (record.headers[: len(kept)], kept),
        "our headers": (ours, wanted),
    }
    return [f"{_place(record)}: {what}: {is_!r}, not {was!r}"[:300] for what, (is_, was) in pairs.items() if is_ != was]


def _earliness(record: Record, letter: Letter) -> list[str]:
    due_ms = int(record.header(names.DUE_MS))
    wrong = []
    if record.timestamp_ms < due_ms:
        wrong.append(f"{_place(record)}: {due_ms - record.timestamp_ms} ms before it was due")
    if letter.due_ms and not letter.due_ms[0] <= due_ms <= letter.due_ms[1]:
        wrong.append(f"{_place(record)}: due {due_ms}, not within {letter.due_ms}")
    return wrong


def _check_changelog(found: Findings, sent: Mapping[str, Letter], committed: list[Record], changelog: list[Record]) -> None:
    # What an operator asked for is no entry.
    changelog = [record for record in changelog if (record.key or b"")[:1] != CONTROL]
    puts: Counter[bytes] = Counter(record.key or b"" for record in changelog if record.value is not None)
    deletes: Counter[bytes] = Counter(record.key or b"" for record in changelog if record.value is None)
    away, back = _moves(changelog)
    deletes.subtract(away)
    puts.subtract(back)
    found.waiting = [name_entry(key) for key, value in fold(changelog).items() if value is not None]
    found.taken_twice = [f"{name_entry(key)}: {n} times" for key, n in puts.items() if n > 1]
    for key in puts:
        if _delivery(key)[0] not in sent:
            found.phantom.append(f"entry {name_entry(key)}")
    delivered = Counter((record.header(names.SOURCE), int(record.header(names.DUE_MS))) for record in committed)
    deleted = Counter(_delivery(key) for key in deletes.elements())
    found.torn = [f"{what}: delivered {delivered[what]}, deleted {deleted[what]}" for what in delivered | deleted
                  if delivered[what] != deleted[what]]  # fmt: skip


def _moves(changelog: Iterable[Record]) -> tuple[list[bytes], list[bytes]]:
    """Keys of entries that were put under another one later on: their deletes come without a delivery; and keys under which
    an entry came back from another one, as from the lane of what is held: it was not taken in once more."""
    last: dict[str, bytes] = {}
    had: dict[str, set[bytes]] = defaultdict(set)
    away, back = [], []
    for record in changelog:
        if record.value is not None and record.key is not None:
            source = _delivery(record.key)[0]
            if last.get(source, record.key) != record.key:
                away.append(last[source])
                if record.key in had[source]:
                    back.append(record.key)
            last[source] = record.key
            had[source].add(record.key)
    return away, back


def _delivery(key: bytes) -> tuple[str, int]:
    try:
        where = entry_keys.read_source(key)
    except EntryUnreadable:
        return key.hex(), 0
    return f"{where.topic}/{where.partition}/{where.offset}", where.due_at_ms


def _check_outcomes(found: Findings, sent: Mapping[str, Letter], records: list[Record]) -> None:
    letters = [record for record in records if record.key != offset_records.KEY]
    every = [letter for record in letters for letter in outcomes.read(record.value or b"")]
    told = Counter(letter["source"] for letter in every if letter.get("action") is None)
    found.taken_twice += [f"outcome of {source}: {n} times" for source, n in told.items() if n > 1]
    found.phantom += [f"outcome of {source}" for source in told if source not in sent]
    found.lost += [f"outcome of {source}" for source in sent if source not in told]


def fold(changelog: Iterable[Record], end: int | None = None) -> dict[bytes, bytes | None]:
    """The last value of each key, None for a deleted one; of the records before `end`."""
    return {record.key or b"": record.value for record in changelog if end is None or record.offset < end}


def _check_tables(found: Findings, deployment: Deployment, changelog: list[Record]) -> None:
    own = topics.describe(deployment.admin, [deployment.names.changelog])[deployment.names.changelog]
    cluster_id = topics.read_cluster_id(deployment.admin)
    by_partition: dict[int, list[Record]] = defaultdict(list)
    for record in changelog:
        by_partition[record.partition].append(record)
    for worker in deployment.workers.values():
        for path in sorted((worker.data_dir / "tables").glob(f"{deployment.names.changelog}-*")):
            partition = int(path.name.rsplit("-", 1)[1])
            identity = Identity(cluster_id, own.topic_id, partition)
            found.tables += 1
            found.table += [f"{path}: {wrong}" for wrong in _differences(path, identity, by_partition[partition])]


def _differences(path: Path, identity: Identity, records: list[Record]) -> list[str]:
    with TemporaryDirectory() as scratch, open_stored(path, Path(scratch), Memory(8 << 20)) as table:
        if table is None:
            return []
        rows, strange, next_offset, waiting = dict(table.rows), list(table.strange), table.next_offset, table.waiting
    expected = {key: value for key, value in fold(records, next_offset).items() if value is not None}
    deleted_later = {record.key for record in records if record.value is None and record.offset >= next_offset}
    wrong = [f"row that the fold has not: {name_entry(key)}" for key in rows if rows[key] != expected.get(key)]
    wrong += [f"row missing: {name_entry(key)}" for key in expected if key not in rows and key not in deleted_later]
    wrong += [f"row outside the entries: {key!r}" for key in strange]
    if waiting != len(rows):
        wrong.append(f"counts {waiting} rows and has {len(rows)}")
    if table.identity != identity:
        wrong.append(f"is the table of {table.identity}, not of {identity}")
    return wrong


def name_entry(key: bytes) -> str:
    try:
        return str(entry_keys.read_source(key))
    except EntryUnreadable:
        return key[: len(END_KEY) + 30].hex()


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"
