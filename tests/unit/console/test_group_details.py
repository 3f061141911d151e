"""One kind of failures in detail: when and where its letters failed, what became of their retries, and what was done before."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from retry.console.folding.notes import NOTE, RESOLVED, Note, Resolved
from retry.console.folding.regrouping import CHANGE, Change
from retry.console.reading import filter_sql
from retry.console.reading.group_details import PERIODS, DetailsQuery, GroupDetails, PastEvent
from retry.console.rows import Recovery, Scope
from retry.console.web.group import format_filter
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action
from retry.operations.act.audit import AuditLetter, AuditRecord
from retry.operations.letter_filter.parse import parse
from retry.record import Headers
from tests.support.replicas import HOUR_MS, OWN, GivenReplica, entry, failure, make_parked_record
from tests.unit.console.test_replica_groups import MINUTE_MS, NOW_MS, make_live, note, outcome_record

DAY_MS = 86_400_000
KIND = "f00d" * 4


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivenReplica:
    return make_live(tmp_path, monkeypatch)


def details(replica: GivenReplica, group: str, period: str = "24h", scope: Scope = None) -> GroupDetails:
    with replica.readers.reading(0.0) as connection:
        return DetailsQuery(connection, scope, group, NOW_MS).load(PERIODS[period])


def of_this(replica: GivenReplica) -> str:
    """The only group that there is."""
    (group,) = replica.groups()
    return group.id


def common(found: GroupDetails, by: str) -> dict[str | None, int]:
    return {each.value: each.letters for each in found.common if each.by == by}


def make_versioned_headers(version: str | None, name: str = "app-version") -> Headers:
    return failure("a.A", "no", *([(name, version.encode())] if version else []))


@pytest.mark.parametrize(
    ("period", "counts"), [("1h", {0: 2, 7: 1}), ("24h", {0: 3, 2: 4}), ("7d", {0: 7, 9: 5})], ids=["hour", "day", "week"]
)
def test_failures_are_counted_by_time_up_to_a_week_ago(replica: GivenReplica, period: str, counts: dict[int, int]) -> None:
    for n, (many, ago_ms) in enumerate(((2, 0), (1, 20 * MINUTE_MS), (4, 110 * MINUTE_MS), (5, 3 * DAY_MS), (9, 9 * DAY_MS))):
        at_ms = NOW_MS - ago_ms
        replica.fold(OWN.outcomes, outcome_record(1, *(f"{n}{m:015}" for m in range(many)), due_ms=at_ms + 1, failed_ms=at_ms))
    bars = details(replica, KIND, period).bars
    assert len(bars) == PERIODS[period].bars
    assert all(bar.to_ms == following.from_ms for bar, following in pairwise(bars))
    now = next(n for n, bar in enumerate(bars) if bar.from_ms <= NOW_MS < bar.to_ms)
    assert {now - n: bar.failed for n, bar in enumerate(bars) if bar.failed} == counts


def test_bars_that_are_joined_are_whole_hours_and_days(replica: GivenReplica) -> None:
    for period, whole_ms in (("1h", 6 * MINUTE_MS), ("24h", 2 * HOUR_MS), ("7d", DAY_MS)):
        bars = details(replica, KIND, period).bars
        assert (bars[0].from_ms % whole_ms, bars[-1].to_ms % whole_ms, len(bars) % PERIODS[period].joined) == (0, 0, 0)


def test_a_bar_asks_for_exactly_the_letters_that_failed_in_it(replica: GivenReplica) -> None:
    now = next(bar for bar in details(replica, KIND).bars if bar.from_ms <= NOW_MS < bar.to_ms)
    replica.fold(OWN.changelog, entry(1))
    for offset, at_ms in enumerate((now.from_ms - 1, now.from_ms, now.to_ms - 1, now.to_ms)):
        replica.fold(OWN.parked, make_parked_record(offset), at_ms=at_ms)
    asked = parse(format_filter(now))
    assert {row.failed_ms for row in replica.letters(asked).rows} == {NOW_MS, now.from_ms, now.to_ms - 1}
    # Read once, it says the same to whoever reads it again.
    assert parse(str(asked)) == asked


def test_what_is_rare_is_found_by_when_it_failed(replica: GivenReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    replica.fold(OWN.parked, *(make_parked_record(n) for n in range(50)), at_ms=NOW_MS - DAY_MS)
    replica.fold(OWN.parked, make_parked_record(99))
    asked: list[list[int]] = []
    find = filter_sql._by_failure
    monkeypatch.setattr(filter_sql, "_by_failure", lambda *given: asked.append(find(*given)) or asked[-1])
    (row,) = replica.letters("failed:>-1h").rows
    assert (row.name.endswith("/50"), [len(each) for each in asked]) == (True, [1])


def test_letters_are_counted_by_partition_and_version_also_once_some_have_left(replica: GivenReplica) -> None:
    def parked_record(offset: int, partition: int, version: str | None) -> tuple[bytes, bytes, Headers]:
        key, value, headers = make_parked_record(offset, headers=make_versioned_headers(version))
        source = ("retry-source", f"orders.DLT/{partition}/{offset}".encode())
        return key, value, [source if name == "retry-source" else (name, text) for name, text in headers]

    key, envelope = entry(1, headers=make_versioned_headers("2.14.1"))
    replica.fold(OWN.changelog, (key, envelope), entry(2, headers=make_versioned_headers("2.14.0", "service-version")))
    replica.fold(OWN.parked, parked_record(3, 0, "2.14.1"), parked_record(4, 7, None), parked_record(5, 7, "x" * 65))
    found = details(replica, of_this(replica))
    assert common(found, "partition") == {"0": 3, "7": 2}
    assert {each.topic for each in found.common if each.by == "partition"} == {"orders.DLT"}
    assert common(found, "version") == {"2.14.1": 2, "2.14.0": 1, None: 2}
    assert len(replica.names("version:2.14.1")) == 2
    assert len(replica.names("partition:7")) == 2
    replica.fold(OWN.changelog, (key, None))
    found = details(replica, of_this(replica))
    assert (common(found, "partition"), common(found, "version")["2.14.1"]) == ({"0": 2, "7": 2}, 1)
    assert replica.counts_hold()


def test_only_the_ten_largest_are_told_and_nothing_of_other_teams(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, *(entry(n, headers=make_versioned_headers(f"1.{n % 15}")) for n in range(20)))
    replica.fold(OWN.changelog, entry(90, team="orders", headers=make_versioned_headers("secret")))
    versions = common(details(replica, of_this(replica)), "version")
    assert (len(versions), sorted(versions.values(), reverse=True)[:6]) == (10, [2, 2, 2, 2, 2, 1])
    mine = details(replica, of_this(replica), scope=frozenset({"orders"}))
    assert common(mine, "version") == {"secret": 1}
    assert common(details(replica, of_this(replica), scope=frozenset({"nobody"})), "topic") == {}


def test_what_became_of_retries_is_told_by_attempt(replica: GivenReplica) -> None:
    sent_ms = NOW_MS - 2 * HOUR_MS
    replica.fold(OWN.outcomes, outcome_record(1, "a" * 16, "b" * 16, due_ms=sent_ms), outcome_record(2, "c" * 16, due_ms=sent_ms))
    cells = dict(replica.connection.execute("SELECT attempt, id FROM outcome_cells"))
    hour = sent_ms // HOUR_MS
    recovered = "UPDATE outcome_hours SET sent = 5, came_back = 2 WHERE cell = ? AND hour = ?"
    replica.connection.execute(recovered, (cells[1], NOW_MS // HOUR_MS))
    replica.connection.execute("INSERT INTO outcome_slots VALUES (?, ?, 4, 1, ?)", (cells[2], hour * 360, sent_ms))
    assert details(replica, KIND).recovery == (Recovery(1, 5, 2, 0), Recovery(2, 1, 1, 3))
    assert details(replica, KIND, scope=frozenset({"orders"})).recovery == ()


def act(
    replica: GivenReplica, number: int, words: str = "", *, teams: tuple[str, ...] = ("payments",), members: int = 3
) -> str:
    """The head of an action, and what the audit says of its first three letters; its id."""
    action_id = number.to_bytes(8, "big")
    head = Action("retry", "ana", NOW_MS - number, [1, 0], members, filter=words, teams=list(teams), reason="again")
    replica.fold(OWN.changelog, (action_records.build_head_key(action_id), action_records.encode(head)))
    letters = [AuditLetter("done", f"orders.DLT/0/{n}") for n in range(2)] + [AuditLetter("gone", "orders.DLT/0/9")]
    row = AuditRecord(action_id.hex(), "retry", "ana", NOW_MS - number, 0, letters, "again", list(teams))
    replica.fold(OWN.audit, (action_id.hex().encode(), msgspec.json.encode({"v": 1, **msgspec.to_builtins(row)})))
    return action_id.hex()


def test_actions_and_notes_are_told_newest_first(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1, headers=failure("a.A")))
    group = of_this(replica)
    by_filter = act(replica, 5, f"group:{group} failed:>-1h")
    for number, words in ((6, "team:payments"), (7, f"-group:{group}"), (8, "group:0bee")):
        act(replica, number, words)
    # One letter alone, by its name: it says by whom it was moved, and has left since.
    by_name = act(replica, 9)
    key, envelope = entry(1, NOW_MS, headers=[*failure("a.A"), ("retry-action", by_name.encode())])
    replica.fold(OWN.changelog, (key, envelope))
    replica.fold(OWN.changelog, (key, None))
    note(replica, NOTE + group, Note("ivo", "bank is down\nsince noon", "https://t/1", "ana", NOW_MS - 1))
    note(replica, RESOLVED + group, Resolved("ivo", NOW_MS - 7))
    note(replica, f"{CHANGE}1", Change(("0bad",), "eve", NOW_MS - 11, into=group))
    before = details(replica, group).before
    assert [(each.what, each.by, each.action) for each in before] == [
        ("note", "ana", ""), ("retry", "ana", by_filter), ("resolved", "ivo", ""), ("retry", "ana", by_name),
        ("merged", "eve", ""),
    ]  # fmt: skip
    assert before[0].text == "owner ivo, bank is down, https://t/1"
    assert before[1] == PastEvent(NOW_MS - 5, "retry", "ana", "again", by_filter, letters=3, done=2)


def test_what_was_done_to_letters_of_other_teams_is_not_told(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1, headers=failure("a.A")), entry(2, team="orders", headers=failure("a.A")))
    group = of_this(replica)
    act(replica, 5, f"group:{group}", teams=("orders",))
    note(replica, RESOLVED + group, Resolved("ivo", NOW_MS - 7))
    note(replica, NOTE + group, Note("ivo", "secret", "", "ivo", NOW_MS, ("orders",)))
    # Letters of the audit go by their topic, which is one of payments here: its team sees what was done to them.
    assert [each.what for each in details(replica, group, scope=frozenset({"nobody"})).before] == []
    assert [each.what for each in details(replica, group).before] == ["note", "retry", "resolved"]


def test_an_action_that_goes_on_is_about_all_of_its_letters(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1, headers=failure("a.A")))
    group = of_this(replica)
    act(replica, 5, f"group:{group}", members=75)
    for scope in (None, frozenset({"payments"})):
        assert [(each.done, each.letters) for each in details(replica, group, scope=scope).before] == [(2, 75)]


def test_an_action_that_only_just_began_is_told(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, entry(1, headers=failure("a.A")))
    group = of_this(replica)
    head = Action("retry", "ana", NOW_MS, [1, 0], 3, filter=f"group:{group}", teams=["payments"])
    replica.fold(OWN.changelog, (action_records.build_head_key(b"12345678"), action_records.encode(head)))
    (told_of,) = details(replica, group).before
    assert (told_of.what, told_of.letters, told_of.done) == ("retry", 3, 0)
