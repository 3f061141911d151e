"""The log of a worker on real brokers: its clients, each made with the configuration that its task demands."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import AdminClient

from retry.kafka import client_config, offset_ranges
from retry.kafka.partition_reader import Follower
from retry.kafka.topic_ids import Changelog, Identities
from retry.kafka.interface import Bounds, Partition, Told
from retry.kafka.group_member import Member
from retry.kafka.unassigned_partitions import Orphans
from retry.kafka.transactional_producer import Transactions
from retry.settings import Settings


class Brokers:
    """See `retry.kafka.interface.Log`.

    Args:
      instance: the stable name of this worker in its groups.
      changelog: the one that it began with.
    """

    def __init__(self, settings: Settings, admin: AdminClient, instance: str, changelog: Changelog) -> None:
        self._settings, self._admin, self._instance, self._changelog = settings, admin, instance, changelog

    def writer(self, name: str) -> Transactions:
        """See `Log.writer`."""
        return Transactions(client_config.producer_config(self._settings, f"{self._settings.app_id}-{name}"))

    def follower(self) -> Follower:
        """See `Log.follower`."""
        return Follower(client_config.reader_config(self._settings))

    def member(self, group: str, subscription: list[str], gained: Told, leaving: Told, *, reads: bool = True) -> Member:
        """See `Log.member`."""
        config = client_config.consumer_config(self._settings, group, self._instance)
        orphans = Orphans(self._admin, config, subscription)
        return Member(config, subscription, orphans, gained, leaving, Identities(self._admin), reads=reads)

    def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
        """See `Log.bounds`."""
        # Whoever took offsets of another topic for those of the changelog would wipe a table that is all there is left.
        self._changelog.confirm()
        asked = list(partitions)
        starts, ends = offset_ranges.starts(self._admin, topic, asked), offset_ranges.ends(self._admin, topic, asked)
        return {n: Bounds(starts[n], ends[n]) for n in asked}

    def readable(self, places: Iterable[Partition]) -> dict[Partition, int]:
        """Where readers of committed records end now; without what no broker answered for within a few seconds."""
        return offset_ranges.readable(self._admin, places)
