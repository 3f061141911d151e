"""Due entries go out with their deletes, in one transaction, and only then are they forgotten."""

from __future__ import annotations

from collections import Counter

import pytest

from retry.errors import CommitInDoubt, EntryUnreadable, ProducerFenced, TransactionAborted
from retry.testing.kafka import Fault
from retry.delivery.sweep import NOTHING, PUT_BACK_MS
from tests.support.bench import NOW_MS, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_due_does_nothing(bench: Bench) -> None:
    bench.put(NOW_MS + 1)
    swept = bench.sweep()
    assert (swept, bench.gate.asked) == (NOTHING, [])
    assert len(bench.live()) == 1


def test_what_is_due_goes_out_oldest_first_with_its_deletes(bench: Bench) -> None:
    for due_at_ms, value in ((NOW_MS, b"3"), (NOW_MS - 9, b"1"), (NOW_MS + 1, b"later"), (NOW_MS - 5, b"2")):
        bench.put(due_at_ms, value)
    swept = bench.sweep()
    assert bench.delivered() == [b"1", b"2", b"3"]
    assert [entry.value for entry in swept.sent] == [b"1", b"2", b"3"]
    assert swept.due_at_ms == [NOW_MS - 9, NOW_MS - 5, NOW_MS]
    assert (swept.put_back, swept.trouble) == ({}, [])
    assert len(bench.live()) == bench.table.waiting == 1
    assert bench.agrees()


def test_an_entry_is_sent_as_it_is(bench: Bench) -> None:
    bench.put(NOW_MS)
    bench.sweep()
    (record,) = bench.log.read("retry")
    assert (record.key(), record.value(), record.headers()) == (b"k", b"v", [("retry-id", b"1")])
    assert record.timestamp()[1] == NOW_MS


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [({"rows_max": 2}, [2, 1, 0]), ({"bytes_max": 1_000}, [1, 1, 1]), ({"bytes_max": 1}, [1, 1, 1])],
)
def test_a_batch_is_bounded_by_count_and_by_bytes(bench: Bench, limits: dict[str, int], sizes: list[int]) -> None:
    for _ in range(3):
        bench.put(NOW_MS, b"x" * 1_000)
    assert [len(bench.sweep(**limits).sent) for _ in range(3)] == sizes
    assert bench.sweep() is NOTHING


def test_what_a_closed_destination_is_to_get_waits_where_it_is_and_the_rest_goes_out(bench: Bench) -> None:
    bench.gate.closed = {"retry": "it is closed"}
    waiting = bench.put(NOW_MS - 1, b"waits")
    bench.put(NOW_MS, b"goes", to="narrow")
    swept = bench.sweep()
    assert (bench.delivered(), bench.delivered("narrow")) == ([], [b"goes"])
    assert ([entry.value for entry in swept.sent], swept.due_at_ms, swept.put_back) == ([b"goes"], [NOW_MS], {})
    assert list(bench.live()) == [waiting]
    assert bench.agrees()
    bench.gate.closed = {}
    assert len(bench.sweep().sent) == 1
    assert (bench.delivered(), bench.live()) == ([b"waits"], {})


def test_no_more_goes_than_the_gate_lets_through(bench: Bench) -> None:
    for n in range(5):
        bench.put(NOW_MS - n)
    bench.gate.allowed["team"] = 3
    assert [len(bench.sweep().sent) for _ in range(2)] == [3, 0]
    bench.gate.allowed["team"] = 10
    assert len(bench.sweep().sent) == 2
    assert bench.gate.allowed["team"] == 8  # What was taken and not used was given back.


def test_a_team_with_much_that_is_due_leaves_room_for_the_others(bench: Bench) -> None:
    for n in range(200):
        bench.put(NOW_MS - 1_000 + n, team="flood")
    bench.put(NOW_MS, b"other", team="other")
    swept = bench.sweep(rows_max=80)
    assert Counter(entry.team for entry in swept.sent) == {"flood": 10, "other": 1}
    # Nobody else waits any more: as much as fits.
    assert [len(bench.sweep(rows_max=80).sent) for _ in range(3)] == [80, 80, 30]
    assert bench.agrees()


def test_others_whose_entries_are_due_much_later_need_no_room(bench: Bench) -> None:
    for n in range(200):
        bench.put(NOW_MS - 1_000 + n, team="flood")
    bench.put(NOW_MS + 60_000, team="later")
    assert len(bench.sweep(rows_max=80).sent) == 80
    bench.put(NOW_MS + 900, team="soon")
    assert len(bench.sweep(rows_max=80).sent) == 10


