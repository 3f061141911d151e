"""What the owner of a shard does for actions in one transaction, and what it is done with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.table.interface import ChangelogRow
from retry.delivery import return_slice
from retry.delivery.act_audit import Result
from retry.delivery.acted_entry import EntryActions
from retry.delivery.return_slice import AskParked
from retry.delivery.sweep import Looking, SweepWriter


class SliceWork(NamedTuple):
    """What one transaction does for an action.

    Attributes:
      state: the action; None where rows are only tidied up.
      rows: of slices and controls.
      results: each letter of it, and what became of it.
      elsewhere: rows of other shards, or of this one, that come behind the entries of returned letters.
    """

    state: ActionState | None
    rows: list[ChangelogRow]
    results: Sequence[tuple[Member, Result]]
    elsewhere: Sequence[tuple[int, ChangelogRow]] = ()


class Reachable(Looking, Protocol):
    """Says which topics can be written to; see `retry.delivery.admission`."""

    def closed(self, destinations: set[str]) -> dict[str, str]:
        """Those of them that cannot be, and why, as far as it is known."""
        ...

    def tripped(self, destinations: set[str], now_ms: int) -> list[str]:
        """Those of them whose circuit breaker is open."""
        ...


class Passing(NamedTuple):
    """What is known of letters that were sent.

    Attributes:
      reached: whether the consumer groups that are named have committed beyond all of them.
      silent: topics for which no group is named, or of which that cannot be known.
    """

    reached: bool
    silent: list[str]


# Asks what consumer groups have passed of what lies in some topics now; by a name, under which it is asked again until it is so.
# None while nobody knows.
AskPassed = Callable[[bytes, Sequence[str]], Passing | None]


def silence(_name: bytes, targets: Sequence[str]) -> Passing:
    """No group is named."""
    return Passing(reached=True, silent=list(targets))


class ActContext(NamedTuple):
    """What actions are done with.

    Attributes:
      audit, outcomes: the topics of who did what, and of what was decided of letters.
      bytes_max: no more letters are taken once so many bytes of them are reached.
      end: tells where the changelog partition ends now.
      ask: reads letters that rest.
      passed: asks what consumers have read.
      shards: how many there are, by which intake puts entries; 0 where that is not known.
    """

    writer: SweepWriter
    gate: Reachable
    actions: EntryActions
    audit: str
    outcomes: str
    now_ms: int
    bytes_max: int
    end: Callable[[], int]
    ask: AskParked = return_slice.nobody
    passed: AskPassed = silence
    shards: int = 0
