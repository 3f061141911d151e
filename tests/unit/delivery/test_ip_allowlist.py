"""Which addresses may be called: the corpus of ways to write one that lies inside."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from retry.http_client.ssrf_guard import is_allowed

INSIDE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
    "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip
OUTSIDE = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
]


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_not_called(address: str) -> None:
    assert not is_allowed(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_public_addresses_are_called(address: str) -> None:
    assert is_allowed(address)


def test_a_listed_network_is_called_however_its_addresses_are_written() -> None:
    listed = (ip_network("10.1.0.0/16"), ip_network("fd00:1::/32"))
    assert is_allowed("10.1.2.3", listed)
    assert is_allowed("::ffff:10.1.2.3", listed)
    assert is_allowed("fd00:1::5", listed)
    assert not is_allowed("10.2.0.1", listed)
    assert not is_allowed("::1", listed)
