"""Letters that were read together, on their way through intake."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from retry.dead_letters.failure import Failure
from retry.errors import TransactionAborted
from retry.intake import attempts
from retry.intake.overlapping_transactions import BatchTransaction
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import KafkaException, Message, Partition
from retry.policies.route import Route
from retry.telemetry import fingerprint, outcomes
from retry.telemetry.recovery_ratio import Retry

ProducerRows = list[dict[str, Any]]


class BatchResult:
    """What to write and count for one batch of letters.

    Attributes:
      entries: changelog rows by shard, of those shards that have any.
      letters: what is to be told of each letter, until it is packed, by what it shares with others.
      outcomes: rows for the topic of outcomes, once it is.
      traces: what is to be remembered of each letter, until they are packed, by team.
      lineages: rows for the topic of lineages, once they are, by team.
      decided: letters by (team, decision).
      families: letters by who wrote them.
      failures: letters by (team, exception or None, number of the retry that failed; 0 where it failed first).
      back: letters that had been retried, by that retry.
      parked: letters that are given up, by (team, policy, reason).
      came_back: letters that had been retried, by the topic that they had been sent to.
    """

    __slots__ = (
        "back", "came_back", "decided", "entries", "failures", "families", "letters", "lineages", "outcomes", "parked", "traces",
    )  # fmt: skip

    def __init__(self) -> None:
        self.entries: defaultdict[int, ProducerRows] = defaultdict(list)
        self.letters: outcomes.LettersByShared = defaultdict(list)
        self.outcomes: ProducerRows = []
        self.traces: defaultdict[str, list[attempts.LineageFields]] = defaultdict(list)
        self.lineages: dict[str, ProducerRows] = {}
        self.decided: Counter[tuple[str, str]] = Counter()
        self.families: Counter[str] = Counter()
        self.failures: Counter[tuple[str, str | None, int]] = Counter()
        self.back: Counter[Retry] = Counter()
        self.parked: Counter[tuple[str, str, str]] = Counter()
        self.came_back: Counter[str] = Counter()

    def pack(self, taken_ms: int) -> None:
        """Put all that is to be remembered and told into few records."""
        self.lineages = {team: attempts.records(team, rows) for team, rows in self.traces.items()}
        self.traces.clear()
        self.outcomes += [{"key": None, "value": value} for value in outcomes.records(self.letters, taken_ms)]
        self.letters.clear()


class LetterBatch(NamedTuple):
    """Letters in the order in which they were read, and where reading goes on after them.

    Attributes:
      epoch: how often reading had begun anew by then.
      positions: of the partitions of these letters.
      recreated: which of their topics were deleted and made again before the letters were read; see `GroupMember.ask_recreated`.
    """

    epoch: int
    messages: list[Message]
    positions: dict[Partition, ReadPosition]
    topics: frozenset[str]
    recreated: Callable[[], list[str]]

    def confirm(self) -> None:
        """See that the letters are of the topics that are there now.

        Raises:
          TransactionAborted: they are not, or nobody can tell.
        """
        try:
            recreated = self.recreated()
        except (KafkaException, TimeoutError) as error:
            raise TransactionAborted(f"cannot ask whether topics are still the same: {error}") from error
        if recreated:
            raise TransactionAborted(f"deleted and made again: {', '.join(recreated)}")

    def handed_over(self) -> Iterator[Message]:
        """The messages, of which none is kept: what was just read is at hand, and later costs far more to touch and let go."""
        self.messages.reverse()
        while self.messages:
            yield self.messages.pop()


class PreparedBatch(NamedTuple):
    """A batch and what is to be written for it."""

    batch: LetterBatch
    result: BatchResult


class WrittenBatch(NamedTuple):
    """A batch in a transaction that is open: brokers have its entries and offsets, and nobody sees them yet.

    Attributes:
      positions: where reading goes on after it.
      begun_s: when, by the monotonic clock.
    """

    result: BatchResult
    positions: dict[Partition, ReadPosition]
    transaction: BatchTransaction
    begun_s: float


def shared_fields(
    route: Route, topic: str, partition: int, failure: Failure, policy: str, attempt: int, reason: str | None, target: str
) -> outcomes.SharedFields:
    """What is told of a letter, and of others that are like it.

    Args:
      reason: why it parks; None where it is retried.
    """
    # By position: by keyword it takes twice as long.
    return outcomes.SharedFields(
        route.team,
        topic,
        partition,
        policy,
        attempt,
        failure.cause or failure.exception,
        "park" if reason else "retry",
        reason,
        target,
        failure.cause,
        fingerprint.of(failure.exception, failure.cause, failure.message),
        failure.consumer_group or route.group,
    )
