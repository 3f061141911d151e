"""What of a recurrence stands in an envelope, and in the headers of a run."""

from __future__ import annotations

import msgspec
import pytest

from retry.delay_queue import envelopes
from retry.delay_queue.envelopes import Named, Recurrence, find_next_run, make_run_headers
from retry.errors import EntryUnreadable


def test_a_plan_comes_back_from_its_envelope() -> None:
    plan = Recurrence(3, 1_000, 5_000, "", "UTC", 9_000_000, 700, 2**64 - 1, 2_000, "all", 9)
    entry = Named("bills", b"k", b"v", [], None, "tasks", plan=plan)
    assert envelopes.decode_named(envelopes.encode(entry)).plan == plan


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    plan = Recurrence(3, 1_000, 5_000)
    longer = [*msgspec.msgpack.decode(msgspec.msgpack.encode(plan)), "new"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(longer), type=Recurrence) == plan


def test_headers_say_which_run_it_is_and_no_longer_which_it_was() -> None:
    first = make_run_headers([("theirs", None), ("theirs", b"2")], 5_000, 1)
    assert make_run_headers(first, 6_000, 2) == [("theirs", None), ("theirs", b"2"), ("task-run", b"2"), ("task-due-ms", b"6000")]


def test_a_zone_that_this_machine_lacks_halts_and_does_not_end() -> None:
    with pytest.raises(EntryUnreadable, match=r"Atlantis.*install time zones"):
        find_next_run(Recurrence(0, 0, cron="@daily", zone="Europe/Atlantis"), 0, 0)
