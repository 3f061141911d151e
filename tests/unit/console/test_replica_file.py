"""The console's file: kept where it is of use, built anew where it is not, and never shown half."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from retry import clock
from retry.console.folding.replica_file import TOPIC, ReplicaFile
from retry.errors import DataDirUnusable, RebuildInProgress
from tests.support.replicas import AGE_MS_MAX, OWN, GivenReplica, entry

FILE = "replica.sqlite"


def build_replica(folder: Path) -> GivenReplica:
    replica = GivenReplica(folder)
    replica.fold(OWN.changelog, entry(1), entry(2))
    replica.finish()
    return replica


def test_nothing_is_shown_before_all_is_there(tmp_path: Path) -> None:
    replica = GivenReplica(tmp_path)
    replica.fold(OWN.changelog, entry(1))
    with pytest.raises(RebuildInProgress, match="40%"), replica.readers.reading(0.4):
        pass
    replica.finish()
    assert len(replica.names()) == 1


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    first = build_replica(tmp_path)
    id_ = first.file.id
    first.file.close()
    again = GivenReplica(tmp_path)
    assert (again.file.id, again.file.is_live, again.folds.positions) == (id_, True, {(OWN.changelog, 0): 2})
    again.fold(OWN.changelog, entry(3), (entry(1)[0], None))
    assert len(again.names()) == 2
    assert again.counts_hold()


def test_a_file_that_was_not_finished_is_built_anew(tmp_path: Path) -> None:
    replica = GivenReplica(tmp_path)
    replica.fold(OWN.changelog, entry(1))
    replica.file.close()
    assert GivenReplica(tmp_path).folds.positions == {}


@pytest.mark.parametrize("rubbish", ["text", "half", "zeros", "foreign", "version", "nothing"])
def test_a_file_that_is_of_no_use_is_built_anew(rubbish: str, tmp_path: Path) -> None:
    replica, file = build_replica(tmp_path), tmp_path / FILE
    if rubbish == "foreign":
        replica.connection.execute("PRAGMA application_id = 1")
    if rubbish == "version":
        replica.connection.execute("UPDATE about SET value = 'of another release' WHERE name = 'version'")
    replica.file.close()
    whole = file.read_bytes()
    zeros = whole[:100] + bytes(len(whole))
    spoilt = {"text": b"no database " * 900, "half": whole[: len(whole) // 2], "zeros": zeros, "nothing": b""}
    if rubbish in spoilt:
        file.write_bytes(spoilt[rubbish])
    again = GivenReplica(tmp_path)
    assert (again.file.is_live, again.folds.positions) == (False, {})
    again.fold(OWN.changelog, entry(1))
    again.finish()
    assert len(again.names()) == 1


def test_whoever_reads_a_page_that_is_corrupt_has_the_file_built_anew(tmp_path: Path) -> None:
    replica, file = GivenReplica(tmp_path), tmp_path / FILE
    replica.fold(OWN.changelog, *(entry(n) for n in range(3_000)))
    replica.finish()
    replica.file.close()
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'letters_by_cell'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as spoilt:
        spoilt.seek((page - 1) * size)
        spoilt.write(b"\xff" * size)
    again = GivenReplica(tmp_path)
    assert again.file.is_live
    with pytest.raises(RebuildInProgress):
        again.names()
    assert again.file.is_corrupt
    with pytest.raises(RebuildInProgress):
        again.names("key:nobody")
    again.file.discard()
    assert GivenReplica(tmp_path).folds.positions == {}


def test_a_topic_that_was_made_anew_is_read_anew_and_one_that_is_new_is_added(tmp_path: Path) -> None:
    first = build_replica(tmp_path)
    first.connection.execute("DELETE FROM about WHERE name = ?", (f"{TOPIC}{OWN.parked}",))
    first.file.close()
    again = GivenReplica(tmp_path)
    assert again.file.is_live
    again.file.close()
    assert not GivenReplica(tmp_path, topic_ids={OWN.parked: "another"}).file.is_live


def test_a_batch_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = build_replica(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(replica.folds._cells, "write", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            replica.fold(OWN.changelog, entry(3))
    replica.file.close()
    again = GivenReplica(tmp_path)
    assert (len(again.names()), again.folds.positions) == (2, {(OWN.changelog, 0): 2})
    assert again.counts_hold()


def test_many_threads_read_while_one_writes(tmp_path: Path) -> None:
    replica, faults = build_replica(tmp_path), list[BaseException]()
    closing = threading.Event()

    def read() -> None:
        try:
            while not closing.is_set():
                page = replica.letters(limit=1_000)
                assert len(page.rows) == page.count, "rows and counts are of one moment"
        except BaseException as fault:
            faults.append(fault)

    readers = [threading.Thread(target=read) for _ in range(12)]
    for reader in readers:
        reader.start()
    for n in range(10, 200):
        replica.fold(OWN.changelog, entry(n), (entry(n - 5)[0], None))
    closing.set()
    for reader in readers:
        reader.join()
    assert faults == []


def test_a_file_that_was_not_current_for_too_long_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun_ms, replica = clock.wall_ms(), build_replica(tmp_path)
    replica.file.note_current(begun_ms + 60_000)
    replica.file.note_current(begun_ms)
    replica.file.close()
    for later_ms, is_kept in ((AGE_MS_MAX + 60_000, True), (AGE_MS_MAX + 60_001, False)):
        monkeypatch.setattr(clock, "wall_ms", lambda now_ms=begun_ms + later_ms: now_ms)
        again = GivenReplica(tmp_path)
        assert again.file.is_live == is_kept
        again.file.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirUnusable, match="file"):
        ReplicaFile(tmp_path / "file" / FILE).open({}, AGE_MS_MAX)


