"""A person's letters are erased: of those that wait nothing is left but where they failed, those that rest are never returned."""

from __future__ import annotations

import msgspec
import pytest

from retry.dead_letters import retry_headers as names
from retry.dead_letters.retry_headers import read_labels
from retry.delay_queue import action_records, entry_keys, envelopes
from retry.delay_queue.action_records import ERASE, Tally
from retry.delay_queue.entry_keys import NULLS, PLAIN
from retry.delay_queue.envelopes import Entry
from retry.delivery.letter_changes import ActedLetter, Refusal
from retry.delivery.returned_letter import LetterReturns, is_reference
from tests.support.acted import DISCARDED, NOW_MS, entry_actions, letter, member, pack_entry, state
from tests.support.rested import dead, park_letter, select_own_headers, with_headers
from tests.unit.delivery.test_act import AUDIT, OTHER, Bench, at_once
from tests.unit.delivery.test_slice_members import Parking, ask, bitmap

PERSON, SECRET = b"person-17", b'{"card":"4711"}'
ACTIONS = entry_actions()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def erase_entry(key: bytes, entry: Entry) -> ActedLetter:
    made = ACTIONS.act_on_entry(state(ERASE), member(key), pack_entry(entry), NOW_MS)
    assert isinstance(made, ActedLetter)
    return made


def parks(entry: Entry) -> Entry:
    """Make the entry of a letter that is about to be parked."""
    return msgspec.structs.replace(
        entry, destination="orders.parked", headers=[*entry.headers, (names.PARKED_REASON, b"max_attempts")]
    )


def discards(entry: Entry) -> Entry:
    """Make the entry in the time in which a discard can be undone."""
    return msgspec.structs.replace(entry, destination=DISCARDED)


@pytest.mark.parametrize("topic", ["orders.DLT", "keyed.DLT"])
@pytest.mark.parametrize("was", [lambda entry: entry, parks, discards])
def test_nothing_of_a_waiting_letter_is_left_but_where_it_failed(topic: str, was: object) -> None:
    key, entry = letter(topic, key=PERSON, value=SECRET)
    made = erase_entry(key, was(entry))  # type: ignore[operator]
    new, envelope = made.key, made.envelope
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
    ended = erase_entry(key, entry).moved
    # No due time: nothing is sent any more.
    assert ended is not None
    assert (ended[0], ended[1][2]) == ("orders", 0)
    assert (erase_entry(key, parks(entry)).moved, erase_entry(key, discards(entry)).moved) == (None, None)


def test_it_counts_as_no_retry() -> None:
    assert read_labels(letter()[1].headers) is not None
    assert read_labels(erase_entry(*letter()).entry.headers) is None


def test_a_null_that_is_to_cancel_others_does_that_first() -> None:
    key, entry = letter()
    made = ACTIONS.act_on_entry(state(ERASE), member(entry_keys.move_into_lane(key, NULLS)), pack_entry(entry), NOW_MS)
    assert made == Refusal("parks")


def test_an_erased_letter_cannot_be_acted_on_or_brought_back() -> None:
    made = erase_entry(*letter())
    for kind in action_records.KINDS:
        if kind != ERASE:
            result = ACTIONS.act_on_entry(state(kind), member(made.key), made.envelope, NOW_MS)
            assert result == Refusal("not_discarded" if kind == action_records.UNDO else "discarded")


def test_it_is_done_once_and_the_audit_names_neither_key_nor_value(bench: Bench) -> None:
    keys = [*bench.wait(2, key=PERSON, value=SECRET), *bench.wait(2, "keyed.DLT", key=PERSON, value=SECRET)]
    bench.ask(ERASE, at_once(keys))
    bench.ask(ERASE, at_once(keys), action=OTHER)
    assert bench.finish() == [4, 0]
    assert (bench.tally, bench.state(OTHER).tally) == (Tally(1, 4, 0, {}), Tally(1, 0, 4, {}))
    assert {envelopes.decode(value).key for value in bench.live().values()} == {None}
    told = b"".join(record.value() or b"" for record in bench.log.read(AUDIT))
    assert (PERSON in told, SECRET in told, b"orders.DLT/0/1" in told) == (False, False, True)
    assert [record.value() for record in bench.log.read(DISCARDED)] == []


