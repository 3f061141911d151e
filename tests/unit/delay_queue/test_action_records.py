"""Actions as changelog records: what is written is read back, in its order, and what is newer or none is never passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import action_records, action_state, control_records
from retry.delay_queue.action_records import Action, Member, Order, Patch, Tally
from retry.errors import EntryNewer, EntryUnreadable

NOW_MS = 1_700_000_000_000
ID = bytes(range(action_records.ACTION_BYTES))
IDS = st.binary(min_size=action_records.ACTION_BYTES, max_size=action_records.ACTION_BYTES)
PLACES = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF))
MEMBERS = st.builds(Member, st.binary(), st.integers(0, 1 << 60), st.binary(max_size=16), st.binary())
HEAD = Action("retry", "anna", NOW_MS, [2, 0], 3)


def records(*orders: tuple[bytes, Order], head: Action = HEAD, tally: Tally | None = None) -> dict[bytes, bytes]:
    told = {action_records.build_head_key(ID): action_records.encode(head)}
    told |= {key: action_records.encode(order) for key, order in orders}
    return told | ({action_records.tally_key(ID): action_records.encode(tally)} if tally else {})


@given(st.lists(MEMBERS, max_size=5), st.integers(0, 1 << 60))
def test_a_slice_is_read_back_as_it_was_written(members: list[Member], written_at_ms: int) -> None:
    found = action_records.decode_slice(action_records.encode_slice(members, written_at_ms))
    assert (found.members, found.written_at_ms) == (members, written_at_ms)


@given(IDS, st.lists(PLACES, min_size=2, max_size=5))
def test_slices_of_an_action_lie_together_and_in_the_order_of_steps(action: bytes, places: list[tuple[int, int]]) -> None:
    keys = [action_records.build_slice_key(action, *place) for place in places]
    assert sorted(keys) == [action_records.build_slice_key(action, *place) for place in sorted(places)]
    for key in keys:
        assert (len(key), action_records.find_action_id(key)) == (action_records.SLICE_BYTES, action)
        assert action_records.build_slices_prefix(action) < key <= action_records.build_end_key(key)


@pytest.mark.parametrize("value", [b"", b"\x90", b"\xc1", b"\x93\x01\x02\x03", b"{}"])
def test_a_slice_that_is_none_is_said_to_be(value: bytes) -> None:
    with pytest.raises(EntryUnreadable) as error:
        action_records.decode_slice(value)
    assert not isinstance(error.value, EntryNewer)


def test_a_newer_slice_or_head_stops_whoever_cannot_read_it() -> None:
    with pytest.raises(EntryNewer):
        action_records.decode_slice(b"\x92\x02\xa1x")
    with pytest.raises(EntryNewer):
        control_records.check(action_records.build_head_key(ID), b'{"v":2}')


def test_an_action_is_told_with_what_was_ordered_and_done() -> None:
    held, tally = Order("otto", NOW_MS + 1, "why"), Tally(1, 2, 0, {"parks": 1})
    patched = Action("patch", "anna", NOW_MS, [2, 0], 3, patch=Patch({"a": None}, "{}"))
    (state,) = action_state.read_states(records((action_records.build_held_key(ID), held), head=patched, tally=tally))
    assert state[:6] == (ID, patched, held, None, tally, None)
    assert (tally.members, state.count_left(0), state.has_ended(0)) == (3, 1, False)
    # A shard that had no slices, and one that was not there yet.
    assert state.has_ended(1)
    assert state.has_ended(7)


@pytest.mark.parametrize(("hold", "stands"), [(NOW_MS - 1, True), (NOW_MS, False), (NOW_MS + 1, False)])
def test_what_is_resumed_ends_the_hold_that_it_names_and_no_later_one(hold: int, stands: bool) -> None:
    resumed = Order("anna", NOW_MS + 9, hold=hold)
    orders = (action_records.build_held_key(ID), Order("otto", NOW_MS)), (action_records.build_resumed_key(ID), resumed)
    (state,) = action_state.read_states(records(*orders))
    assert (state.held is not None, state.resumed) == (stands, resumed)


def test_actions_come_in_the_order_in_which_they_were_asked_for() -> None:
    controls = {
        action_records.build_head_key(bytes([n]) * 8): action_records.encode(Action("park", "a", NOW_MS - n, [], 0))
        for n in range(4)
    }
    controls[control_records.pause_key("all", "")] = b'{"since_ms":1}'
    assert [state.id[0] for state in action_state.read_states(controls)] == [3, 2, 1, 0]
    assert not control_records.is_standing_request(controls)
    controls[control_records.reschedule_key(1)] = b'{"since_ms":1}'
    assert control_records.is_standing_request(controls)
    del controls[control_records.reschedule_key(1)]
    assert not control_records.is_standing_request(controls)


@pytest.mark.parametrize(
    "key", [action_records.build_head_key(ID), action_records.build_held_key(ID), action_records.tally_key(ID)]
)
def test_what_cannot_be_read_is_never_taken_for_none(key: bytes) -> None:
    with pytest.raises(EntryUnreadable):
        action_state.read_states({**records(), key: b"[1]"})
    with pytest.raises(EntryUnreadable):
        action_state.read_states({b"\x10action/nohex": action_records.encode(HEAD)})


def test_no_two_actions_have_one_id() -> None:
    assert len({action_records.make_action_id() for _ in range(100)}) == 100
