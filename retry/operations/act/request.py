"""What an operator asks for: the kind of an action, when its letters are due, and what an edit makes of one letter."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec
import orjson

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_records import Action, Member, Tally
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delivery.acted_entry import hash_envelope
from retry.errors import ActionRefused

# What a schema registry's clients write before a value, with the number of its schema.
_FRAME_BYTES = 5


class DueTimes(NamedTuple):
    """When letters are due that are retried or redirected: now, unless one of these says otherwise.

    Attributes:
      spread_ms: evenly over so long from now on, in random order.
      postpone_ms: so much later than now, or than they are due.
    """

    at_ms: int | None = None
    spread_ms: int = 0
    postpone_ms: int = 0

    def compute_due_time(self, key: bytes, now_ms: int) -> int:
        """Compute when the letter of this key is due, without a spread."""
        due_at_ms = entry_keys.due_at_ms(key)
        if self.postpone_ms:
            return max(due_at_ms, now_ms) + self.postpone_ms
        # What is overdue keeps its place before others.
        return min(due_at_ms, now_ms) if self.at_ms is None else self.at_ms


class SchemaFrames(Protocol):
    """Knows the schemas of a registry; see `retry.scheduling.tasks.framed_values`."""

    def encode_json(self, former: bytes, value: bytes) -> bytes:
        """Encode JSON by the schema of the former value, with its frame; raises `ActionRefused` where that does not take it."""

    def decode_json(self, value: bytes) -> bytes | None:
        """Decode a framed value to JSON; None of any other, and where its schema is not known."""


class Edit(NamedTuple):
    """An edit of exactly one letter.

    Attributes:
      value: the new value; None where the value stays. JSON is encoded for a letter whose value is framed.
      headers: new texts by name; a header is removed where the text is None.
      retries: whether the letter is due at once, as a retry of it would be, and not when it was due before.
    """

    value: bytes | None = None
    headers: dict[str, str | None] = {}  # noqa: RUF012
    framing: SchemaFrames | None = None
    retries: bool = False

    def apply_to(self, entry: Entry) -> Entry:
        """Return the entry with this edit; raises `ActionRefused` where that changes nothing, or the kind of the value."""
        if own := sorted(names.OURS & self.headers.keys()):
            raise ActionRefused(f"the header {own[0]} is this service's own and cannot be changed")
        changes = ((name, None if text is None else text.encode()) for name, text in self.headers.items())
        value = entry.value if self.value is None else _check_frame(entry.value, self.value, self.framing)
        edited = msgspec.structs.replace(entry, value=value, headers=names.set_in(entry.headers, *changes))
        if edited == entry:
            raise ActionRefused("the letter would stay as it is: give another value, or headers")
        return edited


class Request(NamedTuple):
    """An action as it is asked for, without slices and members: who its letters are is not known yet."""

    id: bytes
    action: Action
    due: DueTimes = DueTimes()
    edit: Edit | None = None

    def build_initial_state(self) -> ActionState:
        """Return the action's state as a worker would have it before anything is done."""
        return ActionState(self.id, self.action, None, None, Tally())

    def build_member(self, key: bytes, envelope: bytes, now_ms: int, codec: EnvelopeCodec = PLAIN) -> Member:
        """Name a letter as the action will.

        Raises:
          ActionRefused: it cannot be edited like this.
          SealUnopened: it cannot be opened here.
        """
        if self.edit is None:
            return Member(key, self.due.compute_due_time(key, now_ms))
        edited = codec.encode(key, self.edit.apply_to(codec.decode(key, envelope)))
        due_at_ms = self.due.compute_due_time(key, now_ms) if self.edit.retries else entry_keys.due_at_ms(key) + 1
        return Member(key, due_at_ms, hash_envelope(envelope), edited)

    def iterate_resting(self, places: Sequence[bytes], sources: Sequence[int], now_ms: int) -> Iterator[Member]:
        """Name members that rest, in random order where they are spread; those with the same coordinates at different times.

        Args:
          sources: equal numbers for letters that failed at the same coordinates, as they may where a topic was made anew.
        """
        count, alike, taken = len(places), _find_duplicates(sources), dict[tuple[int, int], int]()
        order = random.sample(range(count), count) if self.due.spread_ms else range(count)
        for place, source, n in zip(places, sources, order, strict=True):
            at_ms = now_ms + n * self.due.spread_ms // count + self.due.postpone_ms
            at_ms = at_ms if self.due.at_ms is None else self.due.at_ms
            yield Member(place, _later(taken, source, at_ms) if source in alike else at_ms)

    def build_members(self, keys: list[list[bytes]], now_ms: int) -> list[Iterator[Member]]:
        """Name the members that wait, by shard; of an edit see `build_member`."""
        count = sum(map(len, keys))
        if not self.due.spread_ms:
            return [(Member(key, self.due.compute_due_time(key, now_ms)) for key in some) for some in keys]
        places = iter(random.sample(range(count), count))
        at_ms = lambda: now_ms + next(places) * self.due.spread_ms // count  # noqa: E731
        return [(Member(key, at_ms()) for key in some) for some in keys]


def renew_action(action: Action, due: DueTimes = DueTimes(), edit: Edit | None = None) -> Request:  # noqa: B008
    return Request(action_records.make_action_id(), action, due, edit)


def _find_duplicates(sources: Sequence[int]) -> set[int]:
    """Return the sources that occur more than once; of a million nearly always none do."""
    return {one for one, following in pairwise(sorted(sources)) if one == following}


def _later(taken: dict[tuple[int, int], int], source: int, at_ms: int) -> int:
    """Find the next time that no other letter of this source has; `taken` says of each time where to look on."""
    asked_ms = at_ms
    while following_ms := taken.get((source, at_ms)):
        at_ms = following_ms
    taken[source, asked_ms] = taken[source, at_ms] = at_ms + 1
    return at_ms


def _check_frame(former: bytes | None, value: bytes, framing: SchemaFrames | None) -> bytes:
    if former and former[0] == 0 and len(former) > _FRAME_BYTES and value[:_FRAME_BYTES] != former[:_FRAME_BYTES]:
        if framing is not None and _is_json(value):
            return framing.encode_json(former, value)
        schema = int.from_bytes(former[1:_FRAME_BYTES], "big")
        raise ActionRefused(f"its value is framed for schema {schema} of a registry: give JSON, or a value that begins alike")
    if _is_json(former) and not _is_json(value):
        raise ActionRefused("its value is JSON, and the new one is not; nothing was done")
    return value


def _is_json(value: bytes | None) -> bool:
    try:
        orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return False
    return True
