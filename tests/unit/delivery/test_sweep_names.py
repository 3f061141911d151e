"""Entries with a name: what was superseded ends first, what goes beside a delivery goes with it, what recurs is put again."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Also, Call, Recurrence
from retry.delivery.sweep import NOTHING
from retry.delivery.transaction_batch import DEFER_MS, TransactionBatch
from retry.errors import CommitInDoubt, TransactionAborted
from retry.testing.kafka import Fault
from tests.support.bench import NOW_MS, Bench

SECOND_MS = 1_000


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.log.create("history", 2)
    made.log.create("schedules", 4)
    return made


def nulls(bench: Bench) -> list[bytes]:
    """Keys that were deleted, in the order of the changelog."""
    return [record.key() or b"" for record in bench.log.read("changelog") if record.value() is None]


def ages(bench: Bench) -> bool:
    """Whether table and changelog agree once the fold has told all, and nothing waits or is to be ended."""
    bench.fold()
    return bench.live() == {} and bench.table.waiting == 0 and bench.table.list_superseded(9) == []


def test_the_last_version_is_delivered_once_and_all_others_never(bench: Bench) -> None:
    first, second = bench.named(NOW_MS - 9, 1, b"1"), bench.named(NOW_MS - 5, 2, b"2")
    swept = bench.sweep()
    assert (bench.delivered(), swept.superseded, len(swept.sent)) == ([b"2"], 1, 1)
    assert nulls(bench) == [first, second]
    assert ages(bench)
    assert (bench.sweep(NOW_MS + 99), bench.delivered()) == (NOTHING, [b"2"])


def test_what_is_cancelled_is_never_delivered(bench: Bench) -> None:
    first, cancel = bench.named(NOW_MS - 9, 1), bench.cancel(2)
    swept = bench.sweep()
    assert (swept.sent, swept.superseded, bench.delivered()) == ([], 2, [])
    assert nulls(bench) == [first, cancel]
    assert ages(bench)


@pytest.mark.parametrize("when", ["find_due", "expired_cancels", "list_superseded"])
def test_what_is_cancelled_ends_whenever_the_fold_reads_a_cancel_that_is_remembered_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The fold goes on in another thread, between two reads of the table: with the null of the cancel alone it would be sent."""
    ask, sent = getattr(bench.table, when), bench.named(NOW_MS + 99, 1)

    def ask_and_fold(*args: Any, **options: Any) -> Any:
        answer = ask(*args, **options)
        monkeypatch.undo()
        cancels.append(bench.cancel(2))
        return answer

    cancels: list[bytes] = []
    monkeypatch.setattr(bench.table, when, ask_and_fold)
    bench.sweep()
    bench.sweep(NOW_MS + 999)
    assert (nulls(bench), bench.delivered()) == ([sent, *cancels], [])
    assert ages(bench)


def test_what_is_superseded_ends_though_nothing_is_due(bench: Bench) -> None:
    bench.named(NOW_MS + 9, 1)
    second = bench.named(NOW_MS + 99, 2)
    assert bench.sweep().superseded == 1
    assert list(bench.live()) == [second]
    assert bench.sweep() is NOTHING


def test_nothing_with_a_name_is_delivered_while_more_is_superseded_than_a_batch_ends(bench: Bench) -> None:
    for name in b"abc":
        for version in range(3):
            bench.named(NOW_MS - 9, version, b"%d" % version, name=b"%c" % name)
    bench.put(NOW_MS, b"plain")
    told = [bench.sweep(rows_max=4) for _ in range(2)]
    assert [(len(each.sent), each.superseded) for each in told] == [(1, 4), (3, 2)]
    assert sorted(x or b"" for x in bench.delivered()) == [b"2", b"2", b"2", b"plain"]
    assert ages(bench)


def test_what_replaces_it_while_it_is_delivered_waits_on(bench: Bench) -> None:
    """The table does not know of it yet; the null of what was delivered does not touch it."""
    bench.named(NOW_MS, 1, b"1")
    second = bench.named(NOW_MS + 9, 2, b"2", fold=False)
    bench.sweep()
    bench.fold()
    assert (bench.delivered(), list(bench.live())) == ([b"1"], [second])
    bench.sweep(NOW_MS + 9)
    assert bench.delivered() == [b"1", b"2"]
    assert ages(bench)


