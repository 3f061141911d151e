"""A letter that a step of a ramp had put, and that fails again, is marked in the batch that takes it in; no other is."""

from __future__ import annotations

import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import ramp_records
from retry.delay_queue.envelopes import Entry
from retry.intake import attempts
from retry.intake.attempts import RampedLineages, RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.attempts.lineage_follower import LineageFollower
from retry.intake.build_entry import EntryBuilder
from retry.intake.intake import Intake
from retry.intake.read_positions import ReadPositions
from retry.record import Headers
from retry.testing.kafka import MemoryCluster, MemoryLog, MemoryRecord
from tests.support.plans import registry_of
from tests.unit.intake.test_intake import NAMES, NOW_MS, find_no_source

ACTION, LINEAGE, STEP = b"\x0a" * 8, 0xDEAD, 3
MARK = ramp_records.mark(ACTION, STEP)
POLICIES = "teams: {shop: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}}"
RETRIED: Headers = [
    (names.ID, attempts.format_retry_id(LINEAGE, "shop")),
    (names.ATTEMPT, b"1"),
    (names.SOURCE, b"orders.DLT/0/1"),
]


def marks(headers: Headers, recent: RecentLineages | None = None, ramped: RampedLineages | None = None) -> list[bytes]:
    """Keys of marks in the batch of one letter."""
    registry = registry_of(POLICIES)
    counter = AttemptCounter(recent or RecentLineages(100), "cluster", registry.retry_targets_by_team())
    builder = EntryBuilder("changelog", "parked", {"changelog": 1_000_000})
    partitions = {"changelog": 4, "outcomes": 1, "lineage": 1}
    intake = Intake(registry, counter, builder, find_no_source, NAMES, partitions, ramped=ramped)
    letter = MemoryRecord(Entry("orders.DLT", b"key", b"value", headers, None, ""), 0, 7, NOW_MS)
    result = intake.prepare([letter], NOW_MS)
    found = [row["key"] for row in result.entries[ramp_records.HOME] if row["key"][:1] == ramp_records.FAILED]
    assert len(list(result.iterate_entries())) == 1 + len(found)
    return found


def make_marks() -> list[bytes]:
    return [ramp_records.build_failed_row(ACTION, STEP, LINEAGE, NOW_MS, team=attempts.shorten_team_number("shop"))["key"]]


def test_a_letter_that_says_which_step_put_it_is_marked() -> None:
    assert marks([*RETRIED, (names.ACTION, MARK)]) == make_marks()


@pytest.mark.parametrize("text", [ACTION.hex().encode(), b"", None, b"x/3", MARK + b"0000", MARK + b" "])
def test_a_letter_that_says_nothing_of_a_step_is_not(text: bytes | None) -> None:
    assert marks([*RETRIED, (names.ACTION, text)]) == []


def test_what_fails_for_the_first_time_is_not_marked_whatever_it_says() -> None:
    assert marks([(names.ACTION, MARK)]) == []
    assert marks([]) == []


def know_from_team(team: str = "shop") -> tuple[RecentLineages, RampedLineages]:
    """A ramp has put the letter, and a worker has read so."""
    print_ = attempts.make_fingerprint("orders.DLT", attempts.hash_payload(b"key", b"value"))
    row = attempts.build_fields(LINEAGE, print_, NOW_MS - 5_000, NOW_MS - 60_000, 1)
    log = MemoryLog()
    for topic in ("lineage", NAMES.positions):
        log.create(topic)
    log.add_record("lineage", MARK, attempts.pack(team, [row]))
    brokers = MemoryCluster(log, "app", "a")
    positions = ReadPositions(brokers, NAMES.positions)
    follower = LineageFollower(brokers, "lineage", 1, RecentLineages(100), positions, RampedLineages(100))
    follower.read()
    follower.catch_up()
    assert follower.ramped is not None
    return follower.lineages, follower.ramped


def test_a_letter_without_headers_is_known_by_its_lineage() -> None:
    assert marks([], *know_from_team()) == make_marks()


def test_a_letter_of_another_team_is_not_known_by_it() -> None:
    assert marks([], *know_from_team("stock")) == []
    theirs = (names.ID, attempts.format_retry_id(LINEAGE, "stock"))
    assert marks([theirs, *RETRIED[1:], (names.ACTION, MARK)]) == []


def test_one_that_was_retried_since_says_so_and_is_not_marked_again() -> None:
    assert marks(RETRIED, *know_from_team()) == []
