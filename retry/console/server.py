"""The process of `retry console`: its parts put together, and a server around them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from starlette.routing import Route
from starlette.types import ASGIApp

from retry import clock
from retry.console.acting import (
    act_pages,
    action_pages,
    api,
    audit,
    letter_edits,
    named_pages,
    note_forms,
    pauses,
    policy_pages,
    standing_actions,
)
from retry.console.acting.audit import AuditTrail
from retry.console.acting.previews import Previews
from retry.console.notifications import pages as notification_pages
from retry.console.notifications.notifier import open_notifier
from retry.console.reading.replica import Replica
from retry.console.web.app import Console
from retry.console.web.application import Assets, build_application, build_templates
from retry.console.web.live import Live
from retry.console.web.oidc import Client, Provider, RolesOfClaims
from retry.console.web.rights import Tokens
from retry.console.web.sessions import CookieSeal, Sessions
from retry.console.web.sign_in import Origin, ProxySignIn, SignIn, parse_networks
from retry.console.web.sign_in_pages import CALLBACK
from retry.errors import SettingsInvalid
from retry.http_server import HttpServer
from retry.http_server.certificate import Certificate, read_certificate
from retry.http_server.host_names import is_loopback
from retry.policies.registry import Registry
from retry.process import start
from retry.process.certificates import register_gauges, renew_on_change
from retry.process.policy_reload import is_empty, load_policies, refuse_emptied_file, watch_policies
from retry.process.self_restart import THIS_PROCESS
from retry.reloaded_file import ReloadedFile
from retry.settings import Settings
from retry.telemetry import prometheus

_ACTING = (
    act_pages, letter_edits, action_pages, pauses, policy_pages, named_pages, audit, note_forms, standing_actions, api,
    notification_pages,
)  # fmt: skip


def build_acting_routes(console: Console) -> list[Route]:
    return [route for module in _ACTING for route in module.build_routes(console)]


log = logging.getLogger(__name__)

_SHARE_OF_FILES = 4


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; raises SettingsInvalid, PolicyFileInvalid, and AddressUnusable where it is in use."""
    start.tune_process()
    start.calm_collector()
    start.warn_of_insecure(settings)
    sign_in = _sign_in(settings)
    demand_safe(settings, is_open=sign_in.is_open)
    folder = settings.data_dir / "console"
    folder.mkdir(parents=True, exist_ok=True)
    registry = watch_policies(settings)
    with ExitStack() as held:
        metrics = CollectorRegistry()
        renewal = renew_on_change(settings, lambda _admin: _demand_startable(settings, registry()))
        register_gauges(held.enter_context(renewal), metrics)
        replica = held.enter_context(closing(Replica(settings, registry, folder / "replica.sqlite")))
        audit = held.enter_context(closing(AuditTrail(settings)))
        previews = held.enter_context(closing(Previews()))
        live = Live(replica.generation, clock.wall_ms)
        assets = Assets()
        console = Console(
            settings,
            replica,
            registry,
            audit=audit,
            previews=previews,
            sign_in=sign_in,
            live=live,
            templates=build_templates(assets),
        )
        # Whether there are such decoders is said before anybody looks at a letter.
        _ = console.decoders
        certificate = _certificate(settings)
        server = _server(settings, build_application(console, assets, [build_acting_routes], certificate, metrics), certificate)
        notifier = open_notifier(settings, replica, registry)
        if notifier is not None:
            held.callback(notifier.close)
            prometheus.counters(metrics, "retry_console_notifications_total", notifier.count_sent)
        replica.start()
        if notifier is not None:
            notifier.start()
        asyncio.run(_serve(server, live))


def _demand_startable(settings: Settings, in_use: Registry) -> None:
    found = load_policies(settings)
    if not is_empty(in_use):
        refuse_emptied_file(settings, found)
    _sign_in(settings)
    _certificate(settings)


def _certificate(settings: Settings) -> Certificate | None:
    cert, key = settings.console_tls_cert, settings.console_tls_key
    host, _ = settings.console_host_port()
    return read_certificate("RETRY_CONSOLE", cert, key, host, "RETRY_CONSOLE_ADDR") if cert else None


def _server(settings: Settings, app: ASGIApp, certificate: Certificate | None) -> HttpServer:
    host, port = settings.console_host_port()
    public = urlsplit(settings.console_url).hostname or ""
    hosts = ",".join(name for name in (settings.http_hosts, public) if name)
    return HttpServer(app, "http", host, port, hosts=hosts, share=_SHARE_OF_FILES, certificate=certificate)


