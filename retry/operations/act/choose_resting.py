"""Which letters that rest an action is about: records of parking topics, and of the topic of discarded letters.

They are held against the code that workers run, so that what a worker would refuse is counted and left alone. What was
returned before is known from the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from retry.delay_queue import action_records, returned_offsets
from retry.delay_queue.action_records import ActionState
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.delivery import returned_letter
from retry.delivery.acted_entry import Refusal
from retry.delivery.returned_letter import LetterReturns, ReturnedLetter
from retry.kafka import topics
from retry.operations.act.choose import EXAMPLES_MAX, Chosen, Meant
from retry.operations.control_requests import ShardNumbers
from retry.operations.letters.found_letter import FoundLetter
from retry.operations.letters.listing import Cursor, Listing

RETURNED = "returned"
# What can be done with a letter that rests.
KINDS = (action_records.RETRY, action_records.REDIRECT, action_records.DISCARD, action_records.PATCH)


class RestingExample(NamedTuple):
    """One of the members: where it rests, and what becomes of it; None where only a worker can tell, which fetches it whole."""

    name: str
    returned: ReturnedLetter | None


def choose_resting(
    listing: Listing, shards: ShardNumbers, meant: Meant, returns: LetterReturns, state: ActionState, now_ms: int, chosen: Chosen
) -> list[RestingExample]:
    """Add letters that rest and are meant, less those for which a worker would do nothing; some of them in full.

    Raises:
      TopicsInvalid: a topic is missing, or cannot be read.
    """
    bitmaps = shards.standing(returned_offsets.RETURNED)[returned_offsets.SHARD]
    hashes: dict[str, bytes] = {}
    examples: list[RestingExample] = []
    for letter in _resting(listing, meant):
        topic, partition, offset = letter.place
        if topic not in hashes:
            hashes[topic] = returned_offsets.topic_hash(topics.describe(listing.cluster.admin, [topic])[topic].topic_id)
            chosen.parking[hashes[topic].hex()] = topic
        place = ParkedPlace(hashes[topic], partition, offset)
        result = _result(letter, place, bitmaps.get(place.block()), returns, state, now_ms)
        if isinstance(result, Refusal):
            chosen.refused[result.reason] += 1
            continue
        chosen.resting.append(place.encode())
        chosen.count_in(letter)
        if len(examples) < EXAMPLES_MAX:
            examples.append(RestingExample(letter.name, result))
    return examples


def _resting(listing: Listing, meant: Meant) -> Iterator[FoundLetter]:
    return filter(meant, listing.resting(Cursor()))


def _result(
    letter: FoundLetter, place: ParkedPlace, bitmap: bytes | None, returns: LetterReturns, state: ActionState, now_ms: int
) -> ReturnedLetter | Refusal | None:
    record = letter.record
    if returned_offsets.has(bitmap, place.offset):
        return Refusal(RETURNED)
    if state.action.kind == action_records.ERASE:
        return None
    if (refused := returns.refused(record)) is not None:
        return refused
    if returned_letter.is_reference(record):
        return None
    return returns.returned(state, record, record, now_ms, now_ms)
