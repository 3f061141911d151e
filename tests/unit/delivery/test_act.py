"""The owner of a shard works off slices: each letter once, whatever ends in between, and the tally counts each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, action_state, entry_keys, envelopes
from retry.delay_queue.action_records import Action, Member, Order, Tally
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.table.interface import ChangelogRow
from retry.delivery.act import ENDED_MS, Acting
from retry.delivery.act_records import digest_content
from retry.delivery.acted_entry import hash_envelope
from retry.delivery.letter_changes import SEALED
from retry.delivery.movers import AskParked, find_no_records
from retry.delivery.slice_members import ORPHAN_MS
from retry.delivery.sweep import ChangelogPartition
from retry.errors import CommitInDoubt, TransactionAborted
from retry.intake import attempts
from retry.intake.attempts import RecentLineages
from retry.kafka.record_limits import RecordLimits
from retry.telemetry import outcomes
from retry.telemetry.outcomes import Outcome
from retry.testing.kafka import Fault, MemoryLog, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable
from tests.support.acted import (
    ACTION,
    DISCARDED,
    HEADER_PATCH,
    HOUR_MS,
    ID,
    LINEAGES,
    NOW_MS,
    entry_actions,
    letter,
    move_context,
    pack_entry,
)

CHANGELOG = ChangelogPartition("changelog", 0)
AUDIT, OUTCOMES = "app-audit", "app-outcomes"
OTHER = b"\x0b" * action_records.ACTION_BYTES


class Gate:
    """Topics, some of which cannot be written to."""

    def __init__(self) -> None:
        self.away: dict[str, str] = {}
        self.record_limits = RecordLimits()

    def find_closed(self, destinations: set[str]) -> dict[str, str]:
        return {topic: why for topic, why in self.away.items() if topic in destinations}

    probe_targets = find_closed


class Bench:
    """One shard, its changelog, and whoever writes actions there."""

    def __init__(self) -> None:
        self.log, self.admission, self.now_ms = MemoryLog(), Gate(), NOW_MS
        self.ask_parked: AskParked = find_no_records
        # As the worker that owns this one knows them.
        self.shards = 1
        self.log.create("lineage", 2)
        for topic in ("changelog", "parked", AUDIT, OUTCOMES, DISCARDED, "orders.retry", "orders.slow", "orders.parked"):
            self.log.create(topic)
        self.open()

    def open(self) -> None:
        """Take over the shard: nothing but the changelog is left."""
        self.table = MemoryTable()
        self.writer, self.work = MemoryTransactionalProducer(self.log, "shard-0"), Acting(CHANGELOG, self.table)
        self.writer.open()
        self.fold()

    def write(self, *rows: ChangelogRow) -> None:
        """Committed records of the changelog, folded."""
        stranger = MemoryTransactionalProducer(self.log, "stranger")
        stranger.open()
        stranger.begin()
        stranger.write("changelog", 0, [{"key": key, "value": value} for key, value in rows])
        stranger.commit()
        self.fold()

    def fold(self) -> None:
        """Bring the table up to the changelog."""
        new = [r for r in self.log.read("changelog") if r.offset() >= self.table.next_offset]
        rows = [(r.key() or b"", r.value()) for r in new]
        self.table.apply_records(rows, self.log.fetch_bounds("changelog", [0])[0].end, NOW_MS)

    def wait(self, count: int, topic: str = "orders.DLT", **more: Any) -> list[bytes]:
        """So many letters wait; the keys of their entries."""
        rows = [letter(topic, n, **more) for n in range(count)]
        self.write(*((key, pack_entry(entry)) for key, entry in rows))
        return [key for key, _ in rows]

    def slices(self, *slices: list[Member], action: bytes = ACTION) -> None:
        """Slices, without a head."""
        for n, members in enumerate(slices):
            self.write((action_records.build_slice_key(action, 0, n), action_records.encode_slice(members, self.now_ms)))

    def ask(
        self, kind: str, *slices: list[Member], action: bytes = ACTION, named: int | None = None, shards: int = 1, **more: Any
    ) -> None:
        """Ask for an action; `named`: how many slices its head names, where that is another number."""
        self.slices(*slices, action=action)
        counts = [len(slices) if named is None else named, *[0] * (shards - 1)]
        head = Action(kind, "anna", self.now_ms, counts, sum(map(len, slices)), **more)
        self.write((action_records.build_head_key(action), action_records.encode(head)))

    def order(self, key: Callable[[bytes], bytes], hold: int = 0) -> None:
        self.write((key(ACTION), action_records.encode(Order("anna", self.now_ms, hold=hold))))

    def step(self, bytes_max: int = 1 << 20, *, fold: bool = True, **more: Any) -> int:
        """One step, the fold following."""
        end = self.log.fetch_bounds("changelog", [0])[0].end
        context = move_context(
            self.writer, entry_actions().redecider, self.now_ms, admission=self.admission, audit=AUDIT, outcomes=OUTCOMES,
            bytes_max=bytes_max, end=lambda: end, ask_parked=self.ask_parked, shards=self.shards, **more,
        )  # fmt: skip
        done = self.work.move_batch(context).entries
        if fold:
            self.fold()
        return done

    def finish(self, bytes_max: int = 1 << 20) -> list[int]:
        """Steps until nothing is written any more; for how many letters each did something."""
        done, at = [], -1
        while at != self.table.next_offset:
            at = self.table.next_offset
            done.append(self.step(bytes_max))
        return done[:-1]

    def state(self, action: bytes = ACTION) -> ActionState:
        return {state.id: state for state in action_state.read_states(self.table.controls)}[action]

    @property
    def tally(self) -> Tally:
        return self.state().tally

    def live(self) -> dict[bytes, bytes]:
        """Entries, as the changelog and the table agree."""
        folded = {r.key() or b"": r.value() for r in self.log.read("changelog")}
        live = {k: v for k, v in folded.items() if v is not None and entry_keys.FIRST_KEY <= k < entry_keys.END_KEY}
        behind = {key: envelope for _, key, envelope in self.table.page_behind(b"", 1_000)}
        assert dict(row[1:] for row in self.table.scan_entries(b"", 1_000)) | behind == live
        assert self.table.waiting == len(live)
        return live

    def lineages(self, *before: attempts.LineageFields) -> attempts.TeamLineages:
        """Return what is remembered of letters of which this was known before; all of it lies in one partition."""
        recent, told = RecentLineages(100), self.log.read("lineage")
        recent.apply_batch(attempts.pack("orders", before))
        assert {record.partition() for record in told} == {LINEAGES.find_partition("orders")}
        for record in told:
            recent.apply_batch(record.value() or b"")
        return recent.find_team("orders")

    def told(self) -> list[list[dict[str, Any]]]:
        """List by record of the audit what it has of each letter."""
        return [orjson.loads(r.value() or b"")["letters"] for r in self.log.read(AUDIT)]

    def outcomes(self) -> list[Outcome]:
        """List what the topic of outcomes has, a letter each."""
        return [letter for record in self.log.read(OUTCOMES) for letter in outcomes.read(record.value() or b"")]

    def audited(self) -> list[list[str]]:
        """List by record of the audit what became of each letter."""
        return [[each["result"] for each in letters] for letters in self.told()]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def at_once(keys: list[bytes]) -> list[Member]:
    return [Member(key, NOW_MS + n) for n, key in enumerate(keys)]


def sources(keys: Any) -> list[int]:
    return sorted(entry_keys.read_source(key).offset for key in keys)


def test_each_letter_is_moved_once_a_slice_at_a_time_and_counted(bench: Bench) -> None:
    keys = bench.wait(5)
    bench.ask("retry", at_once(keys[:3]), at_once(keys[3:]))
    assert bench.finish() == [3, 2]
    assert bench.tally == Tally(2, 5, 0, {})
    assert [entry_keys.due_at_ms(key) - NOW_MS for key in sorted(bench.live())] == [0, 0, 1, 1, 2]
    assert not bench.table.has_slices
    assert bench.audited() == [["done"] * 3, ["done"] * 2]
    assert bench.log.read("lineage")


def test_a_letter_that_does_not_wait_under_its_key_is_gone_and_nothing_is_put_for_it(bench: Bench) -> None:
    keys = bench.wait(2)
    bench.write((keys[0], None))
    bench.ask("retry", at_once(keys))
    assert bench.finish() == [1]
    assert (bench.tally, sources(bench.live())) == (Tally(1, 1, 1, {}), [1])


def test_a_letter_that_is_held_is_not_gone(bench: Bench) -> None:
    (key,) = bench.wait(1)
    bench.write((entry_keys.make_held_key(key), bench.live()[key]), (key, None))
    bench.ask("retry", at_once([key]))
    bench.finish()
    assert (bench.tally, list(bench.live())) == (Tally(1, 0, 0, {SEALED: 1}), [entry_keys.make_held_key(key)])


def test_of_two_actions_about_one_letter_the_second_finds_it_gone(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.ask("retry", at_once(keys))
    bench.now_ms += 1
    bench.ask("park", at_once(keys), action=OTHER)
    bench.finish()
    assert (bench.tally, bench.state(OTHER).tally) == (Tally(1, 1, 0, {}), Tally(1, 0, 1, {}))


def test_the_same_head_once_more_does_nothing(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.ask("retry", at_once(keys))
    bench.finish()
    bench.ask("retry", named=1)
    assert bench.finish() == []


def test_a_key_that_a_slice_names_twice_is_put_once(bench: Bench) -> None:
    (key,) = bench.wait(1)
    bench.ask("retry", [Member(key, NOW_MS), Member(key, NOW_MS + 5)])
    bench.finish()
    assert (len(bench.live()), bench.tally) == (1, Tally(1, 1, 1, {}))


def test_nothing_is_read_before_all_is_folded_that_was_written(bench: Bench) -> None:
    keys = bench.wait(2)
    bench.ask("retry", at_once(keys[:1]), at_once(keys[1:]))
    assert bench.step(fold=False) == 1
    assert bench.step(fold=False) == 0
    bench.fold()
    assert bench.step() == 1


def test_a_slice_that_is_larger_than_a_transaction_is_done_in_parts(bench: Bench) -> None:
    keys = bench.wait(3, value=b"v" * 400)
    bench.ask("retry", at_once(keys))
    assert bench.step(bytes_max=1) == 1
    ((_, left),) = bench.table.list_slices(action_records.SLICE, 10)
    assert [member.key for member in action_records.decode_slice(left).members] == keys[1:]
    assert bench.tally == Tally(0, 1, 0, {})
    assert bench.finish(bytes_max=1) == [1, 1]
    assert (bench.tally, sources(bench.live())) == (Tally(1, 3, 0, {}), [0, 1, 2])


@pytest.mark.parametrize("topic", ["orders.DLT", "keyed.DLT"])
@pytest.mark.parametrize("kind", ["retry", "park", "discard", "erase"])
@pytest.mark.parametrize("apart", [False, True])
def test_letters_with_the_same_coordinates_never_get_one_key(bench: Bench, kind: str, topic: str, apart: bool) -> None:
    # Their topic was deleted and made anew while the first of them waited; the last is no member, and has its key already.
    rows = [letter(topic, 7, NOW_MS + n, value=b"%d" % n) for n in (HOUR_MS, 2 * HOUR_MS, 0)]
    bench.write(*((key, pack_entry(entry)) for key, entry in rows))
    members = [Member(key, NOW_MS) for key, _ in rows[:2]]
    bench.ask(kind, *([member] for member in members) if apart else (members,))
    bench.finish()
    assert bench.tally.done == len(bench.live()) - 1 == 2
    if kind == "retry":
        assert sorted(entry_keys.due_at_ms(key) - NOW_MS for key in bench.live()) == [0, 1, 2]


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.LATE])
def test_whatever_a_commit_comes_to_each_letter_is_there_once(bench: Bench, fault: Fault, anew: bool) -> None:
    keys = bench.wait(4)
    bench.ask("discard", at_once(keys[:2]), at_once(keys[2:]))
    bench.log.faults = [fault]
    with pytest.raises((TransactionAborted, CommitInDoubt)) as failed:
        bench.step()
    if anew or failed.type is CommitInDoubt:
        bench.open()
    else:
        assert bench.step() == 0  # It rests a while.
        bench.now_ms += HOUR_MS
    bench.finish()
    assert (bench.tally, sources(bench.live())) == (Tally(2, 4, 0, {}), [0, 1, 2, 3])
    assert sum(map(len, bench.audited())) == 4


def test_what_is_held_waits_until_that_hold_is_resumed(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.ask("retry", at_once(keys))
    bench.order(action_records.build_held_key)
    assert bench.finish() == []
    bench.order(action_records.build_resumed_key, hold=bench.now_ms - 1)
    assert bench.finish() == []
    bench.order(action_records.build_resumed_key, hold=bench.now_ms)
    assert bench.finish() == [1]


def test_one_that_is_held_keeps_no_other_from_being_done(bench: Bench) -> None:
    keys = bench.wait(2)
    bench.ask("retry", at_once(keys[:1]))
    bench.order(action_records.build_held_key)
    bench.now_ms += 1
    bench.ask("retry", at_once(keys[1:]), action=OTHER)
    assert bench.finish() == [1]
    assert bench.state(OTHER).tally.done == 1


@pytest.mark.parametrize("kind", [kind for kind in action_records.KINDS if kind != "undo"])
def test_only_what_is_redirected_or_parked_goes_by_the_policy_file_that_it_names(bench: Bench, kind: str) -> None:
    key, entry = letter()
    bench.write((key, pack_entry(entry)))
    member = Member(key, NOW_MS, hash_envelope(pack_entry(entry)), pack_entry(msgspec.structs.replace(entry, value=b"2")))
    more: dict[str, Any] = {"target": "orders.slow", "patch": action_records.Patch({"a": "b"})}
    bench.ask(kind, [member], policies="sha of another", **more)
    waits = kind in ("redirect", "park")
    assert bench.finish() == ([] if waits else [1])
    bench.order(action_records.build_cancelled_key)
    bench.finish()
    assert bench.tally.refused == ({"cancelled": 1} if waits else {})


def test_the_rest_of_what_is_cancelled_is_left_alone_and_told(bench: Bench) -> None:
    keys = bench.wait(60)
    bench.ask("discard", *([member] for member in at_once(keys)))
    bench.step()
    bench.order(action_records.build_cancelled_key)
    bench.finish()
    assert bench.tally == Tally(60, 1, 0, {"cancelled": 59})
    assert not bench.table.has_slices
    assert sources(bench.live()) == list(range(60))


def test_the_audit_of_very_much_that_is_cancelled_is_told_in_parts(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.ask("retry", at_once(keys * 500), at_once(keys * 500), at_once(keys * 3))
    bench.order(action_records.build_cancelled_key)
    bench.finish()
    assert [len(part) for part in bench.audited()] == [500, 500, 3]


def test_an_action_without_all_of_its_slices_is_held_and_nothing_is_done(bench: Bench) -> None:
    keys = bench.wait(2)
    bench.ask("discard", at_once(keys), named=2)
    bench.finish()
    held = bench.state().held
    assert held is not None
    assert (held.by, held.reason, bench.tally) == ("worker", "incomplete", Tally())
    # By a clock that was ahead: it is held once more, and not at every turn.
    bench.order(action_records.build_resumed_key, hold=bench.now_ms + HOUR_MS)
    assert len(bench.finish()) == 1
    assert bench.state().held is not None
    bench.order(action_records.build_cancelled_key)
    bench.finish()
    assert (bench.state().has_ended(0), bench.tally.refused, bench.table.has_slices) == (True, {"cancelled": 2}, False)
    assert sorted(bench.live()) == sorted(keys)


def test_slices_whose_head_never_comes_are_removed_after_an_hour(bench: Bench) -> None:
    keys = bench.wait(30)
    bench.slices(*([member] for member in at_once(keys)))
    bench.ask("retry", at_once(keys[:1]), action=OTHER)
    bench.write((action_records.build_held_key(OTHER), action_records.encode(Order("anna", NOW_MS))))
    bench.now_ms += ORPHAN_MS
    assert bench.finish() == []
    bench.now_ms += 120_000
    bench.finish()
    left = {action_records.find_action_id(key) for key, _ in bench.table.list_slices(action_records.SLICE, 100)}
    assert left == {OTHER}
    assert bench.log.read(AUDIT) == []


def test_what_has_ended_is_forgotten_after_a_month_with_all_that_was_told_of_it(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.ask("retry", at_once(keys))
    bench.order(action_records.build_held_key)
    bench.order(action_records.build_resumed_key, hold=bench.now_ms)
    bench.finish()
    bench.now_ms += ENDED_MS
    assert bench.finish() == []
    bench.now_ms += 1
    bench.finish()
    assert bench.table.controls == {}


def test_a_shard_that_the_head_does_not_name_has_nothing_to_do(bench: Bench) -> None:
    bench.write((action_records.build_head_key(ACTION), action_records.encode(Action("retry", "anna", NOW_MS, [], 0))))
    assert bench.finish() == []
    assert bench.state().has_ended(0)


@pytest.mark.parametrize("topic", [AUDIT, OUTCOMES, DISCARDED])
def test_where_its_topics_are_away_an_action_waits_and_no_transaction_is_begun(bench: Bench, topic: str) -> None:
    keys = bench.wait(1)
    bench.ask("discard", at_once(keys))
    bench.admission.away = {topic: f"{topic}: unknown topic"}
    assert bench.finish() == []
    bench.admission.away = {}
    assert bench.finish() == []  # It is asked again some time later.
    bench.now_ms += 30_000
    assert bench.finish() == [1]


def test_what_is_no_entry_is_refused_and_stops_no_action(bench: Bench) -> None:
    keys = bench.wait(2)
    bench.write((keys[1], b"\x91\x01"))
    bench.ask("retry", at_once(keys))
    bench.finish()
    assert (bench.tally, bench.live()[keys[1]]) == (Tally(1, 1, 0, {SEALED: 1}), b"\x91\x01")


def test_a_discarded_letter_of_a_queue_lets_the_next_one_go_first_and_undone_takes_its_place_again(bench: Bench) -> None:
    keys = bench.wait(3, "keyed.DLT")
    bench.ask("discard", at_once(keys[:1]))
    bench.finish()
    lane = entry_keys.lane_of(keys[0])
    assert [key for key in bench.table.list_lanes() if key == lane] == [lane]
    assert [key for key, _ in bench.table.find_due(NOW_MS + HOUR_MS, 10, 1 << 20, lane)] == [keys[1]]
    discarded = next(key for key in bench.live() if key not in keys)
    bench.now_ms += 1
    bench.ask("undo", [Member(discarded, 0)], action=OTHER, undoes=ACTION.hex())
    bench.finish()
    assert sorted(bench.live()) == sorted(keys)
    assert [key for key, _ in bench.table.find_due(NOW_MS + HOUR_MS, 10, 1 << 20, lane)] == [keys[0]]


def test_an_edit_that_comes_after_a_discard_and_its_undo_finds_another_letter(bench: Bench) -> None:
    key, entry = letter()
    bench.write((key, pack_entry(entry)))
    edit = [Member(key, 0, hash_envelope(pack_entry(entry)), pack_entry(entry))]
    bench.ask("discard", [Member(key, 0)])
    bench.finish()
    (discarded,) = bench.live()
    bench.now_ms += 1
    bench.ask("undo", [Member(discarded, 0)], action=OTHER, undoes=ACTION.hex())
    bench.finish()
    assert list(bench.live()) == [key]
    third = b"\x0c" * action_records.ACTION_BYTES
    bench.now_ms += 1
    bench.ask("edit", edit, action=third)
    bench.finish()
    assert bench.state(third).tally == Tally(1, 0, 0, {"changed": 1})


def test_an_edit_of_a_letter_that_went_meanwhile_is_told_that_it_has_changed(bench: Bench) -> None:
    key, entry = letter()
    bench.ask("edit", [Member(key, 0, hash_envelope(pack_entry(entry)), pack_entry(entry))])
    bench.finish()
    assert bench.tally == Tally(1, 0, 0, {"changed": 1})
    assert bench.audited() == [["changed"]]


def test_a_letter_that_was_changed_is_known_by_its_new_value_and_its_sends_are_counted_once(bench: Bench) -> None:
    keys = bench.wait(1)
    number = attempts.parse_retry_id(ID)
    old, new = (attempts.make_fingerprint("orders.DLT", attempts.hash_payload(b"k", value)) for value in (b'{"a":1}', b'{"a":2}'))
    bench.ask("patch", at_once(keys), patch=action_records.Patch(value='{"a":2}'))
    bench.finish()
    known = bench.lineages(attempts.build_fields(number, old, NOW_MS + HOUR_MS, NOW_MS, 1))
    assert known.find_returned(old, NOW_MS + 2 * HOUR_MS, 3 * HOUR_MS) is None
    found = known.find_returned(new, NOW_MS + 2 * HOUR_MS, 3 * HOUR_MS)
    assert found is not None
    assert (found.id, found.attempts) == (number, 1)


def test_what_was_changed_is_kept_as_it_was_in_the_same_transaction(bench: Bench) -> None:
    keys = bench.wait(2)
    bench.ask("patch", at_once(keys), patch=action_records.Patch(value='{"a":2}'))
    bench.finish()
    kept = bench.log.read(DISCARDED)
    assert [record.value() for record in kept] == [b'{"a":1}'] * 2
    assert {dict(record.headers() or [])[names.ACTION_BEFORE] for record in kept} == {b"superseded"}
    assert {envelopes.decode(envelope).value for envelope in bench.live().values()} == {b'{"a":2}'}


def test_the_audit_has_digests_of_a_changed_letter_as_it_was_kept_and_as_it_is_sent(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.ask("patch", at_once(keys), patch=HEADER_PATCH)
    bench.finish()
    ((told,),) = bench.told()
    (kept,), (sent,) = bench.log.read(DISCARDED), (envelopes.decode(envelope) for envelope in bench.live().values())
    assert told["before"] == digest_content(kept.key(), kept.value(), kept.headers() or [])
    assert told["after"] == digest_content(sent.key, sent.value, sent.headers)
    assert told["before"] != told["after"]
    bench.now_ms += 1
    bench.ask("park", at_once(sorted(bench.live())), action=OTHER)
    bench.finish()
    assert "before" not in bench.told()[1][0]


@pytest.mark.parametrize(
    ("kind", "more", "decision", "target", "due_in_ms"),
    [
        ("retry", {}, "retry", "orders.retry", 0),
        ("redirect", {"target": "orders.slow"}, "retry", "orders.slow", 0),
        ("patch", {"patch": HEADER_PATCH}, "retry", "orders.retry", HOUR_MS + 1),
        ("park", {}, "park", "orders.parked", None),
        ("discard", {}, "discard", DISCARDED, None),
        ("erase", {}, "erase", DISCARDED, None),
    ],
)
def test_what_was_decided_of_a_letter_is_an_outcome_with_its_lineage(
    bench: Bench, kind: str, more: dict[str, Any], decision: str, target: str, due_in_ms: int | None
) -> None:
    keys = bench.wait(2)
    bench.write((keys[0], None))
    bench.ask(kind, [*at_once(keys)[:1], Member(keys[1], NOW_MS)], **more)
    bench.finish()
    (told,) = bench.outcomes()
    assert told == {
        "v": 1, "id": ID.decode(), "source": "orders.DLT/0/1", "team": "orders", "topic": "orders.DLT", "policy": "orders/p",
        "attempt": 1, "exception": None, "first_failed_ms": NOW_MS, "failed_ms": NOW_MS, "taken_ms": NOW_MS, "decision": decision,
        "reason": "by_operator" if kind == "park" else None, "due_ms": None if due_in_ms is None else NOW_MS + due_in_ms,
        "target": target, "cause": None, "fingerprint": None, "group": None, "delay_ms": due_in_ms, "action": ACTION.hex(),
        "action_kind": kind,
    }  # fmt: skip


def test_an_undone_discard_is_told_as_the_retry_that_it_is_again(bench: Bench) -> None:
    keys = bench.wait(1)
    bench.ask("discard", at_once(keys))
    bench.finish()
    bench.now_ms += 1
    bench.ask("undo", at_once(list(bench.live())), action=OTHER, undoes=ACTION.hex())
    bench.finish()
    assert [(told["decision"], told["target"], told["due_ms"], told["taken_ms"]) for told in bench.outcomes()] == [
        ("discard", DISCARDED, None, NOW_MS), ("retry", "orders.retry", NOW_MS + HOUR_MS, NOW_MS + 1),
    ]  # fmt: skip


def test_a_letter_that_cannot_be_kept_as_it_was_stays_as_it_is_and_the_others_of_its_slice_are_changed(bench: Bench) -> None:
    keys = bench.wait(3)
    bad = envelopes.decode(bench.live()[keys[1]])
    odd = msgspec.structs.replace(bad, value=b'{"a":9}')
    bench.write((keys[1], pack_entry(odd)))
    bench.log.invalid.add((DISCARDED, odd.value))
    bench.ask("patch", at_once(keys), patch=action_records.Patch(value='{"a":2}'))
    with pytest.raises(TransactionAborted):
        bench.step()
    bench.finish()
    assert (bench.tally.done, bench.tally.refused) == (2, {"refused": 1})
    assert sorted(envelopes.decode(envelope).value or b"" for envelope in bench.live().values()) == [b'{"a":2}'] * 2 + [odd.value]
    assert [record.value() for record in bench.log.read(DISCARDED)] == [b'{"a":1}'] * 2
    assert [each["result"] for each in bench.told()[0]] == ["done", "refused", "done"]


def test_a_letter_that_is_older_than_what_the_topic_of_discarded_letters_takes_is_kept_with_its_time_in_a_header(
    bench: Bench,
) -> None:
    bench.admission.record_limits = RecordLimits(bench.log.limits)
    bench.log.age_ms_max[DISCARDED] = HOUR_MS
    bench.log.now_ms = lambda: NOW_MS
    keys = bench.wait(1)
    entry = envelopes.decode(bench.live()[keys[0]])
    bench.write((keys[0], pack_entry(msgspec.structs.replace(entry, timestamp_ms=NOW_MS - 2 * HOUR_MS))))
    bench.ask("patch", at_once(keys), patch=HEADER_PATCH)
    with pytest.raises(TransactionAborted):
        bench.step()
    bench.finish()
    (kept,) = bench.log.read(DISCARDED)
    assert dict(kept.headers() or [])["retry-timestamp-ms"] == b"%d" % (NOW_MS - 2 * HOUR_MS)
    assert bench.tally.done == 1
