"""Waiting entries move under another policy file: each exactly once, in its place, and only where something changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import read
from retry.delay_queue import control_records, entry_keys, envelopes
from retry.delay_queue.control_records import Pause, Reschedule
from retry.delay_queue.envelopes import Entry
from retry.delivery.admission import Admission
from retry.delivery.redecide import Move, Redecider
from retry.delivery.reschedule import Rescheduling
from retry.delivery.sweep import ChangelogPartition
from retry.errors import CommitInDoubt, TableUnreadable, TransactionAborted
from retry.intake import attempts
from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.build_entry import EntryBuilder
from retry.intake.intake import Intake
from retry.kafka.topics import TopicNames
from retry.operations.waiting_entries import rehearse_request
from retry.record import Headers
from retry.testing.kafka import Fault, MemoryLog, MemoryRecord, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable
from tests.support.acted import move_context
from tests.support.bench import sweep
from tests.support.plans import registry_of

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
CHANGELOG = ChangelogPartition("changelog", 0)
LINEAGES = attempts.LineageTopic("lineage", 1)
NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table")
HOUR = "{kind: constant, delay: 1h, max_delay: 1d}"
OLD = f"""
defaults: {{backoff: {HOUR}, jitter: none, max_attempts: 3}}
teams:
  orders:
    topics:
      - dead_letters: orders.DLT
        retry_to: orders.retry
        park_to: orders.parked
        rules:
          - {{exception: '*.Slow', backoff: {{kind: constant, delay: 2h, max_delay: 1d}}}}
          - {{exception: '*.Bad', park: true}}
      - {{dead_letters: jittery.DLT, retry_to: jittery.retry, jitter: full}}
      - {{dead_letters: keyed.DLT, retry_to: keyed.retry, ordered: true}}
  others: {{topics: [{{dead_letters: others.DLT, retry_to: others.retry}}]}}
