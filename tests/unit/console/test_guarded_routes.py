"""Role × team × route, made from the routes themselves: who may call what, and what is of other teams is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from retry.console import server as acting
from retry.console.acting import action_pages, actions, api, other_entries, standing_actions
from retry.console.folding.notes import FailingTarget, Told
from retry.console.reading import lists
from retry.console.reading.notes import ToldEvent
from retry.console.rows import AuditRow, Freshness
from retry.console.web.guard import guard_route
from retry.console.web.rights import ANY_FIELD, Role, make_token, read_roles
from retry.delay_queue import action_records, control_records
from retry.delay_queue.action_records import Action
from retry.delay_queue.control_records import Pause
from retry.delay_queue.envelopes import Entry
from retry.errors import ActionRefused
from retry.operations.act import overview
from retry.policies.policy_file import parse as policy_file
from retry.record import Headers
from retry.telemetry.call_records import Called, to_json
from retry.testing.kafka import MemoryRecord
from tests.support.acting_console import ActingReplica
from tests.support.console import NOW_MS, ORIGIN, Served, csrf_of, group, letter, record, serve_console, settings_with_rules

# What is in no page of a viewer of payments.
FOREIGN = "zz-foreign"
_GRANTS = {
    "viewer": "payments:viewer", "operator": "payments:operator", "admin": "payments:admin", "foreign": f"{FOREIGN}:admin",
    "every": "*:admin reveal:*",
}  # fmt: skip
_MADE = {name: make_token(name, read_roles(grant.split()) or pytest.fail(grant)) for name, grant in _GRANTS.items()}
_POLICIES = f"""
teams:
  payments: {{topics: [{{dead_letters: orders.DLT, retry_to: orders.retry, park_to: parked}}]}}
  {FOREIGN}: {{topics: [{{dead_letters: {FOREIGN}.DLT, retry_to: {FOREIGN}.retry, park_to: {FOREIGN}.parked}}]}}