def test_what_is_superseded_while_a_batch_is_gathered_ends_with_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold has a thread of its own: what it tells last before rows are handed out has superseded something, too."""
    first = bench.named(NOW_MS - 9, 1, b"1")
    second = bench.named(NOW_MS - 5, 2, b"2", fold=False)
    due = bench.table.find_due

    def folded_first(*asked: Any) -> list[tuple[bytes, bytes]]:
        bench.fold()
        return due(*asked)

    monkeypatch.setattr(bench.table, "find_due", folded_first)
    bench.sweep()
    assert (bench.delivered(), nulls(bench)) == ([b"2"], [first, second])
    assert ages(bench)


def test_what_is_replaced_while_it_is_handed_out_does_not_go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first, third = bench.named(NOW_MS - 9, 1, b"1"), bench.named(NOW_MS - 9, 1, b"3", name=b"other")
    bench.named(NOW_MS + 9, 2, b"2", fold=False)
    due = bench.table.find_due

    def folded_then(*asked: Any) -> list[tuple[bytes, bytes]]:
        found = due(*asked)
        bench.fold()
        return found

    monkeypatch.setattr(bench.table, "find_due", folded_then)
    bench.sweep()
    assert (bench.delivered(), nulls(bench)) == ([b"3"], [first, third])
    bench.sweep(NOW_MS + 9)
    assert bench.delivered() == [b"3", b"2"]
    assert ages(bench)


def test_what_goes_beside_a_delivery_is_in_its_transaction_and_at_its_partition(bench: Bench) -> None:
    tombstone = Also("schedules", 3, b"key", None, headers=[("why", b"fired")])
    copy = Also("history", None, b"key", None, True, [("asked", b"now")])
    bench.named(NOW_MS, 1, b"payload", headers=[("mine", b"1")], also=(tombstone, copy))
    bench.put(NOW_MS, b"plain")
    bench.sweep()
    (gone,), (copied,) = bench.log.read("schedules"), bench.log.read("history")
    assert (gone.partition(), gone.key(), gone.value(), gone.headers()) == (3, b"key", None, [("why", b"fired")])
    assert (copied.key(), copied.value(), copied.headers()) == (b"key", b"payload", [("mine", b"1"), ("asked", b"now")])
    assert sorted(x or b"" for x in bench.delivered()) == [b"payload", b"plain"]
    assert ages(bench)


@pytest.mark.parametrize("also", [Also("gone", None, b"k", None), Also("schedules", 9, b"k", None)])
def test_an_entry_of_which_something_beside_is_refused_waits_and_the_others_go(bench: Bench, also: Also) -> None:
    stays, another = (bench.named(NOW_MS, 1, name=name, also=(also,)) for name in (b"a", b"b"))
    bench.named(NOW_MS, 1, b"goes", name=b"c")
    swept = bench.sweep()
    assert (bench.delivered(), swept.deferred) == ([b"goes"], {"retry": 2})
    assert "no " in swept.errors[0]
    assert set(bench.live()) == {entry_keys.make_key_due_at(key, NOW_MS + DEFER_MS) for key in (stays, another)}
    assert bench.admission.closed == {}
    bench.fold()
    assert (bench.table.waiting, bench.table.list_superseded(9)) == (2, [])


def test_an_entry_with_something_too_large_beside_it_is_put_back_without_being_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Also("narrow", None, b"k", b"x" * 100)
    bench.named(NOW_MS, 1, name=b"a", also=(Also("retry", None, b"k", b"beside"), large))
    assert bench.sweep().deferred == {"retry": 1}
    monkeypatch.setattr(bench.writer, "abort", lambda: pytest.fail("nothing is to be undone"))
    for name in (b"b", b"c"):
        bench.named(NOW_MS, 1, b"goes", name=name, also=(large,) * (name == b"b"))
    assert (bench.sweep().deferred, bench.delivered()) == ({"retry": 1}, [b"goes"])


def test_a_destination_that_refuses_holds_names_where_they_are(bench: Bench) -> None:
    """Superseded ones end nevertheless."""
    bench.named(NOW_MS - 9, 1, to="missing")
    key = bench.named(NOW_MS - 9, 2, to="missing")
    assert bench.sweep().sent == []
    assert bench.admission.closed.keys() == {"missing"}
    assert bench.sweep().superseded == 1
    assert list(bench.live()) == [key]
    bench.log.create("missing")
    bench.admission.closed.clear()
    bench.sweep()
    assert bench.delivered("missing") == [b"v"]
    assert ages(bench)


def test_an_entry_that_is_too_large_is_put_back_and_can_be_replaced_there(bench: Bench) -> None:
    bench.named(NOW_MS, 1, b"x" * 60, to="narrow")
    assert bench.sweep().deferred == {"narrow": 1}
    bench.named(NOW_MS, 2, b"small", to="narrow")
    bench.sweep()
    assert bench.delivered("narrow") == [b"small"]
    assert ages(bench)


def test_each_run_is_made_once_and_the_next_is_put_with_it(bench: Bench) -> None:
    plan = Recurrence(0, NOW_MS, every_ms=SECOND_MS, end_ms=NOW_MS + 3 * SECOND_MS)
    key = bench.named(NOW_MS, 1, plan=plan)
    for run in range(4):
        now_ms = NOW_MS + run * SECOND_MS
        assert bench.sweep(now_ms - 1) is NOTHING
        assert len(bench.sweep(now_ms + 7).sent) == 1, "late by 7 ms, which the next run is not"
        live = bench.live()
        assert list(live) == ([entry_keys.make_key_due_at(key, now_ms + SECOND_MS)] if run < 3 else [])
        assert [(envelopes.decode_named(x).plan or plan).run for x in live.values()] == [run + 1] * len(live)
    assert len(bench.delivered()) == 4
    assert ages(bench)


def test_what_a_table_knows_ahead_is_what_was_committed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not what would come out if it were worked out again."""
    bench.named(NOW_MS, 1, b"x" * 100, to="narrow")
    replacements, later_ms = TransactionBatch.make_replacements, count()
    later = lambda of, now_ms, *rest: replacements(of, now_ms + next(later_ms), *rest)  # noqa: E731
    monkeypatch.setattr(TransactionBatch, "make_replacements", later)
    assert bench.sweep().deferred == {"narrow": 1}
    committed = [r.key() or b"" for r in bench.log.read("changelog") if r.value() is not None][-1]
    assert bench.table.get(committed) is not None


