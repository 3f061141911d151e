"""Which letters that rest an action is about: records of parking topics, and of the topic of discarded letters.

They are held against the code that workers run, so that what a worker would refuse is counted and left alone. What was
returned before is known from the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from retry.delay_queue import action_records
from retry.delay_queue.action_state import ActionState
from retry.delivery.acted_entry import Refusal
from retry.delivery.resting_record import NOT_OURS
from retry.delivery.returned_letter import LetterReturns, ReturnedLetter
from retry.operations.act.choose import EXAMPLES_MAX, Chosen, Meant, refuse_too_many
from retry.operations.letters.found_letter import FoundLetter
from retry.operations.letters.listing import Cursor, Listing
from retry.operations.letters.returned_records import ReturnedRecords
from retry.record import Record

RETURNED = "returned"


class RestingExample(NamedTuple):
    """One of the members.

    Attributes:
      name: where it rests.
      record: what lies there.
      returned: what becomes of it; None where only a worker can tell, which fetches it whole, and of what is not ours.
      unpatched: of a patch, what would become of it without.
      is_ours: whether this service put it there.
    """

    name: str
    record: Record
    returned: ReturnedLetter | None
    unpatched: ReturnedLetter | None
    is_ours: bool = True


def choose_resting(
    listing: Listing, meant: Meant, returns: LetterReturns, state: ActionState, now_ms: int, chosen: Chosen
) -> list[RestingExample]:
    """Add letters that rest and are meant, less those for which a worker would do nothing; some of them in full.

    Raises:
      TopicsInvalid: a topic is missing, or cannot be read.
      ActionRefused: they are too many for one action.
    """
    gone, examples = ReturnedRecords(listing.cluster), list[RestingExample]()
    for letter in _iterate_resting(listing, meant):
        place = gone.resolve_place(letter.place)
        chosen.parking[place.topic.hex()] = letter.place.topic
        result = Refusal(RETURNED) if gone.is_record_returned(letter.place) else _result(letter, returns, state, now_ms)
        if isinstance(result, Refusal):
            chosen.refused[result.reason] += 1
            continue
        chosen.resting.append(place.encode())
        chosen.sources.append(hash(letter.source or letter.place))
        chosen.count_in(letter, b"" if result is None else result.key)
        refuse_too_many(chosen)
        if len(examples) < EXAMPLES_MAX:
            unpatched = _find_unpatched(letter, returns, state, now_ms)
            examples.append(RestingExample(letter.name, letter.record, result, unpatched, letter.is_ours))
    return examples


def _find_unpatched(letter: FoundLetter, returns: LetterReturns, state: ActionState, now_ms: int) -> ReturnedLetter | None:
    if state.action.kind != action_records.PATCH:
        return None
    as_it_is = state._replace(action=msgspec.structs.replace(state.action, kind=action_records.RETRY))
    result = _result(letter, returns, as_it_is, now_ms)
    return None if isinstance(result, Refusal) else result


def _iterate_resting(listing: Listing, meant: Meant) -> Iterator[FoundLetter]:
    return filter(meant, listing.iterate_resting(Cursor()))


def _result(
    letter: FoundLetter, returns: LetterReturns, state: ActionState, now_ms: int
) -> ReturnedLetter | Refusal | None:
    record = letter.record
    if state.action.kind == action_records.ERASE:
        return None
    if not letter.is_ours:
        # It is only marked, and nothing is made of it.
        return None if state.action.kind == action_records.DISCARD else Refusal(NOT_OURS)
    if (refused := returns.find_refusal(record)) is not None:
        return refused
    if letter.is_reference:
        return None
    return returns.return_letter(state, record, record, now_ms, now_ms)