tasks: {{topics: [definitions], allowed_targets: [{FOREIGN}.due]}}
"""
_RULES = f"""
targets: {{payments-chat: {{apprise: /a}}, {FOREIGN}-chat: {{apprise: /b}}}}
rules: [{{to: payments-chat, teams: [payments]}}, {{to: {FOREIGN}-chat, teams: [{FOREIGN}]}}]
"""
# Of endpoints that want more than who asks.
_FORMS = {
    "/failures/{id}/merge": {"group": "f00d"}, "/failures/{id}/split": {"by": "topic"}, "/failures/{id}/undo": {"change": "c1"},
    "/failures/{id}/apart": {"group": "f00d"},
}  # fmt: skip
_ASKED = {"/letters/complete": f"?q=team:{FOREIGN[:4]}", "/policies/explain": f"?topic={FOREIGN}.DLT"}
# What names no team whatever there is, or asks brokers; what is counted there is looked at below.
_WITHOUT_TEAMS = ("/workers", "/api/now", "/api/viewer", "/api/advice", "/api/openapi.json", "/policies/reschedule", "/act")
# By path of the route: what stands for each of its parameters where the thing is of the other team.
_IDS = {"name": "parked/0/2", "id": "0bad0bad0bad0bad"}


@cache
def console() -> Served:
    """A console of two teams, with all routes."""
    other = letter(2, FOREIGN, topic=f"{FOREIGN}.DLT", message=FOREIGN, policy=FOREIGN, group=_IDS["id"], exception=FOREIGN)
    kinds = [group(), group(_IDS["id"], (FOREIGN,), message=FOREIGN, cause=FOREIGN, topics=(f"{FOREIGN}.DLT",))]
    kinds_of_entries = enumerate(("schedule", "task", "timer"), 3)
    named = [letter(n, FOREIGN, state="waiting", kind=kind, label=FOREIGN) for n, kind in kinds_of_entries]
    replica = ActingReplica([letter(1), other, *named], kinds)
    replica.payloads.records = {f"parked/0/{n}": record(f"parked/0/{n}", b'{"a": "secret"}') for n in (1, 2)}
    replica.audited = [AuditRow(NOW_MS, _IDS["id"], "discard", FOREIGN, FOREIGN, 0, 1, 1, {}, (FOREIGN,), FOREIGN)]
    action = Action("discard", FOREIGN, NOW_MS, [1], 1, filter=f"team:{FOREIGN}", teams=[FOREIGN])
    pause = control_records.pause_key("team", FOREIGN), control_records.encode(Pause(NOW_MS, FOREIGN, None, FOREIGN))
    head = action_records.build_head_key(bytes.fromhex(_IDS["id"])), action_records.encode(action)
    replica.control_records = [dict([head, pause])]
    replica.notes.standing[_IDS["id"]] = [("c1", FOREIGN, FOREIGN, 1)]
    told = Told(NOW_MS, f"New failure: {FOREIGN}", f"/failures/{_IDS['id']}")
    replica.told.told[ToldEvent(f"{FOREIGN}-chat", "new_failure/1")] = told
    replica.told.failing[f"{FOREIGN}-chat"] = FailingTarget(NOW_MS, FOREIGN)
    made = serve_console(
        replica, tokens="\n".join(line for _, line in _MADE.values()), more=[acting.build_acting_routes],
        settings=settings_with_rules(_RULES),
    )  # fmt: skip
    policies = policy_file(_POLICIES, "policies.yaml")
    made.console.registry = lambda: policies
    made.console.clock_ms = lambda: NOW_MS
    return made


@pytest.fixture(autouse=True)
def kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the changelog have what the replica has, and do what is asked of it."""
    standing = SimpleNamespace(admin=None, list_records=lists.CopiedControls(console().replica.controls()).list_records)
    monkeypatch.setattr(standing_actions, "await_shown", lambda _holds: None)
    monkeypatch.setattr(standing_actions, "load_shard_numbers", lambda _: standing)
    for module in (action_pages, api):
        monkeypatch.setattr(module, "list_member_results", lambda *_: iter([]))
    for what in overview.ORDERS:
        monkeypatch.setitem(overview.ORDERS, what, lambda *_: None)
    monkeypatch.setattr(actions.start, "demand_readiness", lambda *_: None)
    monkeypatch.setattr(actions.start, "build_undo", _refuses)
    monkeypatch.setattr(other_entries, "_demand_brokers", lambda _: None)
    for history in (other_entries, other_entries.search):
        monkeypatch.setattr(history, "read_newest_records", iterate_sent)


def _refuses(*_: object) -> None:
    raise ActionRefused("nothing of it can be undone")


def iterate_sent(_settings: object, topic: str, _most: object) -> Iterator[tuple[MemoryRecord, Headers]]:
    """A schedule that was sent, a run of a task, and a call of a timer."""
    call = Called(FOREIGN, FOREIGN, "example.com", "", 1, NOW_MS, 5, NOW_MS, "delivered", 200, None, None, None, "")
    headers: Headers = [("scheduler-key", FOREIGN.encode()), ("task-run", b"1"), ("task-due-ms", b"%d" % NOW_MS)]
    yield MemoryRecord(Entry(topic, FOREIGN.encode(), to_json(call), headers, None, ""), 0, 1, NOW_MS), headers


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
        guard_route(Route("/x", lambda _request: None))


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


@each([(method, route) for method, route in CASES if ANY_FIELD not in route.endpoint.fields and route.path != "/live"])
def test_a_field_that_a_route_does_not_know_is_refused(method: str, route: Route) -> None:
    own = {"Origin": ORIGIN, "X-CSRF": token_of("admin")}
    ask = lambda address, **more: signed_in("admin").request(method, address, headers=own, **more)  # noqa: E731
    refused = ask(f"{path_of(route)}?zz-unknown=1")
    assert refused.status_code == 400, refused.text
    assert "zz-unknown" in refused.text or "none in the address" in refused.text
    for name in set(route.endpoint.fields) - set(route.endpoint.repeated) if method == "GET" else ():
        assert ask(f"{path_of(route)}?{name}=a&{name}=a").status_code == 400, name
    if method == "POST":
        body: dict[str, Any] = {"json" if route.path.startswith("/api/") else "data": {"zz-unknown": "1"}}
        refused = ask(path_of(route), **body)
        assert (refused.status_code, "zz-unknown" in refused.text) == (400, True), refused.text


