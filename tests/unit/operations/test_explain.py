"""How a due time comes about, how an entry is found by its letter, and what is said where little is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import JITTERS, Constant, Exponential, Policy, RetryAt
from backoff.calendar import parse_calendar
from retry.cli.letters import _describe_letter, _format_letter
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.envelopes import Also, Entry, Named, Recurrence
from retry.delay_queue.table.interface import Identity, Table
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable
from retry.delivery.letter_changes import ActedLetter
from retry.operations import found_letter, waiting_entries
from retry.operations.explain import search, state
from retry.operations.explain.evidence import FormerVersion, LetterEvidence
from retry.operations.explain.explanation import explain_evidence
from retry.operations.explain.search import DecisionRecord, Delivery, LetterLocation
from retry.operations.explain.state import LetterState
from retry.policies.policy_file import parse
from retry.policies.registry import Registry
from retry.testing.memory_table import MemoryTable
from tests.support import acted

NOW_MS = 1_700_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
CALENDARS = [
    None,
    parse_calendar({"quiet_hours": {"from": "22:00", "to": "06:00", "zone": "Europe/Berlin"}}),
    parse_calendar({"align": {"cron": "*/15 * * * *"}}),
]


@given(
    curve=st.sampled_from([Constant(delay_ms=30_000, max_delay_ms=HOUR_MS), Exponential(10_000, 2.0, HOUR_MS)]),
    jitter=st.sampled_from(sorted(JITTERS)),
    calendar=st.sampled_from(CALENDARS),
    attempt=st.integers(1, 20),
    failed_ms=st.integers(NOW_MS - DAY_MS, NOW_MS + DAY_MS),
    draw=st.floats(0, 1, exclude_max=True),
    wish_ms=st.none() | st.integers(NOW_MS - DAY_MS, NOW_MS + DAY_MS),
    honour=st.booleans(),
)
def test_the_last_step_is_what_the_policy_decides(curve, jitter, calendar, attempt, failed_ms, draw, wish_ms, honour) -> None:
    policy = Policy(
        curve=curve, jitter=JITTERS[jitter], max_attempts=20, max_age_ms=1_000 * DAY_MS, max_delay_ms=HOUR_MS,
        honour_retry_at=honour, calendar=calendar,
    )  # fmt: skip
    decision = policy.decide(
        attempt=attempt, first_failed_at_ms=failed_ms, failed_at_ms=failed_ms, now_ms=NOW_MS, draw=draw, retry_at_ms=wish_ms
    )
    steps = list(state.list_due_steps(
        policy, attempt=attempt, failed_at_ms=failed_ms, now_ms=NOW_MS, draw=draw, retry_at_ms=wish_ms
    ))  # fmt: skip
    assert decision == RetryAt(steps[-1].at_ms)
    assert len({step.at_ms for step in steps}) == len(steps)


def test_each_step_says_what_it_did() -> None:
    policy = Policy(
        curve=Constant(delay_ms=4 * HOUR_MS, max_delay_ms=HOUR_MS), jitter=JITTERS["none"], max_attempts=20,
        max_age_ms=DAY_MS, max_delay_ms=HOUR_MS, honour_retry_at=True, calendar=CALENDARS[1],
    )  # fmt: skip
    steps = state.list_due_steps(policy, attempt=1, failed_at_ms=NOW_MS, now_ms=NOW_MS, draw=0.5, retry_at_ms=NOW_MS + DAY_MS)
    # 1,700,000,000 s is 22:13:20 on 14 November 2023, UTC; in Berlin an hour later.
    assert [step.says for step in steps] == [
        "The letter itself asked for 2023-11-15T22:13:20.000+00:00 (retry-at-ms).",
        "No wait is longer than max_delay (1h) from when it was taken in: cut to 2023-11-14T23:13:20.000+00:00.",
        "The calendar (quiet 22:00–06:00 Europe/Berlin) moved it to 2023-11-15T05:00:00.000+00:00.",
    ]


@pytest.fixture(params=["memory", "rocks"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    made = MemoryTable() if request.param == "memory" else RocksTable(tmp_path / "t", Identity("", "", 0), Memory(8 << 20))
    yield made
    made.close()


def put_entry(
    table: Table, due_ms: int, topic: str, partition: int, offset: int, key: bytes | None = None, target: str = "r"
) -> bytes:
    stem = entry_keys.build_key_stem(topic, partition)
    if key is not None:
        stem = entry_keys.hash_record_key("team", topic, key) + stem
    made = entry_keys.build_key(due_ms, stem, offset, entry_keys.lane("team", topic, target, key is not None))
    envelope = envelopes.encode(Entry(target, key, b"%d" % offset, [], None, "team"))
    table.apply_records([(made, envelope)], table.next_offset + 1, NOW_MS)
    return made


def test_an_entry_is_found_by_its_letter_in_any_lane(table: Table) -> None:
    keys = {
        (topic, partition, offset): put_entry(table, offset * 7 % 5, topic, partition, offset, target=target)
        for topic, target in (("a", "r"), ("ab", "r"), ("b", "s"))
        for partition in (0, 1)
        for offset in (0, 1, 256)
    }
    for letter, key in keys.items():
        waiting = waiting_entries.find_entry(table, *letter)
        assert waiting is not None and (waiting.key, waiting.head) == (key, None)
        assert waiting.entry.value == b"%d" % letter[2]
    assert waiting_entries.find_entry(table, "a", 0, 2) is waiting_entries.find_entry(table, "c", 0, 0) is None


def test_an_entry_behind_another_is_found_with_what_it_waits_for(table: Table) -> None:
    head = put_entry(table, 500, "a", 0, 1, b"k")
    behind = put_entry(table, 100, "a", 0, 2, b"k")
    other = put_entry(table, 100, "a", 0, 3, b"other")
    waiting = [waiting_entries.find_entry(table, "a", 0, offset) for offset in (1, 2, 3)]
    assert [(each.key, each.head) for each in waiting if each] == [(head, None), (behind, head), (other, None)]


@pytest.mark.parametrize("record_key", [None, b"k"])
def test_of_a_topic_that_was_made_anew_the_entry_of_its_newest_letter_is_found(table: Table, record_key: bytes | None) -> None:
    numbers = [entry_keys.number_letter(7, life) for life in (0, 2, 1)]
    _, newest, _ = (
        put_entry(table, due_ms, "a", 0, number, record_key) for due_ms, number in zip((9, 5, 1), numbers, strict=True)
    )
    found = waiting_entries.find_entry(table, "a", 0, 7)
    assert found is not None and found.key == newest
    assert waiting_entries.find_entry(table, "a", 0, 8) is None


def test_an_entry_tells_what_was_decided() -> None:
    headers = [("retry-id", b"ab"), ("retry-attempt", b"2"), ("retry-due-ms", b"1700000000000"), ("retry-policy", b"t/a#1")]
    entry = Entry("r", None, None, [("other", None), *headers], None, "t")
    assert search.read_entry_decision(entry) == DecisionRecord(
        "ab", "t", "t/a#1", 2, None, None, None, "retry", None, NOW_MS, "r"
    )
    entry = Entry("p", None, None, [*headers, ("retry-parked-reason", b"max_attempts")], None, "t")
    assert search.read_entry_decision(entry) == DecisionRecord(
        "ab", "t", "t/a#1", 3, None, None, None, "park", "max_attempts", None, "p"
    )


@pytest.mark.parametrize(
    "text",
    ["", "a", "a/0", "a/0/0/0", "/0/0", "a/-1/0", "a/0/x", "a/0/²", "a/2147483648/0", "a/0/" + "1" * 5_000],
    ids=lambda text: text[:20],
)
def test_a_place_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not TOPIC/PARTITION/OFFSET|no such"):
        search.parse_location(text)


def test_a_place() -> None:
    assert search.parse_location("a.b/3/42") == LetterLocation("a.b", 3, 42)


def evidence(**fields: object) -> LetterEvidence:
    names = "missing", "record", "letter", "position", "waiting", "blocked", "forbidden", "decision", "delivery"
    nothing = dict.fromkeys(names)
    return LetterEvidence(LetterLocation("a.DLT", 0, 5), **{**nothing, "workers": 1, **fields})  # type: ignore[arg-type]


DECIDED = DecisionRecord("ab", "t", "t/a#1", 2, NOW_MS, NOW_MS, NOW_MS, "retry", None, NOW_MS + 5_000, "r")


@pytest.mark.parametrize(
    ("fields", "state", "says"),
    [
        ({}, LetterState.UNSEEN, "the intake group has read nothing of its partition yet."),
        ({"position": 5}, LetterState.UNSEEN, "the intake group goes on at offset 5."),
        ({"position": 3, "workers": 0}, LetterState.UNSEEN, "goes on at offset 3, and no worker runs."),
        ({"position": 6}, LetterState.LEFT, "its outcome is gone, or was not found within 10 s."),
        ({"position": 6, "decision": DECIDED}, LetterState.RETRIED, "as retry 2: it was sent to r, where its record is gone"),
        (
            {"position": 6, "decision": DECIDED, "delivery": Delivery(LetterLocation("r", 1, 2), None)},
            LetterState.RETRIED, "as retry 2: it is r/1/2.",
        ),
        ({"position": 6, "decision": DECIDED._replace(decision="park", reason="rule", due_ms=None),
          "delivery": Delivery(LetterLocation("p", 1, 2), NOW_MS)}, LetterState.PARKED,
         "It was parked because of rule at 2023-11-14T22:13:20.000+00:00: it is p/1/2."),
        ({"position": 6, "decision": DECIDED._replace(decision="discard", due_ms=None),
          "delivery": Delivery(LetterLocation("d", 1, 2), None, None, "0a0b")}, LetterState.DISCARDED,
         "It was discarded: it is d/1/2. An operator acted on it, with the action 0a0b."),
        ({"position": 6, "decision": DECIDED, "delivery": Delivery(LetterLocation("r", 1, 2), None, None, "0a0b/2")},
         LetterState.RETRIED, "it is r/1/2. An operator acted on it, with step 3 of the action 0a0b."),
    ],
)  # fmt: skip
def test_where_a_letter_is(fields: dict[str, object], state: LetterState, says: str) -> None:
    explanation = explain_evidence(evidence(**fields), None, None, NOW_MS)
    assert explanation.state is state
    assert says in " ".join(explanation.sentences["now"])
    assert list(explanation.sentences) == ["letter", "policy", "due", "now", "next"]


def test_a_letter_that_is_to_be_discarded_says_by_which_action_and_that_it_can_be_undone() -> None:
    actions, (key, entry) = acted.entry_actions(), acted.letter()
    discarded = actions.act_on_entry(acted.state("discard"), acted.member(key), acted.pack_entry(entry), NOW_MS)
    assert isinstance(discarded, ActedLetter)
    waiting = waiting_entries.WaitingEntry(discarded.key, envelopes.decode(discarded.envelope), None)
    explanation = explain_evidence(evidence(position=7, waiting=waiting, decision=DECIDED), None, None, NOW_MS)
    said = " ".join(explanation.sentences["now"])
    assert f"to go to {acted.DISCARDED}" in said
    assert f"with the action {acted.ACTION.hex()}. That discarded it: until it goes there, it can be undone." in said
    assert "kept there for 30 days" in " ".join(explanation.sentences["next"])


def test_former_versions_are_told_of_with_the_action_that_changed_them() -> None:
    former = [FormerVersion(LetterLocation("app-discarded", 0, 3), "0a0b")]
    sent = Delivery(LetterLocation("r", 1, 2), None, None, "0a0b")
    explanation = explain_evidence(evidence(position=6, decision=DECIDED, delivery=sent, former=former), None, None, NOW_MS)
    told = "As it was before the action 0a0b changed it, it is kept at app-discarded/0/3: superseded, never returned."
    assert explanation.sentences["now"][-1] == told


def test_a_topic_that_no_team_has_is_read_by_nobody() -> None:
    registry = parse("teams: {t: {topics: [{dead_letters: b.DLT, retry_to: b}]}}", "p.yaml")
    assert explain_evidence(evidence(), registry, None, NOW_MS).state is LetterState.UNREAD


def test_an_entry_with_a_name_tells_its_version_and_how_it_recurs(table: Table) -> None:
    for version, due_ms in ((5, NOW_MS + 1_000), (6, NOW_MS + 60_000)):
        stem, lane = entry_keys.build_key_stem("tasks", 0), entry_keys.build_named_lane("tasks", "tasks", "out")
        key = entry_keys.build_named_key(due_ms, entry_keys.hash_name("tasks", "tasks", b"n"), version, stem, version, lane)
        plan = Recurrence(2, NOW_MS, every_ms=60_000)
        named = Named("out", b"k", b"v", [], None, "tasks", also=(Also("copies", 3, None, None),), plan=plan)
        table.apply_records([(key, envelopes.encode(named))], version, NOW_MS)
    assert waiting_entries.find_entry(table, "tasks", 0, 5) is None, "it is superseded"
    waiting = waiting_entries.find_entry(table, "tasks", 0, 6)
    explanation = explain_evidence(evidence(position=7, waiting=waiting), None, None, NOW_MS)
    assert explanation.state is LetterState.WAITING
    said = " ".join(explanation.sentences["now"])
    assert "for another 1m" in said and "of which it is version 6" in said and "It recurs every 1m; what waits is run 2." in said
    [(where, entry)] = waiting_entries.iterate_entries(table)
    assert waiting_entries.find(table, where) == entry
    letter = found_letter.make_waiting_letter(where, entry, Registry(), "")
    assert _format_letter(letter).endswith(f"/tasks/0/6  tasks to out  ({letter.size_bytes} bytes, run 2)")
    whole = _describe_letter(letter, PLAIN)
    assert (whole["also"], whole["call"]) == ([{"topic": "copies", "partition": 3}], None)
    assert isinstance(whole["plan"], dict) and whole["plan"]["every_ms"] == 60_000


def test_what_waits_longer_than_decided_was_put_off(table: Table) -> None:
    put_entry(table, NOW_MS + 30_000, "a.DLT", 0, 5)
    waiting = waiting_entries.find_entry(table, "a.DLT", 0, 5)
    explanation = explain_evidence(evidence(position=6, waiting=waiting, decision=DECIDED), None, None, NOW_MS)
    assert explanation.state is LetterState.WAITING
    assert explanation.sentences["due"][-1].startswith("It was put off to 2023-11-14T22:13:50.000+00:00 since")
    late = explain_evidence(evidence(position=6, waiting=waiting, decision=DECIDED, workers=0), None, None, NOW_MS + 90_000)
    assert (late.state, late.sentences["now"][-1]) == (LetterState.OVERDUE, "No worker runs.")
