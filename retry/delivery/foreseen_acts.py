"""What an action makes of a waiting letter of which facts are known, and not its bytes; or that only these tell.

It is what `EntryActions.act_on_entry` makes of the same letter. So a preview of many letters need not read each of them.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from retry.delay_queue import entry_keys
from retry.delay_queue.action_records import DISCARD, PARK, REDIRECT, RETRY
from retry.delay_queue.action_state import ActionState
from retry.delivery.acted_entry import EntryActions, find_key_refusal
from retry.delivery.letter_changes import Refusal

# Of an envelope without its letter: the names of topics and team, what is marked, and the framing of a hundred headers.
_REST_BYTES = 16 << 10
# The name of a header is counted by characters.
_BYTES_A_CHARACTER = 4
_FORESEEN = (RETRY, REDIRECT, PARK, DISCARD)


class KnownEntry(NamedTuple):
    """The facts about an entry whose content was opened and that has a hundred headers at most.

    Attributes:
      has_history: whether it tells its past, and does not park; see `redecide.read_letter_history`.
      size: of key, value and headers together: bytes of values, characters of names.
    """

    key: bytes
    destination: str
    has_history: bool
    size: int


class Foreseen(Enum):
    DONE = "done"
    UNKNOWN = "unknown"


class ForeseenActs:
    def __init__(self, actions: EntryActions, state: ActionState) -> None:
        self._actions, self._redecider, self._action = actions, actions.redecider, state.action
        # Whether what is sealed can be opened now, only opening it tells.
        self._tells = state.action.kind in _FORESEEN and self._redecider.entry_builder.codec.is_plain
        self._sizes_max: dict[str, int] = {}

    def foresee(self, known: KnownEntry) -> Refusal | Foreseen:
        """Say whether it is done for an entry, why not, or that this is unknown without its bytes."""
        if not self._tells:
            return Foreseen.UNKNOWN
        refused = find_key_refusal(known.key) or self._actions.find_refusal(known.destination, known.has_history)
        if refused is not None:
            return refused
        if self._action.kind == REDIRECT and not self._may_redirect(known.key):
            return Refusal("not_allowed")
        if (size_max := self._sizes_max.get(known.destination)) is None:
            size_max = self._sizes_max[known.destination] = self._find_size_max(known.destination)
        return Foreseen.DONE if known.size <= size_max else Foreseen.UNKNOWN

    def _may_redirect(self, key: bytes) -> bool:
        return self._redecider.may_go_to(entry_keys.read_source(key).topic, self._action.target or "")

    def _find_size_max(self, destination: str) -> int:
        """How large a letter may be that all topics take which it may go to, whatever it has; negative where none may."""
        builder, kind = self._redecider.entry_builder, self._action.kind
        parking = {builder.parked, *self._redecider.registry.parking()}
        if kind == PARK and destination in parking:
            return -1
        targets = {REDIRECT: {self._action.target or ""}, PARK: parking, DISCARD: {self._actions.discarded}}
        bytes_max = min(map(builder.find_bytes_max, targets.get(kind, {destination})))
        return (bytes_max - _REST_BYTES) // _BYTES_A_CHARACTER
