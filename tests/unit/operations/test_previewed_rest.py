"""What a preview shows of letters that rest: where each goes, and what a patch changes in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue.ramp_records import Ramp
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.delivery import returned_letter
from retry.delivery.letter_changes import ActedLetter, Refusal
from retry.errors import ActionRefused
from retry.operations import found_letter
from retry.operations.act import choose, preview
from retry.operations.act.choose import Chosen, EditedParkedLetter, RestingExample, edit_resting
from retry.operations.act.preview import ExampleChange
from retry.operations.act.request import Edit, Request
from retry.operations.explain.search import LetterLocation
from retry.operations.found_letter import FoundLetter
from retry.record import Record
from tests.support.acted import ACTION, HEADER_PATCH, NOW_MS, POLICIES, state
from tests.support.plans import registry_of
from tests.support.rested import TOPIC_HASH, dead, park_letter, returns


class Rest:
    """One parking topic with one letter in it, that nobody has returned."""

    def __init__(self, letter: Record | None = None, bytes_max: int = 1_000_000) -> None:
        self._record = park_letter(letter, made=3 if bytes_max == 1_000_000 else 0, bytes_max=bytes_max)

    def iterate_resting(self, _after: object = None) -> Iterator[FoundLetter]:
        yield found_letter.make_parked_letter(self._record, registry_of(POLICIES))

    @property
    def returned(self) -> Rest:
        return self

    def is_record_returned(self, _record: LetterLocation) -> bool:
        return False

    def resolve_place(self, record: LetterLocation) -> ParkedPlace:
        return ParkedPlace(TOPIC_HASH, record.partition, record.offset)


def read_example(kind: str, **more: object) -> ExampleChange:
    """The one example of an action on that letter."""
    rest, asked = Rest(), state(kind, **more)
    chosen = Chosen(NOW_MS)
    (example,) = choose.choose_resting(rest, lambda _: True, returns(), asked, NOW_MS, chosen)  # type: ignore[arg-type]
    assert chosen.count == 1
    return preview._return_example(Request(asked.id, asked.action), example, NOW_MS)


def test_a_ramp_of_what_is_parked_is_judged_by_who_reads_where_it_is_sent() -> None:
    rest, asked = Rest(), state("retry")
    chosen = Chosen(NOW_MS)
    choose.choose_resting(rest, lambda _: True, returns(), asked, NOW_MS, chosen)  # type: ignore[arg-type]
    assert chosen.targets == {"orders.retry": 1} and chosen.groups["target"] == {"orders.parked": 1}
    found, ramp = preview.Preview(Request(asked.id, asked.action), chosen, NOW_MS, []), Ramp(0.9, [1], 10_000, 120_000)
    assert found.with_ramp(ramp, {"order-service": {"orders.retry"}}).silent == []
    assert found.with_ramp(ramp, {"audit": {"orders.parked"}}).silent == ["orders.retry"]


def preview_edit(edit: Edit, rests: Rest, policies: str = POLICIES) -> EditedParkedLetter | Refusal:
    """An edit of that letter, as a preview works it out."""
    (letter,) = rests.iterate_resting(None)
    back = returns(policies=policies).return_letter(state("retry"), letter.record, letter.record, NOW_MS, NOW_MS)
    assert isinstance(back, ActedLetter)
    reference = returned_letter.is_reference(letter.record)
    example = RestingExample(letter.name, letter.record, None if reference else back, None)
    asked = Request(ACTION, state("edit").action)
    return edit_resting(asked, edit, rests.resolve_place(letter.place).encode(), example, returns(policies=policies), NOW_MS)


def test_an_edit_of_a_letter_that_rests_names_the_record_and_does_what_the_worker_does() -> None:
    rests = Rest()
    made = preview_edit(Edit(b'{"a":2}', {"trace": None, "who": "anna"}), rests)
    assert isinstance(made, EditedParkedLetter)
    (letter,) = rests.iterate_resting(None)
    assert made.member.key == rests.resolve_place(letter.place).encode()
    assert returns().find_edit_refusal(letter.record, made.member.digest) is None
    change = preview._edit_example(Edit(), letter.name, made)
    assert (change.letter, change.due_at_ms, change.target) == ("orders.parked/0/4", NOW_MS, "orders.retry")
    assert [line for line in change.diff if line[0] in "+-"][2:] == ["-trace: 1", "+who: anna", '-  "a": 1', '+  "a": 2']


def test_a_framed_value_of_a_letter_that_rests_is_edited_as_json() -> None:
    class Registry:
        def encode_json(self, former: bytes, value: bytes) -> bytes:
            return former[:5] + value.replace(b" ", b"")

        def decode_json(self, value: bytes) -> bytes:
            return value[5:]

    framed = b"\0\0\0\0\7" + b'{"a":1}'
    made = preview_edit(edit := Edit(b'{"a": 2}', framing=Registry()), Rest(dead(value=framed)))
    assert isinstance(made, EditedParkedLetter)
    assert made.after.entry.value == b"\0\0\0\0\7" + b'{"a":2}'
    diff = preview._edit_example(edit, "", made).diff
    assert ('-  "a": 1' in diff, '+  "a": 2' in diff) == (True, True)


@pytest.mark.parametrize("edit", [Edit(b"no json"), Edit(b'{"a":1}'), Edit(headers={names.ATTEMPT: "9"})])
def test_an_edit_that_would_break_a_letter_that_rests_or_change_nothing_is_refused(edit: Edit) -> None:
    with pytest.raises(ActionRefused):
        preview_edit(edit, Rest())


def test_of_a_reference_nothing_can_be_edited() -> None:
    assert preview_edit(Edit(b"2"), Rest(dead(value=b"v" * 5_000), bytes_max=1_000)) == Refusal("reference")


def test_the_preview_of_a_patch_shows_what_changes_in_a_letter_that_rests() -> None:
    change = read_example("patch", patch=HEADER_PATCH)
    assert (change.letter, change.target) == ("orders.parked/0/4", "orders.retry")
    # What the service marks a returned letter with is no change of the letter.
    assert [line for line in change.diff if line[0] in "+-"] == ["--- before", "+++ after", "-trace: 1", "+who: anna"]
    assert read_example("retry").diff == []