def test_only_what_others_call_takes_any_field() -> None:
    assert {route.path for _, route in CASES if ANY_FIELD in route.endpoint.fields} == {
        "/static/{hash}/{name:path}", "/health/live", "/health/ready", "/metrics",
    }  # fmt: skip


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
    assert answer.status_code == 404, answer.text
    assert FOREIGN not in answer.text


# A preview is of who asked for it, whatever else others may.
@each([(m, route) for m, route in PROTECTED if "{" in route.path and route.path not in ("/act/{id}", "/act/{id}/drop")])
def test_it_is_there_for_who_may_see_it(method: str, route: Route) -> None:
    form = _FORMS.get(route.path, {})
    headers = {"Origin": ORIGIN, "X-CSRF": token_of("every")}
    answer = signed_in("every").request(method, path_of(route), data=form if method == "POST" else None, headers=headers)
    assert answer.status_code in (200, 202, 303, 409), (answer.status_code, answer.text)


LISTS = [(m, route) for m, route in PROTECTED if "{" not in route.path and m == "GET" and route.path != "/live"]


@each(LISTS)
def test_no_list_has_anything_of_another_team(method: str, route: Route) -> None:
    answer = signed_in("admin").get(route.path)
    assert FOREIGN not in answer.text
    assert answer.status_code < 500 or (answer.status_code, route.path) == (503, "/policies/reschedule")


@each([(m, route) for m, route in LISTS if route.path not in _WITHOUT_TEAMS])
def test_those_lists_have_it_for_who_may_see_it(method: str, route: Route) -> None:
    assert FOREIGN in signed_in("every").get(f"{route.path}{_ASKED.get(route.path, '')}").text


@pytest.mark.parametrize("path", ["/", "/failures", "/letters"])
def test_counts_of_other_teams_are_not_there(path: str) -> None:
    own, every = signed_in("admin").get(path).text, signed_in("every").get(path).text
    assert (FOREIGN in own, own == every) == (False, False)
    if path != "/":
        assert FOREIGN in every
        assert re.findall(r"<strong>(\d+)</strong>", own) == ["1"]
        assert re.findall(r"<strong>(\d+)</strong>", every) == ["2" if path == "/failures" else "5"]
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
    browser = serve_console().browser("http://evil.example:8082")
    assert (browser.get("/").status_code, "for loopback" in browser.get("/letters").text) == (400, True)
    assert serve_console().browser("http://localhost:8082").get("/").status_code == 200
    assert serve_console().browser("http://[::1]:8082").get("/").status_code == 200


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


ODD = ["/letters?q=nonsense", "/nix", "/api/letters?x=1", "/static/0/nix.js", "/act?selected=1"]
EVERY = [(method, path_of(route)) for method, route in CASES if route.path != "/live"] + [("GET", path) for path in ODD]


@pytest.mark.parametrize(("method", "path"), EVERY)
@pytest.mark.parametrize("who", ["nobody", "viewer", "every"])
def test_every_answer_says_what_a_browser_may_do_with_it(method: str, path: str, who: str) -> None:
    # Who signs out does so without the token: the sign-in is for other tests, too.
    own = {} if who == "nobody" or path == "/sign-out" else {"X-CSRF": token_of(who)}
    browser = console().browser() if who == "nobody" else signed_in(who)
    headers = browser.request(method, path, headers={"Origin": ORIGIN, **own}).headers
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert "strict-transport-security" not in headers


def test_who_has_come_by_tls_once_is_told_to_go_on_so() -> None:
    assert "max-age" in serve_console(secure=True).browser("https://localhost").get("/").headers["strict-transport-security"]


