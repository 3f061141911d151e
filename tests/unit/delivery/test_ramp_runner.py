"""The owner's side of a ramp: a step is opened when the one before was sent, passed and judged; one that fails holds it."""

from __future__ import annotations

from typing import Any

import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, ramp_records
from retry.delay_queue.action_records import Action, Member, Order
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.ramp_records import Ramp, Step, StepTally
from retry.delivery import ramp
from retry.delivery.movers import ConsumerProgress
from retry.delivery.slice_members import ORPHAN_MS
from retry.intake import attempts
from retry.intake.attempts import RampedLineages
from tests.support.acted import ACTION, HOUR_MS, NOW_MS
from tests.unit.delivery.test_act import Bench, Gate

SETTLE_MS, SILENCE_MS = 5_000, 20_000
OTHERS = b"\x0c" * action_records.ACTION_BYTES


class Tripping(Gate):
    """Knows targets whose breaker is open."""

    open: tuple[str, ...] = ()

    def list_tripped(self, destinations: set[str], now_ms: int) -> list[str]:
        return [target for target in self.open if target in destinations]


class Ramped(Bench):
    """A shard in which a ramp is asked for, and what its consumers say."""

    def __init__(self) -> None:
        super().__init__()
        self.admission: Tripping = Tripping()  # type: ignore[mutable-override]
        self.says: ConsumerProgress | None = ConsumerProgress(reached=True, silent=[])
        self.asked: list[bytes] = []

    def climb(self, *steps: list[Member], keep: float = 0.9) -> None:
        for n, members in enumerate(steps):
            row = action_records.build_slice_key(ACTION, n, n), action_records.encode_slice(members, self.now_ms)
            self.write(row)
        ramp = Ramp(keep, [len(members) for members in steps], SETTLE_MS, SILENCE_MS)
        head = Action("retry", "anna", self.now_ms, [len(steps)], sum(map(len, steps)), ramp=ramp, teams=["orders"])
        self.write((action_records.build_head_key(ACTION), action_records.encode(head)))

    def step(self, bytes_max: int = 1 << 20, *, fold: bool = True, **more: Any) -> int:
        def find_passed(name: bytes, _targets: object) -> ConsumerProgress | None:
            self.asked.append(name)
            return self.says

        return super().step(bytes_max, fold=fold, ask_passed=find_passed, **more)

    def send(self) -> list[bytes]:
        """Whatever this action has put is sent; the headers that say so."""
        live = self.live()
        marks = {key: dict(PLAIN.decode(key, envelope).headers).get(names.ACTION) for key, envelope in live.items()}
        put = [key for key, mark in marks.items() if mark]
        self.write(*((key, None) for key in put))
        return sorted(marks[key] or b"" for key in put)

    def fail(self, step: int, *lineages: int, team: str = "orders") -> None:
        number = attempts.shorten_team_number(team)
        rows = [ramp_records.build_failed_row(ACTION, step, lineage, self.now_ms, team=number) for lineage in lineages]
        self.write(*((row["key"], row["value"]) for row in rows))

    def opened(self) -> Step:
        return self.state().step

    def later(self, ms: int) -> None:
        self.now_ms += ms
        self.finish()


@pytest.fixture
def ramp_bench() -> Ramped:
    return Ramped()


def at_once(keys: list[bytes]) -> list[Member]:
    return [Member(key, NOW_MS) for key in keys]


def climb(ramped: Ramped, *sizes: int, keep: float = 0.9) -> None:
    keys = ramped.wait(sum(sizes))
    ramped.climb(*(at_once(keys[sum(sizes[:n]) : sum(sizes[: n + 1])]) for n in range(len(sizes))), keep=keep)


def test_the_next_step_waits_until_the_one_before_was_sent_and_passed(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 1, 2)
    assert ramp_bench.finish() == [1]
    assert (ramp_bench.tally.steps, ramp_bench.opened().step) == ([StepTally(1, 1, 0)], 0)
    ramp_bench.later(HOUR_MS)
    assert (ramp_bench.asked, ramp_bench.opened().step) == ([], 0), "it still waits to be sent"
    assert ramp_bench.send() == [ACTION.hex().encode() + b"/0"]
    ramp_bench.says = ConsumerProgress(reached=False, silent=[])
    ramp_bench.later(HOUR_MS)
    assert (ramp_bench.tally.steps, ramp_bench.opened().step) == ([StepTally(1, 1, 1)], 0), "nobody has read it"
    ramp_bench.says = ConsumerProgress(reached=True, silent=[])
    ramp_bench.later(1)
    ramp_bench.later(SETTLE_MS - 1)
    assert ramp_bench.opened().step == 0
    ramp_bench.later(1)
    assert (ramp_bench.opened(), ramp_bench.tally.done) == (Step(1), 3)
    assert ramp_bench.send() == [ACTION.hex().encode() + b"/1"] * 2
    ramp_bench.later(1)
    ramp_bench.later(SETTLE_MS)
    assert ramp_bench.opened() == Step(2)
    assert (ramp_bench.state().climbs, ramp_bench.state().has_ended(0), ramp_bench.table.has_slices) == (False, True, False)


