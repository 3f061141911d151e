"""Letters that rest, for tests: parked records as the service writes them, and what reads them."""

from __future__ import annotations

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import read
from retry.delay_queue import envelopes, returned_offsets
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.delivery.redecide import Redecider
from retry.delivery.returned_letter import LetterReturns
from retry.intake.attempts import format_retry_id
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.intake.build_entry import EntryBuilder, decide
from retry.record import CREATE_TIME, Headers, Record
from tests.support.acted import DISCARDED, LINEAGES, NOW_MS, POLICIES
from tests.support.plans import registry_of

PARKED_AT = 4
TOPIC_HASH = returned_offsets.hash_topic_id("id of orders.parked")
PARKING = {TOPIC_HASH.hex(): "orders.parked"}


def place(offset: int = PARKED_AT, partition: int = 0) -> bytes:
    """A letter that rests in `orders.parked`, as a member names it."""
    return ParkedPlace(TOPIC_HASH, partition, offset).encode()


def builder(bytes_max: int = 1_000_000, codec: EnvelopeCodec = PLAIN) -> EntryBuilder:
    """Packs entries for topics that take records of so many bytes."""
    limits = dict.fromkeys(("changelog", DISCARDED, "orders.retry", "orders.parked", "parked"), bytes_max)
    return EntryBuilder("changelog", "parked", limits, codec)


def returns(
    bytes_max: int = 1_000_000, shards: int = 4, policies: str = POLICIES, codec: EnvelopeCodec = PLAIN
) -> LetterReturns:
    """Makes entries of letters that rest, under these policies."""
    redecider = Redecider(registry_of(policies), builder(bytes_max, codec), LINEAGES)
    return LetterReturns(redecider, DISCARDED, shards)


def dead(
    topic: str = "orders.DLT", offset: int = 7, *, key: bytes | None = b"k", value: bytes | None = b'{"a":1}',
    headers: Headers | None = None,
) -> Record:
    """Make the record of a dead letter."""
    return Record((topic, 0, offset), key, value, [("trace", b"1")] if headers is None else headers, (CREATE_TIME, NOW_MS - 9))


def park_letter(letter: Record | None = None, *, made: int = 3, bytes_max: int = 1_000_000) -> Record:
    """The record that a letter becomes when it is parked after so many retries: made by intake's own code."""
    letter = letter or dead()
    route = registry_of(POLICIES).route(letter.topic())
    trace = LetterHistory(format_retry_id(7, route.team), 7, 0, made, NOW_MS - 1_000, False)
    case = decide(route, read(letter, route.aliases), trace, NOW_MS, None)
    packed = builder(bytes_max).pack(case)
    assert packed.reason is not None
    entry = envelopes.decode(packed.envelope)
    return Record((entry.destination, 0, PARKED_AT), entry.key, entry.value, list(entry.headers), (CREATE_TIME, NOW_MS))


def with_headers(record: Record, **new: bytes | None) -> Record:
    """Return the record with some headers of ours set, or left out where they are None; `source` means `retry-source`."""
    given = {f"retry-{name.replace('_', '-')}": value for name, value in new.items()}
    headers = [header for header in record.headers() if header[0] not in given]
    headers += [(name, value) for name, value in given.items() if value is not None]
    location = record.topic(), record.partition(), record.offset()
    return Record(location, record.key(), record.value(), headers, record.timestamp())


def select_own_headers(headers: Headers) -> dict[str, bytes | None]:
    """The headers that the service writes."""
    return {name: value for name, value in headers if name in names.OURS}
