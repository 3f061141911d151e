"""A proxy says who asks: believed from its own address with its secret, and from nobody else."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from retry import clock
from retry.console import server as acting
from retry.console.web.oidc import RolesOfClaims
from retry.console.web.sign_in import ProxySignIn, parse_networks
from retry.errors import SettingsInvalid
from retry.settings import Settings
from tests.support.console import ORIGIN, FakeReplica, Served, csrf_of, group, letter, serve_console

SECRET = "s" * 32
ADA = {"X-Retry-Proxy-Secret": SECRET, "X-Forwarded-User": "ada", "X-Forwarded-Groups": "staff, oncall"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    secret, roles = tmp_path / "secret", tmp_path / "roles"
    secret.write_text(f"{SECRET}\n")
    roles.write_text("oncall payments:operator\n")
    return secret, roles


def console(files: tuple[Path, Path], networks: str = "10.1.0.0/24,::1") -> Served:
    secret, roles = files
    named = RolesOfClaims(roles, "", "RETRY_CONSOLE_PROXY_ROLES")
    proxy = ProxySignIn(parse_networks(networks), secret, named, 3_600_000, clock.wall_ms)
    return serve_console(FakeReplica([letter()], [group()]), proxy=proxy, more=[acting.build_acting_routes])


def ask(made: Served, headers: dict[str, str] | list[tuple[str, str]], address: str = "10.1.0.7") -> httpx2.Response:
    browser = made.browser()
    browser._transport.client = (address, 50_000)  # type: ignore[attr-defined]
    return browser.get("/failures/f00d", headers=headers)


def test_who_comes_through_the_proxy_is_who_it_says_with_the_roles_of_the_groups(files: tuple[Path, Path]) -> None:
    first, second = console(files), console(files)
    pages = [ask(made, ADA) for made in (first, second, first)]
    assert [page.status_code for page in pages] == [200] * 3
    assert "ada" in pages[0].text
    csrf = csrf_of(pages[0].text)
    other = csrf_of(ask(first, {**ADA, "X-Forwarded-User": "eve"}).text)
    browser = second.browser()
    browser._transport.client = ("10.1.0.7", 50_000)  # type: ignore[attr-defined]
    for given, refused in ((csrf, False), (other, True), ("no token", True)):
        form = {"kind": "park", "q": "team:payments", "csrf": given}
        answer = browser.post("/act", data=form, headers={**ADA, "Origin": ORIGIN})
        assert ("the token of your sign-in" in answer.text) == refused


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        (ADA, "10.1.1.7"), (ADA, "testclient"), ({**ADA, "X-Forwarded-For": "10.1.0.7"}, "192.0.2.1"),
        ({**ADA, "X-Retry-Proxy-Secret": "t" * 32}, "10.1.0.7"),
        ({"X-Forwarded-User": "ada", "X-Forwarded-Groups": "oncall"}, "10.1.0.7"),
        ([*ADA.items(), ("X-Forwarded-User", "eve")], "10.1.0.7"), ([*ADA.items(), ("X-Retry-Proxy-Secret", SECRET)], "10.1.0.7"),
        ({**ADA, "X-Forwarded-Groups": "staff"}, "10.1.0.7"), ({**ADA, "X-Forwarded-User": " "}, "10.1.0.7"),
    ],
)  # fmt: skip
def test_what_somebody_else_says_is_not_believed(
    files: tuple[Path, Path], headers: dict[str, str] | list[tuple[str, str]], address: str
) -> None:
    answer = ask(console(files), headers, address)
    assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/sign-in")
    assert "csrf" not in answer.text


def test_without_the_settings_the_headers_mean_nothing(files: tuple[Path, Path]) -> None:
    signs_in_by_token = serve_console(FakeReplica(kinds=[group()]), tokens=f"nobody {'0' * 64} payments:viewer")
    assert ask(signs_in_by_token, ADA).status_code == 303


def test_a_role_that_is_taken_away_is_gone_with_the_next_request(files: tuple[Path, Path]) -> None:
    made = console(files)
    assert ask(made, ADA).status_code == 200
    files[1].write_text("others payments:viewer\n")
    made.console.sign_in._proxy._roles._file._reading = clock.Interval(0.0, at_once=True)  # type: ignore[union-attr]
    assert ask(made, ADA).status_code == 303


def test_settings_name_what_is_missing_or_wrong(files: tuple[Path, Path]) -> None:
    secret, roles = files
    for given, told in (
        (Settings(console_proxy_from="10.0.0.1"), "RETRY_CONSOLE_PROXY_SECRET: not set"),
        (Settings(console_proxy_secret=secret, console_proxy_roles=roles), "RETRY_CONSOLE_PROXY_FROM: not set"),
        (Settings(console_proxy_from="10.0.0.1/8", console_proxy_secret=secret, console_proxy_roles=roles), "has host bits set"),
    ):
        with pytest.raises(SettingsInvalid, match=told):
            acting._proxy(given)
    secret.write_text("short")
    with pytest.raises(SettingsInvalid, match="has no secret of 32"):
        acting._proxy(Settings(console_proxy_from="10.0.0.1", console_proxy_secret=secret, console_proxy_roles=roles))
    assert acting._proxy(Settings()) is None