def test_runs_that_were_missed_and_are_not_made_up_for_are_not_published(bench: Bench) -> None:
    key = bench.named(NOW_MS, 1, plan=Recurrence(0, NOW_MS, every_ms=SECOND_MS, late_ms=500, misfire="skip"))
    swept = bench.sweep(NOW_MS + 9_600)
    assert (swept.sent, bench.delivered(), swept is NOTHING) == ([], [], False)
    assert list(bench.live()) == [entry_keys.make_key_due_at(key, NOW_MS + 10_000)]
    assert len(bench.sweep(NOW_MS + 10_000).sent) == 1


def test_a_missed_run_that_is_too_large_is_passed_over_all_the_same(bench: Bench) -> None:
    bench.put(NOW_MS, b"x" * 100, to="narrow")
    bench.sweep()
    plan = Recurrence(0, NOW_MS, every_ms=SECOND_MS, late_ms=500, misfire="skip")
    key = bench.named(NOW_MS, 1, b"x" * 100, to="narrow", plan=plan)
    assert bench.sweep(NOW_MS + 9_600).deferred == {}
    assert entry_keys.make_key_due_at(key, NOW_MS + 10_000) in bench.live()


def test_a_run_that_is_put_while_its_definition_is_replaced_never_comes(bench: Bench) -> None:
    """The replacement stands before it in the changelog, and is due, delivered and ended before the fold tells of the run."""
    bench.named(NOW_MS, 1, b"old", plan=Recurrence(0, NOW_MS, every_ms=SECOND_MS))
    bench.named(NOW_MS, 2, b"new", fold=False)
    folded = bench.table.next_offset
    bench.sweep()
    rows = [(r.key() or b"", r.value()) for r in bench.log.read("changelog") if r.partition() == 1]
    bench.table.apply_records(rows[folded : folded + 1], folded + 1, NOW_MS)
    bench.sweep()
    bench.fold()
    bench.sweep(NOW_MS + 99 * SECOND_MS)
    assert bench.delivered() == [b"old", b"new"]
    assert ages(bench)


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.LATE])
def test_after_a_failed_commit_the_last_version_is_delivered_once(bench: Bench, fault: Fault) -> None:
    bench.named(NOW_MS, 1, b"1")
    bench.named(NOW_MS, 2, b"2", also=(Also("history", None, b"k", None),))
    bench.log.faults = [fault]
    with pytest.raises((TransactionAborted, CommitInDoubt)):
        bench.sweep()
    bench.open()
    bench.fold()
    bench.sweep()
    assert (bench.delivered(), len(bench.log.read("history"))) == ([b"2"], 1)
    assert ages(bench)


def test_calls_are_left_where_they_are(bench: Bench) -> None:
    """No transaction delivers one; see `retry.delivery.due_batch.select_due_batch`."""
    key = bench.named(NOW_MS, 1, to="https://example.com:443", call=Call("https://example.com:443/hook"))
    assert bench.sweep() is NOTHING
    assert list(bench.live()) == [key]
    bench.cancel(2)
    assert bench.sweep().superseded == 2
    assert ages(bench)
