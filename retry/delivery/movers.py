"""What movers of one shard have in common: they let go of what is held, reschedule, act, and cancel, in turn between two sweeps.

Each moves one batch of entries in one transaction, and keeps in memory only how far it has come: whoever owns the shard next
begins anew. Between its null and its put, in our own transaction, and the fold of that put an entry may be in no table. So who
must not miss one looks at nothing until all is folded that was moved before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.table.interface import Table
from retry.delivery.due_batch import LaneAdmission
from retry.delivery.letter_changes import GONE
from retry.delivery.redecide import Redecider
from retry.delivery.sweep import ChangelogPartition, SweepWriter

# A parked record, and the whole letter where that lies elsewhere; or why there is none.
FoundRecord = tuple[Any, Any] | str
# Asks for parked records by their places, the names of their topics given: None while they are being read, else those of the
# first places, as many as fit into memory.
AskParked = Callable[[Mapping[str, str], Sequence[bytes]], Mapping[bytes, FoundRecord] | None]


def find_no_records(_parking: Mapping[str, str], places: Sequence[bytes]) -> Mapping[bytes, FoundRecord]:
    """Finds nothing: for a worker without parking topics."""
    return dict.fromkeys(places, GONE)


class ConsumerProgress(NamedTuple):
    """Whether named consumer groups have `reached` the end of letters that were sent, and topics of which nobody knows."""

    reached: bool
    silent: list[str]


# Asks what consumer groups have passed of what lies in some topics now; by a name, under which it is asked again until it is so.
# None while nobody knows.
AskPassed = Callable[[bytes, Sequence[str]], ConsumerProgress | None]


def name_no_group(_name: bytes, targets: Sequence[str]) -> ConsumerProgress:
    """Knows of no consumer group: each topic is silent."""
    return ConsumerProgress(reached=True, silent=list(targets))


class Reachable(LaneAdmission, Protocol):
    """Says which topics can be written to; see `retry.delivery.admission`."""

    def find_closed(self, destinations: set[str]) -> dict[str, str]:
        ...

    def list_tripped(self, destinations: set[str], now_ms: int) -> list[str]:
        ...


class MoveContext(NamedTuple):
    """Everything that movers of a shard are given for one batch.

    Attributes:
      rows_max, bytes_max: no more entries are looked at, or taken, once so many, or so many bytes of them, are reached.
      discarded, audit, outcomes: topics: of letters that operators discard, of who did what, and of what was decided of letters.
      shards: how many there are, by which intake puts entries; 0 where that is not known.
    """

    writer: SweepWriter
    redecider: Redecider
    admission: Reachable
    now_ms: int
    rows_max: int
    bytes_max: int
    end: Callable[[], int]
    discarded: str
    audit: str
    outcomes: str
    ask_parked: AskParked
    ask_passed: AskPassed
    shards: int

    @property
    def codec(self) -> EnvelopeCodec:
        return self.redecider.entry_builder.codec


class Effect(Enum):
    """The meaning of a batch for the movers whose turn comes after it.

    Attributes:
      NONE: nothing that they have to know.
      HELD: entries that keep their due times are held, or are held no more. They wait for the fold, and for the next turn.
      MOVED: entries are at other places, so that whoever goes by places begins anew.
      MOVES_ON: the same, and they wait until what was asked for is done.
    """

    NONE = "none"
    HELD = "held"
    MOVED = "moved"
    MOVES_ON = "moves on"


class MovedBatch(NamedTuple):
    """One batch of a mover: how many entries it has moved, and whether all is done with it that was asked for."""

    effect: Effect = Effect.NONE
    entries: int = 0
    has_ended: bool = False


class Mover(ABC):
    """Moves entries of one shard that wait, one batch at a time."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        self._changelog, self._table = changelog, table
        # The fold must have come so far before anything is looked at; None where that is to be asked for.
        self._settled_at: int | None = 0

    @abstractmethod
    def move_batch(self, context: MoveContext) -> MovedBatch:
        """Move one batch of what is to be moved, if anything is, and log what is worth that.

        Raises TableUnreadable, EntryUnreadable as a sweep does; TransactionFailed, merely aborted, is tried again.
        """

    def await_fold(self) -> None:
        """Entries were moved, and the fold is to tell where they are now."""
        self._settled_at = None

    def is_settled(self, end: Callable[[], int]) -> bool:
        """Whether all is folded that was moved before; `end` tells where the changelog partition ends now."""
        if self._settled_at is None:
            self._settled_at = end()
        return self._table.next_offset >= self._settled_at

    def restart(self) -> None:
        """Another mover has put entries at other places; whoever goes by keys alone need not know."""
        return