def put_resting(bench: Bench) -> None:
    """A letter of the person, a former version of one, and one of which nobody knows where it failed."""
    letter_ = park_letter(dead(key=PERSON, value=SECRET, headers=[("who", PERSON)]))
    bench.ask_parked = Parking(letter_, with_headers(letter_, action_before=b"superseded"), with_headers(letter_, source=None))


def test_a_letter_that_rests_is_marked_and_only_where_it_failed_is_told(bench: Bench) -> None:
    put_resting(bench)
    ask(bench, 0, 0, kind=ERASE)
    assert bench.finish() == [1]
    assert (bench.tally, bitmap(bench)) == (Tally(1, 1, 0, {"returned": 1}), {0})
    [(key, envelope)] = bench.live().items()
    left = envelopes.decode(envelope)
    assert (left.destination, left.key, left.value, entry_keys.due_at_ms(key)) == (DISCARDED, None, None, NOW_MS)
    assert {name for name, _ in left.headers} <= names.OURS
    assert (select_own_headers(left.headers)[names.SOURCE], select_own_headers(left.headers)[names.ACTION_BEFORE]) == (
        b"orders.DLT/0/7",
        names.ERASED,
    )
    assert PERSON not in b"".join(record.value() or b"" for record in bench.log.read(AUDIT))
    # Nothing is sent that the record of lineages would have to know of.
    assert bench.log.read("lineage") == []


@pytest.mark.parametrize("key", [None, PERSON, b"other"])
def test_what_is_left_waits_in_the_shard_of_the_letter(key: bytes | None) -> None:
    returns = LetterReturns(ACTIONS.redecider, DISCARDED, 64)
    record = park_letter(dead(key=key))
    left = returns.erase_letter(state(ERASE), record, record, NOW_MS)
    back = returns.return_letter(state("retry"), record, record, NOW_MS, NOW_MS)
    assert isinstance(back, ActedLetter)
    assert left is not None
    assert left.shard == back.shard


def test_what_is_no_letter_of_its_own_is_marked_and_nothing_is_told(bench: Bench) -> None:
    put_resting(bench)
    ask(bench, 1, 2, 3, kind=ERASE)
    assert bench.finish() == [2]
    assert (bench.tally, bitmap(bench), bench.live()) == (Tally(1, 2, 1, {}), {1, 2}, {})
    assert bench.audited() == [["done", "done", "gone"]]


def test_what_was_erased_is_never_returned_and_what_was_returned_is_not_erased_there(bench: Bench) -> None:
    put_resting(bench)
    ask(bench, 0, kind=ERASE)
    bench.now_ms += 1
    ask(bench, 0, action=OTHER)
    bench.finish()
    assert bench.state(OTHER).tally == Tally(1, 0, 0, {"returned": 1})


@pytest.mark.parametrize("before", [names.ERASED, names.SUPERSEDED])
def test_what_is_left_of_an_erased_letter_is_never_returned(before: bytes) -> None:
    returns = LetterReturns(ACTIONS.redecider, DISCARDED, 2)
    assert returns.find_refusal(park_letter()) is None
    assert returns.find_refusal(with_headers(park_letter(), action_before=before)) == Refusal(before.decode())


@pytest.mark.parametrize("reason", [b"too_large", b"by_operator", b"max_attempts", b"unreadable_headers"])
def test_what_was_parked_without_its_payload_is_known_whatever_the_reason_was(reason: bytes) -> None:
    reference = with_headers(park_letter(dead(value=b"v" * 5_000), bytes_max=1_000), parked_reason=reason)
    assert (reference.value(), is_reference(reference)) == (None, True)
    # A null that was parked whole has what came with it.
    assert not is_reference(with_headers(park_letter(dead(value=None)), parked_reason=reason))
    assert not is_reference(with_headers(park_letter(), parked_reason=reason))