"""
QUICK = OLD.replace("1h", "2s")
PARKED = OLD.replace("'*.Slow', backoff: {kind: constant, delay: 2h, max_delay: 1d}", "'*.Slow', park: true")


def redecider(policies: str, bytes_max: int = 1_000_000) -> Redecider:
    return Redecider(registry_of(policies), EntryBuilder("changelog", "parked", {"changelog": bytes_max}), LINEAGES)


class Bench:
    """One shard whose entries were taken in under the old policies."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        for topic in ("changelog", "outcomes", "lineage", "parked"):
            self.log.create(topic)
        for name in ("orders", "jittery", "keyed", "others", "elsewhere"):
            self.log.create(f"{name}.retry")
            self.log.create(f"{name}.parked")
        self.offsets = 0
        self.open()

    def open(self) -> None:
        """Take over the shard as a new owner does: nothing but the changelog is left."""
        self.writer = MemoryTransactionalProducer(self.log, "shard-0")
        self.writer.open()
        self.table = MemoryTable()
        self.work = Rescheduling(CHANGELOG, self.table)
        self.fold()

    def take(
        self, topic: str = "orders.DLT", headers: Headers | None = None, key: bytes | None = b"key",
        stamp_ms: int = NOW_MS, policies: str = OLD, incarnation: int = 0,
    ) -> bytes:  # fmt: skip
        """Take in one letter; the key of its entry."""
        registry = registry_of(policies)
        attempt_counter = AttemptCounter(RecentLineages(1_000), "cluster", registry.retry_targets_by_team())
        entry_builder = EntryBuilder("changelog", "parked", {"changelog": 1_000_000})
        intake = Intake(
            registry, attempt_counter, entry_builder, find_no_source, NAMES, {"changelog": 1, "outcomes": 1, "lineage": 1}
        )
        self.offsets += 1
        letter = Entry(topic, key, b"%d" % self.offsets, headers or [], None, "")
        result = intake.prepare([MemoryRecord(letter, 0, self.offsets, stamp_ms)], NOW_MS, {(topic, 0): incarnation})
        told = [row for rows in result.lineages.values() for row in rows]
        rows = [(row["key"], row["value"]) for row in result.iterate_entries()]
        self.write(*rows, remembered=told)
        return rows[0][0]

    def write(self, *rows: tuple[bytes, bytes | None], remembered: Sequence[dict[str, Any]] = ()) -> None:
        """Committed records of the changelog, folded, and of lineages."""
        stranger = MemoryTransactionalProducer(self.log, "stranger")
        stranger.open()
        stranger.begin()
        stranger.write("changelog", 0, [{"key": key, "value": value} for key, value in rows])
        stranger.write("lineage", 0, list(remembered))
        stranger.commit()
        self.fold()

    def ask(self, policies: str, since_ms: int = NOW_MS, **only: Any) -> bytes:
        """Ask for entries to be rescheduled; the key of the request."""
        key = control_records.reschedule_key(since_ms)
        self.write((key, control_records.encode(Reschedule(since_ms, policies=policies, **only))))
        return key

    def fold(self) -> None:
        """Bring the table up to the changelog."""
        new = [r for r in self.log.read("changelog") if r.offset() >= self.table.next_offset]
        rows = [(r.key() or b"", r.value()) for r in new]
        self.table.apply_records(rows, new[-1].offset() + 1 if new else self.table.next_offset, NOW_MS)

    def step(self, policies: str, rows_max: int = 100, bytes_max: int = 1 << 20) -> bool:
        """Move one batch of entries."""
        context = move_context(self.writer, redecider(policies), NOW_MS, rows_max=rows_max, bytes_max=bytes_max)
        return self.work.move_batch(context).has_ended

    def finish(self, policies: str, rows_max: int = 100) -> int:
        """Batches until the request is done, the fold following each; how many there were."""
        for n in range(1, 1_000):
            ended = self.step(policies, rows_max)
            self.fold()
            if ended:
                return n
        raise AssertionError("no end")

    def due(self) -> dict[int, int]:
        """When the entry of each letter is due, from now; no letter may have two."""
        found = [entry_keys.read_source(key) for key in self.live() if key[:1] != b"\x10"]
        assert len({where.offset for where in found}) == len(found)
        return {where.offset: where.due_at_ms - NOW_MS for where in found}

    def live(self) -> dict[bytes, bytes]:
        """The fold of the changelog, which the table agrees with."""
        folded = {record.key() or b"": record.value() for record in self.log.read("changelog")}
        live = {key: value for key, value in folded.items() if value is not None}
        behind = {key: envelope for _, key, envelope in self.table.page_behind(b"", 1_000)}
        waiting = dict(row[1:] for row in self.table.scan_entries(b"", 1_000)) | behind
        assert waiting | self.table.controls == live
        assert self.table.waiting == len(waiting)
        return live

    def made(self, value: bytes, after_ms: int) -> int:
        """How many retries a letter without headers has had, as a worker says that has just started."""
        recent, registry = RecentLineages(1_000), registry_of(QUICK)
        for record in self.log.read("lineage"):
            recent.apply_batch(record.value() or b"")
        letter = read(MemoryRecord(Entry("orders.DLT", b"key", value, [], None, ""), 0, 1_000, NOW_MS + after_ms), {})
        counter = AttemptCounter(recent, "cluster", registry.retry_targets_by_team())
        return counter.trace(letter, registry.route("orders.DLT"), NOW_MS + after_ms).made or 0

    def sweep(self, now_ms: int) -> list[bytes | None]:
        """Values of what goes out at a time, one batch after another, the fold following."""
        admission = Admission(registry_of(QUICK), {"parked"}, lambda _: {}, lambda: 1.0)
        sent: list[bytes | None] = []
        while swept := sweep(self.table, self.writer, CHANGELOG, admission, now_ms, 100, 1 << 20).sent:
            self.fold()
            sent += [entry.value for entry in swept]
        return sent


def find_no_source(wanted: Collection[tuple[str, int, int]]) -> Mapping[tuple[str, int, int], Any]:
    return dict.fromkeys(wanted, "source_gone")


