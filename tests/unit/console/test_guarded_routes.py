"""Role × team × route, made from the routes themselves: who may call what, and what is of other teams is not there."""

from __future__ import annotations

import re
from functools import cache

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from retry.console.acting import routes as acting
from retry.console.web.granted_roles import read
from retry.console.web.guard import guarded
from retry.console.web.rights import Role
from retry.console.web.token_file import make_token
from tests.support.console import ORIGIN, FakeReplica, Served, csrf_of, group, letter, record, served

# What is in no page of a viewer of payments.
FOREIGN = "zz-foreign"
_GRANTS = {
    "viewer": "payments:viewer", "operator": "payments:operator", "admin": "payments:admin", "foreign": f"{FOREIGN}:admin",
    "every": "*:admin reveal:*",
}  # fmt: skip
_MADE = {name: make_token(name, read(grant.split()) or pytest.fail(grant)) for name, grant in _GRANTS.items()}
# By path of the route: what stands for each of its parameters where the thing is of the other team.
_IDS = {"name": "parked/0/2", "id": "0bad0bad0bad0bad"}


@cache
def console() -> Served:
    """A console of two teams, with all routes."""
    other = letter(2, FOREIGN, topic=f"{FOREIGN}.DLT", message=FOREIGN, policy=FOREIGN, group=_IDS["id"], exception=FOREIGN)
    kinds = [group(), group(_IDS["id"], (FOREIGN,), message=FOREIGN, cause=FOREIGN, topics=(f"{FOREIGN}.DLT",))]
    replica = FakeReplica([letter(1), other], kinds)
    replica.payloads.records = {f"parked/0/{n}": record(f"parked/0/{n}", b'{"a": "secret"}') for n in (1, 2)}
    return served(replica, tokens="\n".join(line for _, line in _MADE.values()), more=[acting.routes])


def routes() -> list[Route]:
    return console().console.routes


def path_of(route: Route) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: _IDS.get(found[1], "zz-none"), route.path)


@cache
def signed_in(name: str) -> TestClient:
    return _sign_in(name)


def _sign_in(name: str) -> TestClient:
    browser = console().browser()
    token = _MADE[name][0]
    assert browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN}).status_code == 303
    return browser


@cache
def token_of(name: str) -> str:
    return csrf_of(signed_in(name).get("/").text)


CASES = [(method, route) for route in routes() for method in sorted(route.methods or ()) if method != "HEAD"]
PROTECTED = [(method, route) for method, route in CASES if route.endpoint.needs is not None]
UNSAFE = [(method, route) for method, route in PROTECTED if method != "GET"]
each = lambda cases: pytest.mark.parametrize(("method", "route"), cases, ids=lambda of: of if isinstance(of, str) else of.path)  # noqa: E731


def test_there_are_routes_of_each_kind() -> None:
    assert {route.endpoint.needs for _, route in CASES} >= {None, Role.VIEWER, Role.OPERATOR}
    assert len(UNSAFE) > 10
    opened = {route.path for _, route in CASES if route.endpoint.needs is None}
    assert opened == {"/sign-in", "/static/{hash}/{name:path}", "/health/live", "/health/ready", "/metrics"} | {
        path for path in opened if path == "/api/openapi.json"
    }


def test_an_endpoint_that_does_not_say_what_it_needs_is_refused() -> None:
    with pytest.raises(TypeError, match="/x: its endpoint has no @needs"):
        guarded(Route("/x", lambda _request: None))


@each(PROTECTED)
def test_who_has_not_signed_in_gets_nothing(method: str, route: Route) -> None:
    answer = console().browser().request(method, path_of(route), headers={"Origin": ORIGIN})
    if answer.status_code == 303:
        assert answer.headers["location"].startswith("/sign-in?next=")
        assert method == "GET"
    else:
        assert answer.status_code == 401
    assert FOREIGN not in answer.text


@each([(method, route) for method, route in PROTECTED if route.path not in ("/sign-out", "/live")])
@pytest.mark.parametrize("role", list(Role))
def test_a_route_takes_its_role_in_a_team(method: str, route: Route, role: Role) -> None:
    headers = {"Origin": ORIGIN, "X-CSRF": token_of(role)}
    answer = signed_in(role).request(method, path_of(route), headers=headers)
    if role.covers(route.endpoint.needs):
        assert "and you have it in none" not in answer.text
    else:
        assert answer.status_code == 403
        assert f"this takes the role {route.endpoint.needs} in a team" in answer.text


