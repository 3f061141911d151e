"""Few letters wait for others: a quarter of a second, or until the first of them is due soon."""

from __future__ import annotations

import pytest

from retry import clock
from retry.delay_queue import entry_keys
from retry.intake.batch import BatchResult, Gathering, LetterBatch, PreparedBatch
from retry.intake.read_positions import ReadPosition
from retry.telemetry.recovery_ratio import Retry

NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed."""
    passed_s = [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: 1_000.0 + passed_s[0])
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS + int(passed_s[0] * 1_000))
    return passed_s


def prepare(*due_in_ms: int, first: int = 0, partition: int = 0, epoch: int = 0) -> PreparedBatch:
    """Letters of one partition from an offset on, that are due so long from now."""
    result = BatchResult()
    for n, in_ms in enumerate(due_in_ms):
        key = entry_keys.build_key(NOW_MS + in_ms, b"stem", first + n)
        result.entries[n % 2].append({"key": key, "value": b"%d" % (first + n)})
        result.families["spring"] += 1
        result.back[Retry("team", "policy", "1", 7)] += 1
    result.outcomes.append({"key": None, "value": b"outcomes from %d" % first})
    result.lineages = {"team": [{"key": b"k", "value": b"lineages from %d" % first}]}
    position = ReadPosition(offset=first + len(due_in_ms), topic_id="id")
    batch = LetterBatch(
        epoch, [], {("t", partition): position}, frozenset({"t"}), lambda: [f"asked of {first}"], 10, len(due_in_ms)
    )
    return PreparedBatch(batch, result)


def gather(*batches: PreparedBatch) -> Gathering:
    """Gather some batches that fit, and return what was gathered."""
    gathering = Gathering(lambda _batch, _later: True)
    for batch in batches:
        gathering.add_batch(batch)
    return gathering


@pytest.mark.parametrize(("due_in_ms", "waits_s"), [(3_600_000, 0.25), (400, 0.25), (300, 0.15), (150, 0.0), (-5_000, 0.0)])
def test_letters_wait_as_long_as_none_of_them_is_due_soon(due_in_ms: int, waits_s: float) -> None:
    assert gather(prepare(3_600_000, due_in_ms)).remaining_s() == pytest.approx(waits_s)


def test_letters_without_entries_wait_for_others() -> None:
    assert gather(prepare()).remaining_s() == pytest.approx(0.25)


def test_those_that_come_later_do_not_make_the_first_wait_longer(now: list[float]) -> None:
    gathering = gather(prepare(5_000))
    now[0] = 0.2
    gathering.add_batch(prepare(5_000, first=1))
    assert gathering.remaining_s() == pytest.approx(0.05)
    gathering.add_batch(prepare(0, first=2))
    assert gathering.remaining_s() == 0.0


def test_what_is_gathered_has_all_of_each_batch_in_the_order_in_which_it_was_read() -> None:
    gathering = gather(prepare(900, 901, first=7), prepare(800, first=9), prepare(700, first=3, partition=1))
    taken = gathering.take_batch()
    assert taken is not None and gathering.take_batch() is None
    assert [row["value"] for row in taken.result.entries[0]] == [b"7", b"9", b"3"]
    assert [row["value"] for row in taken.result.entries[1]] == [b"8"]
    assert [row["value"] for row in taken.result.outcomes] == [b"outcomes from 7", b"outcomes from 9", b"outcomes from 3"]
    assert [row["value"] for row in taken.result.lineages["team"]] == [b"lineages from 7", b"lineages from 9", b"lineages from 3"]
    assert taken.result.families == {"spring": 4} and taken.result.back == {Retry("team", "policy", "1", 7): 4}
    assert {partition: position.offset for partition, position in taken.batch.positions.items()} == {("t", 0): 10, ("t", 1): 4}
    assert (taken.batch.letters, taken.batch.size, taken.batch.reads) == (4, 30, 3)
    assert taken.batch.recreated() == ["asked of 3", "asked of 7", "asked of 9"]


def test_nothing_fits_to_what_may_not_be_one_transaction_with_it() -> None:
    gathering = Gathering(lambda batch, later: batch.epoch == later.epoch)
    assert gathering.has_room(prepare(900))
    gathering.add_batch(prepare(900))
    assert gathering.has_room(prepare(900, first=1)) and not gathering.has_room(prepare(900, first=1, epoch=1))


def test_a_batch_waits_for_nothing_where_another_one_like_it_has_no_room() -> None:
    gathering = Gathering(lambda batch, later: batch.letters + later.letters <= 5)
    gathering.add_batch(prepare(3_600_000, 3_600_000))
    assert gathering.remaining_s() == pytest.approx(0.25)
    gathering.add_batch(prepare(3_600_000, 3_600_000, first=2))
    assert gathering.remaining_s() == 0.0
    gathering.take_batch()
    gathering.add_batch(prepare(*[3_600_000] * 3))
    assert gathering.remaining_s() == 0.0
