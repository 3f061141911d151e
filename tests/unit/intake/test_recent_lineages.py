"""Attempts count on, whatever comes back with a letter; and what is forgotten is forgotten in order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retry import format_versions
from retry.dead_letters.failure import Failure
from retry.errors import LineageUnreadable
from retry.intake.attempts import (
    KnownLineage,
    LineageFields,
    RecentLineages,
    belongs_to,
    build_fields,
    describe_failing_consumer,
    find_lineage,
    format_retry_id,
    format_retry_ids,
    hash_payload,
    hash_team,
    make_fingerprint,
    make_lineage,
    make_move_row,
    pack,
    pack_records,
    parse_retry_id,
    parse_retry_ids,
    unpack,
)
from retry.intake.attempts.equal_letters import LEVELS_MAX, Level, Levels
from retry.intake.attempts.lineages import MOVED
from retry.intake.attempts.ring_buffer import Ring

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
TEAM, OTHERS = "payments", "shop"
BILLING = describe_failing_consumer(TEAM, "billing", "orders.DLT")
FINGERPRINT, LINEAGE = 0xC22B35AE206F7AFF, 0xACF81E0DE57C42BE
BYTES = st.none() | st.binary(max_size=4)


def sent_fields(
    lineage: int, print_: int, attempt: int = 1, due_ms: int = NOW_MS, first_ms: int = NOW_MS, matched: bool = False
) -> LineageFields:
    return build_fields(lineage, print_, due_ms, first_ms, attempt, matched)


class OneTeam(RecentLineages):
    """The record of lineages, asked about those of one team."""

    def sends(self, lineage: int) -> KnownLineage | None:
        return self.find_team(TEAM).sends(lineage)

    def returned(self, print_: int, now_ms: int, window_ms: int, skip: int = 0) -> KnownLineage | None:
        return self.find_team(TEAM).find_returned(print_, now_ms, window_ms, skip)


def record_all(*rows: LineageFields, limit: int = 1_000) -> OneTeam:
    lineages = OneTeam(limit)
    for each in rows:
        lineages.apply_batch(pack(TEAM, [each]))
    return lineages


def print_of(topic: str, key: bytes | None, value: bytes | None) -> int:
    return make_fingerprint(topic, hash_payload(key, value))


def attempts(known: KnownLineage | None) -> int:
    return known.attempts if known else 0


# --- numbers ---


@given(st.tuples(st.text(max_size=3), BYTES, BYTES), st.tuples(st.text(max_size=3), BYTES, BYTES))
def test_fingerprints_are_equal_where_topic_key_and_value_are(
    one: tuple[str, bytes | None, bytes | None], other: tuple[str, bytes | None, bytes | None]
) -> None:
    assert (print_of(*one) == print_of(*other)) == (one == other)


def test_bytes_that_move_between_key_and_value_make_another_fingerprint() -> None:
    assert len({print_of("t", b"ab"[:n], b"ab"[n:]) for n in range(3)}) == 3


def test_numbers_stay_the_same_in_every_version() -> None:
    assert print_of("orders.DLT", b"key", None) == FINGERPRINT
    assert make_lineage("cluster", BILLING, "orders", 3, 17) == LINEAGE
    assert format_retry_id(LINEAGE, TEAM) == b"%016x9dc28a75" % LINEAGE


def test_each_coordinate_and_the_consumer_make_another_lineage() -> None:
    by_group, by_topic = describe_failing_consumer(TEAM, "g", "t.DLT"), describe_failing_consumer(TEAM, None, "t.DLT")
    others = [
        describe_failing_consumer(OTHERS, "g", "t.DLT"),
        describe_failing_consumer(TEAM, "t.DLT", "t.DLT"),
        describe_failing_consumer(TEAM, None, "g"),
    ]
    ids = [
        make_lineage("c", by_group, "t", 1, 11), make_lineage("d", by_group, "t", 1, 11), make_lineage("c", by_group, "u", 1, 11),
        make_lineage("c", by_group, "t", 11, 1), make_lineage("c", by_group, "t", 1, 12), make_lineage("c", by_topic, "t", 1, 11),
        *(make_lineage("c", other, "t", 1, 11) for other in others),
    ]  # fmt: skip
    assert len(set(ids)) == len(ids)


def test_where_nobody_names_a_group_the_consumer_is_known_by_the_topic_that_it_dead_letters_to() -> None:
    assert describe_failing_consumer(TEAM, "g", "a.DLT") == describe_failing_consumer(TEAM, "g", "b.DLT")
    assert (
        describe_failing_consumer(TEAM, None, "a.DLT")
        == describe_failing_consumer(TEAM, "", "a.DLT")
        != describe_failing_consumer(TEAM, None, "b.DLT")
    )


def test_a_lineage_is_that_of_the_record_that_failed_where_all_of_its_coordinates_are_told() -> None:
    told = Failure(origin_topic="orders", origin_partition=3, origin_offset=17)
    assert find_lineage("c", BILLING, told, FINGERPRINT) == make_lineage("c", BILLING, "orders", 3, 17)
    untold = Failure(origin_topic="orders", origin_partition=3)
    assert find_lineage("c", BILLING, untold, FINGERPRINT) == FINGERPRINT


@given(st.integers(0, (1 << 64) - 1), st.sampled_from([TEAM, OTHERS, "", "ä"]))
def test_a_lineage_comes_back_from_its_header(lineage: int, team: str) -> None:
    text = format_retry_id(lineage, team)
    assert parse_retry_id(text) == lineage
    assert (belongs_to(text, team), parse_retry_ids([text], team)) == (True, [lineage])
    assert format_retry_ids([lineage, 0], team) == [text, format_retry_id(0, team)]


def test_an_id_belongs_to_one_team() -> None:
    ids = [
        format_retry_id(7, OTHERS),
        format_retry_id(7, TEAM),
        format_retry_id(7, TEAM) + b"\n",
        b"x" + format_retry_id(7, TEAM),
        b"",
        b"7",
    ]
    assert [belongs_to(text, TEAM) for text in ids] == [False, True, False, False, False, False]
    assert parse_retry_ids(ids, TEAM) == [None, 7, None, None, None, None]


@pytest.mark.parametrize("text", [b"", b"orders/0/5", b"DEADBEEF" * 3, b"0" * 16, b"0" * 24 + b"\n", b"0x" + b"0" * 22])
def test_what_is_no_lineage_of_ours_is_hashed(text: bytes) -> None:
    assert 0 < parse_retry_id(text) < 1 << 64
    assert parse_retry_id(text) == parse_retry_id(bytes(text)) != parse_retry_id(text + b" ")
    assert not belongs_to(text, TEAM)


# --- packed records ---

ROWS = st.lists(
    st.tuples(
        st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1), st.integers(-DAY_MS, 1 << 50),
        st.integers(-DAY_MS, 1 << 50), st.integers(0, 1 << 20), st.booleans(),
    )
)  # fmt: skip


@given(ROWS)
def test_whatever_is_decided_is_packed_and_comes_back(decided: list[tuple[int, int, int, int, int, bool]]) -> None:
    rows = [build_fields(*each) for each in decided]
    packed = pack(TEAM, rows)
    assert len(packed) == 9 + 27 * len(rows)
    told = unpack(packed)
    assert (told.team, told.row_count, list(told.rows)) == (hash_team(TEAM), len(rows), rows)


@pytest.mark.parametrize("packed", [b"", b"\x01", b"\1" + bytes(27), pack(TEAM, [sent_fields(1, 1)])[:-1], b"\xff" + bytes(35)])
def test_what_is_not_of_this_version_is_refused_before_anything_is_taken_in(packed: bytes) -> None:
    lineages = RecentLineages(10)
    with pytest.raises(LineageUnreadable):
        lineages.apply_batch(packed)
    assert len(lineages) == 0


# --- by lineage, by fingerprint ---


def test_a_lineage_knows_its_sends_and_its_first_failure() -> None:
    lineages = record_all(sent_fields(1, 7, due_ms=NOW_MS + 9_999), sent_fields(1, 7, 2, NOW_MS + 20_000, NOW_MS + 5_000))
    assert lineages.sends(1) == KnownLineage(1, 2, NOW_MS, NOW_MS + 20_000)
    assert lineages.sends(2) is None


def test_forged_attempts_take_nothing_back() -> None:
    lineages = record_all(sent_fields(1, 7), sent_fields(1, 7, 2), sent_fields(1, 7, 3), sent_fields(1, 7, 1))
    assert attempts(lineages.sends(1)) == 3


@pytest.mark.parametrize("due_ms", [NOW_MS, NOW_MS + 1, NOW_MS + 999])
def test_a_send_comes_back_from_its_due_time_on(due_ms: int) -> None:
    lineages = record_all(sent_fields(1, 7, due_ms=due_ms))
    assert attempts(lineages.returned(7, due_ms, DAY_MS)) == 1
    assert lineages.returned(7, NOW_MS - 1, DAY_MS) is None
    assert lineages.returned(8, due_ms, DAY_MS) is None


def test_a_send_is_not_looked_for_when_its_first_failure_is_too_long_ago() -> None:
    lineages = record_all(sent_fields(1, 7, first_ms=NOW_MS - 999))
    assert attempts(lineages.returned(7, NOW_MS - 999 + DAY_MS, DAY_MS)) == 1
    assert lineages.returned(7, NOW_MS + 1_000 + DAY_MS, DAY_MS) is None


@pytest.mark.parametrize("matched", [True, False])
@pytest.mark.parametrize("print_", [7, 8])
def test_a_return_takes_the_send_that_it_came_from(matched: bool, print_: int) -> None:
    later_ms = NOW_MS + DAY_MS
    lineages = record_all(sent_fields(1, 7), sent_fields(1, 7 if matched else print_, 2, later_ms, matched=matched))
    assert lineages.returned(7, NOW_MS, DAY_MS) is None
    assert attempts(lineages.returned(7 if matched else print_, later_ms, DAY_MS)) == 2


@pytest.mark.parametrize("matched", [True, False])
def test_a_letter_that_is_parked_leaves_nothing_outstanding_and_keeps_its_count(matched: bool) -> None:
    lineages = record_all(sent_fields(1, 7), sent_fields(1, 7, 0, matched=matched))
    assert lineages.returned(7, NOW_MS, DAY_MS) is None
    assert lineages.sends(1) == KnownLineage(1, 1, NOW_MS, 0)


def test_what_was_never_sent_is_not_remembered() -> None:
    lineages = record_all(sent_fields(1, 7, 0), sent_fields(2, 8, 0, matched=True))
    assert (lineages.sends(1), lineages.sends(2), len(lineages)) == (None, None, 0)


def test_10000_equal_letters_are_new_until_they_are_due_and_return_at_the_same_attempt() -> None:
    lineages, due_ms = OneTeam(30_000), NOW_MS + 10_000
    for first in range(0, 10_000, 500):
        assert lineages.returned(7, NOW_MS, DAY_MS) is None
        lineages.apply_batch(pack(TEAM, [sent_fields(n, 7, due_ms=due_ms) for n in range(first, first + 500)]))
    for _ in range(20):
        found = [lineages.returned(7, due_ms, DAY_MS, skip) for skip in range(500)]
        assert {attempts(known) for known in found} == {1}
        lineages.apply_batch(pack(TEAM, [sent_fields(known.id, 7, 2, due_ms + 1_000, matched=True) for known in found if known]))
    assert lineages.returned(7, due_ms, DAY_MS) is None
    assert attempts(lineages.returned(7, due_ms + 1_000, DAY_MS, skip=9_999)) == 2
    assert lineages.returned(7, due_ms + 1_000, DAY_MS, skip=10_000) is None


def test_equal_letters_that_all_came_back_leave_nothing_outstanding() -> None:
    lineages = record_all(
        sent_fields(1, 7), sent_fields(2, 7), sent_fields(8, 7, 0, matched=True), sent_fields(9, 7, 0, matched=True)
    )
    assert lineages.returned(7, NOW_MS, DAY_MS) is None


def moves(*rows: LineageFields) -> bytes:
    [record] = pack_records(TEAM, rows, moves=True)
    return record["value"]


def test_a_moved_send_comes_back_from_its_new_time_on_however_often_it_is_told() -> None:
    lineages = record_all(sent_fields(1, 7, due_ms=NOW_MS + DAY_MS))
    for _ in range(2):
        lineages.apply_batch(moves(make_move_row(1, 7, NOW_MS, 1)))
        assert lineages.returned(7, NOW_MS - 1_000, DAY_MS) is None
        assert attempts(lineages.returned(7, NOW_MS, DAY_MS)) == 1


def test_what_is_told_of_a_former_send_of_another_or_of_none_moves_nothing() -> None:
    lineages = record_all(sent_fields(1, 7), sent_fields(1, 7, 2, due_ms=NOW_MS + DAY_MS))
    of = make_move_row
    for other in (of(1, 7, NOW_MS, 1), of(2, 7, NOW_MS, 2), of(1, 8, NOW_MS, 2), of(1, 7, None, 1)):
        lineages.apply_batch(moves(other))
    assert lineages.returned(7, NOW_MS, DAY_MS) is None
    assert attempts(lineages.returned(7, NOW_MS + DAY_MS, 2 * DAY_MS)) == 2


def test_a_send_that_is_parked_instead_is_not_counted_however_often_it_is_told() -> None:
    lineages = record_all(sent_fields(1, 7), sent_fields(1, 7, 2))
    for _ in range(2):
        lineages.apply_batch(moves(make_move_row(1, 7, None, 2)))
    assert lineages.returned(7, NOW_MS, DAY_MS) is None
    assert attempts(lineages.sends(1)) == 1


def test_of_equal_letters_of_which_one_is_moved_each_may_be_the_one() -> None:
    lineages = record_all(*[sent_fields(n, 7, due_ms=NOW_MS + DAY_MS) for n in (1, 2)])
    of = make_move_row
    lineages.apply_batch(moves(of(1, 7, NOW_MS, 1), of(2, 7, NOW_MS + 2 * DAY_MS, 1), of(2, 7, None, 1)))
    assert attempts(lineages.returned(7, NOW_MS, DAY_MS)) == 1
    assert lineages.returned(7, NOW_MS - 1_000, DAY_MS) is None


def test_a_record_of_moves_is_told_from_others_by_its_first_byte_and_is_of_no_newer_version() -> None:
    told = moves(make_move_row(1, 7, NOW_MS, 1))
    assert told[:1] != pack(TEAM, [])
    assert not format_versions.LINEAGE.newer(told[0])


@pytest.mark.parametrize("slots", [2, 97])
def test_of_equal_letters_only_the_last_lengthens_a_chain(slots: int) -> None:
    with patch("retry.intake.attempts.ring_buffer._slots_for", return_value=slots):
        ring = Ring(100)
    for lineage in range(1, 90):
        ring.link(ring.append_row(lineage, 7, 1, 1, 1), 7)
    last = ring.find_fingerprint(7)
    assert ring.read_identity(last) == (89, 7)
    ring.unlink(last)
    assert ring.find_fingerprint(7) == 0


def test_a_row_that_is_linked_again_does_not_hide_newer_ones_when_it_goes() -> None:
    with patch("retry.intake.attempts.ring_buffer._slots_for", return_value=2):
        ring = Ring(10)
    first = ring.append_row(1, 100, 1, 1, 1)
    others = [ring.append_row(n, 100 * n, 1, 1, 1) for n in range(2, 11)]
    for number in [first, *others]:
        ring.link(number, ring.read_identity(number)[1])
    ring.unlink(first)
    ring.link(first, 100)
    assert ring.find_fingerprint(100) == first
    ring.append_row(11, 1_100, 1, 1, 1)
    assert [ring.find_fingerprint(100 * n) for n in range(1, 11)] == [0, *others]


def test_a_parked_return_takes_the_send_that_was_due() -> None:
    lineages = record_all(sent_fields(1, 7, 3), sent_fields(2, 7, 1, NOW_MS + DAY_MS), sent_fields(1, 7, 0, NOW_MS, matched=True))
    assert lineages.returned(7, NOW_MS, DAY_MS) is None
    assert attempts(lineages.returned(7, NOW_MS + DAY_MS, DAY_MS * 2)) == 1


def test_what_two_workers_matched_to_one_send_counts_from_what_is_left() -> None:
    lineages = record_all(
        sent_fields(1, 7, 1), sent_fields(2, 7, 4), sent_fields(1, 7, 2, matched=True), sent_fields(1, 7, 2, matched=True)
    )
    levels = [attempts(lineages.returned(7, NOW_MS, DAY_MS, skip)) for skip in range(3)]
    assert levels == [3, 4, 0]


# --- what is forgotten ---


@pytest.mark.parametrize("limit", [2, 3, 100, 1_000])
def test_between_half_of_the_limit_and_all_of_it_is_remembered(limit: int) -> None:
    lineages = OneTeam(limit)
    for n in range(1, 4 * limit):
        lineages.apply_batch(pack(TEAM, [sent_fields(n, n)]))
        assert len(lineages) <= limit
        assert attempts(lineages.sends(max(1, n - limit + 1))) == 1
        assert lineages.sends(n - limit) is None
        assert lineages.returned(n - limit, NOW_MS, DAY_MS) is None


def test_a_lineage_that_something_is_sent_for_is_kept() -> None:
    lineages = OneTeam(10)
    for n in range(1, 1_000):
        lineages.apply_batch(pack(TEAM, [sent_fields(n, n), *([sent_fields(1, 1, n // 5 + 1)] if n % 5 == 0 else [])]))
        assert attempts(lineages.sends(1)) == n // 5 + 1
    assert attempts(lineages.returned(1, NOW_MS, DAY_MS)) == 200


def test_memory_stays_below_80_bytes_a_lineage() -> None:
    lineages, draw = OneTeam(5_000), random.Random(1).getrandbits
    for _ in range(8):
        lineages.apply_batch(pack(TEAM, [sent_fields(draw(64), draw(64)) for _ in range(1_250)]))
    assert len(lineages) == 5_000
    assert lineages.bytes_used() / len(lineages) < 80


def test_chosen_ids_do_not_share_a_chain() -> None:
    ring = Ring(1_000)
    slots = ring._slots
    for step in (1, 1 << 20, 3 * 5 * 7 * 11 * 13, 10**9):
        assert len({n * step % slots for n in range(1_000)}) == 1_000


# --- levels ---


def test_levels_are_bounded_and_the_oldest_fingerprints_go() -> None:
    lineages = OneTeam(100)
    for n in range(1, 100):
        lineages.apply_batch(pack(TEAM, [sent_fields(2 * n, n), sent_fields(2 * n + 1, n, 2)]))
        assert lineages.find_team(TEAM).level_count <= 64
    assert [n for n in range(1, 100) if lineages.returned(n, NOW_MS, DAY_MS, skip=1)] == list(range(68, 100))


def test_a_fingerprint_that_is_added_to_stays() -> None:
    levels = Levels()
    for n in range(100):
        levels.add_sends(n, Level(1, 1, 0, 0, n))
        levels.add_sends(0, Level(1, 1, 0, 0, n))
        if len(levels) > 10:
            levels.forget_oldest()
    assert [level.count for level in levels.by_fingerprint[0]] == [101]


def test_more_levels_than_one_fingerprint_has_are_counted_upwards() -> None:
    levels = Levels()
    for n in range(1, LEVELS_MAX + 1):
        levels.add_sends(7, Level(2 * n, 1, 0, 0, n))
    levels.add_sends(7, Level(3, 1, 0, 0, 0))
    levels.add_sends(7, Level(1_000, 1, 0, 0, 0))
    assert len(levels) == LEVELS_MAX
    assert sum(level.count for level in levels.by_fingerprint[7]) == LEVELS_MAX + 2
    assert [levels.take_send(7, most) for most in (3, 4, 4, 10**6)] == [2, 4, 4, 1_000]


# --- a model: the same in dicts and lists, without chains ---


class Naive:
    """The rows in the order in which they were added; only the last `limit` are there."""

    def __init__(self, limit: int) -> None:
        self.limit, self.rows = limit, [[-1, -1, 0, 0, 0] for _ in range(limit)]
        self.linked: dict[int, int] = {}
        self.equal: dict[int, dict[int, list[int]]] = {}

    def of(self, lineage: int) -> int:
        found = [n for n in range(len(self.rows) - self.limit, len(self.rows)) if self.rows[n][0] == lineage]
        return found[-1] if found else 0

    def only(self, print_: int) -> int:
        n = self.linked.get(print_, 0)
        return n if n >= len(self.rows) - self.limit and n and self.rows[n][2] else 0

    def nearest(self, print_: int, attempt: int) -> int:
        levels = sorted(self.equal.get(print_, {}))
        return max([level for level in levels if level <= attempt], default=levels[0] if levels else 0)

    def take(self, print_: int, attempt: int) -> int:
        if print_ in self.equal:
            taken = self.nearest(print_, attempt)
            self.equal[print_][taken][0] -= 1
            self.equal[print_] = {a: level for a, level in self.equal[print_].items() if level[0]}
            if not self.equal[print_]:
                del self.equal[print_]
            return taken
        if n := self.only(print_):
            self.rows[n][2] = 0
            return self.rows[n][4]
        return 0

    def count(self, print_: int, attempt: int, due: int, first: int, lineage: int) -> None:
        level = self.equal.setdefault(print_, {}).setdefault(attempt, [0, due, first, lineage])
        level[0] += 1
        level[1] = min(level[1], due)
        if first >= level[2]:
            level[2:] = [first, lineage]

    def lowest(self, print_: int, due: int, first: int, skip: int) -> tuple[int, list[int]]:
        for attempt, level in sorted(self.equal.get(print_, {}).items()):
            if level[1] <= due and level[2] >= first:
                if level[0] > skip:
                    return attempt, level
                skip -= level[0]
        return 0, []

    def fold(self, each: LineageFields) -> None:
        lineage, print_, due, first, attempt, flags = each
        n, taken = self.of(lineage), 0
        if flags == MOVED:
            self.move(lineage, print_, due, attempt)
            return
        if flags:
            taken = self.take(print_, attempt - 1 if attempt else self.lowest(print_, due, 0, 0)[0])
        elif n and self.rows[n][2] and attempt != 1:
            taken = self.take(self.rows[n][1], min(attempt - 1, self.rows[n][4]) if attempt else self.rows[n][4])
        if attempt:
            self.send(n, lineage, print_, due, first, max(attempt, taken + 1))
        elif n:
            self.rows[n][2] = 0

    def move(self, lineage: int, print_: int, due: int, attempt: int) -> None:
        if print_ in self.equal:
            if due and attempt in self.equal[print_]:
                self.equal[print_][attempt][1] = min(self.equal[print_][attempt][1], due)
        elif (n := self.only(print_)) and (self.rows[n][0], self.rows[n][4]) == (lineage, attempt):
            self.rows[n][2], self.rows[n][4] = due, attempt if due else attempt - 1

    def send(self, n: int, lineage: int, print_: int, due: int, first: int, attempt: int) -> None:
        only = self.only(print_)
        if only and print_ not in self.equal:
            was = self.rows[only]
            self.count(print_, was[4], was[2], was[3], was[0])
            del self.linked[print_]
        if alone := print_ not in self.equal:
            self.linked.pop(print_, None)
        else:
            self.count(print_, attempt, due, first, lineage)
        if n:
            first, attempt = self.rows[n][3], max(attempt, self.rows[n][4])
        if n and n >= len(self.rows) - self.limit // 2 and self.rows[n][1] == print_:
            self.rows[n][2:] = [due, first, attempt]
        else:
            if n and self.linked.get(self.rows[n][1]) == n:
                del self.linked[self.rows[n][1]]
            n = len(self.rows)
            self.rows.append([lineage, print_, due, first, attempt])
        if alone:
            self.linked[print_] = n

    def sends(self, lineage: int) -> KnownLineage | None:
        if not (n := self.of(lineage)):
            return None
        _, print_, due, first, made = self.rows[n]
        return KnownLineage(lineage, max(made, self.nearest(print_, made)) if due else made, first * 1_000, due * 1_000)

    def returned(self, print_: int, now_ms: int, window_ms: int, skip: int) -> KnownLineage | None:
        now, oldest = now_ms // 1_000, (now_ms - window_ms) // 1_000
        attempt, level = self.lowest(print_, now, oldest, skip)
        if level:
            return KnownLineage(level[3], attempt, level[2] * 1_000, level[1] * 1_000)
        n = self.only(print_)
        if print_ in self.equal or not n or skip or self.rows[n][2] > now or self.rows[n][3] < oldest:
            return None
        lineage, _, due, first, made = self.rows[n]
        return KnownLineage(lineage, made, first * 1_000, due * 1_000)


# Seeds, and not a choice for each number: choosing would take longer than all that is tested.
DRAWS = st.integers(0, 1 << 32).map(random.Random)


def few(draw: random.Random) -> LineageFields:
    """A row of few lineages, fingerprints and moments, so that they meet."""
    lineage, print_, attempt, due_s, first_s = (draw.randint(*each) for each in ((1, 6), (1, 4), (0, 4), (1, 9), (0, 9)))
    if draw.random() < 0.2:
        return make_move_row(lineage, print_, draw.choice((None, due_s * 1_000)), max(1, attempt))
    return sent_fields(lineage, print_, attempt, due_s * 1_000, first_s * 1_000, draw.random() < 0.5)


@settings(max_examples=15 * settings.default.max_examples)
@given(DRAWS, st.sampled_from([2, 3, 97]), st.integers(2, 9), st.sampled_from([2, 4, 64]))
def test_it_does_what_a_naive_one_does(draw: random.Random, slots: int, limit: int, rows_min: int) -> None:
    """However small it was at first: it grows, and nothing is forgotten for that."""
    with (
        patch("retry.intake.attempts.ring_buffer._slots_for", return_value=slots),
        patch("retry.intake.attempts.team_lineages._ROWS_MIN", rows_min),
    ):
        compare_with_naive(draw, limit)


def compare_with_naive(draw: random.Random, limit: int) -> None:
    lineages, naive = OneTeam(limit), Naive(limit)
    now_ms, window_ms, skip = draw.randint(5_000, 10_000), draw.randint(0, 10_000), draw.randint(0, 2)
    for _ in range(draw.randint(1, 30)):
        each = few(draw)
        lineages.apply_batch(moves(each) if each[-1] == MOVED else pack(TEAM, [each]))
        naive.fold(each)
        assert [lineages.sends(n) for n in range(1, 7)] == [naive.sends(n) for n in range(1, 7)]
        for n in range(1, 5):
            assert lineages.returned(n, now_ms, window_ms, skip) == naive.returned(n, now_ms, window_ms, skip)
    assert len(lineages) == min(limit, len(naive.rows) - limit)


# --- a loop: whatever is sent comes back ---


class Letter(NamedTuple):
    """A letter as it lies on the dead-letter topic."""

    print_: int
    fresh_id: int
    lineage: int | None
    attempt: int


class Loop:
    """An intake, and a consumer that fails for ever and may lose headers or lie."""

    def __init__(self, attempts_max: int) -> None:
        self.max, self.lineages, self.now_ms, self.sends, self.parked = attempts_max, OneTeam(10_000), NOW_MS, 0, 0

    def take_in(self, letters: Sequence[Letter]) -> list[Letter]:
        """One batch; what is sent for it."""
        matched: Counter[int] = Counter()
        rows: list[LineageFields] = []
        out: list[Letter] = []
        for letter in letters:
            known = self.lineages.sends(letter.lineage) if letter.lineage is not None else None
            returned = None if known else self.lineages.returned(letter.print_, self.now_ms, DAY_MS, matched[letter.print_])
            matched[letter.print_] += returned is not None
            known = known or returned
            lineage = known.id if known else letter.fresh_id
            attempt = max(attempts(known), letter.attempt) + 1
            if attempt > self.max:
                self.parked += 1
                rows.append(sent_fields(lineage, letter.print_, 0, self.now_ms, matched=returned is not None))
                continue
            rows.append(sent_fields(lineage, letter.print_, attempt, self.now_ms + 1_000, NOW_MS, returned is not None))
            out.append(letter._replace(lineage=lineage, attempt=attempt))
        self.lineages.apply_batch(pack(TEAM, rows))
        self.sends += len(out)
        return out

    def run(self, letters: Iterable[Letter], draw: random.Random, batch_max: int, *, stripped: float) -> None:
        """Until nothing comes back; in any order, in batches of any size."""
        there, numbers = list(letters), iter(range(10**6, 10**9))
        while there:
            draw.shuffle(there)
            size = draw.randint(1, batch_max)
            batch, there = there[:size], there[size:]
            out = self.take_in(batch)
            self.now_ms += 2_000
            for letter in out:
                lineage = None if draw.random() < stripped else letter.lineage
                there.append(Letter(letter.print_, next(numbers), lineage, 0))


LETTERS = st.lists(st.integers(1, 4), min_size=1, max_size=12)


def make_fresh_letters(prints: list[int]) -> list[Letter]:
    return [Letter(print_, 1_000 + n, None, 0) for n, print_ in enumerate(prints)]


@settings(max_examples=2 * settings.default.max_examples)
@given(LETTERS, DRAWS, st.integers(1, 5), st.integers(1, 12))
def test_letters_whose_headers_are_stripped_are_sent_so_often_and_then_parked(
    prints: list[int], draw: random.Random, attempts_max: int, batch_max: int
) -> None:
    loop = Loop(attempts_max)
    loop.run(make_fresh_letters(prints), draw, batch_max, stripped=1.0)
    assert loop.parked == len(prints)
    assert loop.sends <= len(prints) * attempts_max


@settings(max_examples=2 * settings.default.max_examples)
@given(LETTERS, DRAWS, st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.7]))
def test_some_headers_stripped_and_all_attempts_forged_it_is_no_more(
    prints: list[int], draw: random.Random, attempts_max: int, stripped: float
) -> None:
    loop = Loop(attempts_max)
    loop.run(make_fresh_letters(prints), draw, 1, stripped=stripped)
    assert loop.parked == len(prints)
    assert loop.sends <= len(prints) * attempts_max


@settings(max_examples=2 * settings.default.max_examples)
@given(LETTERS, DRAWS, st.integers(1, 5), st.integers(2, 12))
def test_equal_letters_with_and_without_headers_in_one_batch_may_be_sent_once_more(
    prints: list[int], draw: random.Random, attempts_max: int, batch_max: int
) -> None:
    loop = Loop(attempts_max)
    loop.run(make_fresh_letters(prints), draw, batch_max, stripped=0.5)
    assert loop.sends <= len(prints) * (attempts_max + 1)


def test_different_letters_are_sent_exactly_as_often_as_the_policy_says() -> None:
    for stripped in (0.0, 0.5, 1.0):
        loop = Loop(4)
        loop.run(make_fresh_letters(list(range(50))), random.Random(1), 20, stripped=stripped)
        assert (loop.sends, loop.parked) == (200, 50)
