"""What the console's replica makes of records: letters that wait, move, rest and leave, and the counts that are kept ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.console.reading import letters, lists
from retry.delay_queue import entry_keys, envelopes, returned_offsets
from retry.delay_queue.envelopes import Also, Call, Named
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.errors import CursorStale, FilterInvalid
from tests.support.replicas import HOUR_MS, NOW_MS, OWN, GivenReplica, entry, failure, make_parked_record


@pytest.fixture(params=["while it is built", "when it is live"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> GivenReplica:
    """An empty one; what comes then comes before or after its indexes."""
    made = GivenReplica(tmp_path)
    if request.param == "when it is live":
        made.finish()
    return made


def finish_replica(replica: GivenReplica) -> GivenReplica:
    if not replica.file.is_live:
        replica.finish()
    assert replica.counts_hold()
    return replica


def name_of(offset: int, due_at_ms: int = NOW_MS + HOUR_MS) -> str:
    return f"{due_at_ms}/orders.DLT/0/{offset}"


def test_letters_come_in_due_order_then_those_that_rest(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1, NOW_MS + 2), entry(2, NOW_MS + 1))
    replica.fold(OWN.parked, make_parked_record(7))
    assert finish_replica(replica).names() == [name_of(2, NOW_MS + 1), name_of(1, NOW_MS + 2), f"{OWN.parked}/0/0"]
    waits, _, rests = replica.letters().rows
    assert (waits.key, waits.attempt, waits.state, waits.topic, waits.offset) == (b"key 2", 1, "waiting", "orders.DLT", 2)
    assert (rests.key, rests.attempt, rests.reason, rests.team) == (b"key 7", 3, "max_attempts", "payments")


def test_a_letter_that_moves_is_there_once_and_one_that_leaves_no_more(replica: GivenReplica) -> None:
    key, _ = entry(1)
    replica.fold(OWN.changelog, entry(1), entry(2))
    replica.fold(OWN.changelog, (key, None), entry(1, NOW_MS + 5))
    assert finish_replica(replica).names() == [name_of(1, NOW_MS + 5), name_of(2)]
    replica.fold(OWN.changelog, (entry(1, NOW_MS + 5)[0], None), (entry(2)[0], None))
    assert finish_replica(replica).names() == []
    assert replica.letters('message:"order 17"').count == 0


def test_the_last_record_of_a_key_counts_also_within_a_batch(replica: GivenReplica) -> None:
    key, _ = entry(1)
    replica.fold(OWN.changelog, entry(1), (key, None), entry(1, headers=failure("com.acme.Other")))
    assert [row.exception for row in finish_replica(replica).letters().rows] == ["com.acme.Other"]


def test_records_that_were_folded_before_change_nothing(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1), entry(2))
    replica._offsets[OWN.changelog, 0] = 0
    replica.fold(OWN.changelog, entry(3))
    assert len(finish_replica(replica).names()) == 2


def test_parked_letters_that_were_returned_are_none_whichever_comes_first(replica: GivenReplica) -> None:
    topic = returned_offsets.hash_topic_id(replica.sources.described[OWN.parked].topic_id)
    bitmap = returned_offsets.mark_offset(returned_offsets.mark_offset(None, 1), 2)
    replica.fold(OWN.parked, make_parked_record(0), make_parked_record(1))
    replica.fold(OWN.changelog, (ParkedPlace(topic, 0, 1).block(), bitmap))
    replica.fold(OWN.parked, make_parked_record(2), make_parked_record(3))
    assert finish_replica(replica).names() == [f"{OWN.parked}/0/0", f"{OWN.parked}/0/3"]


def test_letters_that_kafka_has_deleted_are_gone(replica: GivenReplica) -> None:
    replica.fold(OWN.parked, make_parked_record(0), make_parked_record(1))
    replica.folds.drop_deleted({(OWN.parked, 0): 1})
    assert finish_replica(replica).names() == [f"{OWN.parked}/0/1"]


def named_entry(version: int, due_at_ms: int, **fields: object) -> tuple[bytes, bytes]:
    of, lane = entry_keys.hash_name("schedules", "s", b"daily"), entry_keys.build_named_lane("schedules", "s", "out")
    key = entry_keys.build_named_key(due_at_ms, of, version, entry_keys.build_key_stem("s", 0), version, lane)
    also = (Also("history", None, b"k", None, True), Also("s", 0, b"daily", None))
    return key, envelopes.encode(Named("out", b"k", b"v", [], None, "schedules", None, also, **fields))  # type: ignore[arg-type]


def test_of_a_name_the_newest_entry_waits_and_a_cancel_ends_it(replica: GivenReplica) -> None:
    old, new = named_entry(1, NOW_MS + 1), named_entry(2, NOW_MS + 2)
    replica.fold(OWN.changelog, new)
    replica.fold(OWN.changelog, old)
    (row,) = finish_replica(replica).letters().rows
    assert (row.kind, row.label, row.due_at_ms) == ("schedule", "daily", NOW_MS + 2)
    with replica.readers.reading(0.0) as connection:
        listed = lists.list_named_entries(connection, "", None, "schedule", None, 10)
        assert ([each.label for each in listed.rows], listed.count) == (["daily"], 1)
        assert lists.list_named_entries(connection, "", None, "timer", None, 10).rows == []
    of, stem = entry_keys.hash_name("schedules", "s", b"daily"), entry_keys.build_key_stem("s", 0)
    replica.fold(OWN.changelog, envelopes.build_cancel(of, 3, stem, 3))
    assert finish_replica(replica).names() == []
    replica.fold(OWN.changelog, (new[0], None), (old[0], None))
    replica.fold(OWN.changelog, named_entry(4, NOW_MS + 4))
    assert [row.due_at_ms for row in finish_replica(replica).letters().rows] == [NOW_MS + 4]


def test_a_timer_is_called_by_its_id(replica: GivenReplica) -> None:
    of, lane = entry_keys.hash_name("timers", "timers", b"t1"), entry_keys.build_named_lane("payments", "timers", "https://a")
    key = entry_keys.build_named_key(NOW_MS, of, 1, entry_keys.build_key_stem("timers", 0), 1, lane)
    call = Call("https://a/b", id="t1")
    timer = Named("https://a", b"m", b"", [], None, "payments", None, (), None, call)
    replica.fold(OWN.changelog, (key, envelopes.encode(timer)))
    assert [(row.kind, row.label) for row in finish_replica(replica).letters().rows] == [("timer", "t1")]


def test_a_letter_behind_another_of_its_key_says_so(replica: GivenReplica) -> None:
    def make_ordered_entry(offset: int) -> tuple[bytes, bytes]:
        lane = entry_keys.lane("payments", "orders.DLT", "orders.retry", True)
        stem = entry_keys.hash_record_key("payments", "orders.DLT", b"k") + entry_keys.build_key_stem("orders.DLT", 0)
        return entry_keys.build_key(NOW_MS - offset, stem, offset, lane), entry(offset)[1]

    replica.fold(OWN.changelog, make_ordered_entry(1), make_ordered_entry(2))
    assert {row.offset: row.behind for row in finish_replica(replica).letters().rows} == {1: False, 2: True}
    replica.fold(OWN.changelog, (make_ordered_entry(1)[0], None))
    assert [row.behind for row in finish_replica(replica).letters().rows] == [False]


def test_what_cannot_be_read_is_passed_over_and_told(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, (b"\x01nonsense", b"x"), (entry(1)[0], b"\x91\x63"), entry(2))
    assert finish_replica(replica).names() == [name_of(2)]
    assert replica.unreadable == 2


def test_a_viewer_sees_letters_of_its_teams_alone(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1, team="payments"), entry(2, team="orders"))
    replica.fold(OWN.parked, make_parked_record(3, "orders"), (b"k", b"v", []))
    seen = finish_replica(replica).letters(scope=frozenset({"orders"}))
    assert ({row.team for row in seen.rows}, seen.count) == ({"orders"}, 2)
    assert replica.letters().count == 4
    assert replica.letters(scope=frozenset()).count == 0
    assert replica.letters("team:payments", frozenset({"orders"})).nothing_matches == "team:payments"
    with replica.readers.reading(0.0) as connection:
        assert lists.list_filter_names(connection, frozenset({"orders"})).teams == ("orders",)


def test_pages_follow_each_other_and_a_cursor_of_another_list_is_refused(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, *(entry(n, NOW_MS + n % 3) for n in range(10)))
    whole, found, after = finish_replica(replica).names(), list[str](), None
    while True:
        page = replica.letters(after=after, limit=3)
        found += [row.name for row in page.rows]
        if page.after is None:
            break
        after = page.after
    assert found == whole
    for text, cursor in (("team:payments", after), ("", "nonsense"), ("", "é"), ("", "kgE")):
        with pytest.raises(CursorStale):
            replica.letters(text, after=cursor)


def test_the_term_that_excludes_all_is_named(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1), entry(2, team="orders"))
    assert finish_replica(replica).letters("team:payments key:nobody*").nothing_matches == "key:nobody*"
    assert replica.letters('team:payments key:"key 2"').nothing_matches == "team:payments"
    assert replica.letters("team:payments").nothing_matches is None


def test_a_letter_is_found_by_its_name(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1), partition=1)
    replica.fold(OWN.parked, make_parked_record(7))
    with finish_replica(replica).readers.reading(0.0) as connection:
        found = letters.find_letter(connection, name_of(1))
        assert found is not None
        assert (found[0].key, found[1]) == (b"key 1", (OWN.changelog, 1, 0))
        resting = letters.find_letter(connection, f"{OWN.parked}/0/0")
        assert resting is not None
        assert (resting[0].key, resting[1]) == (b"key 7", (OWN.parked, 0, 0))
        for name in (name_of(2), "x/y", "a/b/c", "/", f"{OWN.parked}/0/9", "1/2/3/4/5", f"{OWN.parked}/-1/0", "é/0/1"):
            assert letters.find_letter(connection, name) is None


def test_what_stays_in_kafka_is_not_asked_for_here(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1, headers=failure("a.B", "m", ("note", b"x" * 5_000), ("tenant", b"acme"))))
    assert finish_replica(replica).names("header.tenant:acme") == [name_of(1)]
    for text in ("value.$.a=1", "header.note:x*", "header.retry-id:1", "header.kafka_dlt-exception-fqcn:a", "-value.$.a=1"):
        with pytest.raises(FilterInvalid):
            replica.letters(text)


def test_a_lineage_tells_what_happened(replica: GivenReplica) -> None:
    (key, envelope) = entry(1)
    replica.fold(OWN.changelog, (key, envelope))
    moved = entry(1, NOW_MS + 5)
    replica.fold(OWN.changelog, (key, None), moved, at_ms=NOW_MS + 1)
    with finish_replica(replica).readers.reading(0.0) as connection:
        assert [event.what for event in letters.list_events(connection, None, "0000000000000001")] == ["waiting"]
    replica.fold(OWN.changelog, (moved[0], None), at_ms=NOW_MS + 9)
    with replica.readers.reading(0.0) as connection:
        (event,) = letters.list_events(connection, frozenset({"payments"}), "0000000000000001")
        assert (event.what, event.at_ms, event.attempt, event.place) == ("sent", NOW_MS + 9, 1, "orders.retry")
        assert letters.list_events(connection, frozenset({"others"}), "0000000000000001") == []