@pytest.fixture
def bench() -> Bench:
    return Bench()


AGAIN: Headers = [
    (names.ID, b"%016x" % 7), (names.ATTEMPT, b"1"), (names.SOURCE, b"orders.DLT/0/1"),
    (names.DUE_MS, b"%d" % (NOW_MS - 5_000)), (names.FIRST_FAILED_MS, b"%d" % (NOW_MS - HOUR_MS)),
]  # fmt: skip
LETTERS: list[dict[str, Any]] = [
    {},
    {"headers": [("exception-class", b"a.Slow")]},
    {"headers": [("exception-class", b"a.Bad")]},
    {"topic": "jittery.DLT"},
    {"topic": "keyed.DLT"},
    {"topic": "keyed.DLT"},
    {"topic": "nobody.DLT"},
    # A second failure, whose timestamp is that of the record that failed first, and one without a timestamp.
    {"headers": AGAIN, "stamp_ms": NOW_MS - HOUR_MS},
    {"headers": AGAIN, "stamp_ms": 0},
]


def test_under_the_same_policies_nothing_moves(bench: Bench) -> None:
    for letter in LETTERS:
        bench.take(**letter)
    before = bench.live()
    bench.ask(OLD, NOW_MS + 60_000)
    bench.finish(OLD)
    assert bench.live() == before
    assert bench.work.moved == 0


def test_entries_move_to_the_time_that_the_new_policy_gives_them(bench: Bench) -> None:
    for letter in LETTERS:
        bench.take(**letter)
    bench.ask(QUICK, NOW_MS + 60_000)
    bench.finish(QUICK)
    due = bench.due()
    jittered = due.pop(4)
    assert 0 <= jittered <= 2_000
    # The failure of the eighth is not its timestamp: it cannot have failed before its retry was due.
    assert due == {1: 2_000, 2: 2 * HOUR_MS, 3: 0, 5: 2_000, 6: 2_000, 7: 0, 8: -3_000, 9: 2_000}


def test_a_moved_entry_is_as_if_it_had_been_taken_in_under_the_new_policy(bench: Bench) -> None:
    old = bench.take(headers=[("a", b"1"), ("exception-class", b"a.Fault"), ("a", None)])
    bench.ask(QUICK)
    bench.finish(QUICK)
    [(moved, envelope)] = bench.live().items()
    other = Bench()
    taken = other.take(headers=[("a", b"1"), ("exception-class", b"a.Fault"), ("a", None)], policies=QUICK)
    assert {moved: envelopes.decode(envelope)} == {taken: envelopes.decode(other.live()[taken])}
    assert moved != old


CHANGES = [
    (QUICK, Move.EARLIER, 2_000, "orders.retry"),
    (OLD.replace("1h", "3h"), Move.LATER, 3 * HOUR_MS, "orders.retry"),
    (OLD.replace("retry_to: orders.retry", "retry_to: elsewhere.retry"), Move.RETARGETED, HOUR_MS, "elsewhere.retry"),
    (OLD.replace("max_attempts: 3", "max_attempts: 0"), Move.PARKED, 1_000, "orders.parked"),
    (OLD.replace("dead_letters: orders.DLT", "dead_letters: renamed.DLT"), Move.PARKED, 1_000, "parked"),
    (OLD.replace("max_attempts: 3", "max_attempts: 3, max_age: 30m"), Move.PARKED, 1_000, "orders.parked"),
    (OLD.replace("max_attempts: 3", "max_attempts: 3, ordered: true"), Move.REGROUPED, HOUR_MS, "orders.retry"),
    (OLD, Move.UNCHANGED, HOUR_MS, "orders.retry"),
]


