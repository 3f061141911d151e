"""Which retries recovered, as the console's replica counts them: what really left, was passed, and did not fail again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retry import clock
from retry.console.folding.attempts import SETTLE_MS
from retry.console.reading import groups, letters
from retry.console.reading.now import NowQuery
from retry.console.rows import DepartedLetter
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.control_records import Pause, encode, pause_key
from retry.delay_queue.envelopes import Entry
from retry.policies.registry import Registry
from retry.record import Headers
from retry.telemetry import offset_records, outcomes
from retry.telemetry.offset_records import Position
from retry.telemetry.outcomes import ActionOutcome, SharedFields
from tests.support.plans import registry_of
from tests.support.replicas import HOUR_MS, OWN, GivenReplica

POLICIES = "teams: {payments: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}}"
NOW_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS + 45 * 60_000
SENT_MS = NOW_MS - 30 * 60_000
Records = list[tuple[bytes | None, bytes | None]]


class Letter(NamedTuple):
    """A letter of one lineage at one attempt."""

    offset: int
    lineage: str
    attempt: int = 1

    def key(self, due_ms: int = SENT_MS, target: str = "orders.retry") -> bytes:
        lane = entry_keys.lane("payments", "orders.DLT", target)
        return entry_keys.build_key(due_ms, entry_keys.build_key_stem("orders.DLT", 0), self.offset, lane)

    def waits(self, due_ms: int = SENT_MS, target: str = "orders.retry", *more: tuple[str, bytes]) -> tuple[bytes, bytes]:
        headers: Headers = [
            ("kafka_dlt-exception-fqcn", b"a.B"), ("retry-id", self.lineage.encode()), ("retry-attempt", b"%d" % self.attempt),
            *more,
        ]  # fmt: skip
        return self.key(due_ms, target), envelopes.encode(Entry(target, b"k", b"v", headers, NOW_MS, "payments", NOW_MS))

    def leaves(self, due_ms: int = SENT_MS, target: str = "orders.retry") -> tuple[bytes, None]:
        return self.key(due_ms, target), None

    def told(
        self, decision: str = "retry", group: str | None = "shop", fingerprint: str | None = "f00df00df00df00d",
        by: ActionOutcome | None = None,
    ) -> tuple[None, bytes]:  # fmt: skip
        """Make its outcome record; `by`: that of an action."""
        taken_ms = SENT_MS - 60_000 + self.offset
        due_ms = SENT_MS if decision == "retry" else None
        shared = SharedFields(
            "payments", "orders.DLT", 0, "payments/orders.DLT", self.attempt, "a.B", decision, None,
            "orders.retry" if decision == "retry" else OWN.parked, None, fingerprint, group,
        )  # fmt: skip
        rows = [(self.lineage.encode(), self.offset, taken_ms, taken_ms, due_ms)]
        (value,) = outcomes.encode_outcomes(defaultdict(list, {shared: rows}), taken_ms, by)
        return None, value


def sample(until_ms: int | None, at_ms: int, group: str = "shop") -> tuple[bytes, bytes]:
    return offset_records.KEY, offset_records.to_json(Position(group, "orders.retry", 0, 7, at_ms, passed_ms=until_ms))


def find_departed(replica: GivenReplica, name: str, scope: frozenset[str] | None = None) -> DepartedLetter | None:
    with replica.readers.reading(0.0) as connection:
        return letters.find_departed(connection, scope, name)


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivenReplica:
    """One that is live."""
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    made = GivenReplica(tmp_path, registry_of(POLICIES))
    made.finish()
    return made


def recovery(replica: GivenReplica, now_ms: int = NOW_MS) -> list[tuple[int, int, int, int]]:
    """List by attempt how many retries are known, how many of them came back, and of how many nothing is known yet."""
    replica.folds.count_recoveries(now_ms)
    with replica.readers.reading(0.0) as connection:
        found = NowQuery(connection, None, Registry(), {}, now_ms).load_now([])
        assert sum(found.retried_by_hour) == sum(each.sent + each.pending for each in found.recovery)
        assert NowQuery(connection, frozenset({"others"}), Registry(), {}, now_ms).load_now([]).recovery == ()
        return [(each.attempt, each.sent, each.came_back, each.pending) for each in found.recovery]


LETTERS = [Letter(n, f"{n:016x}") for n in range(4)]
FIRST = LETTERS[0]


def test_letters_that_wait_are_held_or_were_taken_away_are_no_retries(replica: GivenReplica) -> None:
    replica.fold(OWN.outcomes, *(letter.told() for letter in LETTERS))
    replica.fold(OWN.changelog, *(letter.waits() for letter in LETTERS), (pause_key("team", "payments"), encode(Pause(NOW_MS))))
    assert recovery(replica) == [], "three of four are overdue: of a team that is paused"
    discarded, parked, postponed, waiting = LETTERS
    replica.fold(OWN.changelog, discarded.waits(NOW_MS, OWN.discarded), discarded.leaves())
    replica.fold(OWN.changelog, discarded.leaves(NOW_MS, OWN.discarded))
    reason = ("retry-parked-reason", b"cancelled")
    replica.fold(OWN.changelog, parked.waits(NOW_MS, OWN.parked, reason), parked.leaves(), parked.leaves(NOW_MS, OWN.parked))
    replica.fold(OWN.changelog, postponed.waits(NOW_MS + HOUR_MS))
    replica.fold(OWN.changelog, postponed.leaves(), at_ms=SENT_MS)
    assert recovery(replica) == []
    replica.fold(OWN.changelog, postponed.leaves(NOW_MS + HOUR_MS), waiting.leaves(), at_ms=SENT_MS)
    assert recovery(replica) == [(1, 2, 0, 0)]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_operators_decide_is_no_failure_and_takes_no_retry_away(replica: GivenReplica, is_first: bool) -> None:
    acted = FIRST.told("retry", None, None, ActionOutcome("0a0b", "redirect"))
    told = [acted, FIRST.told()] if is_first else [FIRST.told(), acted]
    replica.fold(OWN.outcomes, sample(SENT_MS + 20_000, SENT_MS + 10_000), *told)
    replica.fold(OWN.changelog, FIRST.waits(), FIRST.leaves(), at_ms=SENT_MS)
    assert recovery(replica) == [(1, 1, 0, 0)]
    with replica.readers.reading(0.0) as connection:
        assert connection.execute("SELECT sum(failed), count(DISTINCT cell) FROM outcome_hours").fetchone() == (1, 1)


def test_what_was_sent_has_recovered_so_far_once_its_group_has_committed_past_it(replica: GivenReplica) -> None:
    replica.fold(OWN.outcomes, sample(SENT_MS - 20_000, SENT_MS - 10_000), FIRST.told())
    replica.fold(OWN.changelog, FIRST.waits(), FIRST.leaves(), at_ms=SENT_MS)
    assert recovery(replica) == [(1, 0, 0, 1)], "half an hour has gone by, and the group has not passed it"
    replica.fold(OWN.outcomes, sample(SENT_MS - 1, NOW_MS))
    assert recovery(replica) == [(1, 0, 0, 1)], "a millisecond is missing"
    replica.fold(OWN.outcomes, sample(SENT_MS, NOW_MS))
    assert recovery(replica) == [(1, 1, 0, 0)], "no settle time is waited for"
    with replica.readers.reading(0.0) as connection:
        group = groups.find_group(connection, None, "f00df00df00df00d", NOW_MS)
        assert group is not None and (group.sent, group.came_back, group.pending) == (1, 0, 0)


@pytest.mark.parametrize("group", ["bank", None])
def test_where_no_sample_tells_of_a_group_silence_since_the_retry_was_sent_is_enough(
    group: str | None, replica: GivenReplica
) -> None:
    replica.fold(OWN.outcomes, sample(0, 1), FIRST.told(group=group))
    replica.fold(OWN.changelog, FIRST.waits(), FIRST.leaves(), at_ms=NOW_MS - 1_000)
    assert recovery(replica) == [(1, 0, 0, 1)], "it was sent a second ago"
    assert recovery(replica, NOW_MS - 1_000 + SETTLE_MS - 1) == [(1, 0, 0, 1)]
    assert recovery(replica, NOW_MS - 1_000 + SETTLE_MS) == [(1, 1, 0, 0)]


def test_what_failed_again_is_known_at_once_and_the_rest_when_its_group_has_committed(replica: GivenReplica) -> None:
    behind = sample(SENT_MS - 1, SENT_MS)
    replica.fold(OWN.outcomes, behind, *(letter.told() for letter in LETTERS))
    replica.fold(OWN.changelog, *(letter.waits() for letter in LETTERS))
    replica.fold(OWN.changelog, *(letter.leaves() for letter in LETTERS), at_ms=SENT_MS)
    replica.fold(OWN.outcomes, Letter(10, FIRST.lineage, 2).told())
    assert recovery(replica) == [(1, 1, 1, 3)], "the group has committed nothing of it, and one came back"
    replica.fold(OWN.outcomes, sample(SENT_MS, NOW_MS))
    assert recovery(replica) == [(1, 4, 1, 0)]
    replica.fold(OWN.outcomes, Letter(11, LETTERS[1].lineage, 2).told())
    with replica.readers.reading(0.0) as connection:
        group = groups.find_group(connection, None, "f00df00df00df00d", NOW_MS)
        assert group is not None and (group.sent, group.came_back, group.pending) == (4, 2, 0), "not yet moved to its hour"
    assert recovery(replica) == [(1, 4, 2, 0)]


def test_what_fails_again_came_back_however_it_fails_and_however_late(replica: GivenReplica) -> None:
    again = Letter(10, FIRST.lineage, 2)
    replica.fold(OWN.outcomes, *(letter.told() for letter in LETTERS))
    replica.fold(OWN.changelog, *(letter.waits() for letter in LETTERS))
    replica.fold(OWN.changelog, *(letter.leaves() for letter in LETTERS), at_ms=SENT_MS)
    replica.fold(OWN.outcomes, again.told("park", fingerprint="beefbeefbeefbeef"))
    assert recovery(replica) == [(1, 4, 1, 0)]
    with replica.readers.reading(0.0) as connection:
        one, other = (groups.find_group(connection, None, group, NOW_MS) for group in ("f00df00df00df00d", "beefbeefbeefbeef"))
        assert one is not None and (one.sent, one.came_back, sum(one.trend)) == (4, 1, 4)
        assert other is not None and (other.sent, other.came_back) == (0, 0)
    replica.fold(OWN.outcomes, Letter(11, LETTERS[1].lineage, 2).told())
    assert recovery(replica) == [(1, 4, 2, 0)], "after it was taken to have recovered"
    replica.fold(OWN.outcomes, again.told("park"))
    assert recovery(replica) == [(1, 4, 2, 0)], "an outcome that is read twice counts once"


def test_of_several_letters_of_one_lineage_as_many_came_back_as_failed(replica: GivenReplica) -> None:
    same = [Letter(n, "same") for n in range(3)]
    replica.fold(OWN.outcomes, *(letter.told() for letter in same), Letter(7, "same", 2).told())
    replica.fold(OWN.changelog, *(letter.waits() for letter in same))
    replica.fold(OWN.changelog, *(letter.leaves() for letter in same), at_ms=SENT_MS)
    assert recovery(replica) == [(1, 3, 1, 0)]
    replica.fold(OWN.outcomes, Letter(8, "same", 2).told())
    assert recovery(replica) == [(1, 3, 2, 0)]


def test_a_null_whose_letter_was_compacted_away_is_a_retry_where_it_lay_in_the_lane_of_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    replica = GivenReplica(tmp_path, registry_of(POLICIES))
    sent, discarded, old, moved = LETTERS
    replica.fold(OWN.changelog, sent.leaves(), discarded.leaves(NOW_MS, OWN.discarded), at_ms=SENT_MS)
    replica.fold(OWN.changelog, old.leaves(), at_ms=NOW_MS - 27 * HOUR_MS)
    replica.fold(OWN.changelog, moved.waits(NOW_MS + 5), moved.leaves(), at_ms=SENT_MS)
    replica.fold(OWN.outcomes, *(letter.told() for letter in LETTERS))
    replica.finish()
    assert recovery(replica) == [(1, 1, 0, 0)]


def test_a_timeline_says_when_a_retry_was_sent_passed_and_came_back(replica: GivenReplica) -> None:
    again = Letter(10, FIRST.lineage, 2)
    replica.fold(OWN.outcomes, FIRST.told(), again.told(), sample(SENT_MS - 1, SENT_MS), sample(SENT_MS + 9, SENT_MS + 12))
    replica.fold(OWN.outcomes, sample(SENT_MS + 19, SENT_MS + 22))
    replica.fold(OWN.changelog, FIRST.waits(), FIRST.leaves(), again.waits(NOW_MS + 1), at_ms=SENT_MS)
    with replica.readers.reading(0.0) as connection:
        events = letters.list_events(connection, frozenset({"payments"}), FIRST.lineage)
        assert letters.list_events(connection, frozenset({"others"}), FIRST.lineage) == []
    told = [(event.what, event.attempt, event.place, event.at_ms) for event in events]
    assert told[2:] == [
        ("due", 1, "", SENT_MS), ("due", 2, "", SENT_MS), ("sent", 1, "orders.retry", SENT_MS),
        ("passed", 1, "shop", SENT_MS + 12), ("waiting", 2, "orders.retry", NOW_MS + 1),
    ]  # fmt: skip
    assert [event[:3] for event in told[:2]] == [("failed", 0, "orders.DLT/0/0"), ("came back", 1, "orders.DLT/0/10")]


def test_old_samples_are_forgotten_but_for_the_last(replica: GivenReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    replica.fold(OWN.outcomes, sample(1, 10), sample(2, 20), sample(1, 10, "bank"), sample(None, 30), (offset_records.KEY, b"{}"))
    assert replica.unreadable == 1
    monkeypatch.setattr("retry.console.folding.folds._PRUNE_EVERY", 1)
    replica.fold(OWN.outcomes, FIRST.told())
    rows = replica.connection.execute("SELECT consumer_group, until_ms FROM passed ORDER BY 1").fetchall()
    assert rows == [("bank", 1), ("shop", 2)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Records], list[tuple[int, int]], list[tuple[int, int, int, int]]]:
    """Draw what each topic says of some lineages, in which portions it is read, and what that comes to."""
    changelog: Records = []
    told: tuple[Records, Records] = ([], [])
    sent, back, number = dict.fromkeys((1, 2, 3), 0), dict.fromkeys((1, 2, 3), 0), 0
    for lineage in range(draw(st.integers(1, 4))):
        for attempt in range(1, draw(st.integers(1, 3)) + 1):
            letter = Letter(number, f"{lineage:016x}", attempt)
            number += 1
            told[draw(st.integers(0, 1))].append(letter.told())
            changelog.append(letter.waits())
            back[attempt - 1] = back.get(attempt - 1, 0) + 1
            if draw(st.booleans()):
                changelog += [letter.waits(SENT_MS + 1), letter.leaves()]
                changelog.append(letter.leaves(SENT_MS + 1))
            else:
                changelog.append(letter.leaves())
            sent[attempt] += 1
        if draw(st.booleans()):
            changelog.pop()
            sent[attempt] -= 1
    portions = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=30))
    expected = [(attempt, n, back[attempt], 0) for attempt, n in sent.items() if n]
    return [changelog, *told], portions, expected


@settings(deadline=None)
@given(histories(), st.integers(0, 30))
def test_in_whichever_order_topics_are_read_the_same_is_counted(
    tmp_path_factory: pytest.TempPathFactory,
    history: tuple[list[Records], list[tuple[int, int]], list[tuple[int, int, int, int]]], live_after: int,
) -> None:
    replica = GivenReplica(tmp_path_factory.mktemp("replica"), registry_of(POLICIES))
    topics, portions, expected = history
    places = [(OWN.changelog, 0), (OWN.outcomes, 0), (OWN.outcomes, 1)]
    everything = [(n, len(records)) for n, records in enumerate(topics)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "wall_ms", lambda: NOW_MS)
        for n, (of, count) in enumerate([*portions, *everything]):
            if n == live_after:
                replica.finish()
            taken: Sequence[tuple[bytes | None, bytes | None]] = topics[of][:count]
            topics[of] = topics[of][count:]
            if taken:
                replica.fold(places[of][0], *taken, partition=places[of][1], at_ms=SENT_MS)
        if not replica.file.is_live:
            replica.finish()
        assert recovery(replica) == expected
    replica.file.close()


def test_a_letter_that_has_left_is_known_by_its_name_and_its_place_to_its_own_team(replica: GivenReplica) -> None:
    replica.fold(OWN.outcomes, FIRST.told())
    replica.fold(OWN.changelog, FIRST.waits())
    replica.fold(OWN.changelog, FIRST.leaves(), at_ms=SENT_MS)
    known = DepartedLetter("orders.DLT/0/0", FIRST.lineage, "a.B", "f00df00df00df00d")
    assert find_departed(replica, f"{SENT_MS}/orders.DLT/0/0") == known
    assert find_departed(replica, "orders.DLT/0/0", frozenset({"payments"})) == known
    assert find_departed(replica, "orders.DLT/0/0", frozenset({"others"})) is None
    assert find_departed(replica, "orders.DLT/0/1") is None


def test_a_letter_that_came_back_says_which_letter_it_is_now(replica: GivenReplica) -> None:
    again = Letter(9, FIRST.lineage, 2)
    replica.fold(OWN.outcomes, FIRST.told(), again.told())
    replica.fold(OWN.changelog, FIRST.waits())
    replica.fold(OWN.changelog, FIRST.leaves(), again.waits(NOW_MS + HOUR_MS), at_ms=SENT_MS)
    found = find_departed(replica, "orders.DLT/0/0")
    assert found is not None
    assert [(each.letter, each.state) for each in found.present] == [("orders.DLT/0/9", "waiting")]


@pytest.mark.parametrize("name", ["", "/", "a/b", "x/0/-1", "orders.DLT/0/9" * 99, "\udc80/0/1", f"o/0/{10**20}", "1/o/0/²"])
def test_what_names_no_place_is_nobodys_letter(replica: GivenReplica, name: str) -> None:
    assert find_departed(replica, name) is None