def test_without_a_consumer_group_silence_is_waited_for_from_the_last_failure_on(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 2, 1, keep=0.1)
    ramp_bench.finish()
    ramp_bench.send()
    ramp_bench.says = ConsumerProgress(reached=True, silent=["orders.retry"])
    ramp_bench.later(1)
    ramp_bench.later(SILENCE_MS - 1)
    ramp_bench.fail(0, 7)
    ramp_bench.later(1_000)
    ramp_bench.later(SILENCE_MS - 1)
    assert ramp_bench.opened().step == 0
    ramp_bench.later(1)
    assert ramp_bench.opened() == Step(1, silent=["orders.retry"])


def test_a_ramp_is_held_where_too_few_recover_and_goes_on_from_there_once_it_is_resumed(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 3, 2, 1)
    ramp_bench.finish()
    ramp_bench.send()
    ramp_bench.fail(0, 1, 2)
    # The same lineage once more is the same letter.
    ramp_bench.fail(0, 2)
    ramp_bench.later(1_000)
    held = ramp_bench.state().held
    assert held is not None
    assert held.by == "worker"
    assert held.reason == "step 1 of 3: 2 of 3 letters failed again, so at most 86.5% recover, and 90.0% are to"
    ramp_bench.later(HOUR_MS)
    assert (ramp_bench.opened(), ramp_bench.tally.done) == (Step(held_ms=held.at_ms), 3)
    ramp_bench.open()
    ramp_bench.later(1)
    assert ramp_bench.tally.done == 3
    ramp_bench.order(action_records.build_resumed_key, hold=held.at_ms)
    ramp_bench.later(1)
    assert (ramp_bench.opened(), ramp_bench.tally.done) == (Step(1, since=1), 5)
    ramp_bench.send()
    ramp_bench.later(1)
    ramp_bench.later(SETTLE_MS)
    assert (ramp_bench.opened(), ramp_bench.state().held) == (Step(2, since=1), None)


def test_a_large_step_that_was_held_in_its_midst_goes_on_with_the_rest_of_it(
    ramp_bench: Ramped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ramp, "_ENOUGH", 2)
    climb(ramp_bench, 4)
    for _ in range(2):
        ramp_bench.step(bytes_max=1)
    ramp_bench.fail(0, 1, 2)
    ramp_bench.now_ms += 1_000
    ramp_bench.step(bytes_max=1)
    held = ramp_bench.state().held
    assert held is not None
    ramp_bench.finish(bytes_max=1)
    assert ramp_bench.tally.done == 2
    ramp_bench.later(1)
    ramp_bench.order(action_records.build_resumed_key, hold=held.at_ms)
    ramp_bench.finish()
    assert (ramp_bench.opened(), ramp_bench.tally.done) == (Step(0, 0, (2, 2)), 4)
    ramp_bench.send()
    ramp_bench.later(1)
    ramp_bench.later(SETTLE_MS)
    assert (ramp_bench.opened(), ramp_bench.tally.steps) == (Step(1, 0, (2, 2)), [StepTally(4, 4, 4)])


def test_a_ramp_is_held_where_a_breaker_is_open_and_the_step_is_judged_once_it_is_resumed(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 1, 1)
    ramp_bench.finish()
    ramp_bench.admission.open = ("orders.slow", "orders.retry")
    ramp_bench.later(1)
    held = ramp_bench.state().held
    assert held is not None
    assert held.reason == "the breaker of orders.retry is open"
    ramp_bench.admission.open = ()
    ramp_bench.order(action_records.build_resumed_key, hold=held.at_ms)
    ramp_bench.send()
    ramp_bench.later(1)
    assert ramp_bench.opened() == Step()
    ramp_bench.later(SETTLE_MS)
    assert ramp_bench.opened() == Step(1)


