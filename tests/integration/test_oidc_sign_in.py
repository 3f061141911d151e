"""Signing in at an OpenID Connect provider: a real one on loopback, and what of its answers is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.testclient import TestClient

from retry import clock
from retry.console.web.oidc import Client, Provider, RolesOfClaims
from tests.support.console import ORIGIN, FakeReplica, Served, letter, serve_console
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider


@pytest.fixture(scope="module")
def oidc() -> Iterator[OidcProvider]:
    """A provider, one for all tests: its key takes a while to be made."""
    provider = OidcProvider()
    yield provider
    provider.close()


@pytest.fixture
def company(oidc: OidcProvider, tmp_path: Path) -> Served:
    """A console whose people sign in there."""
    oidc.person = {"sub": "u-1", "email": "ada@example.com", "groups": ["payments-oncall", "staff"]}
    oidc.twisted, oidc.stranger = {}, False
    roles = tmp_path / "roles"
    roles.write_text("# who may\npayments-oncall payments:operator reveal:payments\nstaff orders:viewer\n")
    client = Client(oidc.issuer, CLIENT_ID, CLIENT_SECRET, f"{ORIGIN}/sign-in/callback")
    return serve_console(
        FakeReplica([letter(1)]), provider=Provider(client, RolesOfClaims(roles, "groups"), clock.wall_ms), url=ORIGIN
    )


def gone_through(browser: TestClient) -> httpx2.Response:
    """Return what the console answers to a browser that comes back from the provider."""
    begun = browser.get("/sign-in/provider")
    assert begun.status_code == 303
    back = httpx2.get(begun.headers["location"]).headers["location"]
    return browser.get(back.removeprefix(ORIGIN))


def test_a_provider_signs_in_with_the_roles_of_its_groups(company: Served, oidc: OidcProvider) -> None:
    browser = company.browser()
    assert "/sign-in/provider" in browser.get("/sign-in").text
    redeemed = len(oidc.redeemed)
    answer = gone_through(browser)
    assert (answer.status_code, answer.headers["location"], len(oidc.redeemed)) == (303, "/", redeemed + 1)
    assert "ada@example.com" in browser.get("/").text
    page = browser.get("/letters/parked/0/1").text
    assert "Discard…" in page


def test_an_address_that_was_not_seen_to_be_the_persons_own_is_no_name(company: Served, oidc: OidcProvider) -> None:
    oidc.person |= {"email_verified": False, "preferred_username": "mallory"}
    browser = company.browser()
    gone_through(browser)
    page = browser.get("/").text
    assert ("mallory" in page, "ada@example.com" in page) == (True, False)


def test_the_browser_is_sent_with_pkce_state_and_nonce(company: Served, oidc: OidcProvider) -> None:
    location = company.browser().get("/sign-in/provider").headers["location"]
    given = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
    assert location.startswith(f"{oidc.issuer}/authorize?")
    assert (given["code_challenge_method"], given["client_id"]) == ("S256", CLIENT_ID)
    assert all(len(given[name]) >= 30 for name in ("state", "nonce", "code_challenge"))
    assert given["redirect_uri"] == f"{ORIGIN}/sign-in/callback"


def test_a_code_that_another_browser_brings_is_refused(company: Served) -> None:
    begun = company.browser().get("/sign-in/provider")
    back = httpx2.get(begun.headers["location"]).headers["location"].removeprefix(ORIGIN)
    victim = company.browser()
    answer = victim.get(back)
    assert (answer.status_code, "not begun in this browser" in answer.text) == (403, True)
    assert victim.get("/").status_code == 303


def test_a_code_is_good_once(company: Served) -> None:
    browser = company.browser()
    begun = browser.get("/sign-in/provider")
    back = httpx2.get(begun.headers["location"]).headers["location"].removeprefix(ORIGIN)
    assert (browser.get(back).status_code, browser.get(back).status_code) == (303, 403)


@pytest.mark.parametrize(("claim", "value"), [
    ("iss", "http://evil.example"), ("aud", "another-client"), ("exp", 1), ("nonce", "of-another-sign-in"), ("nonce", None),
    ("sub", None), ("azp", "another-client"), ("iat", None),
])  # fmt: skip
def test_a_token_that_was_not_made_for_this_is_refused(company: Served, oidc: OidcProvider, claim: str, value: object) -> None:
    oidc.twisted = {claim: value}
    browser = company.browser()
    answer = gone_through(browser)
    assert answer.status_code == 403
    assert re.search("cannot be trusted|made for another client", answer.text)
    assert browser.get("/").status_code == 303


def test_a_token_that_somebody_else_signed_is_refused(company: Served, oidc: OidcProvider) -> None:
    oidc.stranger = True
    answer = gone_through(company.browser())
    assert (answer.status_code, "cannot be trusted" in answer.text) == (403, True)


def test_who_has_no_role_is_told_so(company: Served, oidc: OidcProvider) -> None:
    oidc.person = {"sub": "u-2", "email": "eve@example.com", "groups": ["marketing"]}
    answer = gone_through(company.browser())
    assert (answer.status_code, "eve@example.com has signed in, and has no role here" in answer.text) == (403, True)


def test_a_provider_that_is_away_is_told_of(tmp_path: Path) -> None:
    roles = tmp_path / "roles"
    roles.write_text("staff orders:viewer\n")
    client = Client("http://127.0.0.1:1", CLIENT_ID, None, f"{ORIGIN}/sign-in/callback")
    provider = Provider(client, RolesOfClaims(roles, "groups"), lambda: 0)
    answer = serve_console(provider=provider, url=ORIGIN).browser().get("/sign-in/provider")
    assert (answer.status_code, "does not answer" in answer.text) == (502, True)
