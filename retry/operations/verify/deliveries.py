"""Records of retry and parking topics → rows. Those without a header of ours are somebody else's, and passed over."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from retry.operations.explain.search import place
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import integer
from retry.operations.verify.records import Reading, hash_of
from retry.operations.verify.rows import PARKED, UNKNOWN, Kind, Row

_DIGITS_MAX = 10
_TIME_DIGITS_MAX = 18
_NAMELESS_MAX = 100_000
_WANTED = {names.ID: 0, names.ATTEMPT: 1, names.SOURCE: 2, names.DUE_MS: 3, names.PARKED_REASON: 4}
_APPEND = 2


class Nameless(NamedTuple):
    """A delivery that is so large that it has no `retry-source`: the lineage and the attempt have to say whose it is."""

    lineage: int
    attempt: int


class Deliveries:
    """Takes in deliveries.

    Args:
      since_ms: what was delivered before is left out, where the broker says when that was.

    Attributes:
      first_ms: by topic and partition, when the first record was appended; UNKNOWN where the topic does not say.
      nameless: deliveries without `retry-source`.
    """

    def __init__(self, reading: Reading, since_ms: int) -> None:
        self._reading, self._words, self._spill, self._found = reading, reading.words, reading.spill, reading.found
        self._since_ms, self._nameless = since_ms, 0
        self.first_ms: dict[tuple[str, int], int] = {}
        self.nameless: dict[Nameless, list[tuple[int, ...]]] = defaultdict(list)

    def sent(self, message: Any) -> None:
        """A committed record of a retry or parking topic."""
        self._reading.committed[message.topic(), message.partition()] += 1
        row = self._delivery(message, Kind.SENT)
        if row is not None:
            self._spill.add(row)

    def seen(self, message: Any) -> None:
        """A record of a retry or parking topic as a read_uncommitted reader sees it."""
        self._reading.count(message)
        row = self._delivery(message, Kind.SEEN)
        if row is not None:
            self._spill.add(row)

    def _delivery(self, message: Any, kind: Kind) -> tuple[int, ...] | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        stamped, stamp = message.timestamp()
        stamp = stamp if stamped == _APPEND else UNKNOWN
        self.first_ms.setdefault((topic, partition), stamp)
        try:
            headers = message.headers()
        except SystemError:
            return None  # A name that is no UTF-8: the service cannot have written it.
        ours: list[bytes | None] = [None] * len(_WANTED)
        for name, value in headers or ():
            if name in _WANTED:
                ours[_WANTED[name]] = value
        id_, attempt, source, due_ms, parked = ours
        if UNKNOWN < stamp < self._since_ms or (source is None and (id_ is None or attempt is None)):
            return None
        flags = self._reading.flags(topic, partition, offset) | (PARKED if parked else 0)
        count, due = integer(attempt, _DIGITS_MAX), integer(due_ms, _TIME_DIGITS_MAX)
        lineage, due = hash_of(id_ or b""), UNKNOWN if due is None else due
        at = self._words.topic(topic), partition, offset, due, stamp, lineage, count or 0, 0
        if source is None:
            if kind is Kind.SENT:
                self._keep_nameless(Nameless(lineage, count or 0), (kind, flags, *at))
            return None
        try:
            letter = place(source.decode())
        except ValueError:
            self._reading.strange(flags, f"{topic}/{partition}/{offset}: no letter can be {source[:100]!r}")
            return None
        return (self._words.topic(letter.topic), letter.partition, letter.offset, kind, flags, *at)

    def _keep_nameless(self, whose: Nameless, row: tuple[int, ...]) -> None:
        if self._nameless < _NAMELESS_MAX:
            self.nameless[whose].append(row)
            self._nameless += 1
        else:
            self._found.unjudged["deliveries without retry-source: too many"] += 1

    def name(self, outcome: Row) -> None:
        """Give a nameless delivery to the letter that an outcome tells of, if it is that one's."""
        if not self.nameless:
            return
        found = self.nameless.get(Nameless(outcome.name, outcome.value))
        if found:
            self._spill.add((outcome.topic, outcome.partition, outcome.offset, *found.pop()))

    def end_nameless(self, whole: bool) -> None:
        """What is left goes back to no letter that an outcome tells of; `whole`: no outcome was ever deleted."""
        left_over = sum(map(len, self.nameless.values()))
        if left_over and not whole:
            self._found.unjudged["origin of deliveries without retry-source: outcomes of that time are not kept"] += left_over
            return
        for left in self.nameless.values():
            for _kind, flags, *at in left:
                where = f"{self._words.topics[at[0]]}/{at[1]}/{at[2]}"
                self._reading.strange(flags, f"{where}: no outcome has its retry-id and retry-attempt")
