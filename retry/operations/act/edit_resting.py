"""An edit of the one letter that rests and is meant: the member that asks for it, and what a worker makes of that."""

from __future__ import annotations

from typing import NamedTuple

from retry.delay_queue.action_records import Member
from retry.delivery.acted_entry import Refusal
from retry.delivery.returned_letter import LetterReturns, ReturnedLetter, record_digest
from retry.operations.act.choose_resting import RestingExample
from retry.operations.act.request import Edit, Request


class EditedResting(NamedTuple):
    """An edit of one letter that rests, and what it changes.

    Attributes:
      member: as the action names the letter.
      before: the letter as it would be returned without the edit.
      after: the letter as it is returned with the edit.
    """

    member: Member
    before: ReturnedLetter
    after: ReturnedLetter


def edit_resting(
    request: Request, edit: Edit, place: bytes, example: RestingExample, returns: LetterReturns, now_ms: int
) -> EditedResting | Refusal:
    """Edit a letter that rests as it will be once it is returned; or return why a worker would do nothing.

    Args:
      place: where the letter rests, as a member names it.

    Raises:
      ActionRefused: the letter cannot be edited like this.
    """
    before = example.returned
    if before is None:
        return Refusal("reference")
    edited = returns.codec.encode(before.key, edit.apply_to(before.entry))
    member = Member(place, now_ms, record_digest(example.record, returns.codec), edited)
    after = returns.return_letter(request.build_initial_state(), example.record, example.record, now_ms, now_ms, edited)
    return after if isinstance(after, Refusal) else EditedResting(member, before, after)
