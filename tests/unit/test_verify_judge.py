"""The judge of `retry verify`: each kind of finding from a few rows, nothing of a clean history, and nothing on a guess."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue.lane import Lane
from retry.operations.verify import ordered_entries
from retry.operations.verify.findings import UNJUDGED
from retry.operations.verify.checks import judged
from retry.operations.verify.context import NEVER, Bounds, Known, Target
from retry.operations.verify.letter_history import Letter, letters
from retry.operations.verify.rows import JUDGED, ORDERED, UNKNOWN, Kind, Row, Words

NOW_MS = 1_000_000_000_000
DUE_MS = NOW_MS - 600_000
WORDS = Words()
TOPICS = "orders.DLT", "changelog", "outcomes", "retry", "slow", "parked"
DEAD, CHANGELOG, OUTCOMES, RETRY, SLOW, PARKED = map(WORDS.topic, TOPICS)
LANES = {topic: WORDS.lane(b"lane %d" % topic) for topic in (RETRY, SLOW, PARKED)}
for topic, lane in LANES.items():
    WORDS.known[WORDS.lanes[lane]] = Lane("team", "orders.DLT", WORDS.topics[topic])
WHOLE = Target(0, "")


def known(**other: object) -> Known:
    """A deployment of which everything is kept, and nothing is held."""
    usual = Known(
        WORDS, True, {(DEAD, 0): Bounds(0, 0, 100, 100, True)}, {RETRY: WHOLE, SLOW: WHOLE, PARKED: WHOLE},
        deletes_from_ms=0, late_ms=NOW_MS - 60_000, skew_ms=0, held=lambda lane: None, held_named=lambda lane: None,
        permitted=lambda topic: {"retry", "slow", "parked"}, tables={},
    )  # fmt: skip
    return usual._replace(**other)  # type: ignore[arg-type]


def row(kind: Kind, at: tuple[int, int], offset: int = 0, flags: int = JUDGED, number: int = DUE_MS, stamp: int = DUE_MS,
        name: int = 1, value: int = 1, extra: int = 0) -> Row:  # fmt: skip
    """A row of the letter at `offset`."""
    return Row(DEAD, 0, offset, kind, flags, at[0], 0, at[1], number, stamp, name, value, extra)


def found(offset: int = 0, flags: int = JUDGED) -> Row:
    return row(Kind.LETTER, (DEAD, offset), offset, flags)


def outcome(at: int = 0, target: int = RETRY, offset: int = 0, flags: int = JUDGED) -> Row:
    return row(Kind.OUTCOME, (OUTCOMES, at), offset, flags, stamp=DUE_MS - 1_000, extra=target)


def put(at: int, name: int = 1, target: int = RETRY, flags: int = JUDGED, number: int = DUE_MS, offset: int = 0,
        order: int = UNKNOWN) -> Row:  # fmt: skip
    return row(Kind.PUT, (CHANGELOG, at), offset, flags, number, order, name, name * 7, LANES[target])


def delete(at: int, name: int = 1, target: int = RETRY, flags: int = JUDGED, offset: int = 0) -> Row:
    return row(Kind.DELETE, (CHANGELOG, at), offset, flags, DUE_MS, UNKNOWN, name, 0, LANES[target])


def sent(at: int = 0, topic: int = RETRY, kind: Kind = Kind.SENT, flags: int = JUDGED, stamp: int = DUE_MS,
         offset: int = 0) -> Row:  # fmt: skip
    return row(kind, (topic, at), offset, flags, stamp=stamp)


def said(rows: list[Row], by: Known | None = None) -> list[str]:
    """Kinds of what is found, in their order."""
    return [kind for letter in letters(rows) for kind, _ in judged(by or known(), letter)]


DELIVERED = [found(), outcome(), put(0), delete(1), sent()]
SOON = NOW_MS + 1
WAITS = [found(), outcome(), put(0, number=SOON)]


@pytest.mark.parametrize("rows", [
    DELIVERED,
    WAITS,
    [found(flags=0)],                                                                            # not taken in yet
    [found(), outcome(target=PARKED), put(0, target=PARKED), delete(1, target=PARKED), sent(topic=PARKED)],
    [found(), outcome(), put(0), put(1, name=2), delete(2), delete(3, name=2), sent()],            # put back, or moved
    [found(), outcome(), put(0), put(1, 2, SLOW), delete(2), delete(3, 2, SLOW), sent(topic=SLOW)],  # to another topic
    [found(), outcome(), put(0), put(1, 2), delete(2), put(3), delete(4, 2), delete(5), sent()],   # there and back again
    [found(), outcome(), delete(1), sent()],                                                     # its put is compacted away
    [found(), outcome(), put(0), delete(1, flags=0)],                                            # being delivered
    [found(), outcome(), put(0), sent(flags=0)],                                                 # the same, the other way
    [found(), outcome(), put(0, number=SOON), put(1, 2, number=SOON, flags=0)],                  # being moved
    [*DELIVERED, sent(kind=Kind.SEEN), sent(1, kind=Kind.SEEN)],                                 # delivered at the second try
    [outcome(flags=0)],
    [sent(flags=0)],
])  # fmt: skip
def test_what_a_service_may_write_is_clean(rows: list[Row]) -> None:
    assert said(rows) == []


@pytest.mark.parametrize(("rows", "kinds"), [
    ([found()], ["lost"]),
    ([found(), outcome()], ["lost"]),
    ([found(), outcome(), put(0), delete(1)], ["lost", "torn"]),
    ([*DELIVERED, sent(1)], ["duplicate"]),
    ([*DELIVERED, outcome(1)], ["duplicate"]),
    ([*WAITS, put(1, number=SOON)], ["duplicate"]),
    ([*WAITS, put(1, name=2, number=SOON)], ["duplicate"]),
    ([found(), outcome(), put(0, number=SOON), sent()], ["torn"]),
    ([found(), outcome(), sent()], ["torn"]),
    ([*DELIVERED[:-1], sent(stamp=DUE_MS - 1)], ["early"]),
    ([*DELIVERED, sent(kind=Kind.SEEN), sent(1, kind=Kind.SEEN, stamp=DUE_MS - 1)], ["early"]),
    ([sent(offset=7)], ["phantom"]),
    ([sent(offset=7, kind=Kind.SEEN)], ["phantom"]),
    ([put(0, offset=7, number=SOON)], ["phantom"]),
    ([delete(0, offset=7)], ["phantom"]),
    (DELIVERED[1:], ["phantom"]),
    ([outcome(offset=100), put(0, offset=100, number=SOON)], ["phantom"]),
    ([*DELIVERED[:-1], sent(topic=SLOW)], ["wrong_topic"]),
    ([found(), outcome(), put(0)], ["stuck"]),
])  # fmt: skip
def test_each_kind_is_found(rows: list[Row], kinds: list[str]) -> None:
    assert said(rows) == kinds


OLD = {"outcomes_whole": False, "bounds": {(DEAD, 0): Bounds(50, 0, 100, 100, True)}}


@pytest.mark.parametrize(("rows", "limits"), [
    ([found(), outcome()], {"targets": {RETRY: Target(NEVER, "is compacted"), SLOW: WHOLE}}),
    ([found(), outcome(), put(0), delete(1)], {"targets": {RETRY: Target(DUE_MS + 1, "has lost records")}}),
    ([found(), outcome(), put(0), delete(1)], {"targets": {}}),
    ([found(), outcome(), sent()], {"deletes_from_ms": DUE_MS + 1}),
    ([found(), outcome(), sent(topic=SLOW)], {"deletes_from_ms": DUE_MS + 1}),
    ([sent()], OLD),
    ([put(0), delete(1), sent()], OLD),
    ([*DELIVERED[:-1], sent(stamp=UNKNOWN)], {}),
    ([found(), outcome(), put(0)], {"held": lambda lane: f"{lane.team} is paused"}),
])  # fmt: skip
def test_what_cannot_be_known_any_more_is_no_finding(rows: list[Row], limits: dict[str, object]) -> None:
    assert set(said(rows, known(**limits))) == {UNJUDGED}


def test_letters_whose_outcomes_are_not_kept_are_passed_over() -> None:
    assert said([found()], known(**OLD)) == []
    assert said([found(50)], known(**OLD)) == ["lost"]
    assert said([found(50)._replace(partition=9)], known(**OLD)) == []


def test_a_letter_that_retention_or_compaction_took_is_no_phantom() -> None:
    rows = DELIVERED[1:]
    assert said(rows, known(bounds={(DEAD, 0): Bounds(0, 5, 100, 100, True)})) == []
    assert said(rows, known(bounds={(DEAD, 0): Bounds(0, 0, 100, 100, False)})) == []
    assert said(rows, known(bounds={})) == []


def test_the_clocks_may_differ_by_what_is_told() -> None:
    rows = [*DELIVERED[:-1], sent(stamp=DUE_MS - 5)]
    assert said(rows, known(skew_ms=4)) == ["early"]
    assert said(rows, known(skew_ms=5)) == []


def test_of_ordered_entries_only_the_first_can_be_stuck() -> None:
    first, second = (put(n, n, flags=JUDGED | ORDERED, offset=n, order=-5) for n in (1, 2))
    assert said([found(1), outcome(offset=1), first]) == []
    rows = [Row(*queued) for each in (second, first) for queued in ordered_entries.waiting(Letter([each]))]
    [(kind, says)] = ordered_entries.stuck(known(), rows)
    assert (kind, says.split(":")[0]) == ("stuck", "orders.DLT/0/1")
    [later] = ordered_entries.waiting(Letter([first._replace(number=SOON)]))
    assert list(ordered_entries.stuck(known(), [Row(*later), rows[0]])) == []
    assert ordered_entries.waiting(Letter([first, sent(offset=1)])) == []


@pytest.mark.parametrize(("stored", "differs"), [
    ({1: 7}, False),
    ({}, True),
    ({1: 8}, True),
    ({1: 7, 2: 14}, True),
])  # fmt: skip
def test_a_table_is_compared_with_the_fold_up_to_its_own_offset(stored: dict[int, int], differs: bool) -> None:
    rows = [row(Kind.STORED, (0, 0), number=3, name=name, value=value) for name, value in stored.items()]
    assert bool(said([*WAITS, *rows], known(tables={0: [(3, 1)]}))) is differs


@pytest.mark.parametrize("stored", [{}, {1: 7}])
def test_what_is_deleted_behind_the_tables_offset_may_be_gone_already(stored: dict[int, int]) -> None:
    rows = [row(Kind.STORED, (0, 0), number=3, name=name, value=value) for name, value in stored.items()]
    assert said([*DELIVERED, *rows], known(tables={0: [(3, 1)]})) == []


class Step(NamedTuple):
    """What a service without mistakes does with one letter: how often it is moved, and whether it delivers it in the end."""

    moves: int
    delivered: bool
    tries: int


STEPS = st.builds(Step, st.integers(0, 4), st.booleans(), st.integers(0, 2))


def history(offset: int, step: Step) -> list[Row]:
    """All rows of one letter."""
    at, rows = 100 * offset, [found(offset), outcome(offset, offset=offset), put(100 * offset, number=SOON, offset=offset)]
    for n in range(step.moves):
        rows += [put(at + 2 * n + 1, n + 2, number=SOON, offset=offset), delete(at + 2 * n + 2, n + 1, offset=offset)]
    rows += [sent(1_000 + n, kind=Kind.SEEN, offset=offset) for n in range(step.tries)]
    if step.delivered:
        end = [sent(offset, kind=kind, offset=offset) for kind in (Kind.SENT, Kind.SEEN)]
        rows += [delete(at + 50, step.moves + 1, offset=offset), *end]
    return rows


@given(st.lists(STEPS, min_size=1, max_size=8), st.randoms(use_true_random=False), st.data())
def test_a_history_is_clean_and_what_is_taken_out_or_doubled_is_noticed(
    steps: list[Step], draw: object, data: st.DataObject
) -> None:
    rows = [each for offset, step in enumerate(steps) for each in history(offset, step)]
    draw.shuffle(rows)  # type: ignore[attr-defined]
    assert said(rows) == []
    victim = data.draw(st.sampled_from([each for each in rows if each.kind != Kind.SEEN]))
    double = victim._replace(at_offset=victim.at_offset + 10_000)
    assert wrong_by_counting(without(rows, victim)) == set(said(without(rows, victim)))
    if victim.kind in (Kind.OUTCOME, Kind.SENT):
        assert said([*rows, double]) == ["duplicate"]


def without(rows: list[Row], victim: Row) -> list[Row]:
    """The rows but one, and what a reader of everything sees of it."""
    gone = {victim, victim._replace(kind=Kind.SEEN)} if victim.kind == Kind.SENT else {victim}
    return [each for each in rows if each not in gone]


def wrong_by_counting(rows: list[Row]) -> set[str]:
    """The same judged in another way: by how many records of each kind a letter has."""
    kinds: dict[int, Counter[Kind]] = {}
    for each in rows:
        kinds.setdefault(each.offset, Counter())[Kind(each.kind)] += 1
    wrong: set[str] = set()
    for offset, has in kinds.items():
        mine = [each for each in rows if each.offset == offset]
        waits = Letter(mine).live
        wrong |= {"phantom"} if has[Kind.OUTCOME] == 0 or has[Kind.LETTER] == 0 else set()
        if has[Kind.OUTCOME] == 0 or (has[Kind.LETTER] == 0 and not waits and not has[Kind.SENT]):
            wrong |= {"lost"} if has[Kind.LETTER] else set()
        if has[Kind.OUTCOME]:
            wrong |= {"lost", "torn"} if not waits and not has[Kind.SENT] and has[Kind.DELETE] else set()
            wrong |= {"lost"} if not waits and not has[Kind.SENT] else set()
            wrong |= {"torn"} if has[Kind.SENT] and (waits or not has[Kind.PUT] + has[Kind.DELETE]) else set()
            wrong |= {"duplicate"} if len(waits) > 1 else set()
    return wrong
