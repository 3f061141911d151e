"""Which hosts are answered for."""

from __future__ import annotations

import pytest

from retry.errors import SettingsInvalid
from retry.http_server.host_names import OwnHosts, _refused
from retry.settings import read_settings


@pytest.mark.parametrize("host", [
    "127.0.0.1", "127.0.0.1:8080", "10.1.2.3:8080", "[::1]:8080", "[fe80::1]", "localhost", "LOCALHOST:1", "localhost.:80",
    "bound:80", "retry.example.org", "Retry.Example.Org:8080", "a.pods.example.com", "",
])  # fmt: skip
def test_addresses_localhost_where_it_listens_and_listed_names_are_ours(host: str) -> None:
    assert OwnHosts(_refused, "bound", "retry.example.org, *.pods.example.com").is_ours(host)


@pytest.mark.parametrize("host", [
    "evil.example.com", "evil.example.com:8080", "127.0.0.1.evil.example.com", "127.0.0.1@evil.example.com", "localhost.evil.com",
    "2130706433", "0x7f000001", "retry.example.org.evil.com", "xpods.example.com", "[::1", "[::1].evil.com", "é", " ",
])  # fmt: skip
def test_names_of_others_are_not_ours(host: str) -> None:
    assert not OwnHosts(_refused, "0.0.0.0", "retry.example.org, *.pods.example.com").is_ours(host)


def test_a_star_is_every_name() -> None:
    assert OwnHosts(_refused, "127.0.0.1", "*").is_ours("any.example.com")


@pytest.mark.parametrize("hosts", ["http://retry", "retry:8080", "a b", "*.", "a..b", "*a"])
def test_what_is_no_name_is_refused(hosts: str) -> None:
    with pytest.raises(SettingsInvalid, match="RETRY_HTTP_HOSTS"):
        read_settings({"RETRY_HTTP_HOSTS": hosts})
