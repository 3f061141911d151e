"""The checks of `retry verify`: each kind of finding from a few rows, nothing of a clean history, and nothing on a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue.entry_keys import Lane
from retry.operations.verify import checks
from retry.operations.verify.checks import check_letter
from retry.operations.verify.context import NEVER, UNCHECKED, RecordedLetter, Target, VerifiableLetters, VerifyContext, group_rows
from retry.operations.verify.rows import (
    UNKNOWN,
    DeliveryRow,
    EntryRow,
    LetterRow,
    NameTable,
    OutcomeRow,
    Returned,
    Row,
    RowKind,
    TableRow,
)  # fmt: skip

NOW_MS = 1_000_000_000_000
DUE_MS = NOW_MS - 600_000
NAMES = NameTable()
TOPICS = "orders.DLT", "changelog", "outcomes", "retry", "slow", "parked", "discarded"
DEAD, CHANGELOG, OUTCOMES, RETRY, SLOW, PARKED, GONE = map(NAMES.topic, TOPICS)
LANES = {topic: NAMES.lane(b"lane %d" % topic) for topic in (RETRY, SLOW, PARKED, GONE)}
for topic, lane in LANES.items():
    NAMES.lane_parts[NAMES.lanes[lane]] = Lane("team", "orders.DLT", NAMES.topics[topic])
WHOLE = Target(0, "")


def context(**other: object) -> VerifyContext:
    """A deployment of which everything is kept, and nothing is held."""
    usual = VerifyContext(
        NAMES, True, {(DEAD, 0): VerifiableLetters(0, 0, 100, 100, True)}, dict.fromkeys((RETRY, SLOW, PARKED, GONE), WHOLE),
        deletes_kept_from_ms=0, stuck_before_ms=NOW_MS - 60_000, skew_ms=0, blocked=lambda lane: None,
        named_blocked=lambda lane: None, permitted=lambda topic: {"retry", "slow", "parked", "discarded"}, tables={},
    )  # fmt: skip
    return usual._replace(**other)  # type: ignore[arg-type]


def dead_letter(offset: int = 0, in_scope: bool = True) -> LetterRow:
    return LetterRow(RowKind.LETTER, DEAD, 0, offset, in_scope)


def outcome(at: int = 0, target: int = RETRY, offset: int = 0, in_scope: bool = True) -> OutcomeRow:
    return OutcomeRow(RowKind.OUTCOME, DEAD, 0, offset, in_scope, OUTCOMES, 0, at, DUE_MS, DUE_MS - 1_000, 1, 1, target)


def put_row(at: int, key: int = 1, target: int = RETRY, in_scope: bool = True, due_ms: int = DUE_MS, offset: int = 0,
        ordering_key: int = UNKNOWN, in_block: bool = False) -> EntryRow:  # fmt: skip
    return EntryRow(RowKind.PUT, DEAD, 0, offset, in_scope, CHANGELOG, 0, at, due_ms, ordering_key, UNKNOWN, key, key * 7,
                    LANES[target], in_block)  # fmt: skip


def delete(at: int, key: int = 1, target: int = RETRY, in_scope: bool = True, offset: int = 0) -> EntryRow:
    return put_row(at, key, target, in_scope, offset=offset)._replace(kind=RowKind.DELETE, envelope_hash=0)


def elsewhere(row: EntryRow) -> EntryRow:
    """Return the same row in another shard."""
    return row._replace(at_partition=1)


def elsewhere_if_entry(row: Row) -> Row:
    """Return the same row, an entry in another shard."""
    return elsewhere(row) if isinstance(row, EntryRow) else row


def in_block(row: EntryRow) -> EntryRow:
    return row._replace(in_block=True)


def sent_row(at: int = 0, topic: int = RETRY, kind: int = RowKind.DELIVERY, in_scope: bool = True, appended_ms: int = DUE_MS,
         offset: int = 0, returned: int = Returned.NO) -> DeliveryRow:  # fmt: skip
    return DeliveryRow(kind, DEAD, 0, offset, in_scope, topic, 0, at, DUE_MS, appended_ms, returned)


def on_disk(envelopes: dict[int, int]) -> list[TableRow]:
    """Rows of table 3: by key, the envelope."""
    return [TableRow(RowKind.TABLE, DEAD, 0, 0, 0, 3, key, envelope) for key, envelope in envelopes.items()]


def kinds_found(rows: Sequence[Row], by: VerifyContext | None = None) -> list[str]:
    """Kinds of the findings, in their order."""
    return [kind for letter in group_rows(rows) for kind, _ in check_letter(by or context(), letter)]


DELIVERED = [dead_letter(), outcome(), put_row(0), delete(1), sent_row()]
SOON = NOW_MS + 1
WAITS = [dead_letter(), outcome(), put_row(0, due_ms=SOON)]
# Parked, and returned from there.
RETURNED = [
    dead_letter(), outcome(target=PARKED), put_row(0, target=PARKED), delete(1, target=PARKED),
    sent_row(topic=PARKED, returned=Returned.YES),
]  # fmt: skip
RETURNING = [*RETURNED[:-1], sent_row(topic=PARKED, returned=Returned.OUT_OF_SCOPE)]
RETRIED_AGAIN = [*RETURNED, put_row(2, 2), delete(3, 2), sent_row(1)]


@pytest.mark.parametrize("rows", [
    DELIVERED,
    WAITS,
    [dead_letter(in_scope=False)],  # not taken in yet
    [dead_letter(), outcome(target=PARKED), put_row(0, target=PARKED), delete(1, target=PARKED), sent_row(topic=PARKED)],
    [dead_letter(), outcome(), put_row(0), put_row(1, key=2), delete(2), delete(3, key=2), sent_row()],  # put back, or moved
    # To another topic.
    [dead_letter(), outcome(), put_row(0), put_row(1, 2, SLOW), delete(2), delete(3, 2, SLOW), sent_row(topic=SLOW)],
    # There and back again.
    [dead_letter(), outcome(), put_row(0), put_row(1, 2), delete(2), put_row(3), delete(4, 2), delete(5), sent_row()],
    [dead_letter(), outcome(), in_block(put_row(0)), in_block(delete(1)), sent_row()],
    # Others have left its block.
    [dead_letter(), outcome(), in_block(put_row(0)), put_row(1), in_block(delete(2)), delete(3), sent_row()],
    [dead_letter(), outcome(), put_row(1, due_ms=SOON), in_block(delete(2))],  # the same, and compaction has removed the block
    [dead_letter(), outcome(), in_block(delete(2)), delete(3), sent_row()],
    [dead_letter(), outcome(), delete(1), sent_row()],  # its put is compacted away
    # Moved to another shard, under the same key.
    [dead_letter(), outcome(), put_row(5), elsewhere(put_row(2, due_ms=SOON)), delete(6)],
    [dead_letter(), outcome(), elsewhere(put_row(5)), put_row(2, due_ms=SOON)._replace(appended_ms=9), elsewhere(delete(6))],
    # Returned to another shard.
    [*map(elsewhere_if_entry, RETURNED), put_row(2, 2)._replace(appended_ms=9), delete(3, 2), sent_row(1)],
    [dead_letter(), outcome(), put_row(0), delete(1, in_scope=False)],  # being delivered
    [dead_letter(), outcome(), put_row(0), sent_row(in_scope=False)],  # the same, the other way
    [dead_letter(), outcome(), put_row(0, due_ms=SOON), put_row(1, 2, due_ms=SOON, in_scope=False)],  # being moved
    [*DELIVERED, sent_row(kind=RowKind.UNCOMMITTED), sent_row(1, kind=RowKind.UNCOMMITTED)],  # delivered at the second try
    [outcome(in_scope=False)],
    [sent_row(in_scope=False)],
    [dead_letter(), outcome(), put_row(0), put_row(1, 2, GONE), delete(2), delete(3, 2, GONE), sent_row(topic=GONE)],  # discarded
    # Undone.
    [dead_letter(), outcome(), put_row(0), put_row(1, 2, GONE), delete(2), put_row(3), delete(4, 2, GONE), delete(5), sent_row()],
    [dead_letter(), outcome(), put_row(0), put_row(1, 2), delete(2), delete(3, 2), sent_row()],  # edited
    [*RETURNED, put_row(2, 2, due_ms=SOON)],
    RETRIED_AGAIN,
    [
        *RETURNED, put_row(2, 2, GONE), delete(3, 2, GONE), sent_row(1, GONE, returned=Returned.YES), put_row(4, 3), delete(5, 3),
        sent_row(2),
    ],
    [*RETURNED, put_row(2, 2), delete(3, 2, in_scope=False)],  # returned, and being delivered
    RETURNING,  # being returned: its put is not seen
    [*RETURNING[:-1], sent_row(topic=PARKED), put_row(2, 2, due_ms=SOON, in_scope=False)],  # the same: its mark is not seen
    [*RETURNING[:-1], sent_row(topic=PARKED), sent_row(1, in_scope=False)],  # retried since: neither mark nor put is seen
])  # fmt: skip
def test_what_a_service_may_write_is_clean(rows: list[Row]) -> None:
    assert kinds_found(rows) == []


@pytest.mark.parametrize(("rows", "kinds"), [
    ([dead_letter()], ["lost"]),
    ([dead_letter(), outcome()], ["lost"]),
    ([dead_letter(), outcome(), put_row(0), delete(1)], ["lost", "torn"]),
    ([*DELIVERED, sent_row(1)], ["duplicate"]),
    ([*DELIVERED, sent_row(1, topic=GONE)], ["duplicate", "wrong_topic"]),
    ([dead_letter(), outcome(), put_row(0), put_row(1, 2, GONE), delete(2), delete(3, 2, GONE)], ["lost", "torn"]),
    ([dead_letter(), outcome(), put_row(0), put_row(1, 2, GONE), delete(2), delete(3, 2, GONE), sent_row()], ["wrong_topic"]),
    (
        [dead_letter(), outcome(), put_row(0), put_row(1, 2, GONE, due_ms=SOON), delete(2), sent_row(topic=GONE)],
        ["torn", "wrong_topic"],
    ),
    ([*DELIVERED, outcome(1)], ["duplicate"]),
    ([*WAITS, put_row(1, due_ms=SOON)], ["duplicate"]),
    ([*WAITS, put_row(1, key=2, due_ms=SOON)], ["duplicate"]),
    ([dead_letter(), outcome(), put_row(0, due_ms=SOON), sent_row()], ["torn"]),
    ([dead_letter(), outcome(), sent_row()], ["torn"]),
    ([*DELIVERED[:-1], sent_row(appended_ms=DUE_MS - 1)], ["early"]),
    ([*DELIVERED, sent_row(kind=RowKind.UNCOMMITTED), sent_row(1, kind=RowKind.UNCOMMITTED, appended_ms=DUE_MS - 1)], ["early"]),
    ([sent_row(offset=7)], ["phantom"]),
    ([sent_row(offset=7, kind=RowKind.UNCOMMITTED)], ["phantom"]),
    ([put_row(0, offset=7, due_ms=SOON)], ["phantom"]),
    ([delete(0, offset=7)], ["phantom"]),
    (DELIVERED[1:], ["phantom"]),
    ([outcome(offset=100), put_row(0, offset=100, due_ms=SOON)], ["phantom"]),
    ([*DELIVERED[:-1], sent_row(topic=SLOW)], ["wrong_topic"]),
    ([dead_letter(), outcome(), put_row(0)], ["stuck"]),
    (RETURNED, ["lost", "torn"]),  # marked, and not put
    ([*RETURNED, put_row(2, 2)], ["stuck"]),
    ([*RETRIED_AGAIN, sent_row(2)], ["duplicate"]),
    ([*RETURNED[:-1], sent_row(topic=PARKED), put_row(2, 2, due_ms=SOON)], ["torn", "wrong_topic"]),  # put, and not marked
    # The same.
    ([*RETURNED[:-1], sent_row(topic=PARKED), put_row(2, 2), delete(3, 2), sent_row(1)], ["duplicate", "wrong_topic"]),
    ([*RETURNED, put_row(2, 2), delete(3, 2), sent_row(1, appended_ms=DUE_MS - 1)], ["early"]),
    ([*RETURNED, put_row(2, 2), delete(3, 2), sent_row(1, topic=SLOW)], ["wrong_topic"]),
    # Parked before its time, and returned from there.
    ([*RETURNED[:-1], sent_row(topic=PARKED, returned=Returned.YES, appended_ms=DUE_MS - 1), *RETRIED_AGAIN[-3:]], ["early"]),
    ([sent_row(offset=7, topic=PARKED, returned=Returned.YES)], ["phantom"]),
])  # fmt: skip
def test_each_kind_is_found(rows: list[Row], kinds: list[str]) -> None:
    assert kinds_found(rows) == kinds


OLD = {"all_outcomes": False, "dead_letters": {(DEAD, 0): VerifiableLetters(50, 0, 100, 100, True)}}


@pytest.mark.parametrize(("rows", "limits"), [
    ([dead_letter(), outcome()], {"targets": {RETRY: Target(NEVER, "is compacted"), SLOW: WHOLE}}),
    ([dead_letter(), outcome(), put_row(0), delete(1)], {"targets": {RETRY: Target(DUE_MS + 1, "has lost records")}}),
    ([dead_letter(), outcome(), put_row(0), delete(1)], {"targets": {}}),
    ([dead_letter(), outcome(), sent_row()], {"deletes_kept_from_ms": DUE_MS + 1}),
    ([dead_letter(), outcome(), sent_row(topic=SLOW)], {"deletes_kept_from_ms": DUE_MS + 1}),
    ([sent_row()], OLD),
    ([put_row(0), delete(1), sent_row()], OLD),
    ([*DELIVERED[:-1], sent_row(appended_ms=UNKNOWN)], {}),
    ([dead_letter(), outcome(), put_row(0)], {"blocked": lambda lane: f"{lane.team} is paused"}),
])  # fmt: skip
def test_what_cannot_be_known_any_more_is_no_finding(rows: list[Row], limits: dict[str, object]) -> None:
    assert set(kinds_found(rows, context(**limits))) == {UNCHECKED}


def test_letters_whose_outcomes_are_not_kept_are_passed_over() -> None:
    assert kinds_found([dead_letter()], context(**OLD)) == []
    assert kinds_found([dead_letter(50)], context(**OLD)) == ["lost"]
    assert kinds_found([dead_letter(50)._replace(partition=9)], context(**OLD)) == []


def test_a_letter_that_retention_or_compaction_took_is_no_phantom() -> None:
    rows = DELIVERED[1:]
    assert kinds_found(rows, context(dead_letters={(DEAD, 0): VerifiableLetters(0, 5, 100, 100, True)})) == []
    assert kinds_found(rows, context(dead_letters={(DEAD, 0): VerifiableLetters(0, 0, 100, 100, False)})) == []
    assert kinds_found(rows, context(dead_letters={})) == []


def test_a_letter_that_an_operator_had_taken_in_again_is_no_duplicate_unless_it_is_delivered_more_often_than_that() -> None:
    asked = context(dead_letters={(DEAD, 0): VerifiableLetters(0, 0, 100, 100, True, read_again_from=0)})
    twice = [*DELIVERED, outcome(5), put_row(5), delete(6), sent_row(at=5)]
    assert kinds_found(twice, asked) == [UNCHECKED]
    assert "duplicate" in kinds_found(twice)
    assert "duplicate" in kinds_found([*twice, sent_row(at=7)], asked)
    assert "duplicate" in kinds_found([*DELIVERED, sent_row(at=5)], asked)


def test_the_clocks_may_differ_by_what_is_told() -> None:
    rows = [*DELIVERED[:-1], sent_row(appended_ms=DUE_MS - 5)]
    assert kinds_found(rows, context(skew_ms=4)) == ["early"]
    assert kinds_found(rows, context(skew_ms=5)) == []


def test_of_ordered_entries_only_the_first_can_be_stuck() -> None:
    first, second = (put_row(n, n, offset=n, ordering_key=-5) for n in (1, 2))
    assert kinds_found([dead_letter(1), outcome(offset=1), first]) == []
    rows = [row for each in (second, first) for row in checks.list_waiting_ordered(RecordedLetter([each]))]
    [(kind, says)] = checks.find_stuck_first(context(), rows)
    assert (kind, says.split(":")[0]) == ("stuck", "orders.DLT/0/1")
    [later] = checks.list_waiting_ordered(RecordedLetter([first._replace(due_ms=SOON)]))
    assert list(checks.find_stuck_first(context(), [later, rows[0]])) == []
    assert checks.list_waiting_ordered(RecordedLetter([first, sent_row(offset=1)])) == []


@pytest.mark.parametrize(("stored", "differs"), [
    ({1: 7}, False),
    ({}, True),
    ({1: 8}, True),
    ({1: 7, 2: 14}, True),
])  # fmt: skip
def test_a_table_is_compared_with_the_fold_up_to_its_own_offset(stored: dict[int, int], differs: bool) -> None:
    assert bool(kinds_found([*WAITS, *on_disk(stored)], context(tables={0: [(3, 1)]}))) is differs


@pytest.mark.parametrize("stored", [{}, {1: 7}])
def test_what_is_deleted_behind_the_tables_offset_may_be_gone_already(stored: dict[int, int]) -> None:
    assert kinds_found([*DELIVERED, *on_disk(stored)], context(tables={0: [(3, 1)]})) == []


class Step(NamedTuple):
    """One step of a service without mistakes: how often a letter is moved, and whether it is delivered in the end."""

    moves: int
    delivered: bool
    tries: int


STEPS = st.builds(Step, st.integers(0, 4), st.booleans(), st.integers(0, 2))


def history(offset: int, step: Step) -> list[Row]:
    """All rows of one letter."""
    at, rows = (
        100 * offset,
        [dead_letter(offset), outcome(offset, offset=offset), put_row(100 * offset, due_ms=SOON, offset=offset)],
    )
    for n in range(step.moves):
        rows += [put_row(at + 2 * n + 1, n + 2, due_ms=SOON, offset=offset), delete(at + 2 * n + 2, n + 1, offset=offset)]
    rows += [sent_row(1_000 + n, kind=RowKind.UNCOMMITTED, offset=offset) for n in range(step.tries)]
    if step.delivered:
        end = [sent_row(offset, kind=kind, offset=offset) for kind in (RowKind.DELIVERY, RowKind.UNCOMMITTED)]
        rows += [delete(at + 50, step.moves + 1, offset=offset), *end]
    return rows


@given(st.lists(STEPS, min_size=1, max_size=8), st.randoms(use_true_random=False), st.data())
def test_a_history_is_clean_and_what_is_taken_out_or_doubled_is_noticed(
    steps: list[Step], draw: object, data: st.DataObject
) -> None:
    rows = [each for offset, step in enumerate(steps) for each in history(offset, step)]
    draw.shuffle(rows)  # type: ignore[attr-defined]
    assert kinds_found(rows) == []
    victim = data.draw(st.sampled_from([each for each in rows if each.kind != RowKind.UNCOMMITTED]))
    assert wrong_by_counting(without(rows, victim)) == set(kinds_found(without(rows, victim)))
    if isinstance(victim, OutcomeRow | DeliveryRow):
        double = victim._replace(at_offset=victim.at_offset + 10_000)
        assert kinds_found([*rows, double]) == ["duplicate"]


def without(rows: list[Row], victim: Row) -> list[Row]:
    """The rows but one, and what a reader of everything sees of it."""
    gone = {victim, victim._replace(kind=RowKind.UNCOMMITTED)} if victim.kind == RowKind.DELIVERY else {victim}
    return [each for each in rows if each not in gone]


def wrong_by_counting(rows: list[Row]) -> set[str]:
    """Find the faults in another way: by how many records of each kind a letter has."""
    kinds: dict[int, Counter[int]] = {}
    for each in rows:
        kinds.setdefault(each.offset, Counter())[each.kind] += 1
    wrong: set[str] = set()
    for offset, has in kinds.items():
        mine = [each for each in rows if each.offset == offset]
        waits = RecordedLetter(mine).waiting
        wrong |= {"phantom"} if has[RowKind.OUTCOME] == 0 or has[RowKind.LETTER] == 0 else set()
        if has[RowKind.OUTCOME] == 0 or (has[RowKind.LETTER] == 0 and not waits and not has[RowKind.DELIVERY]):
            wrong |= {"lost"} if has[RowKind.LETTER] else set()
        if has[RowKind.OUTCOME]:
            wrong |= {"lost", "torn"} if not waits and not has[RowKind.DELIVERY] and has[RowKind.DELETE] else set()
            wrong |= {"lost"} if not waits and not has[RowKind.DELIVERY] else set()
            wrong |= {"torn"} if has[RowKind.DELIVERY] and (waits or not has[RowKind.PUT] + has[RowKind.DELETE]) else set()
            wrong |= {"duplicate"} if len(waits) > 1 else set()
    return wrong
