"""One letter, whether it waits or is parked; what is dear to know of it is found out when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import parse_integer, parse_moment, read
from retry.dead_letters.failure import Failure, read_failure
from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelopes import Entry, Unopened
from retry.delivery.returned_letter import NOT_OURS, find_letter_source, is_no_letter, is_reference
from retry.operations.explain.search import LetterLocation
from retry.operations.json_lines import NO_TIMESTAMP
from retry.policies.registry import Registry
from retry.record import CREATE_TIME, Record, count_bytes, decode_text, read_headers
from retry.telemetry import fingerprint

_ATTEMPT_DIGITS_MAX = 10
# Headers in which applications say their version; of several that a letter has the first counts. None of these is hidden as other
# headers of applications are, so a text that is longer than versions are is none.
VERSION_HEADERS, _VERSION_BYTES_MAX = ("app-version", "consumer-version", "service-version"), 64


class FoundLetter:
    """A letter as a filter asks for it, see `retry.operations.letter_filter.predicate.LetterFacts`.

    Args:
      name: a unique name: `due/topic/partition/offset` of a letter that waits, `topic/partition/offset` of a parked one.
      cursor: with this a listing goes on behind the letter.
      entry: what is to be sent when the time comes; None of a parked letter.
      source: place of the dead letter that it was; None where a parked record does not say.
      record: as it lies on its topic; of a letter that waits, as it will be sent.
      registry: tells the team where the letter does not, and the team's own header names.
      failed_ms: when it failed last, as far as is known.
      is_ours: whether this service wrote it; of what it did not, nothing is believed that it says of itself.
    """

    due_ms: int | None = None

    def __init__(
        self, name: str, cursor: str, *, entry: Entry | None, source: LetterLocation | None, record: Record, registry: Registry,
        failed_ms: int | None, discarded: bool = False, is_ours: bool = True,
    ) -> None:  # fmt: skip
        self.name, self.cursor, self.entry, self.source, self.failed_ms = name, cursor, entry, source, failed_ms
        self.key, self.value, self.headers = record.key(), record.value(), record.headers()
        self.state = "waiting" if entry is not None else "discarded" if discarded else "parked"
        self.record, self._registry, self.is_ours = record, registry, is_ours

    @property
    def sealed(self) -> str | None:
        """Why neither payload nor headers are known of it; None where they are."""
        return self.entry.why if isinstance(self.entry, Unopened) else None

    def disown(self) -> None:
        """Take the record for one that others wrote, since the outcomes do not tell of it."""
        self.is_ours, self.source = False, None
        for known in ("team", "ours", "failure", "fingerprint"):
            self.__dict__.pop(known, None)

    @property
    def is_reference(self) -> bool:
        """Whether only where it failed was parked, and not the whole of it."""
        return self.entry is None and self.is_ours and self.source is not None and is_reference(self.record)

    @property
    def place(self) -> LetterLocation:
        """The place of the record; of a letter that waits, the place of its dead letter."""
        return LetterLocation(self.record.topic(), self.record.partition(), self.record.offset())

    @property
    def timestamp_ms(self) -> int | None:
        at_ms = self.record.timestamp()[1]
        return at_ms if at_ms > 0 else None

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers together."""
        return count_bytes(self.key, self.value, self.headers)

    @property
    def topic(self) -> str | None:
        """The dead-letter topic that the letter comes from; None where a parked record does not say."""
        return self.source.topic if self.source else None

    @property
    def target(self) -> str:
        """The topic that the letter goes to when it is due, or in which it is parked."""
        return self.record.topic() if self.entry is None else self.entry.destination

    @property
    def partition(self) -> int | None:
        """The partition of the dead-letter topic that the letter comes from; None where a parked record does not say."""
        return self.source.partition if self.source else None

    @property
    def version(self) -> str | None:
        """The version of the application, as one of `VERSION_HEADERS` has it; None where the letter has none of them."""
        told = {name: value for name, value in self.headers if value and name in VERSION_HEADERS}
        value = next((told[name] for name in VERSION_HEADERS if name in told), None)
        return None if value is None or len(value) > _VERSION_BYTES_MAX else decode_text(value)

    @cached_property
    def team(self) -> str | None:
        """The team that owns the letter: as its entry says, else its parking topic, its policy, or its dead-letter topic."""
        if self.entry is not None:
            return self.entry.team
        if (team := self._registry.parking_team(self.record.topic())) is not None:
            return team
        if self.policy:
            # A policy is called after its team and its dead-letter topic, which has no slash.
            return self.policy.rpartition("/")[0] or self.policy
        return self._registry.route(self.topic).team if self.topic and self._registry.reads_topic(self.topic) else None

    @cached_property
    def ours(self) -> dict[str, bytes]:
        if not self.is_ours:
            return {}
        return {name: value for name, value in self.headers if name in names.OURS and value is not None}

    @property
    def attempt(self) -> int | None:
        """Number of the retry that it waits for; of one that parks or is parked, how many were made."""
        return parse_integer(self.ours.get(names.ATTEMPT), _ATTEMPT_DIGITS_MAX)

    @property
    def first_failed_ms(self) -> int | None:
        return parse_moment(self.ours.get(names.FIRST_FAILED_MS))

    @property
    def policy(self) -> str | None:
        """The policy that decided, as the header `retry-policy` names it."""
        return decode_text(self.ours.get(names.POLICY))

    @property
    def reason(self) -> str | None:
        """Why it parks, or is parked; `not_ours` of a record that this service did not put where it lies."""
        if not self.is_ours:
            return NOT_OURS
        return decode_text(self.ours.get(names.PARKED_REASON))

    @property
    def action(self) -> str | None:
        """The action that was the last to do something to it, without the step of a ramp."""
        told = decode_text(self.ours.get(names.ACTION))
        return None if told is None else told.partition("/")[0]

    @property
    def mark(self) -> str | None:
        """Why it is never returned: `superseded`, a former version, `erased`, or `not_ours`."""
        if not self.is_ours:
            return NOT_OURS
        mark = self.ours.get(names.ACTION_BEFORE)
        return decode_text(mark) if mark in (names.SUPERSEDED, names.ERASED) else None

    @property
    def lineage(self) -> str | None:
        """The lineage that all attempts share, as the header `retry-id` has it."""
        return decode_text(self.ours.get(names.ID))

    @cached_property
    def failure(self) -> Failure:
        """The failure that the headers describe, read as at intake; of a letter that is parked by reference, as that tells it."""
        if self.value is None and (told := read_failure([*self.ours.items()])) is not None:
            return told
        theirs = [header for header in self.headers if header[0] not in names.OURS]
        where = self.source or self.place
        record = Record(where, self.key, self.value, theirs, self.record.timestamp())
        return read(record, self._registry.route(where.topic).aliases).failure

    @cached_property
    def fingerprint(self) -> str | None:
        """The fingerprint of the failure, 16 hexadecimal digits; None where nothing is known of the failure."""
        return fingerprint.compute_fingerprint(*self.failure.root)


