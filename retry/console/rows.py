"""What the replica answers with. None of it has anything of SQLite."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from retry.operations.act.overview import ActionOverview


@dataclass(frozen=True, slots=True)
class Names:
    teams: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    consumer_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedFilter:
    """A filter that somebody has kept for a team; of no team it is everybody's."""

    name: str
    text: str
    team: str
    by: str


# Under their own names: what pages ask of the replica comes through here.

# The teams that a viewer may see; None is every team. Letters of no known team are seen by those alone who see every team.
Scope = frozenset[str] | None
# Nothing is counted further.
COUNT_MAX = 10_000
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class LetterRow:
    """A letter, and all that is known of it but its headers and its payload, which stay in Kafka.

    Attributes:
      name: what nothing else is called: `due/topic/partition/offset` of one that waits; of one that rests, where it is.
      state: `waiting`, `parked` or `discarded`.
      kind: `letter`, `schedule`, `task` or `timer`.
      topic, partition, offset: of the dead letter; None where a parked record does not say.
      attempt: number of the retry that it waits for; of one that rests, how many were made.
      exception, cause, message: of its failure, without framing; `frames` are the top ones of its stack, one a line.
      fingerprint: what failures of one kind share; `group` the same after merges, the id of a `Group`.
      label: what an entry with a name is called outside: the key of a schedule or a task, the id of a timer.
    """

    name: str
    state: str
    kind: str
    team: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    target: str
    key: bytes | None
    attempt: int | None
    due_at_ms: int | None
    failed_ms: int | None
    first_failed_ms: int | None
    exception: str | None
    cause: str | None
    message: str | None
    frames: str | None
    fingerprint: str | None
    group: str | None
    policy: str | None
    reason: str | None
    lineage: str | None
    consumer_group: str | None
    size_bytes: int
    behind: bool = False
    action: str | None = None
    label: str | None = None

    @property
    def letter(self) -> str | None:
        """The dead letter, as `topic/partition/offset`; None where a parked record does not say."""
        return None if self.topic is None else f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class DepartedLetter:
    """A dead letter that no longer waits or rests under the name that was asked for, as far as its outcome is kept.

    Attributes:
      letter: where it failed, as `topic/partition/offset`.
      cause: class of the root cause; `group` is the id of its kind of failure. None where no outcome tells of them.
      present: letters of the same original record that wait or rest now.
    """

    letter: str
    lineage: str
    cause: str | None
    group: str | None
    present: tuple[LetterRow, ...] = ()


class FailureState(StrEnum):
    """The state of a kind of failures; those come first that somebody should look at first."""

    NEW = "new"
    CAME_AGAIN = "came-again"
    ONGOING = "ongoing"
    RESOLVED = "resolved"

    @property
    def rank(self) -> int:
        return list(FailureState).index(self)


@dataclass(frozen=True, slots=True)
class Group:
    """Failures of one kind.

    Attributes:
      id: its fingerprint; of merged ones that of the one that they were merged into.
      cause: class of the root cause, or of the exception where none is named.
      message: without what differs: numbers, ids, quoted data.
      sent, came_back, pending: as of `Recovery`, of all attempts; the first two None where outcomes do not tell.
      owner, note, link: in the operators' words; empty where nobody wrote any.
      resolved_at_ms: since when nothing is to be done; None while it is open, also where a letter came later.
    """

    id: str
    cause: str | None
    message: str | None
    waiting: int
    parked: int
    trend: tuple[int, ...]
    first_ms: int | None
    last_ms: int | None
    sent: int | None
    came_back: int | None
    owner: str = ""
    note: str = ""
    link: str = ""
    resolved_at_ms: int | None = None
    merged: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    pending: int = 0
    consumer_groups: tuple[str, ...] = ()
    state: FailureState = FailureState.ONGOING

    @property
    def count(self) -> int:
        return self.waiting + self.parked


