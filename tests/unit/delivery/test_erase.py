"""A person's letters are erased: of those that wait nothing is left but where they failed, those that rest are never returned."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from retry.dead_letters import retry_headers as names
from retry.dead_letters.retry_headers import labels_of_retry
from retry.delay_queue import action_records, entry_keys, envelopes, returned_offsets
from retry.delay_queue.action_records import ERASE, Member, Tally
from retry.delay_queue.entry_keys import NULLS, PLAIN
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.returned_offsets import ParkedPlace, topic_hash
from retry.delivery.acted_entry import ActedEntry, Refusal
from retry.delivery.returned_letter import LetterReturns, is_reference
from retry.record import CREATE_TIME, Headers, Record
from tests.support.acted import DISCARDED, NOW_MS, entry_actions, letter, member, packed, state
from tests.unit.delivery.test_act import AUDIT, OTHER, Bench, at_once

PERSON, SECRET = b"person-17", b'{"card":"4711"}'
ACTIONS = entry_actions()


def erased(key: bytes, entry: Entry) -> ActedEntry:
    made = ACTIONS.acted(state(ERASE), member(key), packed(entry), NOW_MS)
    assert isinstance(made, ActedEntry)
    return made


def parks(entry: Entry) -> Entry:
    """The same, about to be parked."""
    return msgspec.structs.replace(
        entry, destination="orders.parked", headers=[*entry.headers, (names.PARKED_REASON, b"max_attempts")]
    )


def discards(entry: Entry) -> Entry:
    """The same, in the time in which a discard can be undone."""
    return msgspec.structs.replace(entry, destination=DISCARDED)


@pytest.mark.parametrize("topic", ["orders.DLT", "keyed.DLT"])
@pytest.mark.parametrize("was", [lambda entry: entry, parks, discards])
def test_nothing_of_a_waiting_letter_is_left_but_where_it_failed(topic: str, was: object) -> None:
    key, entry = letter(topic, key=PERSON, value=SECRET)
    made = erased(key, was(entry))  # type: ignore[operator]
    new, envelope = made.move.packed.key, made.move.packed.envelope
    assert not {part for part in (PERSON, SECRET, b"trace") if part in envelope + new}
    anew = envelopes.decode(envelope)
    assert (anew.destination, anew.key, anew.value) == (DISCARDED, None, None)
    assert {name for name, _ in anew.headers} <= names.OURS
    assert (names.ACTION_BEFORE, names.ERASED) in anew.headers
    assert (names.SOURCE, f"{topic}/0/7".encode()) in anew.headers
    assert (new[0], entry_keys.due_at_ms(new)) == (PLAIN, NOW_MS)
    assert new != key
    assert made.entry == anew
    assert made.kept is None


def test_the_send_of_an_erased_letter_ends_and_only_that() -> None:
    key, entry = letter()
    ended = erased(key, entry).moved
    # No due time: nothing is sent any more.
    assert ended is not None
    assert ended[2] == 0
    assert (erased(key, parks(entry)).moved, erased(key, discards(entry)).moved) == (None, None)


def test_it_counts_as_no_retry() -> None:
    assert labels_of_retry(letter()[1].headers) is not None
    assert labels_of_retry(erased(*letter()).entry.headers) is None


def test_a_null_that_is_to_cancel_others_does_that_first() -> None:
    key, entry = letter()
    made = ACTIONS.acted(state(ERASE), member(entry_keys.in_lane(key, NULLS)), packed(entry), NOW_MS)
    assert made == Refusal("parks")


def test_an_erased_letter_cannot_be_acted_on_or_brought_back() -> None:
    made = erased(*letter())
    for kind in action_records.KINDS:
        if kind != ERASE:
            result = ACTIONS.acted(state(kind), member(made.move.packed.key), made.move.packed.envelope, NOW_MS)
            assert result == Refusal("not_discarded" if kind == action_records.UNDO else "discarded")


def test_it_is_done_once_and_the_audit_names_neither_key_nor_value() -> None:
    bench = Bench()
    keys = [*bench.wait(2, key=PERSON, value=SECRET), *bench.wait(2, "keyed.DLT", key=PERSON, value=SECRET)]
    bench.ask(ERASE, at_once(keys))
    bench.ask(ERASE, at_once(keys), action=OTHER)
    assert bench.finish() == [4, 0]
    assert (bench.tally, bench.state(OTHER).tally) == (Tally(1, 4, 0, {}), Tally(1, 0, 4, {}))
    assert {envelopes.decode(value).key for value in bench.live().values()} == {None}
    told = b"".join(record.value() or b"" for record in bench.log.read(AUDIT))
    assert (PERSON in told, SECRET in told, b"orders.DLT/0/1" in told) == (False, False, True)
    assert [record.value() for record in bench.log.read(DISCARDED)] == []


def places(*offsets: int) -> list[Member]:
    return [Member(ParkedPlace(topic_hash("id"), 0, offset).encode(), NOW_MS) for offset in offsets]


def test_what_rests_is_marked_so_that_it_is_never_returned() -> None:
    bench = Bench()
    bench.ask(ERASE, places(3, 9_000, 3), parking={topic_hash("id").hex(): "orders.parked"})
    assert bench.finish() == [2]
    assert bench.tally == Tally(1, 2, 0, {"returned": 1})
    blocks = [returned_offsets.place(each.key).block() for each in places(3, 9_000)]
    marked = zip(blocks, (3, 9_000), strict=True)
    assert all(returned_offsets.has(bench.table.get(block), offset) for block, offset in marked)
    [told] = [orjson.loads(record.value() or b"")["letters"] for record in bench.log.read(AUDIT)]
    assert [(each["parked"], each["result"]) for each in told] == [
        ("orders.parked/0/3", "done"), ("orders.parked/0/9000", "done"), ("orders.parked/0/3", "returned"),
    ]  # fmt: skip
    bench.ask("retry", places(3), action=OTHER, parking={topic_hash("id").hex(): "orders.parked"})
    bench.finish()
    assert bench.state(OTHER).tally == Tally(1, 0, 0, {"returned": 1})


def rests(value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    ours: Headers = [(names.ID, b"7" * 16), (names.SOURCE, b"orders.DLT/0/7"), *headers]
    return Record(("orders.parked", 0, 1), b"k", value, ours, (CREATE_TIME, NOW_MS))


@pytest.mark.parametrize("before", [names.ERASED, names.SUPERSEDED])
def test_what_is_left_of_an_erased_letter_is_never_returned(before: bytes) -> None:
    returns = LetterReturns(ACTIONS.judge.registry, ACTIONS.judge.packer, 2, DISCARDED)
    assert returns.refused(rests(b"v")) is None
    assert returns.refused(rests(None, (names.ACTION_BEFORE, before))) == Refusal(before.decode())


@pytest.mark.parametrize("reason", [b"too_large", b"by_operator", b"max_attempts", b"unreadable_headers"])
def test_what_was_parked_without_its_payload_is_known_whatever_the_reason_was(reason: bytes) -> None:
    why = names.PARKED_REASON, reason
    assert is_reference(rests(None, why))
    assert not is_reference(rests(b"", why))
    # A null that was parked whole has what came with it.
    assert not is_reference(rests(None, why, ("kafka_dlt-original-topic", b"orders")))
