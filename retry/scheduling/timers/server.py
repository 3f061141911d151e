"""The process of `retry api`: its parts put together, and a server around them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from retry.delay_queue.envelope_codec import EnvelopeCodec, make_codec
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import RocksTables
from retry.errors import SettingsInvalid
from retry.http_client.ssrf_guard import SsrfGuard, parse_allowlist
from retry.http_server import HttpServer
from retry.http_server.certificate import Certificate, read_certificate
from retry.http_server.host_names import is_loopback
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import AdminClient, OffsetBounds
from retry.kafka.reading_loop import KafkaPartitionReader
from retry.kafka.record_producer import Records
from retry.policies.registry import Registry
from retry.process import acls, start
from retry.process.certificates import CertificateWatch, register_gauges, renew_on_change
from retry.process.self_restart import THIS_PROCESS
from retry.process.start import open_traces
from retry.scheduling.timers.callers import Quotas, Tokens
from retry.scheduling.timers.read_model import FINISHED_MAX, View
from retry.scheduling.timers.routes import Web
from retry.scheduling.timers.timers import Timers
from retry.settings import Settings

# Connections are what this process is for; a worker needs most of its files for tables and calls.
_SHARE_OF_FILES = 4
# What this process writes it shows at once, so what is read may come a tenth of a second later: otherwise the brokers would send
# as many answers as timers are made.
_READING = {"fetch.min.bytes": 64 << 10}


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; raises SettingsInvalid, TopicsInvalid, BrokersUnreachable, AddressUnusable."""
    start.warn_of_insecure(settings)
    tokens = Tokens(settings.api_tokens) if settings.api_tokens else None
    host, _ = settings.api_host_port()
    if tokens is None and not is_loopback(host):
        raise SettingsInvalid("RETRY_API_TOKENS", f"not set, and {host} is not loopback; make a token with retry api token")
    certificate = read_certificate("RETRY_API", settings.api_tls_cert, settings.api_tls_key, host, "RETRY_API_ADDR")
    with renew_on_change(settings, partial(_demand_startable, settings, certificate)) as watch:
        _serve_timers(settings, tokens, certificate, watch)


def _demand_startable(settings: Settings, certificate: Certificate | None, admin: AdminClient) -> None:
    acls.demand_rights(admin, acls.API, acls.resolve_names(settings.app_id, Registry()))
    make_codec(settings)
    if settings.api_tokens:
        Tokens(settings.api_tokens)
    if certificate:
        certificate.check_usable()


def _serve_timers(settings: Settings, tokens: Tokens | None, certificate: Certificate | None, watch: CertificateWatch) -> None:
    host, port = settings.api_host_port()
    admin, names = client_config.connect_admin(settings), topics.build_topic_names(settings.app_id)
    acls.demand_rights(admin, acls.API, acls.resolve_names(settings.app_id, Registry()))
    own, changelog = topics.check_these(admin, names.changelog, [names.changelog, names.calls]), names.changelog
    codec = start.make_codec(settings, admin)
    guard, view = SsrfGuard(parse_allowlist(settings.webhook_allow)), _view(settings, admin, own, codec)
    record_bytes_max = topics.record_bytes_max(own[changelog])
    records = Records(client_config.build_records_config(settings, record_bytes_max))
    try:
        timers = Timers(view, records, guard, topic=changelog, bytes_max=record_bytes_max, codec=codec)
        quotas = Quotas(settings.api_requests_per_s, settings.api_timers_per_team, view.waiting_of)
        metrics_open, audit = bool(settings.api_metrics_open), settings.api_audit
        traces = open_traces(settings)
        web = Web(
            timers, view, tokens, quotas, metrics_open=metrics_open, certificate=certificate, audit=audit, traces=traces
        )
        register_gauges(watch, web.registry)
        hosts, share = settings.http_hosts, _SHARE_OF_FILES
        asyncio.run(_serve(HttpServer(web.app, "http", host, port, hosts=hosts, share=share, certificate=certificate)))
    finally:
        records.close()
        view.close()


def _view(settings: Settings, admin: AdminClient, own: Mapping[str, topics.Described], codec: EnvelopeCodec) -> View:
    names = topics.build_topic_names(settings.app_id)
    changelog, calls = own[names.changelog], own[names.calls]
    tables = RocksTables(
        settings.data_dir / "api" / "tables", names.changelog, topics.read_cluster_id(admin), changelog.topic_id,
        Memory(settings.table_cache_bytes), topics.compute_table_age_max_ms(changelog), adopt=True,
    )  # fmt: skip
    bounds = _find_offset_bounds(admin, names.changelog, changelog.partitions)
    called = _find_offset_bounds(admin, names.calls, calls.partitions)
    recent = {n: max(each.start, each.end - FINISHED_MAX) for n, each in called.items()}
    follower = KafkaPartitionReader(client_config.build_reader_config(settings, preferred=_READING))
    return View(follower, tables, names.changelog, names.calls, bounds, recent, codec)


def _find_offset_bounds(admin: AdminClient, topic: str, partitions: int) -> dict[int, OffsetBounds]:
    starts, ends = (of(admin, topic, range(partitions)) for of in (offset_ranges.find_starts, offset_ranges.ends))
    return {n: OffsetBounds(starts[n], ends[n]) for n in starts}


async def _serve(server: HttpServer) -> None:
    told = THIS_PROCESS.watch_end_signals()
    server.start()
    await told.wait()
    server.stop()
