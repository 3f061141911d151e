"""A letter that rests becomes an entry again: as it was, under the policies of now, once, and beyond its last attempt."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.action_records import Patch
from retry.delay_queue.envelope_codec import PLAIN
from retry.delivery import returned_letter
from retry.delivery.letter_changes import ActedLetter, Refusal
from retry.delivery.returned_letter import record_digest
from retry.record import Record
from tests.support.acted import ACTION, DISCARDED, HOUR_MS, NOW_MS, POLICIES, state
from tests.support.rested import dead, park_letter, returns, select_own_headers, with_headers

LATER_MS = NOW_MS + HOUR_MS


def return_record(record: Record, kind: str = "retry", whole: Record | None = None, **more: Any) -> ActedLetter | Refusal:
    """Return a record at NOW_MS, to be due an hour later."""
    options = {name: more.pop(name) for name in ("bytes_max", "policies") if name in more}
    return returns(**options).return_letter(state(kind, **more), record, whole or record, LATER_MS, NOW_MS)


def done(record: Record, kind: str = "retry", **more: Any) -> ActedLetter:
    found = return_record(record, kind, **more)
    assert isinstance(found, ActedLetter), found
    return found


def test_it_is_the_letter_that_was_parked_with_its_coordinates_its_lineage_and_its_count() -> None:
    record = park_letter()
    back = done(record)
    entry, told = envelopes.decode(back.envelope), select_own_headers(record.headers())
    assert (entry.key, entry.value, entry.destination, entry.team) == (b"k", b'{"a":1}', "orders.retry", "orders")
    assert [header for header in entry.headers if header[0] not in names.OURS] == [("trace", b"1")]
    headers = select_own_headers(entry.headers)
    assert (headers[names.ID], headers[names.SOURCE]) == (told[names.ID], b"orders.DLT/0/7")
    assert headers[names.FIRST_FAILED_MS] == told[names.FIRST_FAILED_MS]
    assert headers[names.ACTION] == ACTION.hex().encode()
    assert names.PARKED_REASON not in headers
    assert back.entry.destination == "orders.retry"
    due_ms, *where = entry_keys.read_source(back.key)
    assert (due_ms, where) == (LATER_MS, ["orders.DLT", 0, 7])


@pytest.mark.parametrize(("made", "attempt"), [(3, 4), (7, 8)])
def test_it_is_sent_once_so_its_attempt_lies_beyond_the_last(made: int, attempt: int) -> None:
    entry = envelopes.decode(done(park_letter(made=made)).envelope)
    assert select_own_headers(entry.headers)[names.ATTEMPT] == b"%d" % attempt
    # What comes back with that attempt is parked, whatever rule may match it.
    assert select_own_headers(park_letter(made=attempt).headers())[names.PARKED_REASON] == b"max_attempts"


def test_one_that_was_parked_early_is_sent_once_too() -> None:
    early = with_headers(park_letter(), attempt=b"1", parked_reason=b"by_operator")
    assert select_own_headers(envelopes.decode(done(early).envelope).headers)[names.ATTEMPT] == b"4"


@pytest.mark.parametrize("key", [b"k", b"other", None])
def test_it_waits_in_the_shard_in_which_its_key_always_waits(key: bytes | None) -> None:
    back = done(park_letter(dead(key=key)))
    assert back.shard == zlib.crc32(b"orders.DLT/0/7" if key is None else key) % 4


def test_where_order_is_kept_it_waits_in_the_lane_of_its_key() -> None:
    back = done(park_letter(dead("keyed.DLT")))
    assert (back.key[0], back.entry.destination) == (entry_keys.ORDERED, "keyed.retry")


def test_it_goes_where_the_policies_of_now_say() -> None:
    moved = POLICIES.replace("retry_to: orders.retry", "retry_to: orders.new").replace("[orders.retry", "[orders.new")
    assert done(park_letter(), policies=moved).entry.destination == "orders.new"
    assert return_record(park_letter(), policies=POLICIES.replace("orders.DLT", "others.DLT")) == Refusal("no_target")


def test_a_redirect_goes_where_its_policy_lets_it() -> None:
    assert done(park_letter(), "redirect", target="orders.slow").entry.destination == "orders.slow"
    assert return_record(park_letter(), "redirect", target="elsewhere") == Refusal("not_allowed")
    # Its policy names it, and letters are parked there.
    assert return_record(park_letter(), "redirect", target="orders.parked") == Refusal("not_allowed")


def test_when_it_failed_is_not_when_it_would_have_been_sent() -> None:
    discarded = with_headers(park_letter(), due_ms=b"%d" % (NOW_MS + 9 * HOUR_MS))
    assert envelopes.decode(done(discarded).envelope).failed_at_ms == NOW_MS


def test_no_header_of_a_letter_chooses_a_topic_that_its_policy_does_not_allow() -> None:
    policies = POLICIES.replace("retry_to: orders.retry", "retry_to: origin")

    def from_topic(origin: bytes) -> Record:
        return park_letter(dead(headers=[("kafka_dlt-original-topic", origin)]))

    assert done(from_topic(b"orders.slow"), policies=policies).entry.destination == "orders.slow"
    for origin in (b"elsewhere", b"keyed.retry", b"orders.parked", b""):
        assert return_record(from_topic(origin), policies=policies) == Refusal("no_target")


def test_one_that_is_discarded_goes_there_at_the_time_of_its_member() -> None:
    # Not at that of the transaction: letters with the same coordinates have different ones.
    back = done(park_letter(), "discard")
    assert (back.entry.destination, entry_keys.due_at_ms(back.key)) == (DISCARDED, NOW_MS + HOUR_MS)
    # It waits behind nobody, as no other letter is to wait for it.
    assert done(park_letter(dead("keyed.DLT")), "discard").key[0] != entry_keys.ORDERED


def test_it_is_patched_on_its_way() -> None:
    back = done(park_letter(), "patch", patch=Patch({"trace": None, "who": "anna"}, '{"a":2}'))
    entry = envelopes.decode(back.envelope)
    assert (entry.value, dict(entry.headers)["who"]) == (b'{"a":2}', b"anna")
    assert "trace" not in dict(entry.headers)
    assert return_record(park_letter(dead(value=b"no json")), "patch", patch=Patch(value='{"a":2}')) == Refusal("not_json")


def edit_of(record: Record, **new: Any) -> bytes:
    """The envelope of an edit."""
    entry = msgspec.structs.replace(done(record).entry, **new)
    return envelopes.encode(entry)


def test_it_is_edited_on_its_way_and_kept_as_it_rested() -> None:
    record = park_letter()
    edited = edit_of(record, value=b'{"a":2}', headers=[("who", b"anna"), (names.ATTEMPT, b"0")])
    back = returns().return_letter(state("edit"), record, record, LATER_MS, NOW_MS, edited)
    assert isinstance(back, ActedLetter)
    assert (back.entry.key, back.entry.value, back.entry.destination) == (b"k", b'{"a":2}', "orders.retry")
    assert [header for header in back.entry.headers if header[0] not in names.OURS] == [("who", b"anna")]
    assert dict(back.entry.headers)[names.ATTEMPT] == b"4"
    known, value = back.sent, done(park_letter(dead(value=b'{"a":2}'))).sent
    assert known is not None and value is not None and known[1] == value[1], "it is known by its new value"
    kept = back.kept
    assert kept is not None
    assert (kept.destination, kept.key, kept.value, kept.timestamp_ms) == (DISCARDED, b"k", b'{"a":1}', NOW_MS)
    marks = {names.ACTION: ACTION.hex().encode(), names.ACTION_BEFORE: b"superseded"}
    assert dict(kept.headers) == {**dict(record.headers()), **marks}
    former = Record((DISCARDED, 0, 1), kept.key, kept.value, kept.headers, (1, NOW_MS))
    assert returns().find_refusal(former) == Refusal("superseded")
    assert done(record).kept is None


def test_an_edit_names_the_record_that_it_was_made_from() -> None:
    digest = record_digest(park_letter(), PLAIN)
    assert returns().find_edit_refusal(park_letter(), digest) is None
    assert returns().find_edit_refusal(with_headers(park_letter(), due_ms=b"7"), digest) == Refusal("changed")
    assert returns().find_edit_refusal(park_letter(dead(value=b"2")), digest) == Refusal("changed")
    assert returns().find_edit_refusal(park_letter(), b"") == Refusal("changed")
    reference = park_letter(dead(value=b"v" * 5_000), made=0, bytes_max=1_000)
    assert returns().find_edit_refusal(reference, record_digest(reference, PLAIN)) == Refusal("reference")


@pytest.mark.parametrize(("topic", "edited", "reason"), [
    ("orders.DLT", b"\x91", "unreadable"),
    ("orders.DLT", edit_of(park_letter()), "unchanged"),
    ("keyed.DLT", edit_of(park_letter(dead("keyed.DLT")), key=b"other"), "keeps_order"),
    ("orders.DLT", edit_of(park_letter(), value=b"v" * 3_000), "too_large"),
])  # fmt: skip
def test_an_edit_that_cannot_be_is_refused(topic: str, edited: bytes, reason: str) -> None:
    record = park_letter(dead(topic))
    assert returns(2_000).return_letter(state("edit"), record, record, LATER_MS, NOW_MS, edited) == Refusal(reason)


def test_what_makes_no_sense_of_a_parked_letter_is_refused() -> None:
    assert return_record(park_letter(), "park") == Refusal("parked")


def test_a_reference_is_returned_whole() -> None:
    whole = dead(value=b"v" * 5_000)
    record = park_letter(whole, made=0, bytes_max=1_000)
    assert (record.value(), returned_letter.is_reference(record)) == (None, True)
    assert envelopes.decode(done(record, whole=whole).envelope).value == b"v" * 5_000
    assert return_record(record, whole=whole, bytes_max=1_000) == Refusal("too_large")


def test_a_letter_that_had_no_value_is_no_reference() -> None:
    record = park_letter(dead(value=None))
    assert not returned_letter.is_reference(record)
    assert envelopes.decode(done(record).envelope).value is None


def test_a_null_that_cancels_others_is_not_sent() -> None:
    cancels = POLICIES.replace("dead_letters: orders.DLT,", "dead_letters: orders.DLT, null_value: cancel,")
    assert return_record(park_letter(dead(value=None)), policies=cancels) == Refusal("null_value")


@pytest.mark.parametrize(("headers", "reason"), [
    ({"source": None}, "not_ours"),
    ({"source": b"orders.DLT/0"}, "not_ours"),
    ({"source": b"/0/7"}, "not_ours"),
    ({"source": b"orders.DLT/0/-7"}, "not_ours"),
    ({"source": "orders.DLT/0/\N{SUPERSCRIPT TWO}".encode()}, "not_ours"),
    ({"source": b"orders.DLT/0/" + b"9" * 5_000}, "not_ours"),
    ({"source": b"orders.DLT/2147483648/0"}, "not_ours"),
    ({"source": b"orders.DLT/0/9223372036854775808"}, "not_ours"),
    ({"id": None}, "not_ours"),
    ({"action_before": b"superseded"}, "superseded"),
])  # fmt: skip
def test_what_does_not_say_which_letter_it_was_is_refused(headers: dict[str, bytes | None], reason: str) -> None:
    assert returns().find_refusal(with_headers(park_letter(), **headers)) == Refusal(reason)


def test_a_record_in_the_parking_topic_of_one_team_is_no_letter_of_another() -> None:
    other = "  loans: {topics: [{dead_letters: loans.DLT, retry_to: loans.retry}]}\n"
    forged = with_headers(park_letter(), source=b"loans.DLT/0/7")
    assert returns(policies=POLICIES + other).find_refusal(forged) == Refusal("not_ours")
    erased = returns(policies=POLICIES + other).erase_letter(state("erase"), forged, forged, NOW_MS)
    assert erased is None
    # Where only the service writes, it is believed.
    own = Record(("parked", 0, 4), forged.key(), forged.value(), forged.headers(), forged.timestamp())
    assert returns(policies=POLICIES + other).find_refusal(own) is None


@pytest.mark.parametrize("name", [names.TASK_SOURCE, names.WEBHOOK_URL, names.SCHEDULE_SOURCE])
def test_tasks_schedules_and_timers_are_refused(name: str) -> None:
    record = Record(("orders.parked", 0, 4), b"k", b"v", [*park_letter().headers(), (name, b"x")], (1, NOW_MS))
    assert returns().find_refusal(record) == Refusal("not_a_letter")


def test_nothing_speaks_against_a_letter_that_the_service_parked() -> None:
    assert returns().find_refusal(park_letter()) is None


def test_a_letter_that_fits_only_without_its_coordinates_is_refused() -> None:
    record = park_letter(dead(value=b"v" * 600))
    size = len(done(record).envelope)
    assert return_record(record, bytes_max=size - 1) == Refusal("too_large")


def test_a_parked_record_has_its_coordinates_also_where_there_is_little_room() -> None:
    full = park_letter(dead(value=b"v" * 600))
    # Room for the record, and for nothing of ours that it can do without.
    tight = park_letter(dead(value=b"v" * 600), bytes_max=760)
    assert len(tight.headers()) < len(full.headers())
    assert select_own_headers(tight.headers())[names.SOURCE] == b"orders.DLT/0/7"


WHOLE = dead(value=b"v" * 5_000)


@pytest.mark.parametrize("made", [0, 3])
def test_a_reference_is_one_whatever_it_was_parked_for(made: int) -> None:
    record = park_letter(WHOLE, made=made, bytes_max=1_000)
    assert select_own_headers(record.headers())[names.PARKED_REASON] == (b"max_attempts" if made else b"too_large")
    assert (record.value(), returned_letter.is_reference(record)) == (None, True)
    assert envelopes.decode(done(record, whole=WHOLE).envelope).value == WHOLE.value()


def test_what_has_a_header_of_its_own_is_whole_without_a_value() -> None:
    assert not returned_letter.is_reference(park_letter(dead(value=None)))
    assert returned_letter.is_reference(park_letter(dead(value=None, headers=[])))


@pytest.mark.parametrize("other", [
    dead(key=b"another", value=b"v"),
    dead(key=None, value=b"v"),
    Record(("orders.DLT", 0, 7), b"k", b"v", [], (1, NOW_MS + HOUR_MS + 1)),
])  # fmt: skip
def test_a_reference_is_not_taken_for_a_letter_of_a_topic_that_was_made_anew(other: Record) -> None:
    record = park_letter(WHOLE, bytes_max=1_000)
    assert return_record(record, whole=other) == Refusal("source_gone")


def test_a_reference_whose_key_was_left_out_or_whose_topic_has_no_times_is_returned() -> None:
    whole = dead(key=b"k" * 2_000, value=b"v" * 5_000)
    record = park_letter(whole, bytes_max=1_000)
    assert record.key() is None
    assert envelopes.decode(done(record, whole=whole).envelope).key == whole.key()
    timeless = Record(("orders.parked", 0, 4), b"k", None, record.headers(), (0, -1))
    assert envelopes.decode(done(timeless, whole=WHOLE).envelope).value == WHOLE.value()


class Unreadable(Record):
    """A record whose headers the client cannot tell."""

    def headers(self) -> Any:
        raise SystemError("too many")


def unreadable(record: Record) -> Record:
    location = record.topic(), record.partition(), record.offset()
    return Unreadable(location, record.key(), record.value(), record.headers(), record.timestamp())


@pytest.mark.parametrize("kind", ["retry", "redirect", "discard", "patch"])
def test_what_has_headers_that_cannot_be_read_is_refused_and_ends_nothing(kind: str) -> None:
    whole = unreadable(dead())
    record = park_letter(whole)
    assert returned_letter.is_reference(record)
    assert return_record(record, kind, whole=whole, target="orders.slow", patch=Patch({"a": "b"})) == Refusal(
        "unreadable_headers"
    )
    stranger = unreadable(park_letter())
    assert returns().find_refusal(stranger) == Refusal("not_ours")
    assert not returned_letter.is_reference(unreadable(dead(value=None)))


POINTER = dead(key=None, value=None, headers=[
    ("__streams.errors.topic", b"orders"), ("__streams.errors.partition", b"0"), ("__streams.errors.offset", b"5"),
])  # fmt: skip


@pytest.mark.parametrize("kind", ["retry", "redirect", "discard"])
def test_a_pointer_that_has_no_payload_is_never_sent_as_a_null(kind: str) -> None:
    assert return_record(park_letter(POINTER), kind, target="orders.slow") == Refusal("pointer")
    # Its payload was fetched, and was too large: its dead letter has none.
    reference = Record(("orders.parked", 0, 4), None, None, park_letter(WHOLE, bytes_max=1_000).headers(), (1, NOW_MS))
    assert return_record(reference, kind, whole=POINTER, target="orders.slow") == Refusal("pointer")


def test_it_parks_at_once_also_where_it_fails_in_another_way_that_is_tried_more_often() -> None:
    rule = "rules: [{exception: a.Timeout, max_attempts: 20}]"
    policies = POLICIES.replace("retry_to: orders.retry,", f"retry_to: orders.retry, {rule},")
    entry = envelopes.decode(done(park_letter(), policies=policies).envelope)
    assert select_own_headers(entry.headers)[names.ATTEMPT] == b"21"


@pytest.mark.parametrize("patch", [None, Patch(), Patch({names.ID: "x"})])
def test_a_patch_that_is_none_changes_nothing(patch: Patch | None) -> None:
    assert return_record(park_letter(), "patch", patch=patch) == Refusal("no_patch")


def test_one_that_is_discarded_is_no_send() -> None:
    assert done(park_letter(), "discard").sent is None
    assert done(park_letter()).sent is not None