def test_while_an_operator_holds_it_nothing_is_judged(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 1, 1)
    ramp_bench.finish()
    ramp_bench.send()
    ramp_bench.write((action_records.build_held_key(ACTION), action_records.encode(Order("anna", ramp_bench.now_ms))))
    ramp_bench.later(HOUR_MS)
    assert (ramp_bench.opened().step, ramp_bench.tally.steps) == (0, [StepTally(1, 1, 1)])


def test_of_a_ramp_that_is_cancelled_nothing_is_waited_for(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 1, 2)
    ramp_bench.finish()
    ramp_bench.write((action_records.build_cancelled_key(ACTION), action_records.encode(Order("anna", ramp_bench.now_ms))))
    ramp_bench.finish()
    assert (ramp_bench.tally.done, ramp_bench.tally.refused, ramp_bench.table.has_slices) == (1, {"cancelled": 2}, False)
    assert ramp_bench.state().has_ended(0)


def test_a_step_of_which_nothing_was_put_is_passed_at_once(ramp_bench: Ramped) -> None:
    keys = ramp_bench.wait(2)
    ramp_bench.climb(at_once(keys[:1]), at_once(keys[1:]))
    ramp_bench.write((keys[0], None))
    ramp_bench.finish()
    assert (ramp_bench.opened().step, ramp_bench.asked) == (1, [])
    assert (ramp_bench.tally.gone, ramp_bench.tally.done) == (1, 1)


def test_the_last_step_is_counted_and_never_held(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 3)
    ramp_bench.finish()
    ramp_bench.send()
    ramp_bench.fail(0, 1, 2, 3)
    ramp_bench.later(1_000)
    ramp_bench.later(SETTLE_MS)
    assert (ramp_bench.opened(), ramp_bench.state().held) == (Step(1), None)


@pytest.mark.parametrize(("team", "steps"), [("orders", 0), ("others", 1)])
def test_marks_of_another_team_s_letters_are_not_counted(ramp_bench: Ramped, team: str, steps: int) -> None:
    """Whoever may write to a topic of theirs may say there that this ramp has put the letter."""
    climb(ramp_bench, 20, 1)
    ramp_bench.finish()
    ramp_bench.send()
    ramp_bench.fail(0, *range(20), team=team)
    ramp_bench.later(1_000)
    ramp_bench.later(SETTLE_MS)
    assert (ramp_bench.opened().step, ramp_bench.state().held is None) == (steps, steps == 1)


def test_marks_of_what_nobody_knows_any_more_are_removed(ramp_bench: Ramped) -> None:
    row = ramp_records.build_failed_row(OTHERS, 0, 1, ramp_bench.now_ms, team=0)
    ramp_bench.write((row["key"], row["value"]))
    ramp_bench.finish()
    assert len(ramp_bench.table.list_slices(ramp_records.FAILED, 10)) == 1
    ramp_bench.later(ORPHAN_MS + 60_001)
    assert ramp_bench.table.list_slices(ramp_records.FAILED, 10) == []


def test_lineages_say_which_step_put_them_until_another_action_does(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 1, 1)
    ramp_bench.finish()
    record, *_ = ramp_bench.log.read("lineage")
    known, (number, *_) = RampedLineages(10), next(attempts.unpack(record.value() or b"").rows)
    known.apply_record(record.key() or b"", record.value() or b"")
    assert (known.find_step("orders", number), known.find_step("others", number), len(known)) == ((ACTION, 0), None, 1)
    known.apply_record(OTHERS.hex().encode(), record.value() or b"")
    assert known.find_step("orders", number) is None
    for n in range(20):
        known.apply_record(record.key() or b"", attempts.pack("orders", [attempts.build_fields(n + 1, 0, 1_000, 0, 1)]))
    assert (len(known), known.find_step("orders", 10), known.find_step("orders", 11)) == (10, None, (ACTION, 0))


def test_a_letter_that_is_held_was_not_sent_and_the_ramp_waits_for_it(ramp_bench: Ramped) -> None:
    climb(ramp_bench, 1, 1)
    ramp_bench.finish()
    ((key, envelope),) = ((k, v) for k, v in ramp_bench.live().items() if names.ACTION in dict(PLAIN.decode(k, v).headers))
    held = entry_keys.make_held_key(key)
    for rows in [(key, None), (held, envelope)], [(key, envelope), (held, None)]:
        ramp_bench.write(*rows)
        ramp_bench.later(HOUR_MS)
        assert (ramp_bench.tally.steps, ramp_bench.opened().step) == ([StepTally(1, 1, 0)], 0)
    ramp_bench.write((key, None))
    ramp_bench.later(1)
    assert ramp_bench.tally.steps == [StepTally(1, 1, 1)]
