"""What an operator asks of every shard, as pauses: written into every partition of the changelog, and followed up there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from retry.clock import Deadline, iso
from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause
from retry.delay_queue.table import changelog_records
from retry.errors import ActionRefused, EntryNewer, TopicsInvalid, TransactionSlow
from retry.kafka import authorization, client_config, offset_ranges, topics
from retry.kafka.authorization import Right
from retry.kafka.broker_clock import BrokerClock
from retry.kafka.interface import AdminClient, Message
from retry.kafka.reading_loop import KafkaPartitionReader
from retry.kafka.transactional_producer import KafkaTransactionalProducer, demand_arrival
from retry.policies.registry import Registry
from retry.policies.tasks import TEAM
from retry.policies.yaml_document import suggest_word
from retry.settings import Settings
from retry.telemetry.unreadable_records import UNREADABLE

_RECORDS_MAX = 5_000
_LINGER_S = 0.2
_BY_KEY = -1
# How long a quota or a slow link may hold back one order, of which records do not arrive in time again and again.
ASK_S = 60.0


@contextmanager
def open_writer(settings: Settings, admin: AdminClient, *written: str) -> Iterator[KafkaTransactionalProducer]:
    """Open a writer of transactions for these topics, under an id that nobody else has.

    Raises:
      RightMissing: this user may not write to one of them.
      BrokersUnreachable: nobody answered.
    """
    rights = [Right(authorization.TOPIC, topic, authorization.WRITE) for topic in written]
    if gone := authorization.list_missing_rights(admin, rights):
        raise authorization.build_right_missing(*gone)
    name = f"{settings.app_id}-control-{secrets.token_hex(8)}"
    writer = KafkaTransactionalProducer(client_config.build_producer_config(settings, name))
    try:
        writer.open()
        yield writer
    finally:
        writer.close()


class ShardNumbers:
    """The changelog's partitions, as whoever asks something of them needs them.

    Raises:
      TopicsInvalid: there is no changelog.
      BrokersUnreachable: nobody answered.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        own = topics.build_topic_names(settings.app_id)
        self.topic, self.audit = own.changelog, own.audit
        self.admin: AdminClient = client_config.connect_admin(settings)
        described = topics.describe(self.admin, [self.topic]).get(self.topic)
        if described is None:
            raise TopicsInvalid([f"{self.topic} is missing"], "retry topics create")
        self.count, self.record_bytes_max = described.partitions, topics.record_bytes_max(described)
        self._clock = BrokerClock(client_config.build_asking_config(settings), self.topic)

    def put_control_record(self, key: bytes, value: bytes | None, told: tuple[bytes, bytes] | None = None) -> None:
        """Put a control record into every partition, or delete it there: all of them or none.

        Args:
          told: key and value of a record for the audit topic, written in the same transaction.

        Raises:
          TransactionFailed: it is not known to be there; asking again does no harm.
          RightMissing: this user may not write there.
        """
        with self.writing(*([self.audit] if told else [])) as writer:
            self.ask_by(writer, key, value, told)

    def writing(self, *others: str) -> AbstractContextManager[KafkaTransactionalProducer]:
        """Open a writer for these partitions, and for other topics; raises as `put_control_record`."""
        return open_writer(self.settings, self.admin, self.topic, *others)

    def ask_by(
        self, writer: KafkaTransactionalProducer, key: bytes, value: bytes | None, told: tuple[bytes, bytes] | None = None
    ) -> None:
        """Put a control record into every partition as `put_control_record` does, with a writer that is open."""
        deadline = Deadline(ASK_S)
        while True:
            writer.begin()
            for partition in range(self.count):
                writer.write(self.topic, partition, [{"key": key, "value": value}])
            if told is not None:
                writer.write(self.audit, _BY_KEY, [{"key": told[0], "value": told[1]}])
            try:
                demand_arrival(writer)
                return writer.commit()
            except TransactionSlow:
                if deadline.has_passed():
                    raise
                # What was written before has used a quota up. Brokers take what another client sends first.
                writer.renew_client()

    def now_ms(self) -> int:
        """Return the brokers' time in milliseconds since 1970, by a null that every fold passes over.

        Raises:
          KafkaException, TimeoutError: nobody answered.
        """
        return self._clock.now_ms()

    def make_reader(self) -> KafkaPartitionReader:
        """Begin to follow each partition from where it ends now."""
        ends = offset_ranges.ends(self.admin, self.topic, range(self.count))
        reader = KafkaPartitionReader(client_config.build_reader_config(self.settings))
        for partition, offset in ends.items():
            reader.follow_partition(self.topic, partition, offset)
        return reader

    def list_records(self, *prefixes: bytes) -> list[dict[bytes, bytes]]:
        """List the committed records of each partition whose keys have one of the prefixes; what no version wrote is passed over.

        Raises:
          TopicsInvalid: the changelog cannot be read.
        """
        found: list[dict[bytes, bytes]] = [{} for _ in range(self.count)]
        spans = offset_ranges.find_readable_spans(self.admin, self.topic, range(self.count)).values()
        for messages in offset_ranges.read_batches(client_config.build_reader_config(self.settings), spans):
            for message in messages:
                key, value = message.key() or b"", message.value()
                if key.startswith(prefixes) and (value is None or not self._passes_over(message, key, value)):
                    rows = found[message.partition() or 0]
                    rows.pop(key, None)
                    if value is not None:
                        rows[key] = value
        return found

    def _passes_over(self, message: Message, key: bytes, value: bytes) -> bool:
        """Whether no version wrote a record; one of a newer version is left to whoever reads it."""
        try:
            unreadable = changelog_records.select_readable_rows([(key, value)]).unreadable
        except EntryNewer:
            return False
        for row in unreadable:
            UNREADABLE.pass_over(self.topic, message.partition(), message.offset(), row.why)
        return bool(unreadable)

    def follow_answers(self, key: bytes) -> Answers:
        """Follow answers to a control record that is about to be put into the changelog."""
        return Answers(self.make_reader(), key)


