"""What became of the letters that an action has sent, as the replica counts it: recovered, failed again, or not known yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry import clock
from retry.console.folding.attempts import SETTLE_MS
from retry.console.reading import action_outcomes, letters
from retry.console.reading.action_outcomes import ActionOutcome, SentOutcome
from retry.delay_queue.action_records import Action, Tally
from retry.delay_queue.ramp_records import Ramp, Step, build_failed_row
from retry.delivery.ramp import StepCounts
from retry.operations.act.overview import ActionOverview
from retry.operations.letter_filter.parse import parse
from tests.support.plans import registry_of
from tests.support.replicas import OWN, GivenReplica
from tests.unit.console.test_replica_recovery import NOW_MS, POLICIES, SENT_MS, Letter, sample

ID = bytes.fromhex("0a" * 8)
GROUPS = {"shop": {"orders.retry"}, "others": {"elsewhere"}}
LETTERS = [Letter(n, f"{n:016x}") for n in range(6)]


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivenReplica:
    """One that is live, with the outcomes of six letters."""
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    made = GivenReplica(tmp_path, registry_of(POLICIES))
    made.finish()
    made.fold(OWN.outcomes, *(letter.told() for letter in LETTERS))
    return made


def send(replica: GivenReplica, *sent: Letter, at_ms: int = SENT_MS, mark: str = ID.hex()) -> None:
    """Let letters leave that an action has moved."""
    replica.fold(OWN.changelog, *(each.waits(SENT_MS, "orders.retry", ("retry-action", mark.encode())) for each in sent))
    replica.fold(OWN.changelog, *(each.leaves() for each in sent), at_ms=at_ms)


def outcome(
    replica: GivenReplica, now_ms: int = NOW_MS, ramp: Ramp | None = None, steps: tuple[StepCounts, ...] = (),
    step: Step | None = None,
) -> ActionOutcome:  # fmt: skip
    action = Action("retry", "ann", NOW_MS, [1], 6, ramp=ramp)
    about = ActionOverview(ID, action, None, None, Tally(), [0], 0, step=step or Step(), steps=steps)
    with replica.readers.reading(0.0) as connection:
        return action_outcomes.count_outcomes(connection, about, GROUPS, now_ms)


def failed_again(replica: GivenReplica, action: str = ID.hex()) -> list[str | None]:
    """The lineages that a filter finds."""
    with replica.readers.reading(0.0) as connection:
        asked = parse(f"failed-again:{action}", groups=True)
        page = letters.list_letters(connection, replica.file.id, None, asked, None, 100, NOW_MS)
        return sorted(str(each.lineage) for each in page.rows)


def test_nothing_is_known_until_the_group_has_committed_and_then_at_once(replica: GivenReplica) -> None:
    assert outcome(replica).total == SentOutcome(0, 0, 0)
    replica.fold(OWN.outcomes, sample(SENT_MS - 1, SENT_MS))
    send(replica, *LETTERS[:4])
    send(replica, LETTERS[4], mark="0b" * 8)
    assert outcome(replica).total == SentOutcome(4, 0, 4)
    replica.fold(OWN.outcomes, sample(SENT_MS, SENT_MS + 1))
    assert outcome(replica, SENT_MS + 2).total == SentOutcome(4, 0, 0)
    assert outcome(replica, SENT_MS + 2).total.recovered == 4


def test_what_fails_again_is_known_before_the_group_commits_and_found_by_a_filter(replica: GivenReplica) -> None:
    replica.fold(OWN.outcomes, sample(SENT_MS - 1, SENT_MS))
    send(replica, *LETTERS[:4])
    again = Letter(10, LETTERS[2].lineage, 2)
    replica.fold(OWN.outcomes, again.told())
    replica.fold(OWN.changelog, again.waits(NOW_MS + 1), LETTERS[5].waits(NOW_MS + 1))
    found = outcome(replica).total
    assert (found, found.recovered) == (SentOutcome(4, 1, 3), 0)
    assert failed_again(replica) == [LETTERS[2].lineage]
    assert failed_again(replica, "0b" * 8) == []


def test_a_letter_that_was_returned_failed_again_where_a_later_one_of_it_was_taken_in(replica: GivenReplica) -> None:
    parked = Letter(20, "f" * 16, 3)
    replica.fold(OWN.outcomes, sample(SENT_MS + 1, SENT_MS + 1), parked.told("park"))
    send(replica, parked)
    assert outcome(replica).total == SentOutcome(1, 0, 0)
    later = Letter(60_001, parked.lineage, 4)
    replica.fold(OWN.outcomes, later.told("park"))
    assert outcome(replica).total == SentOutcome(1, 1, 0)


def test_where_nothing_tells_what_was_read_silence_counts_for_a_ramp_that_of_the_ramp(replica: GivenReplica) -> None:
    send(replica, *LETTERS[:2], at_ms=NOW_MS - 1_000)
    assert outcome(replica).total == SentOutcome(2, 0, 2)
    assert outcome(replica, NOW_MS - 1_000 + SETTLE_MS).total == SentOutcome(2, 0, 0)
    ramp, steps = Ramp(0.9, [2], 10, 5_000), (StepCounts(2, 2, 2, 2),)
    send(replica, *LETTERS[2:4], at_ms=NOW_MS - 1_000, mark=f"{ID.hex()}/0")
    assert outcome(replica, NOW_MS, ramp, steps).total == SentOutcome(2, 0, 2)
    assert outcome(replica, NOW_MS + 4_000, ramp, steps).total == SentOutcome(2, 0, 0)


def test_a_ramp_goes_by_what_workers_count_and_by_step(replica: GivenReplica) -> None:
    replica.fold(OWN.outcomes, sample(SENT_MS, SENT_MS))
    send(replica, LETTERS[0], mark=f"{ID.hex()}/0")
    send(replica, *LETTERS[1:4], at_ms=SENT_MS + 5, mark=f"{ID.hex()}/1")
    replica.fold(OWN.outcomes, Letter(10, LETTERS[1].lineage, 2).told())
    ramp, steps = Ramp(0.9, [1, 5], 10, 5_000), (StepCounts(1, 1, 1, 1, 0), StepCounts(5, 5, 4, 3, 1))
    found = outcome(replica, NOW_MS, ramp, steps)
    assert found == ActionOutcome(SentOutcome(4, 1, 2), (SentOutcome(1, 0, 0), SentOutcome(3, 1, 2)))
    assert [each.recovered for each in found.steps] == [1, 0]
    # Of an older one nothing is left but what workers have counted.
    replica.connection.execute("DELETE FROM attempts")
    assert outcome(replica, NOW_MS, ramp, steps).steps[1] == SentOutcome(3, 1, 0)


def test_of_a_step_that_workers_saw_passed_all_is_known_also_before_a_sample_says_so(replica: GivenReplica) -> None:
    replica.fold(OWN.outcomes, sample(SENT_MS - 1, SENT_MS))
    for n in range(3):
        send(replica, LETTERS[n], mark=f"{ID.hex()}/{n}")
    ramp, steps = Ramp(0.9, [1, 1, 1], 10, 5_000), (StepCounts(1, 1, 1, 1),) * 3

    def count_unknown(step: Step) -> list[int]:
        return [each.not_known_yet for each in outcome(replica, NOW_MS, ramp, steps, step).steps]

    assert [count_unknown(Step(n)) for n in range(4)] == [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]]
    # An operator let the second go on after a hold: nobody has seen that it was passed.
    assert count_unknown(Step(2, 2)) == [1, 1, 1]
    assert count_unknown(Step(3, 2)) == [1, 1, 0]


def test_the_filter_finds_what_workers_have_marked_of_a_ramp(replica: GivenReplica) -> None:
    row = build_failed_row(ID, 3, int(LETTERS[5].lineage, 16), NOW_MS, team=7)
    replica.fold(OWN.changelog, (row["key"], row["value"]), *(letter.waits(NOW_MS + 1) for letter in LETTERS))
    assert failed_again(replica) == [LETTERS[5].lineage]
