"""Puts a worker together: the context, intake, delivery, what is done now and then, and the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import NamedTuple

from retry import clock
from retry.delay_queue import envelope_codec
from retry.delay_queue.table.table_directory import RocksTables
from retry.delivery.admission import Admission
from retry.delivery.disregarded_changes import DisregardedChanges
from retry.delivery.redecide import Redecider
from retry.delivery.webhooks_in_flight import Limits, WebhooksInFlight
from retry.errors import SettingsInvalid
from retry.http_client.client import Answer, ClientCertificates, HttpRequest, WebhookClient
from retry.http_client.signatures import SETTING, SigningKeys
from retry.http_client.ssrf_guard import SsrfGuard, parse_allowlist
from retry.intake import entry_source
from retry.intake.attempts import RampedLineages, RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.attempts.lineage_follower import LineageFollower
from retry.intake.build_entry import EntryBuilder
from retry.intake.consumer import LetterConsumer
from retry.intake.entry_source import EntrySource, MakeSources
from retry.intake.intake import HomeShard, Intake
from retry.intake.read_positions import ReadPositions
from retry.kafka import client_config, topics
from retry.kafka.broker_clock import BrokerClock, TrustedClock
from retry.kafka.consumer_groups import Committed
from retry.kafka.interface import AdminClient
from retry.kafka.offset_ranges import find_ends
from retry.kafka.record_fetch import RecordFetcher
from retry.kafka.record_limits import RecordLimits
from retry.kafka.record_producer import Records
from retry.kafka.target_probe import TargetProbe
from retry.kafka.topic_ends import StartupBacklog, TopicEnds
from retry.kafka.topic_ids import TopicIds
from retry.kafka.topics import TopicNames
from retry.kafka.transaction_pace import TransactionPace
from retry.policies.registry import Registry
from retry.process import acls, policy_reload
from retry.process.periodic import PeriodicTask, PeriodicTasks
from retry.process.policy_reload import PolicyFile
from retry.reloaded_file import ReloadedFile
from retry.settings import Settings
from retry.telemetry import letter_lines
from retry.telemetry.call_records import Called
from retry.telemetry.metrics import Metrics
from retry.telemetry.spans import HttpExchange, find_traceparent
from retry.worker import passed_letters, worker_status
from retry.worker.backlog import BacklogGauges, UnreadLetters
from retry.worker.consumer_lag_samples import LagSamples, choose_shard
from retry.worker.context import Context, connect, open_tables, refuse_another_changelog, refuse_emptied_policies
from retry.worker.engine import Engine
from retry.worker.parked_letters import ParkedLetters, ParkedReferences
from retry.worker.passed_letters import PassedLetters
from retry.worker.shards.assignment import Shards
from retry.worker.shards.restore import ShardContext

_SHARDS_OPENED_AT_ONCE = 8
_DUE_SOON_EVERY_S, _OLDEST_EVERY_S = 10.0, 60.0
_TARGETS_EVERY_S, _STATUS_EVERY_S = 1.0, 1.0
_UNREAD_EVERY_S = 10.0


class IntakeSide(NamedTuple):
    context: Context
    consumer: LetterConsumer
    lineages: LineageFollower
    fetcher: RecordFetcher
    home: HomeShard

    def apply(self, registry: Registry, entry_builder: EntryBuilder, sources: Sequence[EntrySource]) -> None:
        """Decide by another policy file."""
        intake = _intake(self.context, self.lineages, self.fetcher, self.home, registry, entry_builder, sources)
        self.consumer.use(intake, entry_source.list_subscription(registry, sources))


class DeliverySide(NamedTuple):
    context: Context
    shards: Shards
    admission: Admission
    targets: TargetProbe
    record_limits: RecordLimits

    def apply(self, registry: Registry, entry_builder: EntryBuilder, sources: Sequence[EntrySource]) -> None:
        """Deliver by another policy file."""
        self.admission.use(registry, sources)
        redecider = _redecider(self.context, registry, entry_builder)
        self.shards.shard_context = self.shards.shard_context._replace(redecider=redecider)


def build(
    settings: Settings, *, adopt: bool = False, make_sources: MakeSources = entry_source.none, metrics: Metrics | None = None,
    backlog: StartupBacklog | None = None, allow_empty: bool = False,
) -> Engine:  # fmt: skip
    """Build the engine of one worker: check its topics, lock its data directory, and connect its clients.

    Args:
      adopt: whether to begin with a changelog that is not the one that was there before; else that raises ChangelogReplaced.
      make_sources: what comes in besides dead letters, under a policy file.
      backlog: what is to be taken in before anything is sent.

    Raises SettingsInvalid, PolicyFileInvalid, TopicsInvalid and DataDirInUse, which say what to do.
    """
    if settings.policies is None and make_sources is entry_source.none:
        raise SettingsInvalid("RETRY_POLICIES", "not set; give the path of the policy file")
    context = connect(settings, make_sources, metrics or Metrics(), allow_empty=allow_empty)
    if not allow_empty:
        refuse_emptied_policies(context)
    registry = context.policies.registry
    sources, tables = context.sources(registry), open_tables(context, adopt=adopt)
    if not adopt:
        refuse_another_changelog(context, tables, sources)
    entry_builder = context.entry_builder(registry)
    delivery = build_delivery(context, tables, registry, entry_builder, sources)
    home = HomeShard(context.changelog.partitions, delivery.shards.list_ready)
    intake = build_intake(context, home, registry, entry_builder, sources)
    unread = UnreadLetters(intake.consumer.list_taken, partial(find_ends, context.admin))

    def on_policies(registry: Registry) -> None:
        acls.demand_rights(context.admin, acls.WORKER, acls.resolve_names(settings.app_id, registry))
        entry_builder, sources = context.entry_builder(registry), context.sources(registry)
        intake.apply(registry, entry_builder, sources)
        delivery.apply(registry, entry_builder, sources)

    return Engine(
        letters=intake.consumer, shards=delivery.shards, recent=intake.lineages, policies=context.policies, use=on_policies,
        metrics=context.metrics,
        skew=TrustedClock(BrokerClock(client_config.build_asking_config(settings), context.names.changelog).now_ms),
        looks=[context.identity.check_changelog, *([backlog.check_backlog] if backlog else [])],
        ends=context.find_stable_offsets,
        # Sweeps may be far apart, and none is missed before its time.
        stalled_s=settings.stalled_s + settings.sweep_interval_ms / 1_000,
        backlog=backlog, rounds=housekeeping(context, delivery, unread), traces=context.traces, unread=unread,
    )  # fmt: skip


def demand_startable(settings: Settings, admin: AdminClient) -> None:
    """Check that a worker with these settings can start now, as far as files tell, and the rights of the user of `admin`.

    Raises SettingsInvalid, PolicyFileInvalid, or RightMissing where a vital one is.
    """
    acls.demand_rights(admin, acls.WORKER, acls.resolve_names(settings.app_id, policy_reload.load_policies(settings)))
    envelope_codec.make_codec(settings)
    _signing_keys(settings)
    ClientCertificates(settings.webhook_certificates)


def build_intake(
    context: Context, home: HomeShard, registry: Registry, entry_builder: EntryBuilder, sources: Sequence[EntrySource]
) -> IntakeSide:
    settings, names = context.settings, context.names
    positions = ReadPositions(context.log, names.positions)
    recent, ramped = RecentLineages(settings.lineages), RampedLineages(settings.lineages)
    lineages = LineageFollower(context.log, names.lineage, context.partitions[names.lineage], recent, positions, ramped)
    fetcher = RecordFetcher(client_config.build_reader_config(settings))
    consumer = LetterConsumer(
        context.log, f"intake-{context.instance}", names.intake_group, entry_source.list_subscription(registry, sources),
        _intake(context, lineages, fetcher, home, registry, entry_builder, sources),
        positions=positions, versions=context.versions, records_max=settings.batch_records, bytes_max=settings.batch_bytes,
    )  # fmt: skip
    return IntakeSide(context, consumer, lineages, fetcher, home)


def _intake(
    context: Context, lineages: LineageFollower, fetcher: RecordFetcher, home: HomeShard, registry: Registry,
    entry_builder: EntryBuilder, sources: Sequence[EntrySource],
) -> Intake:  # fmt: skip
    counter = AttemptCounter(lineages.lineages, context.cluster_id, registry.retry_targets_by_team(), lineages.catch_up_to_now)
    names, partitions = context.names, context.partitions
    return Intake(
        registry, counter, entry_builder, fetch=fetcher.fetch, names=names, partitions=partitions, sources=sources,
        ramped=lineages.ramped, home=home,
    )  # fmt: skip


def _redecider(context: Context, registry: Registry, entry_builder: EntryBuilder) -> Redecider:
    return Redecider(registry, entry_builder, context.lineage_topic, context.changelog.partitions)


def build_delivery(
    context: Context, tables: RocksTables, registry: Registry, entry_builder: EntryBuilder, sources: Sequence[EntrySource]
) -> DeliverySide:
    settings, names = context.settings, context.names
    shards_in_all = context.changelog.partitions
    targets = TargetProbe(context.admin)
    compressed = client_config.compresses(client_config.build_producer_config(settings, ""))
    record_limits = RecordLimits(targets.ask_limits, compressed=compressed)
    timers = topics.choose_timer_topics(context.admin, names)
    admission = Admission(
        registry, {names.parked, names.discarded, timers.parked_timers}, targets.find_closed,
        lambda: shards.count_owned() / shards_in_all, sources, targets.probe_targets, record_limits,
    )
    shard_context = ShardContext(
        context.log, tables, admission, redecider=_redecider(context, registry, entry_builder),
        rows_max=settings.sweep_records or settings.batch_records, bytes_max=settings.batch_bytes,
        stale_ms=topics.compute_table_age_max_ms(context.changelog), calls=_webhooks(context, timers),
        discarded=names.discarded, audit=names.audit, outcomes=names.outcomes,
        ask_parked=_parked_letters(context).request_records, ask_passed=_passed_letters(context).request_progress,
        shards=shards_in_all, pace=TransactionPace("deliveries", settings.batch_bytes),
        disregarded=DisregardedChanges(context.metrics.tell_disregarded),
    )  # fmt: skip
    opening = ThreadPoolExecutor(_SHARDS_OPENED_AT_ONCE, "open-shard")
    standbys = range(shards_in_all if settings.standby else 0)
    writer = f"sweep-{context.instance}"
    shards = Shards(names.table_group, names.changelog, shard_context, opening.map, writer, standbys)
    # While all else is put together and the group is joined; who opens a shard waits for it, and says so where it fails again.
    opening.submit(shards.producers.open)
    return DeliverySide(context, shards, admission, targets, record_limits)


def _parked_letters(context: Context) -> ParkedLetters:
    reader, outcomes = client_config.build_reader_config(context.settings), context.names.outcomes
    references = ParkedReferences(context.admin, reader, outcomes, lambda: context.partitions[outcomes])
    fetch, topic_ids = RecordFetcher(reader).fetch, TopicIds(context.admin).fetch_ids
    return ParkedLetters(fetch, topic_ids, lambda: context.policies.registry, references.prove_claims, context.names.discarded)


def _passed_letters(context: Context) -> PassedLetters:
    def read_consumer_groups() -> dict[str, set[str]]:
        # By the policy file that counts when it is asked.
        return context.policies.registry.list_group_topics()

    return passed_letters.build_passed_letters(
        read_consumer_groups, context.admin, client_config.build_reader_config(context.settings)
    )


def _webhooks(context: Context, parking: TopicNames) -> WebhooksInFlight:
    settings, metrics, traces = context.settings, context.metrics, context.traces
    guard = SsrfGuard(parse_allowlist(settings.webhook_allow))
    client = WebhookClient(guard, _signing_keys(settings), ClientCertificates(settings.webhook_certificates))
    limits = Limits(settings.calls, settings.calls_per_host, settings.call_timeout_ms)

    def report_calls(calls: list[Called]) -> None:
        metrics.tell_called(calls)
        letter_lines.log_called(calls)

    async def call(request: HttpRequest) -> Answer:
        began_ms = clock.wall_ms()
        answer = await client.call(request)
        if traces is not None:
            traces.record_exchange(HttpExchange(
                method=request.method, url=request.url, status=answer.status, error=answer.error, team=request.team,
                traceparent=find_traceparent(request.headers), began_ms=began_ms, ended_ms=began_ms + answer.took_ms,
                timer=request.id,
            ))  # fmt: skip
        return answer

    webhooks = WebhooksInFlight(call, limits, parking, report_calls, guard.lookups.is_crowded, client.close)
    metrics.watch("retry_webhooks_in_flight", webhooks.count)
    metrics.watch_each("retry_hosts_blocked", webhooks.breakers)
    return webhooks


def _signing_keys(settings: Settings) -> Callable[[], SigningKeys]:
    path = settings.webhook_secrets
    return ReloadedFile(SETTING, path, SigningKeys).current if path else SigningKeys


def housekeeping(context: Context, delivery: DeliverySide, unread: UnreadLetters) -> PeriodicTasks:
    gauges = BacklogGauges(delivery.shards.list_open_shards, partial(topics.read_retention_ms, context.admin))
    groups = partial(_select_own_groups, context.policies, context.changelog.partitions, delivery.shards)
    # Where nobody writes none is needed.
    writer = cache(lambda: Records(client_config.build_records_config(context.settings)))
    status = worker_status.of_worker(context, delivery.admission, delivery.shards, writer)
    looks = [
        PeriodicTask(_TARGETS_EVERY_S, delivery.targets.refresh),
        PeriodicTask(_TARGETS_EVERY_S, delivery.record_limits.refresh),
        *_watch_backlog(gauges, context.metrics),
        PeriodicTask(_UNREAD_EVERY_S, unread.count_letters),
        *_watch_lag(context, groups, writer),
        PeriodicTask(_STATUS_EVERY_S, status.publish_status),
    ]
    return PeriodicTasks(looks, status.report_end)


def _watch_backlog(gauges: BacklogGauges, metrics: Metrics) -> list[PeriodicTask]:
    metrics.watch_each("retry_entries_due_soon", gauges.due_soon)
    metrics.watch_each("retry_entries_held", gauges.count_held)
    metrics.watch("retry_oldest_due_seconds", gauges.oldest_s)
    metrics.watch_each("retry_retention_left_seconds", gauges.retention_left_s)
    return [PeriodicTask(_DUE_SOON_EVERY_S, gauges.look_ahead), PeriodicTask(_OLDEST_EVERY_S, gauges.look_back)]


def _select_own_groups(policies: PolicyFile, shards_in_all: int, shards: Shards) -> dict[str, set[str]]:
    """The consumer groups whose lag this worker samples, each with its topics: shared out as shards are."""
    mine = {shard.changelog.partition for shard in shards.list_open_shards()}
    named = policies.registry.list_group_topics()
    return {group: read for group, read in named.items() if choose_shard(group, shards_in_all) in mine}


def _watch_lag(context: Context, groups: Callable[[], dict[str, set[str]]], writer: Callable[[], Records]) -> list[PeriodicTask]:
    settings, admin, metrics = context.settings, context.admin, context.metrics
    outcomes = topics.build_topic_names(settings.app_id).outcomes
    partitions = context.partitions[outcomes]
    samples = LagSamples(groups, TopicEnds(admin), Committed(admin), writer, outcomes, partitions, metrics.tell_positions)
    metrics.watch("retry_offset_sample_age_seconds", samples.lag_s)
    return [PeriodicTask(settings.positions_every_s, samples.sample_groups)] if settings.positions_every_s else []