def make_waiting_letter(where: Source, entry: Entry, registry: Registry, cursor: str) -> FoundLetter:
    source = LetterLocation(where.topic, where.partition, where.offset)
    timestamp = NO_TIMESTAMP if entry.timestamp_ms is None else (CREATE_TIME, entry.timestamp_ms)
    record = Record(source, entry.key, entry.value, entry.headers, timestamp)
    found = FoundLetter(
        str(where), cursor, entry=entry, source=source, record=record, registry=registry, failed_ms=entry.failed_at_ms
    )
    found.due_ms = where.due_at_ms
    return found


def make_parked_letter(message: Any, registry: Registry, *, discarded: bool = False) -> FoundLetter:
    """Make the letter in a record of a parking topic, or of the topic of discarded letters."""
    where = LetterLocation(message.topic(), message.partition(), message.offset())
    record = Record(where, message.key(), message.value(), read_headers(message) or [], message.timestamp())
    source, is_other = find_letter_source(message, registry), is_no_letter(message)
    # A parked letter has the timestamp of the dead letter, where the topic lets it.
    at_ms = record.timestamp()[1]
    return FoundLetter(
        str(where), str(where), entry=None, source=LetterLocation(*source) if source and not is_other else None,
        record=record, registry=registry, failed_ms=at_ms if at_ms > 0 else None, discarded=discarded,
        is_ours=is_other or source is not None,
    )  # fmt: skip


# Letters → kinds of failures, by fingerprint: how many letters have each, since when, from where, and whose they are.

# A group takes some kilobytes, and nobody reads ten thousand.
GROUPS_MAX = 10_000
# Of each kind; the rest is not listed.
NAMES_MAX = 20


@dataclass(slots=True)
class FailureGroup:
    """Failures of one kind.

    Attributes:
      cause: class of the root cause, or of the exception where no cause is named.
      message: of the root cause, without what differs: numbers, ids, quoted data.
      first_ms, last_ms: of the failures; None where no letter tells.
      topics, teams: at most `NAMES_MAX` of them.
    """

    fingerprint: str
    cause: str | None
    message: str | None
    first_ms: int | None = None
    last_ms: int | None = None
    waiting: int = 0
    parked: int = 0
    topics: set[str] = field(default_factory=set)
    teams: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        return self.waiting + self.parked

    def include_letter(self, letter: FoundLetter) -> None:
        if letter.state == "waiting":
            self.waiting += 1
        else:
            self.parked += 1
        times = [at for at in (letter.first_failed_ms, letter.failed_ms) if at is not None]
        self.first_ms = min((at for at in (*times, self.first_ms) if at is not None), default=None)
        self.last_ms = max((at for at in (*times, self.last_ms) if at is not None), default=None)
        for known, name in ((self.topics, letter.topic), (self.teams, letter.team)):
            if name is not None and len(known) < NAMES_MAX:
                known.add(name)


@dataclass(frozen=True, slots=True)
class GroupedFailures:
    """All kinds, most letters first.

    Attributes:
      unknown: letters that tell nothing of a failure, as those whose consumer drops headers.
      others: letters of further kinds, beyond `GROUPS_MAX`.
    """

    groups: list[FailureGroup]
    unknown: int
    others: int


def group_failures(letters: Iterable[FoundLetter]) -> GroupedFailures:
    groups: dict[str, FailureGroup] = {}
    unknown = others = 0
    for letter in letters:
        number = letter.fingerprint
        if number is None:
            unknown += 1
        elif number not in groups and len(groups) == GROUPS_MAX:
            others += 1
        else:
            groups.setdefault(number, _begin_group(number, letter)).include_letter(letter)
    return GroupedFailures(sorted(groups.values(), key=lambda each: (-each.count, each.fingerprint)), unknown, others)


def _begin_group(number: str, letter: FoundLetter) -> FailureGroup:
    exception, message = letter.failure.root
    if message is None:
        return FailureGroup(number, exception, None)
    return FailureGroup(number, *fingerprint.in_common(exception, message))
