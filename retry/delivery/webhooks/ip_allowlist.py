"""Which IP addresses may be called: global unicast, and what the operator lists.

`ipaddress.is_global` alone lets through 192.0.0.192, a metadata service; 64:ff9b::7f00:1, which a NAT64 gateway takes for
127.0.0.1; 2002:7f00:1::, the same by 6to4; and all multicast.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from ipaddress import IPv4Network as IPv4Net

IpAddress = IPv4Address | IPv6Address
Network = IPv4Net | IPv6Network

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
    """Whether an address may be called.

    Args:
      text: as a resolver gives it, with a zone or without.
      listed: networks that may be called whatever they are.
    """
    address = unwrap_address(ip_address(text.partition("%")[0]))
    if is_listed(address, listed):
        return True
    if isinstance(address, IPv6Address) and address not in _GLOBAL_V6:
        return False
    return address.is_global and not is_listed(address, _DENIED)


def is_listed(address: IpAddress, listed: Iterable[Network]) -> bool:
    """Whether one of the networks holds the address."""
    return any(address.version == network.version and address in network for network in listed)


def unwrap_address(address: IpAddress) -> IpAddress:
    """The IPv4 address that a packet comes to in the end, where an IPv6 address only wraps it."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
