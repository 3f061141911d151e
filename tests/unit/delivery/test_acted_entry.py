"""What an action makes of one letter: each kind, what is refused, and what no action ever does."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, envelopes
from retry.delay_queue.action_records import Member, Patch
from retry.delay_queue.entry_keys import DUE_MS_MAX, NAMED, ORDERED, PLAIN
from retry.delay_queue.envelopes import Entry
from retry.delivery.acted_entry import BY_OPERATOR, UNDO_MS, EntryActions, hash_envelope
from retry.delivery.letter_changes import ActedLetter, Refusal
from retry.delivery.movers import list_replacements
from retry.delivery.redecide import Redecider
from retry.intake.build_entry import EntryBuilder
from retry.testing.memory_table import MemoryTable
from tests.support.acted import (
    ACTION,
    DISCARDED,
    HEADER_PATCH,
    HOUR_MS,
    LINEAGES,
    NOW_MS,
    POLICIES,
    entry_actions,
    letter,
    member,
    pack_entry,
    state,
)  # fmt: skip
from tests.support.plans import registry_of

OTHER = b"\x0b" * action_records.ACTION_BYTES
KINDS = [kind for kind in action_records.KINDS if kind not in (action_records.UNDO, action_records.ERASE)]
TOPICS = st.sampled_from(["orders.DLT", "keyed.DLT"])
DUE_MS = st.one_of(st.integers(NOW_MS - HOUR_MS, NOW_MS + HOUR_MS), st.sampled_from([-1, 0, DUE_MS_MAX - 1, DUE_MS_MAX]))
ACTIONS = entry_actions()


def act_on(
    kind: str, key: bytes, entry: Entry, *, due_at_ms: int = NOW_MS, action: bytes = ACTION, **more: object
) -> ActedLetter:
    made = ACTIONS.act_on_entry(state(kind, action, **more), make_member(kind, key, entry, due_at_ms), pack_entry(entry), NOW_MS)
    assert isinstance(made, ActedLetter), made
    return made


def make_member(kind: str, key: bytes, entry: Entry, due_at_ms: int = NOW_MS) -> Member:
    if kind != action_records.EDIT:
        return member(key, due_at_ms)
    return Member(key, due_at_ms, hash_envelope(pack_entry(entry)), pack_entry(msgspec.structs.replace(entry, value=b"edited")))


def head_fields(kind: str) -> dict[str, object]:
    """Make what the head of an action of this kind says besides."""
    return {"redirect": {"target": "orders.slow"}, "patch": {"patch": HEADER_PATCH}}.get(kind, {})


def find_refusal(kind: str, key: bytes, entry: Entry, **more: object) -> str:
    made = ACTIONS.act_on_entry(state(kind, **more), make_member(kind, key, entry), pack_entry(entry), NOW_MS)
    assert isinstance(made, Refusal)
    return made.reason


def became(made: ActedLetter) -> tuple[bytes, Entry]:
    return made.key, envelopes.decode(made.envelope)


def headers(entry: Entry) -> dict[str, bytes | None]:
    return dict(entry.headers)


def test_a_retry_is_due_when_its_member_says_and_says_so_itself() -> None:
    key, entry = letter()
    new, anew = became(act_on(action_records.RETRY, key, entry, due_at_ms=NOW_MS + 5))
    assert new == entry_keys.make_key_due_at(key, NOW_MS + 5)
    assert headers(anew) == {**headers(entry), names.DUE_MS: b"%d" % (NOW_MS + 5), names.ACTION: ACTION.hex().encode()}
    assert (anew.destination, anew.key, anew.value, anew.team) == (entry.destination, entry.key, entry.value, entry.team)


def test_a_retry_at_its_own_time_is_due_1_ms_later() -> None:
    key, entry = letter()
    new, _ = became(act_on(action_records.RETRY, key, entry, due_at_ms=entry_keys.due_at_ms(key)))
    assert entry_keys.due_at_ms(new) == entry_keys.due_at_ms(key) + 1


def test_a_redirect_goes_where_the_policy_lets_it_and_keeps_its_order() -> None:
    key, entry = letter()
    new, anew = became(act_on(action_records.REDIRECT, key, entry, target="orders.slow"))
    assert (anew.destination, entry_keys.lane_of(new)) == ("orders.slow", entry_keys.lane("orders", "orders.DLT", "orders.slow"))
    for target in ("orders.parked", "elsewhere", DISCARDED, None):
        assert find_refusal(action_records.REDIRECT, key, entry, target=target) == "not_allowed"


def test_a_letter_is_parked_at_once_where_its_policy_parks() -> None:
    key, entry = letter()
    new, anew = became(act_on(action_records.PARK, key, entry))
    assert (anew.destination, headers(anew)[names.PARKED_REASON]) == ("orders.parked", BY_OPERATOR.encode())
    assert headers(anew)[names.ACTION] == ACTION.hex().encode()
    assert entry_keys.due_at_ms(new) == NOW_MS
    # It parks already: nothing more can be asked of it.
    for kind in KINDS:
        assert find_refusal(kind, new, anew, **head_fields(kind)) == "parks"


def test_a_discarded_letter_waits_in_no_queue_for_the_time_in_which_that_can_be_undone() -> None:
    key, entry = letter("keyed.DLT")
    new, anew = became(act_on(action_records.DISCARD, key, entry))
    assert (key[0], new[0], anew.destination) == (ORDERED, PLAIN, DISCARDED)
    assert entry_keys.due_at_ms(new) == NOW_MS + UNDO_MS
    for kind in KINDS:
        assert find_refusal(kind, new, anew, **head_fields(kind)) == "discarded"


def test_a_letter_of_a_topic_of_before_stays_one_where_it_leaves_its_queue_and_comes_back() -> None:
    key, entry = letter("keyed.DLT", offset=entry_keys.number_letter(7, 3))
    discarded, anew = became(act_on(action_records.DISCARD, key, entry))
    back, _ = became(act_on(action_records.UNDO, discarded, anew, action=OTHER, undoes=ACTION.hex()))
    assert (entry_keys.extract_letter(discarded), back) == (entry_keys.extract_letter(key), key)


def test_what_was_discarded_by_another_action_or_not_at_all_is_not_undone() -> None:
    key, entry = letter()
    new, anew = became(act_on(action_records.DISCARD, key, entry))
    assert find_refusal(action_records.UNDO, new, anew, undoes=OTHER.hex()) == "other_action"
    assert find_refusal(action_records.UNDO, key, entry, undoes=ACTION.hex()) == "not_discarded"


@given(TOPICS, DUE_MS, st.one_of(st.none(), st.binary(max_size=9)), st.one_of(st.none(), st.binary(max_size=9)))
def test_undoing_a_discard_restores_key_target_and_headers_but_for_the_mark(
    topic: str, due_at_ms: int, key: bytes | None, value: bytes | None
) -> None:
    at, entry = letter(topic, due_at_ms=due_at_ms, key=key, value=value)
    discarded = became(act_on(action_records.DISCARD, at, entry))
    undone, anew = became(act_on(action_records.UNDO, *discarded, action=OTHER, undoes=ACTION.hex()))
    marked = [header for header in anew.headers if header[0] != names.ACTION]
    assert (undone, msgspec.structs.replace(anew, headers=marked)) == (at, entry)
    assert headers(anew)[names.ACTION] == OTHER.hex().encode()


@given(st.sampled_from([*KINDS, action_records.ERASE]), TOPICS, DUE_MS, DUE_MS, st.booleans())
def test_no_transaction_ever_puts_and_nulls_one_key(kind: str, topic: str, due_at_ms: int, wanted_ms: int, same: bool) -> None:
    key, entry = letter(topic, due_at_ms=due_at_ms)
    more = (
        {"target": entry.destination if topic == "keyed.DLT" or same else "orders.slow"}
        if kind == "redirect"
        else head_fields(kind)
    )
    made = act_on(kind, key, entry, due_at_ms=due_at_ms if same else wanted_ms, **more)
    rows = list_replacements(MemoryTable(), [made.move])
    assert [value is None for _, value in rows] == [False, True]
    assert rows[0][0] != rows[1][0] == key
    assert entry_keys.extract_letter(rows[0][0])[-len(b"orders.DLT") :] == entry_keys.extract_letter(key)[-len(b"orders.DLT") :]


def test_an_edit_keeps_the_letter_as_it_was_and_what_the_service_says_of_it() -> None:
    key, entry = letter()
    forged = msgspec.structs.replace(entry, value=b"v2", headers=[("trace", b"2"), (names.ATTEMPT, b"99")])
    edit = Member(key, entry_keys.due_at_ms(key) + 1, hash_envelope(pack_entry(entry)), pack_entry(forged))
    made = ACTIONS.act_on_entry(state(action_records.EDIT), edit, pack_entry(entry), NOW_MS)
    assert isinstance(made, ActedLetter)
    new, anew = became(made)
    assert entry_keys.due_at_ms(new) == entry_keys.due_at_ms(key) + 1
    assert (anew.value, headers(anew)["trace"], headers(anew)[names.ATTEMPT]) == (b"v2", b"2", b"1")
    assert made.kept is not None
    assert (made.kept.destination, made.kept.value, headers(made.kept)["trace"]) == (DISCARDED, entry.value, b"1")
    assert headers(made.kept)[names.ACTION_BEFORE] == b"superseded"


def test_an_edit_is_due_as_its_member_says_and_a_patch_only_where_it_retries() -> None:
    key, entry = letter()
    retried = due_time_of(act_on(action_records.EDIT, key, entry, due_at_ms=NOW_MS - 7))
    assert retried == NOW_MS - 7
    retries = msgspec.structs.replace(HEADER_PATCH, retries=True)
    for patch, due_at_ms in ((HEADER_PATCH, entry_keys.due_at_ms(key) + 1), (retries, NOW_MS - 7)):
        assert due_time_of(act_on(action_records.PATCH, key, entry, due_at_ms=NOW_MS - 7, patch=patch)) == due_at_ms


def due_time_of(made: ActedLetter) -> int:
    return entry_keys.due_at_ms(became(made)[0])


def test_an_edit_of_something_else_does_nothing() -> None:
    key, entry = letter()
    marked = msgspec.structs.replace(entry, headers=[*entry.headers, (names.ACTION, OTHER.hex().encode())])
    edit = make_member(action_records.EDIT, key, entry)
    assert ACTIONS.act_on_entry(state(action_records.EDIT), edit, pack_entry(marked), NOW_MS) == Refusal("changed")


def test_an_edit_that_cannot_be_read_is_refused_and_stops_no_shard() -> None:
    key, entry = letter()
    edit = Member(key, 0, hash_envelope(pack_entry(entry)), b"\xc1")
    assert ACTIONS.act_on_entry(state(action_records.EDIT), edit, pack_entry(entry), NOW_MS) == Refusal("unreadable")


def test_an_edit_that_changes_nothing_is_refused() -> None:
    key, entry = letter()
    edit = Member(key, 0, hash_envelope(pack_entry(entry)), pack_entry(entry))
    assert ACTIONS.act_on_entry(state(action_records.EDIT), edit, pack_entry(entry), NOW_MS) == Refusal("unchanged")


def test_a_letter_that_keeps_the_order_of_its_key_keeps_the_key() -> None:
    key, entry = letter("keyed.DLT")
    edit = Member(key, 0, hash_envelope(pack_entry(entry)), pack_entry(msgspec.structs.replace(entry, key=b"other")))
    assert ACTIONS.act_on_entry(state(action_records.EDIT), edit, pack_entry(entry), NOW_MS) == Refusal("keeps_order")


def test_a_patch_sets_and_removes_headers() -> None:
    key, entry = letter()
    _, anew = became(act_on(action_records.PATCH, key, entry, patch=HEADER_PATCH))
    assert headers(anew)["who"] == b"anna"
    assert "trace" not in headers(anew)


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (None, "no_patch"), (Patch(), "no_patch"), (Patch({names.ATTEMPT: "9"}), "no_patch"),
        (Patch({"absent": None}), "unchanged"), (Patch(value='{"a":1}'), "unchanged"),
    ],
)  # fmt: skip
def test_a_patch_that_may_not_be_or_changes_nothing_is_refused(patch: Patch | None, reason: str) -> None:
    assert find_refusal(action_records.PATCH, *letter(), patch=patch) == reason


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"[" * 5_000])
def test_a_value_that_is_no_json_is_not_patched(value: bytes | None) -> None:
    assert find_refusal(action_records.PATCH, *letter(value=value), patch=Patch(value='{"a":{"b":2}}')) == "not_json"


def test_what_has_a_name_is_left_to_its_own_way_in() -> None:
    _, entry = letter()
    name = entry_keys.hash_name("schedules", "s", b"n")
    key = entry_keys.build_named_key(
        NOW_MS, name, 1, entry_keys.build_key_stem("s", 0), 0, entry_keys.build_named_lane("t", "s", "d")
    )
    assert key[0] == NAMED
    for kind in action_records.KINDS:
        assert find_refusal(kind, key, entry) == "named"


@pytest.mark.parametrize("kind", sorted({*KINDS} - {action_records.PARK}))
def test_what_would_be_too_large_with_its_mark_is_refused(kind: str) -> None:
    key, entry = letter(value=b'{"a":"%s"}' % (b"x" * 10_000))
    actions = entry_actions(len(pack_entry(entry)) + 20)
    edit = msgspec.structs.replace(entry, value=(entry.value or b"")[:-3] + b'y"}')
    member_ = Member(key, NOW_MS, hash_envelope(pack_entry(entry)), pack_entry(edit))
    made = actions.act_on_entry(state(kind, **head_fields(kind)), member_, pack_entry(entry), NOW_MS)
    assert made == Refusal("too_large")


def test_a_letter_that_was_acted_on_is_not_parked_without_its_payload() -> None:
    # What is fetched from where it failed is not what an edit made of it.
    key, entry = letter(value=random.Random(1).randbytes(10_000))
    entry_builder = EntryBuilder("changelog", "parked", {"changelog": 20_000, "orders.parked": 5_000})
    actions = EntryActions(Redecider(registry_of(POLICIES), entry_builder, LINEAGES), DISCARDED)
    parked = actions.act_on_entry(state(action_records.PARK), member(key), pack_entry(entry), NOW_MS)
    assert isinstance(parked, ActedLetter)
    assert parked.entry.value is None
    edited = msgspec.structs.replace(entry, headers=names.set_in(entry.headers, (names.ACTION, OTHER.hex().encode())))
    assert actions.act_on_entry(state(action_records.PARK), member(key), pack_entry(edited), NOW_MS) == Refusal("too_large")


@given(st.sampled_from([*KINDS, action_records.ERASE]), TOPICS)
def test_what_is_told_of_an_entry_is_what_is_put(kind: str, topic: str) -> None:
    key, entry = letter(topic)
    made = act_on(kind, key, entry, **({"target": entry.destination} if kind == "redirect" else head_fields(kind)))
    assert made.entry == envelopes.decode(made.envelope)
