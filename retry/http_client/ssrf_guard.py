"""The guard against calls to where nobody meant to go: inside the operator's network, to metadata services, to odd ports.

A URL is looked at twice: when a timer is made, and before each attempt. Each time its host is resolved once, every address
is judged, and the connection goes to these addresses and no others: there is no second lookup that could say something else.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from retry.errors import SettingsInvalid, UrlRefused
from retry.http_client.dns_lookups import Lookups

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
    """Parse the address that a packet comes to in the end: the IPv4 address where an IPv6 address only wraps it."""
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
    """Says where calls may go: the public Internet, and what the operator lists.

    Args:
      lookup: host and team → addresses; by default as the machine resolves.
    """

    def __init__(self, allow: Allowed = Allowed(), lookup: Lookup | None = None) -> None:  # noqa: B008 immutable
        self.lookups = Lookups()
        self._allow, self._lookup = allow, lookup or self.lookups.addresses

    async def vet_url(self, url: str, team: str) -> ResolvedHost:
        """Resolve and judge the host of a URL; it is looked up on a team's account.

        Raises:
          LookupsBusy: that team has as many lookups under way as it may; nothing was begun.
          UrlRefused: it may not be called.
          OSError: its host cannot be resolved just now.
        """
        parsed = well_formed(url)
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
def well_formed(url: str) -> URL:
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


def host_of(url: str) -> str:
    """Return the origin of a URL, which all calls to one host have in common: scheme, host and port."""
    parsed = well_formed(url)
    host = parsed.raw_host or ""
    return f"{parsed.scheme}://{f'[{host}]' if ':' in host else host.rstrip('.').lower()}:{parsed.port}"


def name_in(origin: str) -> str:
    """Find the host's name, or its address, in what `host_of` gave."""
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
