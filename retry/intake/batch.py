"""Letters that were read together, on their way through intake."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from retry import clock
from retry.dead_letters.failure import Failure
from retry.delay_queue.entry_keys import read_due_times_ms
from retry.errors import TransactionAborted
from retry.intake import attempts
from retry.intake.gather_blocks import AnyLetter, BlockFields, BlockGathering
from retry.intake.overlapping_transactions import BatchTransaction
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import KafkaException, Message, Partition
from retry.policies.route import RetryPlan, Route
from retry.record import count_bytes, read_headers
from retry.telemetry import fingerprint, outcomes
from retry.telemetry.recovery_ratio import Retry

_NEVER_MS = 1 << 62
_GATHER_S = 0.25
# A letter takes less than this from here into the table, from where it is sent when it is due.
_AHEAD_MS = 150
ProducerRows = list[dict[str, Any]]
_COUNTS = "decided", "families", "failures", "back", "parked", "came_back"


class BatchResult:
    """The rows to write and the numbers to count for one batch of letters.

    Args:
      incarnations: of topics of these letters, by partition; 0 is left out. See `retry.delay_queue.entry_keys`.

    Attributes:
      entries: changelog rows by shard, of those shards that have any.
      anywhere: changelog rows that may wait in any shard.
      blocks: letters that may wait in any shard, and whose block may still grow.
      outcomes: rows for the topic of outcomes, made from `letters` by `pack`.
      told: values of `outcomes`, kept for the spans of these letters; empty where none are sent.
      lineages: rows for the topic of lineages, by team, made from `traces` by `pack`.
      failures: letters by (team, exception or None, number of the retry that failed; 0 where it failed first).
      back: letters that had been retried, by that retry.
      came_back: letters that had been retried, by the topic that they had been sent to.
    """

    __slots__ = (
        "anywhere", "back", "blocks", "came_back", "decided", "entries", "failures", "families", "incarnations", "letters",
        "lineages", "outcomes", "parked", "told", "traces",
    )  # fmt: skip

    def __init__(self, incarnations: Mapping[Partition, int] | None = None) -> None:
        self.incarnations = incarnations or {}
        self.entries: defaultdict[int, ProducerRows] = defaultdict(list)
        self.anywhere: ProducerRows = []
        self.blocks = BlockGathering()
        self.letters: outcomes.LettersByShared = defaultdict(list)
        self.outcomes: ProducerRows = []
        self.told: list[bytes] = []
        self.traces: defaultdict[str, list[attempts.LineageFields]] = defaultdict(list)
        self.lineages: dict[str, ProducerRows] = {}
        self.decided: Counter[tuple[str, str]] = Counter()
        self.families: Counter[str] = Counter()
        self.failures: Counter[tuple[str, str | None, int]] = Counter()
        self.back: Counter[Retry] = Counter()
        self.parked: Counter[tuple[str, str, str]] = Counter()
        self.came_back: Counter[str] = Counter()

    def add_in_blocks(self, shared: BlockFields, letters: Iterable[AnyLetter], letters_max: int) -> None:
        """Add letters that may wait in any shard, in the order of their numbers, so many to a block at most."""
        self.anywhere += [{"key": key, "value": value} for key, value in self.blocks.add_letters(shared, letters, letters_max)]

    def join_later(self, later: BatchResult) -> None:
        """Add what is to be written and counted for letters that were read after these; both are packed."""
        for shard, rows in later.entries.items():
            self.entries[shard] += rows
        self.anywhere += later.anywhere
        self.outcomes += later.outcomes
        self.told += later.told
        for team, rows in later.lineages.items():
            self.lineages.setdefault(team, []).extend(rows)
        for name in _COUNTS:
            getattr(self, name).update(getattr(later, name))

    def iterate_entries(self) -> Iterator[dict[str, Any]]:
        """Return an iterator over all changelog rows of the batch, in no order."""
        return chain(self.anywhere, *self.entries.values())

    def pack(self, taken_ms: int) -> None:
        """Put all that waits, and what is to be remembered and told of it, into few records."""
        self.anywhere += [{"key": key, "value": value} for key, value in self.blocks.flush_blocks()]
        self.lineages = {team: attempts.pack_records(team, rows) for team, rows in self.traces.items()}
        self.traces.clear()
        self.outcomes += [{"key": None, "value": value} for value in outcomes.encode_outcomes(self.letters, taken_ms)]
        self.letters.clear()


class LetterBatch(NamedTuple):
    """Letters in the order in which they were read, and where reading goes on after them.

    Attributes:
      epoch: how often reading had begun anew by then.
      recreated: which of their topics were deleted and made again before the letters were read; see `GroupMember.ask_recreated`.
      size: how many bytes they have, about.
    """

    epoch: int
    messages: list[Message]
    positions: dict[Partition, ReadPosition]
    topics: frozenset[str]
    recreated: Callable[[], list[str]]
    size: int = 0
    letters: int = 0
    reads: int = 1

    def join_later(self, later: LetterBatch) -> LetterBatch:
        """Return one batch made of a batch and the one after it, once the messages of both were handed over."""
        return later._replace(
            positions={**self.positions, **later.positions},
            topics=self.topics | later.topics,
            recreated=lambda: sorted({*self.recreated(), *later.recreated()}),
            size=self.size + later.size,
            letters=self.letters + later.letters,
            reads=self.reads + later.reads,
        )

    def confirm(self) -> None:
        """Check that no topic of the letters was made anew; raises TransactionAborted where one was, or nobody can tell."""
        try:
            recreated = self.recreated()
        except (KafkaException, TimeoutError) as error:
            raise TransactionAborted(f"cannot ask whether topics are still the same: {error}") from error
        if recreated:
            raise TransactionAborted(f"deleted and made again: {', '.join(recreated)}")

    def handed_over(self) -> Iterator[Message]:
        """Yield the messages in their order, and keep none of them.

        A message that was just read is at hand in memory; later it costs far more to touch and to free.
        """
        self.messages.reverse()
        while self.messages:
            yield self.messages.pop()


class PreparedBatch(NamedTuple):
    batch: LetterBatch
    result: BatchResult

    def join_later(self, later: PreparedBatch) -> PreparedBatch:
        self.result.join_later(later.result)
        return PreparedBatch(self.batch.join_later(later.batch), self.result)

    def find_first_due_ms(self) -> int:
        """Find when the first of its entries is due, in milliseconds since 1970; far in the future where it has none."""
        keys = (row["key"] for row in self.result.iterate_entries())
        return min(read_due_times_ms(keys), default=_NEVER_MS)


class Gathering:
    """Prepared batches that will be written in one transaction, which costs the same for one letter, while none is due soon."""

    def __init__(self, may_join: Callable[[LetterBatch, LetterBatch], bool]) -> None:
        self.may_join = may_join
        self._batch: PreparedBatch | None = None
        self._until_s = 0.0

    def has_room(self, later: PreparedBatch) -> bool:
        """Whether a batch may be written in the same transaction as what is gathered."""
        return self._batch is None or self.may_join(self._batch.batch, later.batch)

    def add_batch(self, later: PreparedBatch) -> None:
        now_s = clock.monotonic_s()
        if self._batch is None:
            self._batch, self._until_s = later, now_s + _GATHER_S
        else:
            self._batch = self._batch.join_later(later)
        wait_s = (later.find_first_due_ms() - _AHEAD_MS - clock.wall_ms()) / 1_000 if self.has_room(later) else 0.0
        self._until_s = min(self._until_s, now_s + max(0.0, wait_s))

    def remaining_s(self) -> float:
        """Return how many seconds gathered letters may wait for more: 0 where another batch like the last has no room."""
        return max(0.0, self._until_s - clock.monotonic_s())

    def take_batch(self) -> PreparedBatch | None:
        """Take what is gathered, to be written; None where another one has."""
        batch, self._batch = self._batch, None
        return batch


class WrittenBatch(NamedTuple):
    """A batch in a transaction that is open: brokers have its entries and offsets, and nobody sees them yet."""

    result: BatchResult
    positions: dict[Partition, ReadPosition]
    transaction: BatchTransaction
    begun_s: float
    size: int = 0
    reads: int = 1


def make_shared_fields(
    route: Route, topic: str, partition: int, failure: Failure, plan: RetryPlan, attempt: int, reason: str | None, target: str
) -> outcomes.SharedFields:
    """Make the outcome fields that a letter has in common with others that are like it; `reason` is None where it is retried."""
    # By position: by keyword it takes twice as long.
    return outcomes.SharedFields(
        route.team,
        topic,
        partition,
        plan.name,
        attempt,
        failure.cause or failure.exception,
        "park" if reason else "retry",
        reason,
        target,
        failure.cause,
        fingerprint.compute_fingerprint(*failure.root),
        # That of the retries: their committed offsets say which were passed.
        plan.group or failure.consumer_group,
    )


# How many letters the next batch may have, so that a transaction is bounded by bytes and not only by their number.

# Nothing is known of the first batch.
_AT_FIRST = 1_000
# Headers of all of Spring's letters take 1.5 us a letter to add up, a fortieth of the time of an ingest.
_LOOKED_AT = 64


class BatchSize:
    """The number of letters for the next batch: as many as would fit, were all like those before; one may be larger."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self._records_max, self._bytes_max = records_max, bytes_max
        self.records, self._bytes_each = min(records_max, _AT_FIRST), 0

    def learn(self, messages: Sequence[Any]) -> None:
        """Expect the next letters to be of the average size of these."""
        values = sum(map(len, messages)) // len(messages)
        looked_at = messages[:: len(messages) // _LOOKED_AT + 1]
        others = sum(map(_without_value, looked_at)) // len(looked_at)
        self._bytes_each = values + others + 1
        self.limit_bytes(self._bytes_max)

    def limit_bytes(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        if self._bytes_each:
            self.records = max(1, min(self._records_max, bytes_max // self._bytes_each))

    def estimate_bytes(self, records: int) -> int:
        """Estimate how many bytes a number of letters has, if they are like those of the batch before."""
        return records * self._bytes_each


def _without_value(message: Any) -> int:
    """Bytes of the key and the headers of a letter; of the key alone where the client cannot read them."""
    return count_bytes(message.key(), None, read_headers(message) or ())
