"""Which transactional id a producer has behind each transaction that was undone, and at the next start of its worker."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from retry.kafka.transactional_ids import IDS_MAX, RememberedIds, TransactionalIds


def test_an_id_comes_again_only_behind_all_others() -> None:
    ids, seen = TransactionalIds("a"), list[str]()
    for _ in range(3 * IDS_MAX):
        ids.advance()
        seen.append(ids.current)
    assert len(set(seen[:IDS_MAX])) == IDS_MAX
    assert seen == seen[:IDS_MAX] * 3


def test_the_next_process_begins_with_the_ids_that_the_former_one_had_last(tmp_path: Path) -> None:
    file = tmp_path / "ids.json"
    former = RememberedIds(file)
    first, second = former.find_ids("a"), former.find_ids("b")
    first.advance()
    first.advance()
    second.advance()
    assert former.find_ids("a") is first
    later = RememberedIds(file)
    assert [later.find_ids(name).current for name in "abc"] == ["a~2", "b~1", "c"]
    # Each may have left a transaction open.
    assert all(later.find_ids(name).is_in_doubt for name in "abc")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": "1"}', b'{"a": -1}', b'{"a": 1000}', b"\xff"])
def test_a_file_that_is_damaged_counts_as_lost(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ids.json"
    file.write_bytes(content)
    ids = RememberedIds(file).find_ids("a")
    assert (ids.current, ids.is_in_doubt) == ("a", True)
    ids.advance()
    assert RememberedIds(file).find_ids("a").current == "a~1"


def test_ids_go_on_where_nothing_can_be_written_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "gone" / "ids.json"
    ids = RememberedIds(file).find_ids("a")
    with caplog.at_level(logging.WARNING):
        ids.advance()
    assert ids.current == "a~1"
    assert f"{file} cannot be written" in caplog.text
