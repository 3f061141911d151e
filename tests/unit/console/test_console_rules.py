"""Where the console may listen: on loopback as it likes, beyond it with a sign-in and TLS alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from retry.__main__ import main
from retry.console.server import demand_safe
from retry.errors import SettingsInvalid
from retry.settings import Settings

CERT = {"console_tls_cert": Path("c.pem"), "console_tls_key": Path("k.pem")}
PROXY = {"console_tls_proxy": 1, "console_url": "https://retry.example.com"}


@pytest.mark.parametrize(("fields", "is_open"), [
    ({}, True), ({"console_addr": "[::1]:0"}, True), ({"console_addr": "localhost:1"}, True),
    ({"console_addr": "0.0.0.0:1", **CERT}, False), ({"console_addr": "0.0.0.0:1", **PROXY}, False), (PROXY, False),
    ({"console_url": "http://localhost:8082"}, True),
])  # fmt: skip
def test_what_is_safe_starts(fields: dict[str, object], is_open: bool) -> None:
    demand_safe(Settings(**fields), is_open=is_open)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fields", "is_open", "names"), [
    ({"console_addr": "0.0.0.0:1"}, True, "RETRY_CONSOLE_TOKENS: not set, and 0.0.0.0 is not loopback"),
    ({"console_addr": "0.0.0.0:1", **CERT}, True, "RETRY_CONSOLE_TOKENS: not set"),
    ({"console_addr": "0.0.0.0:1"}, False, "RETRY_CONSOLE_TLS_CERT: not set"),
    ({"console_addr": "console.internal:1"}, False, "RETRY_CONSOLE_TLS_CERT: not set"),
    (PROXY, True, "RETRY_CONSOLE_TOKENS: not set, and others come in at https://retry.example.com"),
    ({"console_url": "http://retry.example.com"}, True, "RETRY_CONSOLE_TOKENS: not set"),
    ({"console_tls_proxy": 1}, False, "RETRY_CONSOLE_URL: set the https://"),
    ({"console_tls_cert": Path("c.pem")}, True, "RETRY_CONSOLE_TLS_KEY: certificate and key go together"),
])  # fmt: skip
def test_what_is_not_says_what_to_do(fields: dict[str, object], is_open: bool, names: str) -> None:
    with pytest.raises(SettingsInvalid, match=names):
        demand_safe(Settings(**fields), is_open=is_open)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["retry.example.com", "https://retry.example.com/", "ftp://x", "https://a b"])
def test_an_address_has_a_scheme_and_a_host_and_nothing_else(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="RETRY_CONSOLE_URL"):
        Settings(console_url=url)


def test_a_token_is_made_with_its_roles() -> None:
    made = CliRunner().invoke(main, ["console", "token", "ada", "--role", "payments:operator", "--reveal", "payments"])
    assert made.exit_code == 0
    name, digest, roles, reveal = made.stdout.split()
    assert (name, len(digest), roles, reveal) == ("ada", 64, "payments:operator", "reveal:payments")
    assert made.stderr.strip() not in made.stdout
    given = ["console", "token", "ada", "--role", "payments:operator", "--until", "2999-12-31T00:00:00+00:00"]
    assert CliRunner().invoke(main, given).stdout.split()[2:] == ["payments:operator", "2999-12-31T00:00:00.000+00:00"]
    past = ["ada", "--role", "a:viewer", "--until", "2020-01-01"]
    for wrong in (["ada"], ["a b", "--role", "a:viewer"], ["ada", "--role", "a:owner"], past):
        assert CliRunner().invoke(main, ["console", "token", *wrong]).exit_code == 2