def demand_safe(settings: Settings, *, is_open: bool) -> None:
    """Raise SettingsInvalid where the console would be reached from elsewhere without a sign-in, or without TLS."""
    host, _ = settings.console_host_port()
    if bool(settings.console_tls_cert) != bool(settings.console_tls_key):
        reason = "certificate and key go together; set RETRY_CONSOLE_TLS_CERT too, or neither"
        raise SettingsInvalid("RETRY_CONSOLE_TLS_KEY", reason)
    if settings.console_tls_proxy and not settings.console_url.startswith("https://"):
        raise SettingsInvalid("RETRY_CONSOLE_URL", "set the https:// address that the proxy of RETRY_CONSOLE_TLS_PROXY has")
    public = urlsplit(settings.console_url).hostname
    if is_loopback(host) and not settings.console_tls_proxy and (public is None or is_loopback(public)):
        return
    if is_open:
        reason = "make a token with retry console token, or set RETRY_CONSOLE_OIDC_ISSUER"
        raise SettingsInvalid("RETRY_CONSOLE_TOKENS", f"not set, and {_find_address(settings, host)}; {reason}")
    if not (settings.console_tls_cert or settings.console_tls_proxy):
        reason = "set it and RETRY_CONSOLE_TLS_KEY, or RETRY_CONSOLE_TLS_PROXY=1 where a proxy in front speaks TLS"
        raise SettingsInvalid("RETRY_CONSOLE_TLS_CERT", f"not set, and {_find_address(settings, host)}; {reason}")


def _find_address(settings: Settings, host: str) -> str:
    return f"{host} is not loopback" if not is_loopback(host) else f"others come in at {settings.console_url}"


def _sign_in(settings: Settings) -> SignIn:
    by_proxy = bool(settings.console_tls_proxy)
    origin = Origin(bool(settings.console_tls_cert) or by_proxy, settings.console_url, by_proxy)
    tokens = Tokens(settings.console_tokens) if settings.console_tokens else None
    provider = _provider(settings) if settings.console_oidc_issuer else None
    seal = CookieSeal(settings.console_session_key)
    sessions = Sessions(settings.console_session_s * 1_000, clock.wall_ms, seal=seal)
    return SignIn(sessions, tokens, provider, origin, clock.wall_ms, seal=seal, proxy=_proxy(settings))


def _proxy(settings: Settings) -> ProxySignIn | None:
    given = {
        "FROM": settings.console_proxy_from, "SECRET": settings.console_proxy_secret, "ROLES": settings.console_proxy_roles
    }  # fmt: skip
    if not any(given.values()):
        return None
    secret, roles = settings.console_proxy_secret, settings.console_proxy_roles
    missing = next((name for name, value in given.items() if not value), None)
    if missing is not None or secret is None or roles is None:
        reason = "not set, and another of RETRY_CONSOLE_PROXY_* is: signing in by a proxy takes all three"
        raise SettingsInvalid(f"RETRY_CONSOLE_PROXY_{missing}", reason)
    networks, granted = parse_networks(settings.console_proxy_from), RolesOfClaims(roles, "", "RETRY_CONSOLE_PROXY_ROLES")
    return ProxySignIn(networks, secret, granted, settings.console_session_s * 1_000, clock.wall_ms)


def _provider(settings: Settings) -> Provider:
    issuer, roles = settings.console_oidc_issuer, settings.console_oidc_roles
    needed = (("OIDC_CLIENT_ID", settings.console_oidc_client_id), ("URL", settings.console_url), ("OIDC_ROLES", roles))
    missing = next((name for name, value in needed if not value), None)
    if missing is not None or roles is None:
        reason = "not set, and RETRY_CONSOLE_OIDC_ISSUER is: signing in there needs it"
        raise SettingsInvalid(f"RETRY_CONSOLE_{missing}", reason)
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise SettingsInvalid("RETRY_CONSOLE_OIDC_ISSUER", f"{issuer!r} is no https:// address")
    secret = None
    if settings.console_oidc_client_secret:
        secret = ReloadedFile("RETRY_CONSOLE_OIDC_CLIENT_SECRET", settings.console_oidc_client_secret, str.strip).current()
    client = Client(issuer, settings.console_oidc_client_id, secret, settings.console_url + CALLBACK)
    return Provider(client, RolesOfClaims(roles, settings.console_oidc_claim), clock.wall_ms)


async def _serve(server: HttpServer, live: Live) -> None:
    told = THIS_PROCESS.watch_end_signals()
    server.start()
    await told.wait()
    live.close()
    server.stop()
