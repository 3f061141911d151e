"""What must happen to each order of the demo, and what did happen according to Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from examples.orders import FOR_EVER, failures, retries_made
from examples.stage import DemoFailed
from retry.clock import Deadline
from retry.kafka.topics import build_topic_names
from retry.telemetry import offset_records

# As examples/policies.yaml has it.
MAX_ATTEMPTS = 4
KINDS = ("DLT", "retry", "parked", "processed")
_SHOWN_MAX = 5
# (kind, order id, retries made before it, or for a parked one the reason)
Event = tuple[str, str, int | str]


def expected(order_ids: Iterable[str]) -> Counter[Event]:
    """Everything that must happen, each once."""
    return Counter(event for order_id in order_ids for event in _expected(order_id))


def _expected(order_id: str) -> Iterator[Event]:
    kind, times = failures(order_id)
    if kind == "ValidationException":
        yield from (("DLT", order_id, 0), ("parked", order_id, "rule"))
        return
    yield from (("DLT", order_id, made) for made in range(min(times, MAX_ATTEMPTS + 1)))
    yield from (("retry", order_id, made) for made in range(1, min(times, MAX_ATTEMPTS) + 1))
    yield ("parked", order_id, "max_attempts") if times == FOR_EVER else ("processed", order_id, times)


def returned(order_ids: Iterable[str]) -> Counter[Event]:
    """What must happen besides when the gateway is mended, and what was parked because of it is retried once more."""
    parked = (each for each in order_ids if failures(each) == ("GatewayTimeout", FOR_EVER))
    return Counter((kind, order_id, MAX_ATTEMPTS + 1) for order_id in parked for kind in ("retry", "processed"))


class Ledger:
    """Reads the demo's topics: committed records only.

    Args:
      bootstrap_servers: of the broker.
      topics: names to numbers of partitions.
    """

    def __init__(self, bootstrap_servers: str, topics: dict[str, int]) -> None:
        self.events: Counter[Event] = Counter()
        self._retry_ends: dict[tuple[str, int], int] = {}
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo-ledger",
            "log_level": 2,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        })  # fmt: skip
        self._unread = {(topic, p) for topic, partitions in topics.items() for p in range(partitions)}
        self._consumer.assign([TopicPartition(topic, p, 0) for topic, p in self._unread])

    def read(self, seconds: float) -> None:
        """Count the events that arrive within `seconds`."""
        for message in self._consumer.consume(2_000, seconds):
            error = message.error()
            if error is None:
                self.events[_event(message)] += 1
                if str(message.topic()).endswith(".retry"):
                    self._retry_ends[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._unread.discard((message.topic(), message.partition()))
            else:
                raise KafkaException(error)

    def read_to_end(self, deadline: Deadline) -> Counter[Event]:
        """Read all topics to their ends; all events so far."""
        while self._unread and not deadline.has_passed():
            self.read(0.2)
        self._consumer.close()
        return self.events

    def await_samples(self, app_id: str, deadline: Deadline) -> None:
        """Wait until the outcomes say that consumers have committed every retry that was read: else reports call some open."""
        outcomes = build_topic_names(app_id).outcomes
        partitions = self._consumer.list_topics(outcomes, 20).topics[outcomes].partitions
        self._consumer.assign([TopicPartition(outcomes, partition, 0) for partition in partitions])
        while self._retry_ends:
            if deadline.has_passed():
                raise DemoFailed(f"time is up: it was not seen that consumers passed {self._retry_ends}")
            for message in self._consumer.consume(2_000, 0.2):
                if message.error() is None and message.key() == offset_records.KEY:
                    sample = offset_records.read(message.value() or b"")
                    partition = sample.topic, sample.partition
                    if partition in self._retry_ends and sample.offset >= self._retry_ends[partition]:
                        del self._retry_ends[partition]

    def counts(self) -> dict[str, int]:
        """How many of each kind; `recovered` are those that were processed after a retry."""
        kinds: Counter[str] = Counter()
        for (kind, _, made), times in self.events.items():
            kinds[kind] += times
            kinds["recovered"] += times * (kind == "processed" and made != 0)
        return dict.fromkeys((*KINDS, "recovered"), 0) | kinds


def differences(expected_events: Counter[Event], read_events: Counter[Event]) -> list[str]:
    """Missing and surplus events as lines of text; empty where there are none."""
    missing, surplus = expected_events - read_events, read_events - expected_events
    return [*_describe("missing", missing), *_describe("too many", surplus)]


def _describe(what: str, events: Counter[Event]) -> Iterator[str]:
    for kind in KINDS:
        of_kind = sorted((event for event in events if event[0] == kind), key=str)
        if of_kind:
            few = ", ".join(f"{order_id} ({about})" for _, order_id, about in of_kind[:_SHOWN_MAX])
            yield f"{what} on .{kind}: {sum(events[event] for event in of_kind)}, such as {few}"


def _event(message: Message) -> Event:
    kind = str(message.topic()).rpartition(".")[2]
    order_id = (message.key() or b"").decode()
    if kind == "parked":
        reason = dict(message.headers() or []).get("retry-parked-reason")
        return kind, order_id, str(reason or b"", "utf-8")
    return kind, order_id, retries_made(message)
