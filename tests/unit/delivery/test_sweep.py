"""Due entries go out with their deletes, in one transaction, and only then are they forgotten."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from retry.delay_queue import entry_keys
from retry.delay_queue.envelopes import Entry
from retry.delivery.sweep import NOTHING
from retry.delivery.transaction_batch import DEFER_MS
from retry.errors import CommitInDoubt, EntryForeign, ProducerFenced, TransactionAborted
from retry.kafka.record_limits import RecordLimits
from retry.testing.kafka import Fault
from tests.support.bench import NOW_MS, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_due_does_nothing(bench: Bench) -> None:
    bench.put(NOW_MS + 1)
    swept = bench.sweep()
    assert (swept, bench.admission.asked) == (NOTHING, [])
    assert len(bench.live()) == 1


def test_3_4_3_8_what_is_due_goes_out_oldest_first_with_its_deletes(bench: Bench) -> None:
    for due_at_ms, value in ((NOW_MS, b"3"), (NOW_MS - 9, b"1"), (NOW_MS + 1, b"later"), (NOW_MS - 5, b"2")):
        bench.put(due_at_ms, value)
    swept = bench.sweep()
    assert bench.delivered() == [b"1", b"2", b"3"]
    assert [entry.value for entry in swept.sent] == [b"1", b"2", b"3"]
    assert swept.due_at_ms == [NOW_MS - 9, NOW_MS - 5, NOW_MS]
    assert (swept.deferred, swept.errors) == ({}, [])
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
def test_3_4_a_batch_is_bounded_by_count_and_by_bytes(bench: Bench, limits: dict[str, int], sizes: list[int]) -> None:
    for _ in range(3):
        bench.put(NOW_MS, b"x" * 1_000)
    assert [len(bench.sweep(**limits).sent) for _ in range(3)] == sizes
    assert bench.sweep() is NOTHING


def test_what_a_closed_destination_is_to_get_waits_where_it_is_and_the_rest_goes_out(bench: Bench) -> None:
    bench.admission.closed = {"retry": "it is closed"}
    waiting = bench.put(NOW_MS - 1, b"waits")
    bench.put(NOW_MS, b"goes", to="narrow")
    swept = bench.sweep()
    assert (bench.delivered(), bench.delivered("narrow")) == ([], [b"goes"])
    assert ([entry.value for entry in swept.sent], swept.due_at_ms, swept.deferred) == ([b"goes"], [NOW_MS], {})
    assert list(bench.live()) == [waiting]
    assert bench.agrees()
    bench.admission.closed = {}
    assert len(bench.sweep().sent) == 1
    assert (bench.delivered(), bench.live()) == ([b"waits"], {})


def test_no_more_goes_than_the_gate_lets_through(bench: Bench) -> None:
    for n in range(5):
        bench.put(NOW_MS - n)
    bench.admission.allowed["team"] = 3
    assert [len(bench.sweep().sent) for _ in range(2)] == [3, 0]
    bench.admission.allowed["team"] = 10
    assert len(bench.sweep().sent) == 2
    assert bench.admission.allowed["team"] == 8  # What was taken and not used was given back.


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
    bench.admission.closed = {"narrow": "it is closed"}
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
    bench.admission.allowed["team"] = 10
    bench.put(NOW_MS, to="nowhere")
    assert bench.sweep().sent == []
    assert bench.admission.allowed["team"] == 10
    for value in (b"a", b"x" * 100, b"b"):
        bench.put(NOW_MS, value, to="narrow")
    assert (len(bench.sweep().sent), bench.admission.allowed["team"]) == (2, 8)
    bench.put(NOW_MS)
    bench.log.faults.append(Fault.ABORTED)
    with pytest.raises(TransactionAborted):
        bench.sweep()
    assert bench.admission.allowed["team"] == 8


def test_what_may_have_been_sent_is_not_given_back(bench: Bench) -> None:
    bench.admission.allowed["team"] = 10
    bench.put(NOW_MS)
    bench.log.faults.append(Fault.DOUBT_COMMITTED)
    with pytest.raises(CommitInDoubt):
        bench.sweep()
    assert bench.admission.allowed["team"] == 9


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
    assert bench.sweep().deferred == {"narrow": 1}
    assert bench.agrees()
    assert bench.sweep() is NOTHING
    bench.log.create("narrow", 1, bytes_max=500)
    bench.admission.record_limits.refresh()
    later = NOW_MS + DEFER_MS + 1_000
    assert [[entry.value for entry in bench.sweep(later).sent] for _ in range(2)] == [[b"x" * 100], [b"next"]]
    assert bench.agrees()


def test_a_refused_entry_is_found_by_a_rehearsal_and_put_back(bench: Bench) -> None:
    bench.put(NOW_MS - 1, b"good")
    bench.put(NOW_MS, b"x" * 100, to="narrow")
    bench.put(NOW_MS, b"good too")
    swept = bench.sweep()
    assert bench.delivered() == [b"good", b"good too"]
    assert (swept.deferred, len(swept.errors), len(bench.live())) == ({"narrow": 1}, 1, 1)
    assert bench.agrees()


def test_letters_with_the_same_coordinates_stay_apart_when_they_are_put_back(bench: Bench) -> None:
    """Parked letters that were returned may have them; their due times tell them apart."""
    key = bench.put(NOW_MS - 3, b"x" * 100, to="narrow")
    (first,) = bench.live().values()
    bench.write([(entry_keys.make_key_due_at(key, NOW_MS - 2), first), (entry_keys.make_key_due_at(key, NOW_MS - 1), first)])
    assert bench.sweep().deferred == {"narrow": 3}
    assert (bench.agrees(), len(bench.live()), bench.table.waiting) == (True, 3, 3)
    assert sorted(entry_keys.due_at_ms(key) % 1_000 for key in bench.live()) == sorted((NOW_MS - n) % 1_000 for n in (1, 2, 3))


def test_one_that_is_put_back_never_takes_the_place_of_one_with_its_coordinates_that_waits(bench: Bench) -> None:
    key = bench.put(NOW_MS, b"x" * 100, to="narrow")
    other = entry_keys.make_key_due_at(key, (NOW_MS + DEFER_MS + 999) // 1_000 * 1_000 + NOW_MS % 1_000)
    bench.write([(other, bench.codec.encode(other, Entry("narrow", b"k", b"waits", [], None, "team")))])
    assert bench.sweep().deferred == {"narrow": 1}
    assert (bench.agrees(), len(bench.live()), bench.table.waiting) == (True, 2, 2)
    assert sorted(bench.live()) == [other, entry_keys.make_key_due_at(other, entry_keys.due_at_ms(other) + 1_000)]


def test_one_record_that_is_too_large_does_not_close_its_topic(bench: Bench) -> None:
    for value in (b"a", b"x" * 100, b"b"):
        bench.put(NOW_MS, value, to="narrow")
    assert bench.sweep().deferred == {"narrow": 1}
    assert bench.delivered("narrow") == [b"a", b"b"]


@pytest.mark.parametrize("told", [True, False], ids=["limit told", "limit not told"])
def test_what_its_topic_takes_only_compressed_is_sent_so_and_what_it_does_not_take_is_put_back(bench: Bench, told: bool) -> None:
    """Send 3 MB of JSON that came compressed, of topics that take 1 MB."""
    if not told:
        bench.admission.record_limits = RecordLimits(lambda _: {})
    bench.log.bytes_max["narrow"] = 1_000
    refused = random.Random(1).randbytes(5_000)
    for value in (b"x" * 5_000, b"small", refused):
        bench.put(NOW_MS, value, to="narrow")
    bench.put(NOW_MS, b"other")
    swept = [bench.sweep(), bench.sweep(NOW_MS + 1)]
    assert sorted(bench.delivered("narrow")) == [b"small", b"x" * 5_000]
    assert bench.delivered() == [b"other"]
    assert sum((each.deferred for each in swept), Counter[str]()) == {"narrow": 1}
    (waiting,) = bench.live()
    assert entry_keys.due_at_ms(waiting) >= NOW_MS + DEFER_MS
    assert bench.agrees()
    bench.put(NOW_MS + 2, b"y" * 5_000, to="narrow")
    assert [entry.value for entry in bench.sweep(NOW_MS + 2).sent] == [b"y" * 5_000]


@pytest.mark.parametrize("told", [True, False], ids=["limit told", "limit not told"])
def test_what_is_larger_than_what_was_refused_goes_out_of_the_way_without_being_tried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    if not told:
        bench.admission.record_limits = RecordLimits(lambda _: {})
    tries: list[int] = []
    tried = bench.writer._try_records
    monkeypatch.setattr(
        bench.writer, "_try_records", lambda records, now_ms: tries.append(len(records)) or tried(records, now_ms)
    )
    for size in range(100, 160):
        bench.put(NOW_MS - 1, b"x" * size, to="narrow")
    assert bench.sweep().deferred == {"narrow": 60}
    # Where the limit is not told one is named, first in company and then alone; the others are no smaller.
    assert len(tries) == (0 if told else 2)
    tries.clear()
    monkeypatch.setattr(bench.writer, "abort", lambda: pytest.fail("nothing is to be undone"))
    for value in (b"x" * 100, b"small", b"x" * 200):
        bench.put(NOW_MS, value, to="narrow")
    bench.put(NOW_MS, b"x" * 1_000)
    swept = bench.sweep()
    assert ([len(entry.value or b"") for entry in swept.sent], swept.deferred) == ([5, 1_000], {"narrow": 2})
    assert "narrow takes at most" in swept.errors[0]
    assert (tries, bench.agrees()) == ([], True)


def test_what_was_put_back_for_its_size_goes_once_its_topic_takes_it(bench: Bench) -> None:
    for now_ms in (NOW_MS, NOW_MS + 1):
        bench.put(now_ms, b"x" * 100, to="narrow")
        assert bench.sweep(now_ms).deferred == {"narrow": 1}
    bench.log.bytes_max["narrow"] = 1_000
    bench.admission.record_limits.refresh()
    bench.put(NOW_MS + 2, b"y" * 100, to="narrow")
    assert [entry.value for entry in bench.sweep(NOW_MS + 2).sent] == [b"y" * 100]
    assert len(bench.sweep(NOW_MS + DEFER_MS + 2_000).sent) == 2
    assert bench.live() == {}


def test_a_missing_topic_is_closed_for_all_that_goes_there_and_they_wait(bench: Bench) -> None:
    kept = [bench.put(NOW_MS, to=to) for to in ("nowhere", "retry", "nowhere")]
    swept = bench.sweep()
    assert ([entry.destination for entry in swept.sent], swept.deferred) == (["retry"], {})
    assert set(bench.admission.closed) == {"nowhere"}
    assert list(bench.live()) == [kept[0], kept[2]]
    assert bench.agrees()
    assert bench.sweep() is NOTHING


def test_topics_for_which_transactions_are_refused_whole_are_found_and_the_others_go_in_the_same_sweep(bench: Bench) -> None:
    """Refuse a transaction as for a topic without the Write right: no record is named."""
    for n in range(9):
        bench.log.create(f"team-{n}")
        bench.put(NOW_MS - n, b"%d" % n, to=f"team-{n}", team=f"t{n}")
    bench.log.forbidden |= {"team-3", "team-8"}
    swept = bench.sweep()
    assert set(bench.admission.closed) == {"team-3", "team-8"}
    assert {entry.destination for entry in swept.sent} == {f"team-{n}" for n in range(9)} - bench.log.forbidden
    assert (swept.deferred, len(bench.live())) == ({}, 2)
    assert bench.agrees()
    assert bench.sweep() is NOTHING


def test_who_is_guilty_is_asked_before_anything_is_rehearsed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.log.create("gone")
    bench.log.forbidden.add("gone")
    bench.put(NOW_MS, to="gone")
    bench.put(NOW_MS, to="retry")
    missing = {"gone": "gone: no WRITE right"}
    monkeypatch.setattr(bench.admission, "probe_targets", lambda topics: missing if "gone" in topics else {})
    monkeypatch.setattr(bench.writer, "rehearse_entries", lambda *_: pytest.fail("nothing is to be rehearsed"))
    assert [entry.destination for entry in bench.sweep().sent] == ["retry"]
    assert bench.admission.closed == {"gone": "gone: no WRITE right"}


def test_what_does_not_arrive_is_not_waited_for_when_its_target_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put(NOW_MS, to="narrow")
    bench.put(NOW_MS, to="retry")
    arriving = iter([False, False, True])
    monkeypatch.setattr(bench.writer, "await_arrival", lambda _: next(arriving))
    told = iter([{}, {"narrow": "narrow: no broker leads its partition 0"}])
    away = {"narrow": "away"}
    monkeypatch.setattr(bench.admission, "probe_targets", lambda topics: next(told, away if "narrow" in topics else {}))
    assert [entry.destination for entry in bench.sweep().sent] == ["retry"]
    assert (set(bench.admission.closed), bench.delivered("narrow"), len(bench.live())) == ({"narrow"}, [], 1)
    assert bench.agrees()


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
@pytest.mark.parametrize("to", ["retry", "slow"])
def test_what_is_no_entry_is_held_and_never_sent_and_all_others_go(bench: Bench, envelope: bytes, to: str) -> None:
    bench.put(NOW_MS - 2, b"good")
    bad = bench.put(NOW_MS - 1, envelope=envelope, to=to)
    bench.put(NOW_MS - 1, b"behind it", to=to)
    for _ in range(4):
        bench.sweep()
        bench.fold()
    delivered = bench.delivered() + (bench.delivered(to) if to != "retry" else [])
    assert sorted(delivered, key=str) == [b"behind it", b"good"]
    assert (bench.table.waiting, bench.live()) == (1, {entry_keys.make_held_key(bad): envelope})
    assert bench.holding.held.by_key == {EntryForeign.KEY_ID: 1}


def test_3_8_deletes_that_are_read_back_change_nothing(bench: Bench) -> None:
    for n in range(10):
        bench.put(NOW_MS - n)
    bench.sweep(rows_max=4)
    bench.fold()
    assert bench.table.waiting == len(bench.live()) == 6
    bench.sweep()
    assert len(bench.delivered()) == 10
    assert bench.agrees()
