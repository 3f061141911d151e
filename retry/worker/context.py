"""What all parts of a worker stand on: settings, policies, clients, and the topics and tables that were found to be right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from retry import clock
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import RocksTables
from retry.intake.attempts import LineageTopic
from retry.intake.build_entry import EntryBuilder
from retry.intake.entry_source import EntrySource, MakeSources, QueueLimits, RecordVersions
from retry.intake.read_positions import PARTITION
from retry.kafka import client_config, topics
from retry.kafka.cluster import KafkaCluster, RenewedAdmin
from retry.kafka.interface import AdminClient, Partition
from retry.kafka.topic_ids import ChangelogIdentity, refuse_if_emptied
from retry.kafka.topics import Described, TopicNames
from retry.kafka.transactional_ids import RememberedIds
from retry.policies.registry import Registry
from retry.process import acls, start
from retry.process.policy_reload import PolicyFile, build_empty_refusal, is_empty
from retry.process.start import open_traces
from retry.settings import Settings
from retry.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from retry.telemetry.tracing import Traces

# A worker that is told to end asks, too.
_RENEWED_WITHIN_S = 2.0


class Context(NamedTuple):
    """The settings, policies, clients and topics that all parts of a worker share.

    Attributes:
      identity: tells whether the changelog is still the topic that it was at the start.
      versions: of records whose entries have names.
      traces: None where no spans are sent.
    """

    settings: Settings
    policies: PolicyFile
    make_sources: MakeSources
    metrics: Metrics
    renewed: RenewedAdmin
    instance: str
    names: TopicNames
    own: dict[str, Described]
    cluster_id: str
    identity: ChangelogIdentity
    log: KafkaCluster
    codec: EnvelopeCodec
    versions: RecordVersions
    traces: Traces | None

    @property
    def admin(self) -> AdminClient:
        return cast(AdminClient, self.renewed)

    def find_stable_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the last stable offset of each partition, without those that no broker answered for within a few seconds."""
        asked = set(partitions)
        ends = self.log.find_stable_offsets(asked)
        self.renewed.note_answered(all_answered=len(ends) == len(asked))
        return ends

    @property
    def changelog(self) -> Described:
        return self.own[self.names.changelog]

    @property
    def partitions(self) -> dict[str, int]:
        """How many partitions each of the service's own topics has."""
        return {name: topic.partitions for name, topic in self.own.items()}

    @property
    def lineage_topic(self) -> LineageTopic:
        return LineageTopic(self.names.lineage, self.own[self.names.lineage].partitions)

    def sources(self, registry: Registry) -> Sequence[EntrySource]:
        limits = QueueLimits(self.changelog.partitions, topics.record_bytes_max(self.changelog), self.versions, self.codec)
        return self.make_sources(registry, limits)

    def entry_builder(self, registry: Registry) -> EntryBuilder:
        """Make an `EntryBuilder`, whose entries the changelog and all targets of a policy file take."""
        limits = topics.read_record_limits(self.admin, self.own, registry.list_targets())
        return EntryBuilder(self.names.changelog, self.names.parked, limits, self.codec)


def connect(settings: Settings, make_sources: MakeSources, metrics: Metrics, *, allow_empty: bool = False) -> Context:
    """Read the policy file, lock the data directory, connect, and see that topics and rights are as they must be."""
    policies, names = PolicyFile(settings, allow_empty=allow_empty), topics.build_topic_names(settings.app_id)
    start.warn_of_insecure(settings)
    start.claim_directory(settings.data_dir)
    instance = start.find_instance(settings)
    renewed = RenewedAdmin(
        client_config.connect_admin(settings), partial(client_config.connect_admin, settings, _RENEWED_WITHIN_S)
    )
    admin = cast(AdminClient, renewed)
    acls.demand_rights(admin, acls.WORKER, acls.resolve_names(settings.app_id, policies.registry))
    own, cluster_id = topics.check(admin, settings.app_id), topics.read_cluster_id(admin)
    identity = ChangelogIdentity(admin, names.changelog, own[names.changelog].topic_id)
    codec = start.make_codec(settings, admin, instance)
    ids = RememberedIds(settings.data_dir / "transactional-ids.json")
    log, versions = KafkaCluster(settings, admin, instance, identity, ids), RecordVersions()
    return Context(
        settings, policies, make_sources, metrics=metrics, renewed=renewed, instance=instance, names=names, own=own,
        cluster_id=cluster_id, identity=identity, log=log, codec=codec, versions=versions, traces=open_traces(settings),
    )  # fmt: skip


def open_tables(context: Context, *, adopt: bool = False) -> RocksTables:
    settings, changelog = context.settings, context.changelog
    return RocksTables(
        settings.data_dir / "tables", context.names.changelog, context.cluster_id, changelog.topic_id,
        memory=Memory(settings.table_cache_bytes), age_ms_max=topics.compute_table_age_max_ms(changelog), adopt=adopt,
    )  # fmt: skip


def refuse_emptied_policies(context: Context) -> None:
    """Refuse a policy file without teams, which may be cut off: raise PolicyFileInvalid where letters were taken in before."""
    settings = context.settings
    if settings.policies is None or not is_empty(context.policies.registry):
        return
    if context.log.fetch_bounds(context.names.positions, [PARTITION])[PARTITION].end > 0:
        raise build_empty_refusal(settings, "this deployment has taken letters in before")


def refuse_another_changelog(context: Context, tables: RocksTables, sources: Sequence[EntrySource]) -> None:
    """Raise `ChangelogReplaced` where the changelog is not the one that tables and committed offsets belong to."""
    registry, names = context.policies.registry, context.names

    def reads_topic(topic: str) -> bool:
        return registry.reads_topic(topic) or any(source.reads_topic(topic) for source in sources)

    member = client_config.build_consumer_config(context.settings, names.intake_group, context.instance)
    refuse_if_emptied(
        context.admin, names.changelog, context.changelog.partitions, positions=names.positions, member=member, reads=reads_topic
    )
    tables.refuse_foreign(clock.wall_ms())