@pytest.mark.parametrize(("policies", "move", "due_ms", "target"), CHANGES)
def test_every_kind_of_change(bench: Bench, policies: str, move: Move, due_ms: int, target: str) -> None:
    bench.take()
    asked = Reschedule(NOW_MS + 1_000, policies=policies)
    said = rehearse_request(bench.table, redecider(policies), asked)
    assert [changed for counts in said.counts.values() for changed in counts.elements()] == [move]
    bench.ask(policies, NOW_MS + 1_000)
    bench.finish(policies)
    [(key, envelope)] = bench.live().items()
    assert (bench.due(), envelopes.decode(envelope).destination) == ({1: due_ms}, target)
    assert bench.work.moved == (move is not Move.UNCHANGED)
    assert [example.was.offset for some in said.examples.values() for example in some] == [1] * bench.work.moved
    parked = [header for header in envelopes.decode(envelope).headers if header[0] == names.PARKED_REASON]
    assert bool(parked) == (move is Move.PARKED)
    # Asked once more it stays where it is, and what is parked is not fetched back.
    bench.ask(policies, NOW_MS + 2_000)
    bench.finish(policies)
    assert list(bench.live()) == [key]


@pytest.mark.parametrize(
    ("only", "moved"),
    [({"team": "orders"}, {1}), ({"topic": "others.DLT"}, {2}), ({"team": "others", "topic": "orders.DLT"}, set()), ({}, {1, 2})],
)
def test_what_is_not_asked_for_is_left_alone(bench: Bench, only: dict[str, str], moved: set[int]) -> None:
    bench.take()
    bench.take("others.DLT")
    bench.ask(QUICK, **only)
    bench.finish(QUICK)
    assert {offset for offset, due_ms in bench.due().items() if due_ms == 2_000} == moved


def acted_on(bench: Bench, mark: bytes = b"0a" * 8, attempt: bytes = b"1", policies: str = OLD, **more: Any) -> bytes:
    """A letter that an operator has moved; the key of its entry."""
    key = bench.take(policies=policies, **more)
    entry = envelopes.decode(bench.live()[key])
    headers = names.set_in(entry.headers, (names.ACTION, mark))
    headers = [(name, attempt if name == names.ATTEMPT else value) for name, value in headers]
    new = entry_keys.make_key_due_at(key, NOW_MS + 9 * HOUR_MS)
    bench.write((new, envelopes.encode(msgspec.structs.replace(entry, headers=headers))), (key, None))
    return new


def test_what_was_acted_on_is_left_alone_unless_that_is_asked_for_and_says_so_still(bench: Bench) -> None:
    acted_on(bench)
    bench.ask(QUICK)
    bench.finish(QUICK)
    assert bench.due() == {1: 9 * HOUR_MS}
    bench.ask(QUICK, NOW_MS + 1, acted=True)
    bench.finish(QUICK)
    assert bench.due() == {1: 2_000}
    (envelope,) = bench.live().values()
    headers = dict(envelopes.decode(envelope).headers)
    assert (headers[names.ACTION], headers[names.DUE_MS]) == (b"0a" * 8, b"%d" % (NOW_MS + 2_000))
    bench.ask(QUICK, NOW_MS + 2, acted=True)
    before = bench.finish(QUICK), bench.live()
    assert bench.live() == before[1], "it is where it should be"


def test_what_is_to_be_discarded_or_counted_by_a_ramp_or_was_returned_is_left_alone_whatever_is_asked_for(bench: Bench) -> None:
    discarded = acted_on(bench)
    entry = envelopes.decode(bench.live()[discarded])
    before = names.set_in(entry.headers, (names.ACTION_BEFORE, b"1 0 orders.retry"))
    bench.write((discarded, envelopes.encode(msgspec.structs.replace(entry, headers=before))))
    bench.table.waiting = 1
    acted_on(bench, mark=b"0a" * 8 + b"/3")
    acted_on(bench, attempt=b"4")
    live = {key: value for key, value in bench.live().items() if key[:1] != b"\x10"}
    bench.ask(QUICK, acted=True)
    bench.finish(QUICK)
    assert bench.live() == live


