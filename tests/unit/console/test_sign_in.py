"""Signing in by token: cookies, sessions that end, what is refused, and attempts that are slowed down."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient

from retry.console import server as acting
from retry.console.web.oidc import RolesOfClaims
from retry.console.web.rights import Granted, Role, Viewer, make_token
from retry.console.web.sessions import Sessions
from retry.errors import SettingsInvalid
from tests.support.console import ORIGIN, FakeReplica, csrf_of, group, letter, serve_console

TOKEN, LINE = make_token("ada", Granted({"payments": Role.OPERATOR}))
OWN = {"Origin": ORIGIN}
SECURE = "https://retry.example.com"


def sign_in(browser: TestClient, token: str = TOKEN, **fields: str) -> httpx2.Response:
    return browser.post("/sign-in", data={"token": token, **fields}, headers=OWN)


def test_a_token_signs_in_and_the_cookie_is_closed_to_scripts() -> None:
    browser = serve_console(tokens=LINE).browser()
    wanted = browser.get("/letters?q=team:payments")
    assert (wanted.status_code, wanted.headers["location"]) == (303, "/sign-in?next=%2Fletters%3Fq%3Dteam%3Apayments")
    asked = browser.get(wanted.headers["location"])
    assert 'name="next" value="/letters?q=team:payments"' in asked.text
    answer = sign_in(browser, next="/letters?q=team:payments")
    assert (answer.status_code, answer.headers["location"]) == (303, "/letters?q=team:payments")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("retry-console=")
    assert ("HttpOnly" in cookie, "SameSite=lax" in cookie, "Path=/" in cookie, "Secure" in cookie) == (True, True, True, False)
    assert "ada" in browser.get("/").text


def test_with_tls_the_cookie_is_of_this_host_alone() -> None:
    browser = serve_console(tokens=LINE, secure=True, url=SECURE).browser(SECURE)
    answer = browser.post("/sign-in", data={"token": TOKEN}, headers={"Origin": SECURE})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-retry-console=")
    assert ("Secure" in cookie, "Domain" in cookie, "Path=/" in cookie) == (True, False, True)
    assert browser.get("/").status_code == 200
    assert browser.post("/sign-in", data={"token": TOKEN}, headers=OWN).status_code == 403


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\nb", "/a b", ""])
def test_who_has_signed_in_goes_nowhere_else(wanted: str) -> None:
    assert sign_in(serve_console(tokens=LINE).browser(), next=wanted).headers["location"] == "/"


def test_a_token_that_ends_signs_nobody_in_any_more_and_whoever_has_is_signed_out() -> None:
    now = [1_000_000]
    token, line = make_token("eve", Granted({"payments": Role.VIEWER}), 2_000_000)
    assert line.endswith(" payments:viewer 1970-01-01T00:33:20.000+00:00")
    made = serve_console(tokens=line, now_ms=lambda: now[0], more=[acting.build_acting_routes])
    browser, api = made.browser(), {"Authorization": f"Bearer {token}"}
    assert (sign_in(browser, token).status_code, browser.get("/").status_code) == (303, 200)
    assert made.browser().get("/api/now", headers=api).status_code == 200
    now[0] = 2_000_000
    assert browser.get("/").headers["location"] == "/sign-in?next=%2F"
    refused = sign_in(browser, token)
    told = "his token has ended at 1970-01-01T00:33:20.000+00:00; retry console token makes another"
    assert (refused.status_code, told in refused.text) == (403, True)
    by_token = browser.get("/api/now", headers=api)
    assert (by_token.status_code, by_token.json()["detail"]) == (401, f"t{told}")
    other = browser.get("/api/now", headers={"Authorization": "Bearer nonsense"})
    assert "has ended" not in other.json()["detail"]


def test_signing_in_again_ends_the_sign_in_of_before() -> None:
    browser = serve_console(tokens=LINE).browser()
    sign_in(browser)
    old = browser.cookies["retry-console"]
    sign_in(browser)
    browser.cookies.clear()
    browser.cookies.set("retry-console", old)
    assert browser.get("/").status_code == 303


def test_a_token_that_is_not_valid_is_refused_and_ten_of_them_are_slowed_down() -> None:
    now = [1_000_000]
    browser = serve_console(tokens=LINE, now_ms=lambda: now[0]).browser()
    assert [sign_in(browser, "wrong").status_code for _ in range(10)] == [403] * 10
    slowed = sign_in(browser)
    assert (slowed.status_code, slowed.headers["retry-after"]) == (429, "6")
    # The API counts to the same.
    assert browser.get("/api/letters", headers={"Authorization": "Bearer x"}).status_code in (404, 429)
    now[0] += 6_000
    assert sign_in(browser).status_code == 303
    assert sign_in(browser).status_code == 303


def test_behind_a_proxy_attempts_are_counted_for_whom_it_asks() -> None:
    made = serve_console(tokens=LINE, secure=True, url=SECURE, behind_proxy=True)
    browser = made.browser(SECURE)

    def try_to_sign_in(forwarded: str, token: str = "wrong") -> int:
        headers = {"Origin": SECURE, "X-Forwarded-For": forwarded}
        return int(browser.post("/sign-in", data={"token": token}, headers=headers).status_code)

    assert [try_to_sign_in(f"10.0.0.{n}, 192.0.2.1") for n in range(10)] == [403] * 10
    assert (try_to_sign_in("10.0.0.9, 192.0.2.1", TOKEN), try_to_sign_in("192.0.2.1, 192.0.2.2", TOKEN)) == (429, 303)
    # Some proxies write a header of their own behind what somebody sent.
    two = [("Origin", SECURE), ("X-Forwarded-For", "10.0.0.9"), ("X-Forwarded-For", "192.0.2.1")]
    assert browser.post("/sign-in", data={"token": TOKEN}, headers=two).status_code == 429


def test_who_signs_in_with_a_form_of_another_site_is_refused() -> None:
    browser = serve_console(tokens=LINE).browser()
    for headers in ({"Origin": "http://evil.example"}, {}):
        assert browser.post("/sign-in", data={"token": TOKEN}, headers=headers).status_code == 403


def test_a_sign_in_ends_when_its_time_is_over() -> None:
    now = [1_000_000]
    browser = serve_console(tokens=LINE, now_ms=lambda: now[0]).browser()
    sign_in(browser)
    now[0] += 3_599_999
    assert browser.get("/").status_code == 200
    now[0] += 1
    assert browser.get("/").status_code == 303


def test_a_form_of_somebody_who_is_signed_out_says_so_and_does_nothing() -> None:
    browser = serve_console(tokens=LINE).browser()
    answer = browser.post("/sign-out", headers=OWN)
    assert (answer.status_code, "you are signed out" in answer.text) == (401, True)


def test_sessions_are_bounded_and_forget_the_one_not_seen_for_longest() -> None:
    sessions = Sessions(1_000, lambda: 0, sessions_max=2)
    viewer = Viewer("x", {"a": Role.VIEWER})
    first, second = (sessions.begin_session(lambda: viewer)[0] for _ in range(2))
    assert sessions.find(first) is not None
    third, _ = sessions.begin_session(lambda: viewer)
    assert [sessions.find(each) is not None for each in (first, second, third)] == [True, False, True]


def test_a_right_that_is_taken_away_is_gone_at_once() -> None:
    rights: list[Viewer | None] = [Viewer("x", {"a": Role.VIEWER})]
    sessions = Sessions(1_000, lambda: 0)
    secret, _ = sessions.begin_session(lambda: rights[0])
    assert sessions.find(secret) is not None
    rights[0] = None
    assert sessions.find(secret) is None
    rights[0] = Viewer("x", {"a": Role.VIEWER})
    assert sessions.find(secret) is None


def test_on_loopback_without_a_sign_in_everybody_is_the_local_admin() -> None:
    browser = serve_console(FakeReplica([letter(1, None)], [group()])).browser()
    page = browser.get("/letters")
    assert ("local" in page.text, "Sign out" in page.text, browser.get("/sign-in").status_code) == (True, False, 404)
    assert csrf_of(browser.get("/failures/f00d").text)
    assert browser.post("/sign-out", headers=OWN).status_code == 403


def test_a_line_of_roles_of_another_form_names_itself(tmp_path: Path) -> None:
    roles = tmp_path / "roles"
    roles.write_text("staff orders:viewer\nstaff orders:owner\n")
    with pytest.raises(SettingsInvalid, match="roles:2: write the claim's value"):
        RolesOfClaims(roles, "groups")
