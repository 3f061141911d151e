"""What the owner of a shard does for actions in one transaction, what it is done with, and which letters it keeps as they were.

A letter that an action changes is kept as it was, in the topic of discarded letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow
from retry.delivery import return_slice
from retry.delivery.act_audit import Result
from retry.delivery.acted_entry import ActedEntry, EntryActions
from retry.delivery.refusals import Rehearsing, TopicKnowledge, diagnose
from retry.delivery.return_slice import AskParked
from retry.delivery.returned_letter import ReturnedLetter
from retry.delivery.sweep import SweepWriter
from retry.delivery.transaction_batch import renew_timestamp
from retry.kafka.record_limits import RecordRefusal, RefusedFor
from retry.kafka.refused_records import Anchor


class SliceWork(NamedTuple):
    """The rows and the results of one transaction for an action.

    Attributes:
      state: the action; None where rows are only tidied up.
      rows: changelog rows of slices and controls.
      results: each letter that is worked on, and what became of it.
      elsewhere: rows of other shards, or of this one, that come behind the entries of returned letters.
    """

    state: ActionState | None
    rows: list[ChangelogRow]
    results: Sequence[tuple[Member, Result]]
    elsewhere: Sequence[tuple[int, ChangelogRow]] = ()


class Reachable(TopicKnowledge, Protocol):
    """Says which topics can be written to; see `retry.delivery.admission`."""

    def find_closed(self, destinations: set[str]) -> dict[str, str]:
        """Return the destinations that cannot be written to, each with the reason, as far as it is known."""
        ...

    def list_tripped(self, destinations: set[str], now_ms: int) -> list[str]:
        """List the destinations whose circuit breaker is open."""
        ...


class Passing(NamedTuple):
    """The progress of consumers through letters that were sent, as far as it is known.

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
    """Everything that a shard needs to work on actions at one time.

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


def list_kept(results: Sequence[tuple[Member, Result]]) -> list[tuple[bytes, Entry]]:
    """Keys of the members that are kept as they were, and what is kept of each."""
    changed = ((member, result) for member, result in results if isinstance(result, ActedEntry | ReturnedLetter))
    return [(member.key, result.kept) for member, result in changed if result.kept is not None]


def renew_old(kept: list[Entry], gate: TopicKnowledge, now_ms: int) -> list[Entry]:
    """Letters that are to be kept, with the time of now where their topic takes none so old."""
    limits = gate.record_limits
    if not kept or not limits.has_limits():
        return kept
    refused = limits.find_refused(kept, now_ms)
    is_old = {n for n, refusal in refused.items() if refusal.cause is RefusedFor.TIME}
    return [renew_timestamp(entry) if n in is_old else entry for n, entry in enumerate(kept)]


def find_unkept(
    kept: Sequence[tuple[bytes, Entry]], writer: Rehearsing, gate: TopicKnowledge, now_ms: int, anchor: Anchor
) -> dict[bytes, RecordRefusal]:
    """Find letters that are to be kept and that their topic refuses, by the keys of their members.

    Raises:
      TransactionFailed: it could not be found out.
    """
    if not kept:
        return {}
    entries = renew_old([entry for _, entry in kept], gate, now_ms)
    return {kept[n][0]: refusal for n, refusal in diagnose(entries, writer, gate, now_ms, anchor).entries.items()}
