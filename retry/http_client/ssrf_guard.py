"""The guard against calls to where nobody meant to go: inside the operator's network, to metadata services, to odd ports.

A URL is looked at twice: when a timer is made, and before each attempt. Each time its host is resolved once, every address
is judged, and the connection goes to these addresses and no others: there is no second lookup that could say something else.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from retry.errors import LookupsBusy, SettingsInvalid, UrlRefused

# Which IP addresses may be called: global unicast, and what the operator lists.
#
# `ipaddress.is_global` alone lets through 192.0.0.192, a metadata service; 64:ff9b::7f00:1, which a NAT64 gateway takes for
# 127.0.0.1; 2002:7f00:1::, the same by 6to4; and all multicast.

IpAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_V6 = IPv6Network("2000::/3")
_DENIED = [
    ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle's metadata service
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # Azure's host agent, on an address that looks public
        "224.0.0.0/4",  # multicast
        "2001::/23",  # Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
]


@lru_cache(10_000)
def is_allowed(text: str, listed: tuple[Network, ...] = ()) -> bool:
    """Whether an address may be called: `text` is as a resolver gives it, with a zone or without; `listed` networks may be."""
    address = parse_address(text)
    if is_listed(address, listed):
        return True
    if isinstance(address, IPv6Address) and address not in _GLOBAL_V6:
        return False
    return address.is_global and not is_listed(address, _DENIED)


def is_listed(address: IpAddress, listed: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in listed)


@lru_cache(10_000)
def parse_address(text: str) -> IpAddress:
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


URL_CHARACTERS_MAX = 2_048
_AUTHORITY = re.compile(r"[A-Za-z]+://([^/?#]*)")
_UNSAFE = re.compile(r"[\s\\\x00-\x1f\x7f]")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?", re.IGNORECASE)

Lookup = Callable[[str, str], Awaitable[list[str]]]


class Allowed(NamedTuple):
    """The operator's allow-list: networks that may be called though they are not public, and hosts by name.

    Whoever is listed may be called without TLS and at any port; a name alone makes no private address public.
    """

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()


def parse_allowlist(text: str) -> Allowed:
    """Parse what operators write: networks and host names, with commas between; raises SettingsInvalid where one is neither."""
    networks, hosts = [], set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            networks.append(ip_network(part))
        except ValueError:
            if not _HOST.fullmatch(part) or _NUMBER.fullmatch(part.rstrip(".").rpartition(".")[2]):
                fault = f"{part!r} is neither a network like 10.1.0.0/16 nor a host's name"
                raise SettingsInvalid("RETRY_WEBHOOK_ALLOW", fault) from None
            hosts.add(part.rstrip(".").lower())
    return Allowed(tuple(networks), frozenset(hosts))


class ResolvedHost(NamedTuple):
    """A URL that may be called now, and the only addresses to which the call may go."""

    url: URL
    addresses: list[str]

    def resolver(self) -> AbstractResolver:
        return _Pinned(self.addresses)


class SsrfGuard:
    """Says where calls may go: the public Internet, and what the operator lists; `lookup` gives addresses for host and team."""

    def __init__(self, allow: Allowed = Allowed(), lookup: Lookup | None = None) -> None:  # noqa: B008 immutable
        self.lookups = Lookups()
        self._allow, self._lookup = allow, lookup or self.lookups.addresses

    async def vet_url(self, url: str, team: str) -> ResolvedHost:
        """Resolve and judge the host of a URL; it is looked up on a team's account.

        Raises LookupsBusy where nothing was begun, UrlRefused, and OSError where its host cannot be resolved just now.
        """
        parsed = parse_url(url)
        host, port = parsed.raw_host or "", parsed.port or 0
        found = await self._lookup(host, team)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        if not all(is_allowed(address, self._allow.networks) for address in found):
            raise UrlRefused("its host is not one that may be called")
        if (parsed.scheme != "https" or port != 443) and not self._is_listed(host, found):
            raise UrlRefused("only https and port 443 may be called, but for hosts that RETRY_WEBHOOK_ALLOW lists")
        return ResolvedHost(parsed, found)

    def _is_listed(self, host: str, addresses: Iterable[str]) -> bool:
        if host.rstrip(".").lower() in self._allow.hosts:
            return True
        return all(is_listed(parse_address(address), self._allow.networks) for address in addresses)


# A request for a timer is checked, and then its host is vetted.
@lru_cache(1_000)
def parse_url(url: str) -> URL:
    """Parse a URL that every reader of it would take to the same host; raises UrlRefused where it is none, or not a plain one."""
    if len(url) > URL_CHARACTERS_MAX:
        raise UrlRefused(f"it has more than {URL_CHARACTERS_MAX:,} characters")
    if _UNSAFE.search(url):
        raise UrlRefused("it has spaces, control characters or backslashes; escape them")
    authority = _AUTHORITY.match(url)
    try:
        # What is plain ASCII is sent as it was written; its host is judged as it stands.
        parsed = URL(url, encoded=url.isascii())
        port = parsed.port
    except (ValueError, TypeError):
        raise UrlRefused("it is no URL") from None
    if parsed.scheme not in ("http", "https") or authority is None or not parsed.raw_host or not port:
        raise UrlRefused("it is not one like https://host/path")
    if "@" in authority[1]:
        raise UrlRefused("it has a user name; send credentials as a header")
    if "#" in url:
        raise UrlRefused("it has a fragment, which is never sent")
    _check_host(parsed.raw_host)
    return parsed


def find_host(url: str) -> str:
    parsed = parse_url(url)
    host = parsed.raw_host or ""
    return f"{parsed.scheme}://{f'[{host}]' if ':' in host else host.rstrip('.').lower()}:{parsed.port}"


def name_in(origin: str) -> str:
    return origin.partition("://")[2].rpartition(":")[0].strip("[]")


@lru_cache(10_000)
def _check_host(host: str) -> None:
    if ":" in host or _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        # What ends in a number is an address; only the usual way to write one is understood alike by everybody.
        try:
            ip_address(host)
        except ValueError:
            raise UrlRefused("its host is a number that is no plain address") from None
        if "%" in host:
            raise UrlRefused("its host has a zone")
    elif not _HOST.fullmatch(host):
        raise UrlRefused("its host is no name")


class _Pinned(AbstractResolver):
    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        families = {address: socket.AF_INET6 if ":" in address else socket.AF_INET for address in self._addresses}
        return [
            ResolveResult(hostname=host, host=address, port=port, family=of, proto=0, flags=socket.AI_NUMERICHOST)
            for address, of in families.items()
            if family in (socket.AF_UNSPEC, of)
        ]

    async def close(self) -> None:
        """Do nothing, since nothing is held."""


# Lookups of host names: each in a thread of its own, and teams share out how many are under way.
#
# The machine's resolver answers when it likes, and nobody can end a thread that waits for it. So the threads are counted, and one
# team may have at most half of those that no other team has; what finds no room is not begun, and waits where it is.

_LOOKUPS = 128
# Two name servers that do not answer, and a third that does, take this long with the usual settings of a resolver.
_LOOKUP_S = 10.0


class Lookups:
    """The machine's resolver. Calls to one host at a time share an answer that is under way, and none is kept.

    Args:
      lookup_s: how long a caller waits for an answer; the thread goes on until the resolver lets go of it.
    """

    def __init__(self, total: int = _LOOKUPS, lookup_s: float = _LOOKUP_S) -> None:
        self._total, self._lookup_s = total, lookup_s
        self._lock = threading.Lock()
        # By host, the team on whose account it is looked up, and the answer.
        self._under_way: dict[str, tuple[str, Future[list[str]]]] = {}
        self._of_team: Counter[str] = Counter()

    def is_crowded(self, team: str, host: str) -> bool:
        """Whether no lookup of a host may begin for a team just now, and none is under way that it could share."""
        with self._lock:
            return self._is_crowded(team) and host not in self._under_way and not _is_address(host)

    async def addresses(self, host: str, team: str) -> list[str]:
        """Look up the addresses of a host; raises LookupsBusy where nothing was begun, OSError, TimeoutError."""
        if _is_address(host):
            return [host]
        async with asyncio.timeout(self._lookup_s):
            # One caller's deadline must not take the answer from the others.
            return await asyncio.shield(asyncio.wrap_future(self._ask_resolver(host, team)))

    def _ask_resolver(self, host: str, team: str) -> Future[list[str]]:
        with self._lock:
            if (shared := self._under_way.get(host)) is not None:
                return shared[1]
            if self._is_crowded(team):
                raise LookupsBusy(f"as many lookups of host names are under way for team {team} as may be")
            answer: Future[list[str]] = Future()
            # A daemon: a thread that hangs in the resolver must not keep the process from ending.
            threading.Thread(target=self._run_lookup, args=(host, answer), name="lookup", daemon=True).start()
            self._under_way[host] = team, answer
            self._of_team[team] += 1
            return answer

    def _run_lookup(self, host: str, answer: Future[list[str]]) -> None:
        try:
            say = partial(answer.set_result, _resolve_host(host))
        except Exception as error:
            say = partial(answer.set_exception, error)
        with self._lock:
            team, _ = self._under_way.pop(host)
            self._of_team[team] -= 1
            if not self._of_team[team]:
                del self._of_team[team]
        say()

    def _is_crowded(self, team: str) -> bool:
        return self._of_team[team] >= self._total - len(self._under_way)


def _resolve_host(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@lru_cache(10_000)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
