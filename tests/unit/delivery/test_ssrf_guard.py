"""The guard: which URLs may be called, by their form and by what their host resolves to."""

from __future__ import annotations

import asyncio
import socket

import pytest

from retry.errors import SettingsInvalid, UrlRefused
from retry.http_client.ssrf_guard import SsrfGuard, find_host, parse_allowlist, parse_url

PUBLIC, LOOPBACK = "93.184.216.34", "127.0.0.1"

# What resolvers make of the ways in which addresses are written.
NAMES = {
    "example.com": [PUBLIC],
    "example.com.": [PUBLIC],
    "xn--bcher-kva.example": [PUBLIC],
    "localhost": [LOOPBACK, "::1"],
    "localhost.": [LOOPBACK],
    "one-of-two.example": [PUBLIC, "10.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "127.0.0.1.nip.io": [LOOPBACK],
    "hooks.internal": ["10.1.2.3"],
}


async def lookup(host: str, _team: str) -> list[str]:
    if host.lower() in NAMES:
        return NAMES[host.lower()]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [str(each[4][0]) for each in found]
    except socket.gaierror:
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not known") from None


def vet(url: str, allow: str = "") -> list[str]:
    return asyncio.run(SsrfGuard(parse_allowlist(allow), lookup).vet_url(url, "team")).addresses


REFUSED = [
    "http://example.com/",
    "https://example.com:22/",
    "https://example.com:8443/",
    "gopher://example.com/",
    "file:///etc/passwd",
    "ftp://example.com/",
    "//example.com/",
    "example.com",
    "https://",
    "https:///path",
    "https://user@example.com/",
    "https://user:secret@example.com/",
    "https://@example.com/",
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1#@example.com/",
    "https://example.com/#fragment",
    "https://example.com\\@127.0.0.1/",
    "https://exam ple.com/",
    "https://example.com/\r\nX-Header: 1",
    "https://example.com/a\tb",
    "https://localhost/",
    "https://localhost./",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://0/",
    "https://1.2.3.4.5/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[fe80::1%25eth0]/",
    "https://[fe80::1]/",
    "https://169.254.169.254/latest/meta-data/",
    "https://192.0.0.192/",
    "https://metadata.google.internal/",
    "https://127.0.0.1.nip.io/",
    "https://one-of-two.example/",
    "https://hooks.internal/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://exa%6dple.com:x/",
    "https://" + "a" * 3_000,
]


@pytest.mark.parametrize("url", REFUSED, ids=repr)
def test_what_may_not_be_called_is_refused(url: str) -> None:
    with pytest.raises(UrlRefused):
        vet(url)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/", "https://example.com:443/a?b=c", "https://EXAMPLE.com.", "https://bücher.example/", "https://8.8.8.8/"],
)
def test_public_hosts_are_called(url: str) -> None:
    assert vet(url) in ([PUBLIC], ["8.8.8.8"])


def test_every_address_must_be_one_that_may_be_called() -> None:
    with pytest.raises(UrlRefused):
        vet("https://one-of-two.example/")
    assert vet("https://one-of-two.example/", "10.0.0.0/8") == [PUBLIC, "10.0.0.1"]


def test_a_listed_network_may_be_called_without_tls_and_at_any_port() -> None:
    assert vet("http://127.0.0.1:8080/", "127.0.0.0/8") == [LOOPBACK]
    with pytest.raises(UrlRefused):
        vet("http://localhost:8080/", "127.0.0.0/8")
    assert vet("http://localhost:8080/", "127.0.0.0/8, ::1") == [LOOPBACK, "::1"]


def test_a_listed_name_makes_no_private_address_public() -> None:
    assert vet("http://example.com:8080/", "example.com") == [PUBLIC]
    with pytest.raises(UrlRefused):
        vet("https://hooks.internal/", "hooks.internal")
    assert vet("http://hooks.internal:81/", "hooks.internal,10.1.0.0/16") == ["10.1.2.3"]


def test_refusals_do_not_tell_what_lies_behind_a_name() -> None:
    told = set()
    for url in ("https://localhost/", "https://metadata.google.internal/", "https://hooks.internal/", "https://one-of-two.example/"):
        with pytest.raises(UrlRefused) as refused:
            vet(url)
        told.add(str(refused.value))
    assert len(told) == 1


def test_an_unknown_host_is_no_refusal() -> None:
    with pytest.raises(socket.gaierror):
        vet("https://nowhere.example/")


def test_the_vetted_addresses_are_the_only_ones_that_are_given_to_the_connection() -> None:
    answers = [[PUBLIC], [LOOPBACK]]

    async def rebinding(_host: str, _team: str) -> list[str]:
        return answers.pop(0)

    async def list_connected() -> list[str]:
        found = await SsrfGuard(lookup=rebinding).vet_url("https://rebound.example/", "team")
        return [each["host"] for each in await found.resolver().resolve("rebound.example", 443)]

    assert asyncio.run(list_connected()) == [PUBLIC]
    assert answers == [[LOOPBACK]]


def test_hosts_are_told_by_scheme_name_and_port() -> None:
    assert find_host("https://Example.com./a?b") == "https://example.com:443"
    assert find_host("http://[::1]:8080/") == "http://[::1]:8080"
    assert str(parse_url("https://example.com/a%20b?c=%2F")) == "https://example.com/a%20b?c=%2F"


@pytest.mark.parametrize("text", ["10.0.0.1/8", "not a host", "300.1.1.1", "https://x"])
def test_a_list_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="RETRY_WEBHOOK_ALLOW"):
        parse_allowlist(text)