def test_a_team_with_large_letters_leaves_room_for_the_others(bench: Bench) -> None:
    for n in range(20):
        bench.put(NOW_MS - 1_000 + n, b"x" * 1_000, team="flood")
    for team in ("one", "two"):
        bench.put(NOW_MS, b"small", team=team)
    swept = bench.sweep(bytes_max=8_000)
    # An eighth of the bytes, and what reaches it goes as well.
    assert Counter(entry.team for entry in swept.sent) == {"flood": 1, "one": 1, "two": 1}
    assert [len(bench.sweep(bytes_max=8_000).sent) for _ in range(3)] == [8, 8, 3]


def test_several_lanes_of_a_team_share_its_part(bench: Bench) -> None:
    bench.log.create("retry-2", 1)
    for n in range(30):
        bench.put(NOW_MS - 100 + n, team="flood")
        bench.put(NOW_MS - 200 + n, team="flood", to="retry-2")
        bench.put(NOW_MS - n, team="other")
    batches = [Counter((entry.team, entry.destination) for entry in bench.sweep(rows_max=80).sent) for _ in range(4)]
    # The lane with the oldest entry first, and what that leaves of the part to the next one.
    assert batches[:3] == [{("flood", "retry-2"): 10, ("other", "retry"): 10}] * 3
    assert batches[3] == {("flood", "retry"): 30}
    assert bench.agrees()


def test_the_rest_of_a_part_goes_to_the_next_lane_of_the_team(bench: Bench) -> None:
    bench.log.create("retry-2", 1)
    for n in range(12):
        bench.put(NOW_MS - 100 + n, team="flood")
    for n in range(4):
        bench.put(NOW_MS - 200 + n, team="flood", to="retry-2")
    bench.put(NOW_MS + 1, team="later")
    assert Counter(entry.destination for entry in bench.sweep(rows_max=80).sent) == {"retry-2": 4, "retry": 6}


def test_a_lane_that_is_held_takes_nothing_of_its_team_s_part(bench: Bench) -> None:
    bench.gate.closed = {"narrow": "it is closed"}
    for n in range(30):
        bench.put(NOW_MS - 500 + n, team="flood", to="narrow")
        bench.put(NOW_MS - n, team="flood")
    bench.put(NOW_MS, team="other")
    assert Counter((entry.team, entry.destination) for entry in bench.sweep(rows_max=80).sent) == {
        ("flood", "retry"): 10, ("other", "retry"): 1,
    }  # fmt: skip


@pytest.mark.parametrize("limits", [{"rows_max": 10}, {"bytes_max": 1}])
def test_of_many_teams_none_is_left_out_of_a_batch(bench: Bench, limits: dict[str, int]) -> None:
    for n in range(50):
        for _ in range(2):
            bench.put(NOW_MS - n, team=f"team {n}")
    batches = [Counter(entry.team for entry in bench.sweep(**limits).sent) for _ in range(2)]
    assert batches == [dict.fromkeys((f"team {n}" for n in range(50)), 1)] * 2
    assert bench.sweep(**limits) is NOTHING
    assert bench.agrees()


def test_what_was_not_sent_after_all_is_given_back(bench: Bench) -> None:
    """A topic that is not there, a record that is too large, and an abort that nobody explains."""
    bench.gate.allowed["team"] = 10
    bench.put(NOW_MS, to="nowhere")
    assert bench.sweep().sent == []
    assert bench.gate.allowed["team"] == 10
    for value in (b"a", b"x" * 100, b"b"):
        bench.put(NOW_MS, value, to="narrow")
    assert (len(bench.sweep().sent), bench.gate.allowed["team"]) == (2, 8)
    bench.put(NOW_MS)
    bench.log.faults.append(Fault.ABORTED)
    with pytest.raises(TransactionAborted):
        bench.sweep()
    assert bench.gate.allowed["team"] == 8


def test_what_may_have_been_sent_is_not_given_back(bench: Bench) -> None:
    bench.gate.allowed["team"] = 10
    bench.put(NOW_MS)
    bench.log.faults.append(Fault.DOUBT_COMMITTED)
    with pytest.raises(CommitInDoubt):
        bench.sweep()
    assert bench.gate.allowed["team"] == 9


def test_entries_of_one_record_key_go_in_the_order_of_their_letters_and_none_overtakes(bench: Bench) -> None:
    for due_at_ms, value in ((NOW_MS + 5, b"first"), (NOW_MS - 9, b"second"), (NOW_MS - 20, b"third")):
        bench.put(due_at_ms, value, ordered=True)
    assert bench.sweep() is NOTHING
    assert (bench.table.waiting, bench.agrees()) == (3, True)
    sent = [[entry.value for entry in bench.sweep(NOW_MS + 5).sent] for _ in range(4)]
    assert sent == [[b"first"], [b"second"], [b"third"], []]
    assert (bench.table.waiting, bench.live(), bench.agrees()) == (0, {}, True)