def test_an_edited_letter_that_would_not_fit_any_more_is_not_parked_by_reference(bench: Bench) -> None:
    key = acted_on(bench)
    entry_builder = EntryBuilder("changelog", "parked", {"orders.retry": 50, "changelog": 400})
    small = Redecider(registry_of(QUICK), entry_builder, LINEAGES)
    bench.ask(QUICK, acted=True)
    while not bench.work.move_batch(move_context(bench.writer, small, NOW_MS, rows_max=10)).has_ended:
        pass
    bench.fold()
    assert list(bench.live()) == [key]


def test_what_failed_after_the_request_is_left_alone(bench: Bench) -> None:
    bench.take(stamp_ms=NOW_MS + 1)
    bench.ask(QUICK, NOW_MS)
    bench.finish(QUICK)
    assert bench.due() == {1: HOUR_MS + 1}


def test_what_is_not_of_intake_is_left_alone(bench: Bench) -> None:
    key = entry_keys.build_key(NOW_MS, entry_keys.build_key_stem("orders.DLT", 0), 9)
    bench.write((key, envelopes.encode(Entry("orders.retry", None, None, [], None, "orders"))))
    bench.ask(QUICK)
    bench.finish(QUICK)
    assert list(bench.live()) == [key]


def test_an_entry_of_a_version_that_did_not_say_when_it_failed_counts_from_its_timestamp(bench: Bench) -> None:
    key = bench.take()
    entry = envelopes.decode(bench.live()[key])
    older = Entry(entry.destination, entry.key, entry.value, entry.headers, entry.timestamp_ms, entry.team)
    bench.write((key, envelopes.encode(older)))
    bench.table.waiting = 1
    bench.ask(QUICK)
    bench.finish(QUICK)
    assert bench.due() == {1: 2_000}


def test_the_request_is_deleted_with_the_last_batch_and_batches_are_bounded(bench: Bench) -> None:
    for n in range(20):
        bench.take(key=b"%d" % n, topic="keyed.DLT" if n % 2 else "orders.DLT")
    bench.take("keyed.DLT", key=b"1")
    key = bench.ask(QUICK)
    assert not bench.step(QUICK, rows_max=3)
    assert bench.work.seen <= 3
    assert key in bench.table.controls
    assert bench.work.describe_waiting(redecider(QUICK).digest) == "1 entries looked at, 1 moved"
    bench.fold()
    assert bench.finish(QUICK, rows_max=3) >= 7
    assert bench.table.controls == {}
    assert set(bench.due().values()) == {2_000}
    assert bench.work.describe_waiting(redecider(QUICK).digest) == ""
    assert not bench.step(QUICK)


def test_an_entry_is_put_under_its_new_key_before_the_old_one_is_deleted(bench: Bench) -> None:
    olds = [bench.take(topic) for topic in ("orders.DLT", "keyed.DLT", "keyed.DLT")]
    bench.ask(QUICK)
    before = len(bench.log.read("changelog"))
    bench.finish(QUICK)
    told = [(record.key() or b"", record.value() is None) for record in bench.log.read("changelog")[before:]]
    entry_records = [(entry_keys.read_source(key).offset, gone) for key, gone in told if key[:1] != b"\x10"]
    assert sorted(entry_records[::2]) == [(n, False) for n in range(1, len(olds) + 1)]
    assert entry_records[1::2] == [(offset, True) for offset, _ in entry_records[::2]]


def test_a_batch_is_bounded_by_bytes(bench: Bench) -> None:
    for _ in range(3):
        bench.take()
    bench.ask(QUICK)
    bench.step(QUICK)
    bench.step(QUICK, bytes_max=1)
    bench.fold()
    assert sorted(bench.due().values()) == [2_000, HOUR_MS, HOUR_MS]


def test_the_end_of_a_request_is_known_before_the_fold_tells_of_it(bench: Bench) -> None:
    bench.take()
    bench.ask(QUICK)
    while not bench.step(QUICK):
        pass
    records = len(bench.log.read("changelog"))
    assert not bench.step(QUICK)
    assert len(bench.log.read("changelog")) == records