def test_who_signs_out_is_known_no_more() -> None:
    browser = _sign_in("viewer")
    answer = browser.post("/sign-out", data={"csrf": csrf_of(browser.get("/").text)}, headers={"Origin": ORIGIN})
    assert (answer.status_code, browser.get("/").status_code) == (303, 303)


@each([(method, route) for method, route in PROTECTED if "{" in route.path])
@pytest.mark.parametrize("role", list(Role))
def test_what_is_of_another_team_is_not_there(method: str, route: Route, role: Role) -> None:
    if not role.covers(route.endpoint.needs):
        return
    answer = signed_in(role).request(method, path_of(route), headers={"Origin": ORIGIN, "X-CSRF": token_of(role)})
    assert answer.status_code in (404, 503), answer.text
    assert FOREIGN not in answer.text


@each([(method, route) for method, route in PROTECTED if "{" not in route.path and method == "GET" and route.path != "/live"])
def test_no_list_has_anything_of_another_team(method: str, route: Route) -> None:
    answer = signed_in("admin").get(route.path)
    assert FOREIGN not in answer.text
    assert answer.status_code < 500 or answer.status_code == 503


@pytest.mark.parametrize("path", ["/", "/failures", "/letters"])
def test_counts_of_other_teams_are_not_there(path: str) -> None:
    own, every = signed_in("admin").get(path).text, signed_in("every").get(path).text
    assert (FOREIGN in own, own == every) == (False, False)
    if path != "/":
        assert FOREIGN in every
        assert re.findall(r"<strong>(\d+)</strong>", own) == ["1"]
        assert re.findall(r"<strong>(\d+)</strong>", every) == ["2"]
    else:
        assert ("1 is parked" in own, "2 are parked" in every) == (True, True)


@each(UNSAFE)
def test_a_change_takes_the_token_of_the_sign_in_and_the_same_origin(method: str, route: Route) -> None:
    name, path = ("admin", path_of(route))
    own = {"Origin": ORIGIN, "X-CSRF": token_of(name)}
    forged = [
        {**own, "Origin": "http://evil.example"}, {**own, "Origin": "null"}, {**own, "Origin": ORIGIN + "0"},
        {"X-CSRF": token_of(name)}, {"Origin": ORIGIN}, {**own, "X-CSRF": token_of("viewer")}, {**own, "X-CSRF": ""},
    ]  # fmt: skip
    for headers in forged:
        answer = signed_in(name).request(method, path, headers=headers)
        assert answer.status_code == 403, headers
        assert "of this console sent this" in answer.text or "token of your sign-in is missing" in answer.text


def test_a_foreign_host_is_refused_where_nobody_signs_in() -> None:
    browser = served().browser("http://evil.example:8082")
    assert (browser.get("/").status_code, "for loopback" in browser.get("/letters").text) == (400, True)
    assert served().browser("http://localhost:8082").get("/").status_code == 200
    assert served().browser("http://[::1]:8082").get("/").status_code == 200


def test_a_body_has_at_most_a_megabyte() -> None:
    headers = {"Origin": ORIGIN, "X-CSRF": token_of("admin")}
    answer = signed_in("admin").post("/filters", content=b"x" * (1 << 20 | 1), headers=headers)
    assert answer.status_code == 413


def test_programs_get_problems_and_come_with_a_token() -> None:
    browser = console().browser()
    refused = browser.get("/api/letters")
    assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert browser.get("/api/letters", headers={"Authorization": "Bearer nonsense"}).status_code == 401
    found = browser.get("/api/letters", headers={"Authorization": f"Bearer {_MADE['viewer'][0]}"})
    assert found.status_code == 200, found.text
    assert FOREIGN not in found.text
    # A token is of the API alone.
    assert browser.get("/letters", headers={"Authorization": f"Bearer {_MADE['viewer'][0]}"}).status_code == 303


def test_every_answer_says_what_a_browser_may_do_with_it() -> None:
    browser = signed_in("admin")
    for path in ("/", "/letters?q=nonsense", "/nix", "/api/letters?x=1", "/health/live", "/sign-in"):
        headers = browser.get(path).headers
        assert headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
            "base-uri 'none'; frame-ancestors 'none'"
        )
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert "strict-transport-security" not in headers
    assert "max-age" in served(secure=True).browser("https://localhost").get("/").headers["strict-transport-security"]
