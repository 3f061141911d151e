"""The process of `retry api`: its parts put together, and uvicorn around them."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket

import uvicorn

from retry.scheduling.timers.timers import Timers
from retry.scheduling.timers.api_tokens import Tokens
from retry.scheduling.timers.read_model import FINISHED_MAX, View
from retry.scheduling.timers.routes import Web
from retry.errors import SettingsInvalid, TopicsInvalid
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.partition_reader import Follower
from retry.kafka.interface import Bounds
from retry.kafka.record_producer import Records
from retry.settings import Settings
from retry.delivery.webhooks.ssrf_guard import Guard, listed
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import RocksTables

log = logging.getLogger(__name__)

_CONNECTIONS_MAX = 1_000
_LEAVE_S = 5
_BACKLOG = 1_024


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
      SettingsInvalid: an address other than loopback without tokens, or a file that is none.
      TopicsInvalid: a topic is missing; the message has the command that mends it.
      BrokersUnreachable: nobody answered.
    """
    tokens = Tokens(settings.api_tokens) if settings.api_tokens else None
    host, port = settings.api_host_port()
    if tokens is None and not _is_loopback(host):
        raise SettingsInvalid("RETRY_API_TOKENS", f"not set, and {host} is not loopback; make a token with retry api token")
    guard, view, records = Guard(listed(settings.webhook_allow)), _view(settings), Records(client_config.records_config(settings))
    changelog = topics.names(settings.app_id).changelog
    try:
        described = topics.check(client_config.admin(settings), settings.app_id)[changelog]
        web = Web(Timers(view, records, guard, changelog, topics.record_bytes_max(described)), view, tokens)
        _serve(web, host, port)
    finally:
        records.close()
        view.close()


def _view(settings: Settings) -> View:
    admin, names = client_config.admin(settings), topics.names(settings.app_id)
    changelog = topics.check(admin, settings.app_id)[names.changelog]
    calls = topics.describe(admin, [names.calls]).get(names.calls)
    if calls is None:
        raise TopicsInvalid([f"{names.calls} is missing"], "retry topics create")
    tables = RocksTables(
        settings.data_dir / "api" / "tables", names.changelog, topics.cluster_id(admin), changelog.topic_id,
        Memory(settings.table_cache_bytes), topics.table_age_ms_max(changelog), adopt=True,
    )  # fmt: skip
    starts, ends = (of(admin, names.changelog, range(changelog.partitions)) for of in (offset_ranges.starts, offset_ranges.ends))
    bounds = {n: Bounds(starts[n], ends[n]) for n in starts}
    first, last = (of(admin, names.calls, range(calls.partitions)) for of in (offset_ranges.starts, offset_ranges.ends))
    recent = {n: max(first[n], last[n] - FINISHED_MAX) for n in first}
    follower = Follower(client_config.reader_config(settings))
    return View(follower, tables, names.changelog, names.calls, bounds, recent)


def _serve(web: Web, host: str, port: int) -> None:
    # uvicorn ends by the signal that it was sent, once it is done; ended as it was told, this process ends well.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=_BACKLOG) as listening:
        log.info("http on %s:%d", host, listening.getsockname()[1])
        config = uvicorn.Config(
            web.app, log_config=None, access_log=False, server_header=False, lifespan="off", timeout_keep_alive=30,
            timeout_graceful_shutdown=_LEAVE_S, limit_concurrency=_CONNECTIONS_MAX, proxy_headers=False, ws="none",
        )  # fmt: skip
        asyncio.run(uvicorn.Server(config).serve([listening]))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