def test_without_the_policy_file_that_is_asked_for_nothing_is_done_and_health_says_so(bench: Bench) -> None:
    bench.take()
    key = bench.ask("asked for")
    assert not bench.step(QUICK)
    assert (bench.due(), list(bench.table.controls)) == ({1: HOUR_MS}, [key])
    told = bench.work.describe_waiting(redecider("{}").digest)
    assert told == "waits for the policy file with sha256 asked for; this worker's has {}"


def test_a_request_for_a_file_that_is_no_more_is_superseded(bench: Bench) -> None:
    bench.take()
    bench.ask("gone", NOW_MS)
    bench.ask(QUICK, NOW_MS + 1)
    later = bench.ask("to come", NOW_MS + 2)
    bench.finish(QUICK)
    assert (bench.due(), list(bench.table.controls)) == ({1: 2_000}, [later])


def test_after_another_file_was_in_use_meanwhile_it_begins_anew(bench: Bench) -> None:
    for n in range(6):
        bench.take(key=b"%d" % n)
    bench.ask(QUICK)
    for _ in range(3):
        bench.step(QUICK, rows_max=2)
        bench.fold()
    bench.step(OLD)
    bench.take(stamp_ms=NOW_MS - 2 * HOUR_MS)
    bench.finish(QUICK, rows_max=2)
    assert bench.due() == dict.fromkeys(range(1, 7), 2_000) | {7: 2_000 - 2 * HOUR_MS}


def test_requests_for_the_same_file_are_done_one_after_another(bench: Bench) -> None:
    bench.take()
    bench.take("others.DLT")
    bench.ask(QUICK, NOW_MS, team="orders")
    bench.ask(QUICK, NOW_MS + 1, team="others")
    bench.finish(QUICK)
    assert bench.due() == {1: 2_000, 2: HOUR_MS}
    bench.finish(QUICK)
    assert (bench.due(), bench.table.controls) == ({1: 2_000, 2: 2_000}, {})


def test_a_pause_that_stands_is_not_touched(bench: Bench) -> None:
    bench.write((control_records.pause_key("all", ""), control_records.encode(Pause(NOW_MS))))
    bench.take()
    bench.ask(QUICK)
    bench.finish(QUICK)
    assert control_records.read_pauses(bench.table.controls, NOW_MS) == {("all", ""): Pause(NOW_MS)}
    assert bench.sweep(NOW_MS + HOUR_MS) == []
    bench.write((control_records.pause_key("all", ""), None))
    assert bench.sweep(NOW_MS + HOUR_MS) == [b"1"]


def abort_next(bench: Bench) -> None:
    bench.log.faults.append(Fault.ABORTED)


def lose_next_answer(bench: Bench) -> None:
    bench.log.faults.append(Fault.DOUBT_COMMITTED)


def _left_open(bench: Bench) -> None:
    bench.log.faults.append(Fault.DOUBT_OPEN)


def _not_dropped(bench: Bench) -> None:
    def fails(keys: Iterable[bytes], again: Iterable[tuple[bytes, bytes]] = ()) -> None:
        raise TableUnreadable("gone")

    bench.table.delete_rows = fails  # type: ignore[method-assign]


@pytest.mark.parametrize("crash", [abort_next, lose_next_answer, _left_open, _not_dropped])
@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_after_a_crash_the_next_owner_begins_anew_and_each_goes_out_once(bench: Bench, crash: Any, after: int) -> None:
    for n in range(9):
        bench.take(("orders.DLT", "keyed.DLT", "others.DLT")[n % 3], key=b"key")
    bench.ask(QUICK)
    for _ in range(after):
        bench.step(QUICK, rows_max=1)
        bench.fold()
    crash(bench)
    with pytest.raises((TransactionAborted, CommitInDoubt, TableUnreadable)):
        for _ in range(10):
            bench.step(QUICK, rows_max=2)
    bench.open()
    bench.finish(QUICK, rows_max=2)
    assert bench.due() == dict.fromkeys(range(1, 10), 2_000)
    sent = bench.sweep(NOW_MS + 2_000)
    assert sorted(value or b"" for value in sent) == [b"%d" % n for n in range(1, 10)]
    assert [value for value in sent if value in (b"2", b"5", b"8")] == [b"2", b"5", b"8"]
    assert bench.live() == {}