@dataclass(frozen=True, slots=True)
class Page(Generic[_Row]):
    """Rows, and where the next ones begin.

    Attributes:
      after: cursor of the next page; None where there is none.
      is_capped: whether there are more than that, or may be: not all were counted in the time there is.
      is_partial: whether the time was over before the page was full; the next one goes on from there.
      nothing_matches: where there is no row: the one term of the filter, as it is written, that excludes all by itself, if any.
    """

    rows: list[_Row]
    after: str | None = None
    count: int = 0
    is_capped: bool = False
    nothing_matches: str | None = None
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class DueBar:
    from_ms: int
    to_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """The results of retries of one attempt that were sent within a day.

    Attributes:
      sent: those whose consumer group passed them a settle time ago, or longer: of these it is known whether they recovered.
      came_back: those of them that failed again; the others recovered.
      pending: retries of which it is not known yet whether they recovered.
    """

    attempt: int
    sent: int
    came_back: int
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """Something that keeps letters from being sent.

    Attributes:
      what: `pause` or `action`.
      scope, name: of a pause, as `team` and `payments`; of an action its kind and its id.
      until_ms: when it ends by itself; None where it does not.
      letters: how many wait because of it, at most `COUNT_MAX`; None where that is not counted.
    """

    what: str
    scope: str
    name: str
    since_ms: int
    until_ms: int | None
    reason: str
    by: str
    letters: int | None = None


@dataclass(frozen=True, slots=True)
class ShardState:
    shard: int
    next_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker, as it says of itself.

    Attributes:
      name, host: empty where this viewer does not see every team.
      at_ms: when it was heard of last; it is silent where that is too long ago, and it did not say that it ends.
    """

    name: str
    host: str
    shards: int
    began_ms: int
    at_ms: int
    is_silent: bool
    has_ended: bool


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The circuit breaker of a target.

    Attributes:
      state: `open`, `half-open` or `closed`; of several workers the first of these that one says.
      workers: how many say that it is not closed; `why` and `since_ms` are what they say.
      letters: how many of the viewer's wait for that target, at most `COUNT_MAX`.
    """

    target: str
    state: str
    why: str
    since_ms: int | None
    workers: int
    letters: int


@dataclass(frozen=True, slots=True)
class Now:
    """The counts and states that the console shows of one moment.

    Attributes:
      waiting: letters and named entries; `named` has the latter alone.
      new_groups: kinds of failures that were first seen within 24 hours, and are open.
      due: what is due within 24 hours from `as_of_ms` on, in bars of equal length; what is overdue is not among them.
      overdue: what was due a second ago or longer, and waits.
      near_retention: letters that Kafka deletes within a day from where they rest; `near_retention_age_ms` is how long ago each
        of them failed at least, None where there is none.
      failed_by_hour, retried_by_hour: letters taken in, and retries that were sent, in each of the 24 hours that begin at
        `hours_from_ms`; the last is not over.
      actions: those that this viewer may see and that run or are on hold, the newest first.
    """

    as_of_ms: int
    waiting: int
    parked: int
    discarded: int
    named: int
    new_groups: int
    due: tuple[DueBar, ...]
    overdue: int
    oldest_overdue_ms: int | None
    recovery: tuple[Recovery, ...]
    held: tuple[Held, ...]
    near_retention: int
    shards: tuple[ShardState, ...]
    failed_by_hour: tuple[int, ...]
    retried_by_hour: tuple[int, ...]
    hours_from_ms: tuple[int, ...]
    workers: tuple[WorkerState, ...] = ()
    breakers: tuple[BreakerState, ...] = ()
    near_retention_age_ms: int | None = None
    actions: tuple[ActionOverview, ...] = ()

    @property
    def lateness_ms(self) -> int:
        """How late the oldest letter is that was due, 0 where none is; what is held counts too."""
        return 0 if self.oldest_overdue_ms is None else max(0, self.as_of_ms - self.oldest_overdue_ms)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the data is.

    Attributes:
      state: `rebuilding` until all that was there at the start is read; `live`; `catching_up` where the brokers answer and more
        is there than is folded for more than a moment; `old` where the brokers do not answer.
      as_of_ms: when the replica last was at the end of every partition, or nearly; None where it never was.
      remaining_ms: about how long it takes until it has caught up; None where that cannot be told yet, or it has.
    """

    state: str
    progress: float
    as_of_ms: int | None
    lag_records: int
    trouble: str = ""
    remaining_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """Something that happened to one original record.

    Attributes:
      what: `failed`, `due`, `sent`, `passed`, `came back`, `waiting`, `parked`, `discarded`, `action`.
      place: `topic/partition/offset`, or the topic where more is not known; of `passed`, the consumer group.
    """

    at_ms: int | None
    what: str
    attempt: int | None = None
    place: str = ""
    reason: str = ""
    by: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of the audit: what a transaction did for an action to letters of one team, or what somebody did in the console.

    Attributes:
      letters: how many it is about; `done` of these had done to them what was asked.
      results: the others, by why nothing was done.
      examples: `topic/partition/offset` of at most 20 of them.
    """

    at_ms: int
    action: str
    kind: str
    by: str
    reason: str
    shard: int
    letters: int
    done: int
    results: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    team: str | None = None
