"""The log of a worker on real brokers: its clients, each made with the configuration that its task demands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any

from confluent_kafka.admin import AdminClient

from retry import format_versions
from retry.clock import monotonic_s
from retry.errors import BrokersRefused, BrokersUnreachable, RetryError
from retry.kafka import client_config, offset_ranges
from retry.kafka.group_member import KafkaGroupMember
from retry.kafka.interface import OffsetBounds, OnAssigned, Partition
from retry.kafka.reading_loop import KafkaPartitionReader
from retry.kafka.refused_headers import RefusedHeaders
from retry.kafka.subscription import Subscription, UnassignedPartitions
from retry.kafka.topic_ids import ChangelogIdentity, TopicIds
from retry.kafka.transactional_ids import RememberedIds
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.settings import Settings


class KafkaCluster:
    """The topics and consumer groups of real brokers, as `retry.kafka.interface.Log` wants them."""

    def __init__(
        self, settings: Settings, admin: AdminClient, instance: str, changelog: ChangelogIdentity, ids: RememberedIds
    ) -> None:
        self._settings, self._admin, self._instance, self._changelog = settings, admin, instance, changelog
        self._ids = ids

    def make_producer(self, name: str, *, compressing: bool = False) -> KafkaTransactionalProducer:
        # Intake writes to the service's own topics alone.
        config = client_config.build_producer_config(
            self._settings, f"{self._settings.app_id}-{name}", "lz4" if name.startswith("intake-") else "none"
        )
        ids = self._ids.find_ids(config["transactional.id"])
        return KafkaTransactionalProducer(client_config.add_gzip(config) if compressing else config, ids)

    def make_reader(self) -> KafkaPartitionReader:
        return KafkaPartitionReader(client_config.build_reader_config(self._settings))

    def join_group(
        self, group: str, subscription: list[str], gained: OnAssigned, leaving: OnAssigned, *, reads: bool = True
    ) -> KafkaGroupMember:
        # Whoever asks something of the shards looks first at what their owners read. The name tells, since brokers keep what a
        # member that restarts in place was called as a client before.
        instance = self._instance if reads else format_versions.announce_instance(self._instance)
        config = client_config.build_consumer_config(self._settings, group, instance)
        orphans = UnassignedPartitions(self._admin, config, subscription)
        refused = RefusedHeaders(client_config.build_reader_config(self._settings))
        topics = Subscription(self._admin, subscription)
        return KafkaGroupMember(config, topics, orphans, gained, leaving, TopicIds(self._admin), refused)

    def fetch_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, OffsetBounds]:
        # Whoever took offsets of another topic for those of the changelog would wipe a table that is all there is left.
        self._changelog.confirm()
        numbers = list(partitions)
        starts, ends = offset_ranges.find_starts(self._admin, topic, numbers), offset_ranges.ends(self._admin, topic, numbers)
        return {n: OffsetBounds(starts[n], ends[n]) for n in numbers}

    def fetch_partition_bounds(self, partitions: Iterable[Partition]) -> dict[Partition, OffsetBounds]:
        asked = list(partitions)
        starts, ends = offset_ranges.find_first_offsets(self._admin, asked), offset_ranges.find_end_offsets(self._admin, asked)
        return {each: OffsetBounds(starts[each], ends[each]) for each in asked if each in starts and each in ends}

    def find_stable_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the last stable offset of each partition, without those that no broker answered for within a few seconds."""
        return offset_ranges.find_stable_offsets(self._admin, partitions)


# The admin client of a process that lives long: made anew where it has not been answered for a while, and brokers are there.
#
# A client of librdkafka (2.16) can lose its brokers for good, or the leaders of some partitions, and from inside that looks as
# if they did not answer:
#
# - a broker that comes back, and is not let in by its controller yet, tells of no broker at all; the client forgets all that
#   it knew, and asks nobody any more (issue 5301 of librdkafka)
# - `list_offsets` goes on asking with the leader epoch that it learnt first, and is refused (FENCED_LEADER_EPOCH); of several
#   brokers only those answer whose partitions kept their leaders
#
# To let go of such a client may never end, either: it waits for a thread of its own that waits for ever. So whoever asks does not
# do that, nor make a client that may have to be let go of: it may be the only one who watches over the process.

log = logging.getLogger(__name__)

SILENT_S = 10.0
# A partition may be without a leader for hours, and no client would hear of it.
SILENT_S_MAX = 300.0


def _run_in_background(task: Callable[[], None]) -> None:
    Thread(target=task, name="admin", daemon=True).start()


class RenewedAdmin:
    """Does whatever an `AdminClient` does, for several threads; `make` gives a new client, or raises RetryError."""

    def __init__(
        self, client: AdminClient, make: Callable[[], AdminClient],
        run: Callable[[Callable[[], None]], None] = _run_in_background,
    ) -> None:  # fmt: skip
        self._client, self._make, self._run = client, make, run
        # Calls may still be waiting for its answers.
        self._former: AdminClient | None = None
        self._answered_at_s, self._patience_s = monotonic_s(), SILENT_S

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def note_answered(self, *, all_answered: bool) -> None:
        """Note whether all that was asked for was answered; after ten seconds in which it was not, a new client is tried.

        For one thread. If that has not helped, it waits twice as long before the next one.
        """
        if all_answered:
            self._answered_at_s, self._patience_s = monotonic_s(), SILENT_S
        if monotonic_s() - self._answered_at_s < self._patience_s:
            return
        self._answered_at_s = monotonic_s()
        self._run(self._renew)

    def _renew(self) -> None:
        try:
            made = self._make()
        except RetryError as error:
            is_expected = isinstance(error, BrokersUnreachable) and not isinstance(error, BrokersRefused)
            log.log(logging.DEBUG if is_expected else logging.WARNING, "a new client is not answered, either: %s", error)
            return
        log.warning("brokers have not answered all questions for %.0f s: a new client asks from now on", self._patience_s)
        self._patience_s = min(2 * self._patience_s, SILENT_S_MAX)
        # The last but one is let go of when this returns, and not before the new one asks.
        _, self._former, self._client = self._former, self._client, made