def test_an_aborted_batch_is_done_again_without_opening_anew(bench: Bench) -> None:
    for _ in range(3):
        bench.take()
    bench.ask(QUICK)
    bench.step(QUICK)
    bench.log.faults.append(Fault.ABORTED)
    with pytest.raises(TransactionAborted):
        bench.step(QUICK, rows_max=2)
    assert set(bench.due().values()) == {HOUR_MS}
    bench.finish(QUICK, rows_max=2)
    assert set(bench.due().values()) == {2_000}


def test_sweeps_in_between_send_each_once_and_in_order(bench: Bench) -> None:
    for n in range(12):
        bench.take("keyed.DLT" if n % 2 else "orders.DLT", key=b"key-%d" % (n % 4))
    bench.ask(QUICK, NOW_MS + 5_000)
    sent: list[bytes | None] = []
    ended = False
    while not ended:
        ended = bench.step(QUICK, rows_max=2)
        bench.fold()
        sent += bench.sweep(NOW_MS + 5_000)
    assert sorted(int(value or b"") for value in sent) == list(range(1, 13))
    for queue in ([2, 6, 10], [4, 8, 12]):
        assert [int(value or b"") for value in sent if int(value or b"") in queue] == queue
    assert bench.live() == {}


@pytest.mark.parametrize("steps", [1, 3, 5, 6])
def test_a_shard_that_is_restored_from_a_compacted_changelog_keeps_the_order(bench: Bench, steps: int) -> None:
    for _ in range(4):
        bench.take("keyed.DLT")
    bench.ask(QUICK)
    for _ in range(steps):
        bench.step(QUICK, rows_max=1)
        bench.fold()
    records = [(record.key() or b"", record.value()) for record in bench.log.read("changelog")]
    last = {key: n for n, (key, _) in enumerate(records)}
    left = [(key, value) for n, (key, value) in enumerate(records) if last[key] == n and value is not None]
    bench.table = MemoryTable()
    bench.table.apply_records(left, bench.log.read("changelog")[-1].offset() + 1, NOW_MS)
    assert bench.sweep(NOW_MS + HOUR_MS) == [b"1", b"2", b"3", b"4"]


def test_a_retry_that_was_moved_forward_is_known_though_it_comes_back_without_headers_before_its_former_time(
    bench: Bench,
) -> None:
    bench.take()
    bench.ask(QUICK)
    assert [bench.made(b"1", after_ms) for after_ms in (5_000, HOUR_MS)] == [0, 1]
    bench.finish(QUICK)
    assert [bench.made(b"1", after_ms) for after_ms in (1_000, 5_000, HOUR_MS)] == [0, 1, 1]


def test_a_move_is_told_in_the_partition_that_has_all_that_is_recorded_of_its_team(bench: Bench) -> None:
    lineages = attempts.LineageTopic("lineages", 7)
    bench.log.create("lineages", 7)
    bench.take()
    bench.take("others.DLT")
    bench.ask(QUICK)
    several = Redecider(registry_of(QUICK), redecider(QUICK).entry_builder, lineages)
    while not bench.work.move_batch(move_context(bench.writer, several, NOW_MS, rows_max=10)).has_ended:
        pass
    told = {record.partition(): attempts.unpack(record.value() or b"").team for record in bench.log.read("lineages")}
    assert told == {lineages.find_partition(team): attempts.hash_team(team) for team in ("orders", "others")}


def test_an_equal_letter_is_new_until_the_later_time_that_a_retry_was_moved_to(bench: Bench) -> None:
    bench.take(policies=QUICK)
    bench.ask(OLD)
    assert bench.made(b"1", 5_000) == 1
    bench.finish(OLD)
    assert [bench.made(b"1", after_ms) for after_ms in (5_000, HOUR_MS)] == [0, 1]