def test_an_ordered_entry_that_is_put_back_keeps_its_place(bench: Bench) -> None:
    bench.put(NOW_MS - 5, b"x" * 100, to="narrow", ordered=True)
    bench.put(NOW_MS - 4, b"next", to="narrow", ordered=True)
    assert bench.sweep().put_back == {"narrow": 1}
    assert bench.agrees()
    assert bench.sweep() is NOTHING
    bench.log.create("narrow", 1, bytes_max=500)
    later = NOW_MS + PUT_BACK_MS
    assert [[entry.value for entry in bench.sweep(later).sent] for _ in range(2)] == [[b"x" * 100], [b"next"]]
    assert bench.agrees()


def test_a_refused_entry_is_found_by_a_rehearsal_and_put_back(bench: Bench) -> None:
    bench.put(NOW_MS - 1, b"good")
    bench.put(NOW_MS, b"x" * 100, to="narrow")
    bench.put(NOW_MS, b"good too")
    swept = bench.sweep()
    assert bench.delivered() == [b"good", b"good too"]
    assert (swept.put_back, len(swept.trouble), len(bench.live())) == ({"narrow": 1}, 1, 1)
    assert bench.agrees()


def test_one_record_that_is_too_large_does_not_close_its_topic(bench: Bench) -> None:
    for value in (b"a", b"x" * 100, b"b"):
        bench.put(NOW_MS, value, to="narrow")
    assert bench.sweep().put_back == {"narrow": 1}
    assert bench.delivered("narrow") == [b"a", b"b"]


def test_a_missing_topic_is_closed_for_all_that_goes_there_and_they_wait(bench: Bench) -> None:
    kept = [bench.put(NOW_MS, to=to) for to in ("nowhere", "retry", "nowhere")]
    swept = bench.sweep()
    assert ([entry.destination for entry in swept.sent], swept.put_back) == (["retry"], {})
    assert set(bench.gate.closed) == {"nowhere"}
    assert list(bench.live()) == [kept[0], kept[2]]
    assert bench.agrees()
    assert bench.sweep() is NOTHING


def test_after_an_abort_that_nobody_explains_nothing_is_forgotten(bench: Bench) -> None:
    bench.put(NOW_MS)
    bench.log.faults.append(Fault.ABORTED)
    with pytest.raises(TransactionAborted):
        bench.sweep()
    assert (bench.delivered(), bench.table.waiting, len(bench.live())) == ([], 1, 1)
    assert len(bench.sweep().sent) == 1
    assert (bench.delivered(), bench.live()) == ([b"v"], {})


@pytest.mark.parametrize(("fault", "before"), [(Fault.DOUBT_COMMITTED, [b"v"]), (Fault.DOUBT_OPEN, [])])
def test_a_commit_in_doubt_is_settled_by_the_next_owner_and_sent_once(
    bench: Bench, fault: Fault, before: list[bytes]
) -> None:
    bench.put(NOW_MS)
    bench.log.faults.append(fault)
    with pytest.raises(CommitInDoubt):
        bench.sweep()
    assert (bench.delivered(), bench.table.waiting) == (before, 1)
    bench.open()
    bench.fold()
    bench.sweep()
    assert (bench.delivered(), bench.live()) == ([b"v"], {})
    assert bench.agrees()


def test_a_fenced_owner_sends_and_forgets_nothing(bench: Bench) -> None:
    bench.put(NOW_MS)
    stale = bench.writer
    bench.open()
    bench.writer = stale
    with pytest.raises(ProducerFenced):
        bench.sweep()
    assert (bench.delivered(), bench.table.waiting, len(bench.live())) == ([], 1, 1)


@pytest.mark.parametrize("envelope", [b"garbage", b"\x97\x00\xa1t\xc0\xc0\x90\xc0\xa0"])
def test_an_unreadable_entry_stops_the_shard_before_anything_is_sent(bench: Bench, envelope: bytes) -> None:
    bench.put(NOW_MS - 2, b"good")
    bench.put(NOW_MS - 1, envelope=envelope)
    with pytest.raises(EntryUnreadable):
        bench.sweep()
    assert (bench.delivered(), bench.table.waiting, len(bench.live())) == ([], 2, 2)


def test_deletes_that_are_read_back_change_nothing(bench: Bench) -> None:
    for n in range(10):
        bench.put(NOW_MS - n)
    bench.sweep(rows_max=4)
    bench.fold()
    assert bench.table.waiting == len(bench.live()) == 6
    bench.sweep()
    assert len(bench.delivered()) == 10
    assert bench.agrees()