def test_a_stream_has_the_same_headers() -> None:
    refused = signed_in("viewer").get("/live?part=nix&of=")
    assert (refused.status_code, "script-src 'self'" in refused.headers["content-security-policy"]) == (404, True)


# What forms and fields name, in place of an id in the path; in the place of {} the name of a team.
NAMED = [
    ("POST", "/failures/f00d/merge", {"group": "{}"}), ("POST", "/filters", {"name": "a", "text": "b", "team": "{}"}),
    ("POST", "/filters/delete", {"name": "a", "team": "{}"}), ("POST", "/pauses", {"scope": "team", "name": "{}"}),
    ("POST", "/pauses", {"scope": "topic", "name": "{}.DLT"}), ("POST", "/pauses", {"scope": "target", "name": "{}.retry"}),
    ("POST", "/pauses/resume", {"paused": "team/{}"}), ("POST", "/pauses/resume", {"paused": "topic/{}.DLT"}),
    ("POST", "/entries/cancel", {"kind": "task", "name": "1/{}/0/3"}), ("GET", "/policies/explain", {"topic": "{}.DLT"}),
    ("DELETE", "/api/pauses", {"scope": "team", "name": "{}"}), ("POST", "/api/pauses", {"scope": "team", "name": "{}"}),
    ("POST", "/api/pauses", {"scope": "target", "name": "{}.retry"}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "fields"), NAMED)
@pytest.mark.parametrize("role", list(Role))
def test_what_is_named_of_another_team_is_as_what_nobody_has(
    method: str, path: str, fields: dict[str, str], role: Role
) -> None:
    route = next(each for each in routes() if each.path_regex.fullmatch(path) and method in (each.methods or ()))
    if not role.covers(route.endpoint.needs):
        return

    def ask(of: str) -> tuple[int, str]:
        given = {name: text.format(of) for name, text in fields.items()}
        place = "params" if method != "POST" else "json" if path.startswith("/api/") else "data"
        own = {"Origin": ORIGIN, "X-CSRF": token_of(role)}
        answer = signed_in(role).request(method, path, headers=own, **{place: given})  # type: ignore[arg-type]
        # The token of forms is written otherwise on each page.
        return answer.status_code, answer.text.replace(of, "").replace(csrf_of(answer.text) or of, "")

    status, text = ask(FOREIGN)
    assert (status, text) == ask("zz-nobody")
    assert status == 404, text


@each(LISTS)
def test_what_is_wrong_with_topics_is_told_to_who_sees_every_team(
    method: str, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Freshness("live", 1.0, NOW_MS, 0, "zz-wrong.DLT/0/1: no record")
    monkeypatch.setattr(console().replica, "state", wrong)
    assert "zz-wrong" not in signed_in("admin").get(route.path).text
    is_told = not route.path.startswith("/api/") and route.path != "/letters/complete"
    assert ("zz-wrong" in signed_in("every").get(route.path).text) == (is_told or route.path == "/api/now")


def test_what_is_wrong_with_topics_is_not_told_to_who_has_not_signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console().replica, "state", Freshness("live", 1.0, NOW_MS, 0, "zz-wrong.DLT/0/1: no record"))
    for method, route in CASES:
        if method == "GET" and route.path != "/live":
            assert "zz-wrong" not in console().browser().get(path_of(route)).text


_LINKED = re.compile(r'(<form method="post"[^>]*action|formaction|href)="(/[^"?#]*)')


@each([(m, route) for m, route in PROTECTED if m == "GET" and route.endpoint.needs == Role.VIEWER and route.path != "/live"])
def test_no_page_offers_what_its_viewer_may_not_do(method: str, route: Route) -> None:
    html = signed_in("viewer").get(route.path.replace("{name:path}", "parked/0/1").replace("{id}", "f00d")).text
    for how, address in _LINKED.findall(html):
        wanted = "GET" if how == "href" else "POST"
        needed = [each.endpoint.needs for each in routes() if each.path_regex.match(address) and wanted in (each.methods or ())]
        assert needed, address
        assert all(need is None or Role.VIEWER.covers(need) for need in needed), address
