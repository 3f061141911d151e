"""Letters → kinds of failures, by fingerprint: how many letters have each, since when, from where, and whose they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from retry.operations.found_letter import FoundLetter
from retry.telemetry import fingerprint

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
        for names, name in ((self.topics, letter.topic), (self.teams, letter.team)):
            if name is not None and len(names) < NAMES_MAX:
                names.add(name)


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