def test_a_letter_whose_retry_was_parked_by_rescheduling_is_new_when_an_equal_one_comes(bench: Bench) -> None:
    bench.take(headers=[("exception-class", b"a.Slow")])
    bench.ask(PARKED)
    assert bench.made(b"1", 3 * HOUR_MS) == 1
    bench.finish(PARKED)
    assert bench.made(b"1", 3 * HOUR_MS) == 0


def test_letters_with_the_same_coordinates_that_are_parked_together_never_get_one_key(bench: Bench) -> None:
    # Their topic was deleted and made anew while the first of them waited.
    for n in range(2):
        bench.offsets = 0
        bench.take(headers=[("exception-class", b"a.Slow")], stamp_ms=NOW_MS - n)
    bench.ask(PARKED)
    bench.finish(PARKED)
    assert [entry_keys.due_at_ms(key) - NOW_MS for key in sorted(bench.live())] == [0, 1]


ORDERED = QUICK.replace("retry_to: orders.retry\n", "retry_to: orders.retry\n        ordered: true\n")


def test_a_letter_that_gets_an_order_moves_to_the_shard_of_its_key_and_stays_there(bench: Bench) -> None:
    bench.log.create("shards", 4)
    shard = entry_keys.find_shard(b"key", 4)
    here = ChangelogPartition("shards", (shard + 1) % 4)
    bench.take()
    moving = Redecider(registry_of(ORDERED), redecider(ORDERED).entry_builder, LINEAGES, 4)
    bench.ask(ORDERED)
    work = Rescheduling(here, bench.table)
    while not work.move_batch(move_context(bench.writer, moving, NOW_MS, rows_max=10)).has_ended:
        pass
    rows = {record.partition(): (record.key(), record.value()) for record in bench.log.read("shards") if record.value()}
    ((at, (key, envelope)),) = rows.items()
    assert key is not None
    assert envelope is not None
    assert (at, key[0], bench.table.scan_entries(b"", 10)) == (shard, entry_keys.ORDERED, [])
    assert entry_keys.due_at_ms(key) == NOW_MS + 2_000
    request = Reschedule(NOW_MS, policies=ORDERED)
    again = moving.redecide_entry(key, envelope, request, waits_in=shard)
    assert again is not None
    assert (again.shard, entry_keys.due_at_ms(again.packed.key)) == (shard, NOW_MS + 2_000)


def test_a_letter_stays_where_it_is_while_its_policy_asks_for_no_order(bench: Bench) -> None:
    bench.take()
    bench.ask(QUICK)
    bench.finish(QUICK)
    assert len(bench.live()) == 1
@pytest.mark.parametrize("policies", [QUICK, PARKED])
def test_a_letter_stays_one_of_its_topic_of_before_wherever_it_is_moved(bench: Bench, policies: str) -> None:
    key = bench.take(headers=[("exception-class", b"a.Slow")], incarnation=3)
    moved = redecider(policies).redecide_entry(key, bench.live()[key], Reschedule(NOW_MS, policies=policies))
    assert moved is not None
    assert (entry_keys.extract_identity(moved.packed.key), entry_keys.read_incarnation(key)) == (
        entry_keys.extract_identity(key),
        3,
    )


def test_an_entry_that_would_not_fit_any_more_is_parked_by_reference(bench: Bench) -> None:
    bench.take()
    entry_builder = EntryBuilder("changelog", "parked", {"orders.retry": 50, "changelog": 300})
    small = Redecider(registry_of(QUICK), entry_builder, LINEAGES)
    bench.ask(QUICK)
    while not bench.work.move_batch(move_context(bench.writer, small, NOW_MS, rows_max=10)).has_ended:
        pass
    bench.fold()
    [envelope] = bench.live().values()
    parked = envelopes.decode(envelope)
    assert (parked.destination, parked.value) == ("orders.parked", None)
    assert (names.PARKED_REASON, b"too_large") in parked.headers
