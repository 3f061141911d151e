"""Consoles behind one address know each other's sign-ins by a key that all read, and so does one that was started again."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from retry import clock
from retry.console import server as acting
from retry.console.web.oidc import Client, Person, Provider, RolesOfClaims
from retry.console.web.rights import Granted, Role, make_token
from retry.console.web.sessions import CookieSeal
from retry.errors import SettingsInvalid
from tests.support.console import ORIGIN, FakeReplica, Served, csrf_of, group, letter, serve_console

TOKEN, LINE = make_token("ada", Granted({"payments": Role.OPERATOR}))
OWN = {"Origin": ORIGIN}
KEY, OTHER = "k" * 32, "o" * 64


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"# of both\n{KEY}\n")
    return path


def console(key: Path | None, tokens: str = LINE, **more: object) -> Served:
    replica = FakeReplica([letter()], [group()])
    return serve_console(replica, tokens=tokens, key=key, more=[acting.build_acting_routes], **more)  # type: ignore[arg-type]


def signed_in(made: Served) -> TestClient:
    browser = made.browser()
    assert browser.post("/sign-in", data={"token": TOKEN}, headers=OWN).status_code == 303
    return browser


def open_beside(browser: TestClient, made: Served) -> TestClient:
    """Open the same browser, whose requests another console answers."""
    other = made.browser()
    for name, value in browser.cookies.items():
        other.cookies.set(name, value)
    return other


def test_who_has_signed_in_at_one_is_known_to_the_other_and_its_forms_hold_there(key: Path) -> None:
    first, second = console(key), console(key)
    at_first = signed_in(first)
    at_second = open_beside(at_first, second)
    assert "ada" in at_second.get("/").text
    csrf = csrf_of(at_first.get("/failures/f00d").text)
    preview = {"kind": "park", "q": "team:payments", "csrf": csrf}
    assert at_second.post("/act", data=preview, headers=OWN).status_code != 403
    assert at_second.post("/sign-out", data={"csrf": "of another"}, headers=OWN).status_code == 403
    assert open_beside(at_first, console(None)).get("/").status_code == 303, "one without the key knows nobody"
    assert "ada" in open_beside(at_first, console(key)).get("/").text, "one that was started again knows it, too"


def test_a_cookie_ends_with_its_time_its_token_and_its_key_at_every_console(key: Path, tmp_path: Path) -> None:
    now = [1_000_000]
    first, second = (console(key, now_ms=lambda: now[0]) for _ in range(2))
    browser = signed_in(first)
    now[0] += 3_599_999
    assert open_beside(browser, second).get("/").status_code == 200
    now[0] += 1
    assert open_beside(browser, second).get("/").status_code == 303

    browser = signed_in(first)
    assert (
        open_beside(browser, console(key, make_token("eve", Granted({"payments": Role.VIEWER}))[1])).get("/").status_code == 303
    )
    other = tmp_path / "other"
    other.write_text(OTHER)
    assert open_beside(browser, console(other)).get("/").status_code == 303
    other.write_text(f"{OTHER}\n{KEY}\n")
    now[0] = 2_000_000
    browser = signed_in(console(key, now_ms=lambda: now[0]))
    assert open_beside(browser, console(other, now_ms=lambda: now[0])).get("/").status_code == 200, "an old key opens, too"


def test_who_signs_out_is_signed_out_where_that_was_and_has_no_cookie_for_others(key: Path) -> None:
    made = console(key)
    browser = signed_in(made)
    kept = browser.cookies["retry-console"]
    csrf = csrf_of(browser.get("/failures/f00d").text)
    assert browser.post("/sign-out", data={"csrf": csrf}, headers=OWN).status_code == 303
    assert "retry-console" not in browser.cookies
    browser.cookies.set("retry-console", kept)
    assert browser.get("/").status_code == 303


def change_seal(text: str) -> str:
    """Change a character in the last part of a sealed text, all of whose bits count, to another one."""
    at = len(text) - 5
    return text[:at] + ("B" if text[at] == "A" else "A") + text[at + 1 :]


@pytest.mark.parametrize("change", [change_seal, lambda text: text[:20], lambda _: "a.b.c.d.e", lambda _: "é"])
def test_what_no_console_has_sealed_opens_nothing(key: Path, change: object) -> None:
    seal = CookieSeal(key)
    text = seal.seal_content("session", {"token": "x"})
    assert (seal.open_content("session", text), seal.open_content("state", text)) == ({"token": "x"}, None)
    assert "token" not in text
    assert seal.open_content("session", change(text)) is None  # type: ignore[operator]
    assert CookieSeal().open_content("session", text) is None


@pytest.mark.parametrize(("text", "told"), [("short", "key:1: a key has 32 characters"), ("# none\n", "has no key")])
def test_a_file_without_a_good_key_is_refused(key: Path, text: str, told: str) -> None:
    key.write_text(text)
    with pytest.raises(SettingsInvalid, match=told):
        CookieSeal(key)


def test_a_person_of_a_provider_is_known_to_the_other_console_with_the_roles_of_its_file(key: Path, tmp_path: Path) -> None:
    roles = tmp_path / "roles"
    roles.write_text("oncall payments:operator\n")
    client = Client("http://127.0.0.1:1", "retry", None, f"{ORIGIN}/sign-in/callback")
    provider = Provider(client, RolesOfClaims(roles, "groups"), clock.wall_ms)
    first, second = (console(key, "", provider=provider) for _ in range(2))
    person = Person("ada@example.com", (*(f"group-{n:050}" for n in range(300)), "oncall"))
    secret, _ = first.console.sign_in.begin_with_provider(provider, person)
    assert len(secret) < 4_000, "browsers keep no more"
    browser = second.browser()
    browser.cookies.set("retry-console", secret)
    assert "ada@example.com" in browser.get("/").text
    assert open_beside(browser, console(key)).get("/").status_code == 303, "nobody signs in there by that way"
