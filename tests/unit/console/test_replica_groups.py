"""Kinds of failures in the console's replica: counted, merged, split, resolved; what came back; who did what."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec
import orjson
import pytest

from retry import clock
from retry.console.folding import notes
from retry.console.folding.letter_record import find_top_frames
from retry.console.folding.notes import NOTE, RESOLVED, Note, Resolved
from retry.console.folding.regrouping import CHANGE, Change
from retry.console.reading import groups, lists
from retry.console.reading import letters as reading_letters
from retry.console.reading.group_details import PERIODS, DetailsQuery, GroupDetails
from retry.console.reading.group_list import OPEN, GroupsQuery
from retry.console.reading.now import NowQuery
from retry.console.rows import FailureState, Group, Now, Scope
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action, Order
from retry.delay_queue.control_records import Pause, encode, pause_key
from retry.errors import CursorStale
from retry.operations.act.audit import AuditLetter, AuditRecord, encode_person_act
from retry.operations.letter_filter.syntax import EVERYTHING
from retry.policies.registry import Registry
from retry.telemetry import outcomes
from retry.telemetry.outcomes import LetterRows, SharedFields
from tests.support.outcome_records import tell_of
from tests.support.plans import registry_of
from tests.support.replicas import HOUR_MS, OWN, GivenReplica, entry, failure, make_parked_record

POLICIES = "teams: {payments: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}}"
MINUTE_MS = 60_000
NOW_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS + 45 * MINUTE_MS


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivenReplica:
    return make_live(tmp_path, monkeypatch)


def make_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivenReplica:
    """One that is live; it is a quarter to an hour."""
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    monkeypatch.setattr("tests.support.replicas.NOW_MS", NOW_MS)
    made = GivenReplica(tmp_path, registry_of(POLICIES))
    made.finish()
    return made


def note(replica: GivenReplica, key: str, record: notes.Record | None) -> None:
    replica.fold(OWN.notes, (key.encode(), None if record is None else notes.encode_note(record)))


def outcome_record(
    attempt: int,
    *ids: str,
    due_ms: int | None = None,
    failed_ms: int = NOW_MS,
    fingerprint: str = "f00d" * 4,
    team: str = "payments",
) -> tuple[None, bytes]:
    """A record of outcomes of letters that have all of that in common."""
    decision = "park" if due_ms is None else "retry"
    reason = None if due_ms else "max_attempts"
    shared = SharedFields(
        team, "orders.DLT", 0, "payments/orders.DLT", attempt, "a.B", decision, reason, "orders.retry", "a.C", fingerprint, "g",
    )  # fmt: skip
    rows: LetterRows = [(id_.encode(), n, failed_ms, failed_ms, due_ms) for n, id_ in enumerate(ids, attempt * 100)]
    (value,) = outcomes.encode_outcomes(defaultdict(list, {shared: rows}), failed_ms)
    return None, value


def one(replica: GivenReplica, group: str, scope: Scope = None) -> Group:
    with replica.readers.reading(0.0) as connection:
        found = groups.find_group(connection, scope, group, NOW_MS)
    assert found is not None
    return found


def details(replica: GivenReplica, group: str, period: str = "24h", scope: Scope = None) -> GroupDetails:
    with replica.readers.reading(0.0) as connection:
        return DetailsQuery(connection, scope, group, NOW_MS).load(PERIODS[period])


def now(replica: GivenReplica, scope: Scope = None) -> Now:
    with replica.readers.reading(0.0) as connection:
        return NowQuery(connection, scope, Registry(), {}, NOW_MS).load_now([(0, 5, 5)])


def ids(replica: GivenReplica, scope: Scope = None, *, show: str = OPEN) -> dict[str, int]:
    return {group.id: group.count for group in replica.groups(scope=scope, show=show)}


@pytest.fixture
def three(replica: GivenReplica) -> tuple[str, str, str]:
    """Three kinds, the one with most letters first."""
    kinds = [failure(exception) for exception in ("a.A", "b.B", "c.C")]
    records = [entry(n, headers=kinds[0 if n < 4 else 1]) for n in range(6)]
    replica.fold(OWN.changelog, *records)
    replica.fold(OWN.parked, make_parked_record(9, headers=kinds[2]), make_parked_record(10, headers=kinds[0]))
    first, second, third = replica.groups()
    assert [(each.waiting, each.parked) for each in (first, second, third)] == [(4, 1), (2, 0), (0, 1)]
    return first.id, second.id, third.id


def test_a_group_says_what_its_letters_have_in_common(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    group = one(replica, three[0])
    assert (group.cause, group.message, group.topics, group.teams) == ("a.A", "order # is late", ("orders.DLT",), ("payments",))
    assert (group.sent, group.came_back, group.resolved_at_ms, group.merged) == (None, None, None, ())


def test_merges_count_also_later_letters_and_are_undone(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    first, second, third = three
    note(replica, f"{CHANGE}1", Change((second,), "ann", 1, into=first))
    note(replica, f"{CHANGE}2", Change((first,), "ann", 2, into=third))
    assert ids(replica) == {third: 8}
    replica.fold(OWN.changelog, entry(50, headers=failure("b.B")))
    assert ids(replica) == {third: 9}
    assert (one(replica, second).id, one(replica, third).merged) == (third, tuple(sorted((first, second))))
    note(replica, f"{CHANGE}2", None)
    assert ids(replica) == {first: 8, third: 1}
    note(replica, f"{CHANGE}1", None)
    assert ids(replica) == {first: 5, second: 3, third: 1}


def test_merges_in_a_circle_end(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    first, second, third = three
    note(replica, f"{CHANGE}1", Change((second,), "ann", 1, into=first))
    note(replica, f"{CHANGE}2", Change((first,), "ann", 2, into=second))
    assert ids(replica) == {second: 7, third: 1}
    assert (one(replica, first).id, one(replica, first).count) == (second, 7)


@pytest.mark.parametrize(("by", "parts"), [("topic", 1), ("attempt", 2), ("consumer-group", 1), ("frames", 1)])
def test_splits_hold_for_later_letters_and_are_undone(
    by: str, parts: int, replica: GivenReplica, three: tuple[str, str, str]
) -> None:
    note(replica, f"{CHANGE}1", Change((three[0],), "ann", 1, by_what=by))
    found = {group: count for group, count in ids(replica).items() if group.startswith(three[0])}
    assert (len(found), sum(found.values())) == (parts, 5)
    assert three[0] not in found
    assert one(replica, three[0]).count == 5, "the page of what was split has all of it"
    replica.fold(OWN.changelog, entry(50, headers=failure("a.A")))
    assert sum(count for group, count in ids(replica).items() if group in found) == 6
    note(replica, f"{CHANGE}1", None)
    assert ids(replica)[three[0]] == 6


def test_a_group_can_be_split_by_the_top_frames_of_its_root_cause(replica: GivenReplica) -> None:
    def stack(method: str) -> bytes:
        frames = "".join(f"\tat com.acme.{method}.call{n}(File.java:{n})\n" for n in range(5))
        return f"a.A: order 17 is late\n\tat x.Y.z(Y.java:1)\nCaused by: b.B: no\n{frames}".encode()

    for n, method in enumerate(("Pay", "Pay", "Ship")):
        replica.fold(OWN.changelog, entry(n, headers=failure("a.A", "m", ("kafka_dlt-exception-stacktrace", stack(method)))))
    (group,) = replica.groups()
    common = details(replica, group.id).common
    frames = {each.value: each.letters for each in common if each.by == "frames"}
    top = {method: "\n".join(f"com.acme.{method}.call{n}" for n in range(3)) for method in ("Pay", "Ship")}
    assert frames == {top["Pay"]: 2, top["Ship"]: 1}
    assert {(each.by, each.value) for each in common} >= {("topic", "orders.DLT"), ("attempt", "1"), ("consumer-group", None)}


TRACES = {
    "a.A: no\n\tat x.Y.z(Y.java:1)\n\tat x.Y.w(Y.java:2)": "x.Y.z\nx.Y.w",
    "\tat x.Y.z(Y.java:1)\na.A: no\n\tat x.Y.w(Y.java:2)": "x.Y.z\nx.Y.w",
    "at x.Y.z(Y.java:1)": "x.Y.z",
    "a.A: said in\ntwo lines\n\tat x.Y.z(Y.java:1)\nCaused by: b.B: also\nin two\n\n  at b.B.c(B.java:3)": "b.B.c",
    "a.A: no\nCaused by: b.B: no\nCaused by: c.C\n\tat c.C.d(C.java:4)\n\t... 3 more": "c.C.d",
    "a.A: no": None, "": None,
}  # fmt: skip


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("more", [0, 10_000], ids=["short", "long"])
def test_top_frames_are_those_of_the_last_cause_wherever_they_begin(trace: str, more: int) -> None:
    assert find_top_frames([("kafka_dlt-exception-stacktrace", (trace + " " * more).encode())]) == TRACES[trace]


def test_a_resolved_group_is_opened_again_by_a_later_failure(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    note(replica, RESOLVED + three[1], Resolved("ann", NOW_MS + 1))
    assert set(ids(replica)) == {three[0], three[2]}
    assert ids(replica, show=FailureState.RESOLVED) == {three[1]: 2}
    assert one(replica, three[1]).resolved_at_ms == NOW_MS + 1
    key, envelope = entry(77, headers=failure("b.B"))
    replica.fold(OWN.changelog, (key, envelope))
    assert ids(replica, show=FailureState.RESOLVED) == {three[1]: 3}, "it failed before it was resolved"
    note(replica, RESOLVED + three[1], Resolved("ann", NOW_MS - 1_800_000_000_000))
    assert three[1] in ids(replica)
    note(replica, RESOLVED + three[1], None)
    assert three[1] in ids(replica)


def test_notes_are_shown_and_removed_and_what_is_none_is_told(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    note(replica, NOTE + three[0], Note("ann", "the bank", "https://t/1", "bob", NOW_MS))
    shown = one(replica, three[0])
    assert (shown.owner, shown.note, shown.link) == ("ann", "the bank", "https://t/1")
    note(replica, NOTE + three[0], None)
    assert one(replica, three[0]).owner == ""
    replica.fold(OWN.notes, (b"nonsense", b"{}"), (NOTE.encode() + b"x", b"[]"), (NOTE.encode() + b"y", b'{"v":9,"owner":""}'))
    assert replica.unreadable == 3
    assert len(ids(replica)) == 3


def test_a_note_is_for_the_teams_whose_letters_were_of_its_kind_then(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    replica.fold(OWN.changelog, entry(60, team="orders", headers=failure("a.A")))
    note(replica, NOTE + three[0], Note("ann", "the bank", "https://t/1", "bob", NOW_MS, ("payments",)))
    for teams, seen in ((None, True), ({"payments"}, True), ({"payments", "orders"}, True), ({"orders"}, False)):
        found = one(replica, three[0], None if teams is None else frozenset(teams))
        assert (found.owner, found.note, found.link) == (("ann", "the bank", "https://t/1") if seen else ("", "", ""))


def test_a_viewer_counts_letters_of_its_teams_alone(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    replica.fold(OWN.changelog, entry(60, team="orders", headers=failure("a.A")))
    assert {group.id: group.count for group in replica.groups(scope=frozenset({"orders"}))} == {three[0]: 1}
    assert one(replica, three[0], frozenset({"orders"})).teams == ("orders",)
    with replica.readers.reading(0.0) as connection:
        assert groups.find_group(connection, frozenset({"orders"}), three[1], NOW_MS) is None


def test_pages_of_groups_follow_each_other(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, *(entry(n, headers=failure(f"a.E{n % 7}x")) for n in range(20)))
    whole, found, after = [group.id for group in replica.groups()], list[str](), None
    while True:
        page = replica.group_page(GroupsQuery(None, EVERYTHING, after=after, limit=2))
        found += [group.id for group in page.rows]
        if (after := page.after) is None:
            break
    assert (found, page.count) == (whole, len(whole))


def test_groups_whose_letters_have_gone_are_listed_last_for_a_day(replica: GivenReplica, three: tuple[str, str, str]) -> None:
    replica.fold(OWN.outcomes, outcome_record(1, "1", due_ms=NOW_MS - 5))
    replica.fold(
        OWN.outcomes, outcome_record(1, "2", due_ms=NOW_MS - 5, failed_ms=NOW_MS - 25 * HOUR_MS, fingerprint="beefbeefbeefbeef")
    )
    assert list(ids(replica)) == [*three, "f00df00df00df00d"]
    assert list(ids(replica, scope=frozenset({"others"}))) == []
    assert [group.id for group in replica.groups("team:payments")] == list(three)


def test_what_nothing_was_heard_of_for_long_is_forgotten(replica: GivenReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    key, envelope = entry(1)
    replica.fold(OWN.changelog, (key, envelope), (entry(2)[0], entry(2, headers=failure("b.B"))[1]))
    replica.fold(OWN.changelog, (key, None))
    replica.fold(OWN.outcomes, outcome_record(1, "1", due_ms=NOW_MS - 5))
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS + 40 * 24 * HOUR_MS)
    monkeypatch.setattr("retry.console.folding.folds._PRUNE_EVERY", 1)
    replica.fold(OWN.changelog, entry(3, headers=failure("b.B")))
    assert replica.counts_hold()
    assert sorted(ids(replica).values()) == [2]
    replica.fold(OWN.changelog, (key, envelope))
    assert sorted(ids(replica).values()) == [1, 2]
    assert replica.connection.execute("SELECT count(*) FROM outcome_cells").fetchone() == (0,)


def test_an_outcome_counts_and_what_is_none_is_told(replica: GivenReplica) -> None:
    letter = {
        "v": 1, "id": "1", "source": "orders.DLT/3/17", "team": "payments", "topic": "orders.DLT", "policy": "p", "attempt": 1,
        "exception": "a.B", "first_failed_ms": NOW_MS, "failed_ms": NOW_MS, "taken_ms": NOW_MS, "decision": "retry",
        "reason": None, "due_ms": NOW_MS + 5, "target": "t", "cause": None, "fingerprint": "f00df00df00df00d", "group": None,
        "action": None, "action_kind": None,
    }  # fmt: skip
    strange = b"{}", b'{"v": 2, "taken_ms": 1, "letters": []}', b"["
    replica.fold(OWN.outcomes, (None, orjson.dumps(tell_of(letter))), *((None, value) for value in strange))
    assert sum(now(replica).failed_by_hour) == 1
    assert replica.unreadable == 3


def test_a_lineage_has_its_failures_and_what_operators_did(replica: GivenReplica) -> None:
    replica.fold(
        OWN.outcomes,
        outcome_record(1, "1", due_ms=NOW_MS - 5, failed_ms=NOW_MS - 9),
        outcome_record(2, "1", failed_ms=NOW_MS - 2),
    )
    letters = [AuditLetter("done", "orders.DLT/0/200"), AuditLetter("gone", "orders.DLT/0/7")]
    record = AuditRecord("ac", "retry", "ann", NOW_MS - 1, 0, letters, "mended")
    replica.fold(OWN.audit, (b"ac", msgspec.json.encode(record)))
    with replica.readers.reading(0.0) as connection:
        events = reading_letters.list_events(connection, frozenset({"payments"}), "1")
    assert [(event.what, event.attempt, event.at_ms) for event in events] == [
        ("failed", 0, NOW_MS - 9), ("due", 1, NOW_MS - 5), ("came back", 1, NOW_MS - 2), ("action", None, NOW_MS - 1),
    ]  # fmt: skip
    assert (events[-1].by, events[-1].action, events[-1].reason) == ("ann", "ac", "retry: mended")


def test_the_audit_is_shown_to_those_whose_letters_it_is_about(replica: GivenReplica) -> None:
    shown = encode_person_act("reveal", "ann", "a look", NOW_MS, [f"{NOW_MS}/orders.DLT/0/1", "parked/0/2"], ["payments"])
    paused = encode_person_act("pause", "bob", "", NOW_MS + 1, [], ["orders"])
    replica.fold(OWN.audit, (b"console", shown), (b"console", paused), (b"x", b"nonsense"))
    with replica.readers.reading(0.0) as connection:
        whole = lists.load_audit_page(connection, replica.file.id, None, None, 1, {})
        assert ([(row.kind, row.by, row.team) for row in whole.rows], whole.count) == ([("pause", "bob", "orders")], 2)
        rest = lists.load_audit_page(connection, replica.file.id, None, whole.after, 1, {})
        assert [(row.kind, row.letters, row.done) for row in rest.rows] == [("reveal", 2, 2)]
        assert rest.after is None
        own = lists.load_audit_page(connection, replica.file.id, frozenset({"payments"}), None, 9, {})
        assert [row.kind for row in own.rows] == ["reveal"]
        assert lists.load_audit_page(connection, replica.file.id, frozenset({"others"}), None, 9, {}).count == 0
        for wanted, kinds in (
            ({"by": "ann"}, ["reveal"]), ({"kind": "pause"}, ["pause"]), ({"team": "orders"}, ["pause"]), ({"by": "an"}, []),
            ({"letter": "orders.DLT/0/1"}, ["reveal"]), ({"letter": "parked/0/2"}, ["reveal"]), ({"letter": "parked/0/3"}, []),
            ({"by": "ann", "kind": "pause"}, []), ({"action": "00"}, []),
        ):  # fmt: skip
            found = lists.load_audit_page(connection, replica.file.id, None, None, 9, wanted)
            assert ([row.kind for row in found.rows], found.count) == (kinds, len(kinds)), wanted
        # Nobody sees more by asking for it.
        others = lists.load_audit_page(connection, replica.file.id, frozenset({"payments"}), None, 9, {"team": "orders"})
        assert (others.rows, others.count) == ([], 0)
        # A page goes on with what it began with.
        with pytest.raises(CursorStale):
            lists.load_audit_page(connection, replica.file.id, None, whole.after, 1, {"by": "ann"})
    assert replica.unreadable == 1


def test_what_is_due_overdue_and_held_is_counted(replica: GivenReplica) -> None:
    due = [NOW_MS - HOUR_MS, NOW_MS - 5_000, NOW_MS, NOW_MS + MINUTE_MS, NOW_MS + 5 * HOUR_MS, NOW_MS + 100 * HOUR_MS]
    replica.fold(OWN.changelog, *(entry(n, at_ms, team="orders" if n == 1 else "payments") for n, at_ms in enumerate(due)))
    seen = now(replica)
    assert (seen.waiting, seen.overdue, seen.oldest_overdue_ms, seen.lateness_ms) == (6, 2, NOW_MS - HOUR_MS, HOUR_MS)
    assert [bar.count for bar in seen.due if bar.count] == [2, 1]
    assert (seen.due[-1].to_ms - seen.due[0].from_ms) == 24 * HOUR_MS
    assert (now(replica, frozenset({"orders"})).overdue, now(replica, frozenset({"orders"})).lateness_ms) == (1, 5_000)
    assert (now(replica, frozenset({"nobody"})).overdue, now(replica, frozenset({"nobody"})).shards) == (0, ())

    for scope, name in (("team", "payments"), ("team", "ended"), ("topic", "orders.DLT")):
        pause = Pause(NOW_MS, f"why {name}", NOW_MS - 1 if name == "ended" else None, "ann")
        replica.fold(OWN.changelog, (pause_key(scope, name), encode(pause)))
    held = [(each.scope, each.name, each.letters) for each in now(replica).held]
    assert held == [("team", "payments", 5), ("topic", "orders.DLT", 6)]
    assert [(held.scope, held.letters) for held in now(replica, frozenset({"orders"})).held] == [("topic", 1)]
    replica.fold(OWN.changelog, (pause_key("topic", "orders.DLT"), None))
    assert [held.scope for held in now(replica).held] == ["team"]


def test_an_action_that_is_held_is_shown_to_the_teams_whose_letters_it_is_about(replica: GivenReplica) -> None:
    def hold_action(number: int, teams: list[str], held: bool = True) -> bytes:
        action, id_ = Action("retry", "ann", NOW_MS - number, [1, 0], 7, teams=teams), b"action %d" % number
        replica.fold(OWN.changelog, (action_records.build_head_key(id_), action_records.encode(action)))
        if held:
            order = action_records.encode(Order("bob", NOW_MS, "bank is down"))
            replica.fold(OWN.changelog, (action_records.build_held_key(id_), order))
        return id_

    own, others, both = hold_action(1, ["payments"]), hold_action(2, ["orders"]), hold_action(3, ["payments", "orders"])
    unknown, _, cancelled = hold_action(4, []), hold_action(5, ["payments"], held=False), hold_action(6, ["payments"])
    replica.fold(OWN.changelog, (action_records.build_cancelled_key(cancelled), action_records.encode(Order("bob", NOW_MS, ""))))
    for scope, seen in (
        (None, [own, others, both, unknown]), (frozenset({"payments"}), [own]),
        (frozenset({"payments", "orders"}), [own, others, both]),
    ):  # fmt: skip
        assert [each.name for each in now(replica, scope).held] == [id_.hex() for id_ in seen]
    (held,) = now(replica, frozenset({"payments"})).held
    assert (held.what, held.scope, held.reason, held.by, held.since_ms) == ("action", "retry", "bank is down", "bob", NOW_MS)
    resumed = action_records.encode(Order("ann", NOW_MS + 1, "", NOW_MS))
    replica.fold(OWN.changelog, (action_records.build_resumed_key(own), resumed))
    assert now(replica, frozenset({"payments"})).held == ()


def test_letters_that_kafka_deletes_soon_are_counted(replica: GivenReplica) -> None:
    day = 24 * HOUR_MS
    for age_ms in (0, 5 * day, 6 * day + HOUR_MS):
        replica.fold(OWN.parked, make_parked_record(1), at_ms=NOW_MS - age_ms)
    with replica.readers.reading(0.0) as connection:
        found = NowQuery(connection, None, Registry(), {OWN.parked: 7 * day}, NOW_MS).load_now([])
        assert (found.near_retention, found.near_retention_age_ms) == (1, 6 * day)
        assert NowQuery(connection, frozenset({"x"}), Registry(), {OWN.parked: 7 * day}, NOW_MS).load_now([]).near_retention == 0
        assert NowQuery(connection, None, Registry(), {}, NOW_MS).load_now([]).near_retention == 0