class Answers:
    """Follows the changelog to see which shards are `done`: they have deleted a record."""

    def __init__(self, follower: KafkaPartitionReader, key: bytes) -> None:
        self._follower, self._key = follower, key
        self.done: set[int] = set()

    def poll_answers(self) -> bool:
        """Read on for a moment, and return whether a further partition has deleted the record."""
        messages = self._follower.read(_RECORDS_MAX, _LINGER_S)
        before = len(self.done)
        self.done |= {m.partition() or 0 for m in messages if m.error() is None and m.key() == self._key and m.value() is None}
        return len(self.done) > before

    def close(self) -> None:
        self._follower.close()


# Names that a person types, held against the policy file.

_WORDS = {"team": "team", "topic": "dead-letter topic", "target": "target"}


def describe_unknown(registry: Registry, settings: Settings, scope: str, name: str) -> str:
    """Describe an unknown name, as `knows no team paymnets; did you mean payments?`; empty where the policy file knows it."""
    names = _list_known(registry, settings)[scope]
    if name in names or (scope == "topic" and (registry.reads_topic(name) or registry.defines(name))):
        return ""
    return f"knows no {_WORDS[scope]} {name}{suggest_word(name, names)}"


def _list_known(registry: Registry, settings: Settings) -> dict[str, set[str]]:
    return {
        "team": {route.team for route in registry.list_routes()} | ({TEAM} if registry.tasks else set()),
        "topic": {*registry.exact, *(registry.tasks.topics if registry.tasks else ())},
        "target": registry.list_targets() | {topics.build_topic_names(settings.app_id).parked},
    }


def pause(shards: ShardNumbers, scope: str, name: str, asked: Pause) -> None:
    """Hold back what is named, until it is resumed or the pause ends by itself; takes the place of a former pause of the same.

    Raises:
      ActionRefused: it would be over already.
      TransactionFailed: it is not known to be there; asking again does no harm.
      RightMissing: this user may not write there.
    """
    if asked.until_ms is not None and asked.until_ms <= shards.now_ms():
        raise ActionRefused(f"{iso(asked.until_ms)} is over by the brokers' time; nothing was paused")
    shards.put_control_record(control_records.pause_key(scope, name), control_records.encode(asked))


def resume(shards: ShardNumbers, scope: str, name: str) -> None:
    """End the pause of exactly this scope and name; raises as `pause`, but for `ActionRefused`."""
    shards.put_control_record(control_records.pause_key(scope, name), None)


def describe_pauses(standing: Mapping[tuple[str, str], Pause]) -> list[dict[str, str | None]]:
    """Return pauses as objects for JSON, the oldest first; the field `told` of each says in words what the pause holds back."""
    rows = sorted(standing.items(), key=lambda each: each[1].since_ms)
    return [
        {"scope": scope, "name": name or None, "told": describe_scope(scope, name), "since": iso(pause.since_ms),
         "until": iso(pause.until_ms), "reason": pause.reason or None, "by": pause.by or None}
        for (scope, name), pause in rows
    ]  # fmt: skip


def describe_scope(scope: str, name: str) -> str:
    """Describe in words what a pause holds back.

    >>> describe_scope("all", ""), describe_scope("topic", "orders.DLT"), describe_scope("team", "payments")
    ('everything', 'dead-letter topic orders.DLT', 'team payments')
    """
    return {"all": "everything", "topic": f"dead-letter topic {name}"}.get(scope, f"{scope} {name}")
