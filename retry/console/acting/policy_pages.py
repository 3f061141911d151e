"""What the policy file says: whose topics are retried how, what it decides for a letter, and what it would change of what waits.

| path | what it shows |
| --- | --- |
| `GET /policies` | the topics of the viewer's teams, and what analytics advise |
| `GET /policies/explain?topic=…` | what becomes of a letter, in words |
| `GET /policies/reschedule?team=…` | what `retry reschedule` would do; nothing is done |
"""

from __future__ import annotations

import threading
from collections import Counter
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backoff import PolicyInvalid, duration_ms
from retry.console.reading.advice import read_advice
from retry.console.rows import Scope
from retry.console.web.app import Console, console_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, needs
from retry.dead_letters.failure import Failure
from retry.delay_queue.control_records import Reschedule
from retry.operations import waiting_entries
from retry.policies.explain import explain as explain_lines
from retry.policies.registry import Registry
from retry.policies.route import MatchInput
from retry.policies.route import Route as PolicyRoute
from retry.record import Header

_FIELDS = ("topic", "attempt", "exception", "cause", "message", "stage", "age", "header", "group", "origin", "null_value")
# Each folds the changelog anew, which takes as long as a worker's restart without a table.
_REHEARSING = threading.Lock()
_ATTEMPT_MAX = 2**31 - 1


def build_routes(console: Console) -> list[Route]:  # noqa: ARG001
    return [Route("/policies", render_policies), Route("/policies/explain", explain), Route("/policies/reschedule", reschedule)]


@needs(Role.VIEWER)
def render_policies(request: Request) -> Response:
    return _render_policies(request)


@needs(Role.VIEWER, *_FIELDS)
def explain(request: Request) -> Response:
    given = query_of(request)
    registry, scope = console_of(request).registry(), viewer_of(request).scope()
    topic = given.get("topic", "").strip()
    if scope is not None and registry.route(topic).team not in scope:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no team of yours has this topic in the policy file")
    try:
        lines = explain_lines(registry, topic, _case(given))
    except ValueError as wrong:
        return _render_policies(request, given=given, fault=str(wrong), status=HTTPStatus.BAD_REQUEST)
    return _render_policies(request, given=given, lines=lines)


@needs(Role.OPERATOR, "team", "of_topic")
def reschedule(request: Request) -> Response:
    given, console, viewer = query_of(request), console_of(request), viewer_of(request)
    team, topic = given.get("team") or None, given.get("of_topic") or None
    if viewer.scope() is not None and (team is None or not viewer.may(Role.OPERATOR, team)):
        return _render_policies(request, given=given, fault="name one of your teams", status=HTTPStatus.BAD_REQUEST)
    # Where the brokers were never there this says so at once.
    console.cluster()
    registry = console.registry()
    if not _REHEARSING.acquire(blocking=False):
        fault = "another one is worked out; try again in a moment"
        return _render_policies(request, given=given, fault=fault, status=HTTPStatus.CONFLICT)
    try:
        redecider = waiting_entries.make_redecider(console.settings, registry)
        with waiting_entries.open_changelog_table(console.settings) as table:
            asked = Reschedule(console.clock_ms(), team, topic, registry.digest)
            found = waiting_entries.rehearse_request(table, redecider, asked)
    finally:
        _REHEARSING.release()
    # What was left alone is of other teams, too, whose letters not everybody may count.
    left_alone = found.left_alone if viewer.scope() is None else None
    return _render_policies(request, given=given, rehearsed=_describe_check(found, left_alone))


def _case(given: dict[str, str]) -> MatchInput:
    failure = Failure(
        origin_topic=given.get("origin") or None, consumer_group=given.get("group") or None,
        exception=given.get("exception") or None, cause=given.get("cause") or None, message=given.get("message") or None,
        stage=given.get("stage") or None,
    )  # fmt: skip
    attempt = given.get("attempt") or "1"
    if not (attempt.isascii() and attempt.isdigit() and len(attempt) <= 10 and 1 <= int(attempt) <= _ATTEMPT_MAX):
        raise ValueError(f"attempt: {attempt!r:.20} is no number from 1 on")
    try:
        age_ms = duration_ms(given.get("age") or "0s")
    except PolicyInvalid as invalid:
        raise ValueError(f"age: {invalid.reason}") from None
    headers = [_header(line) for line in given.get("header", "").splitlines() if line.strip()]
    return MatchInput(failure, int(attempt), age_ms, headers, bool(given.get("null_value")))


def _header(line: str) -> Header:
    name, mark, value = line.partition(":")
    if not mark or not name.strip():
        raise ValueError(f"header: {line!r:.60} is not `name: value`")
    return name.strip(), value.strip().encode(errors="replace")


def _render_policies(request: Request, *, status: HTTPStatus = HTTPStatus.OK, **more: Any) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    registry, scope = console.registry(), viewer.scope()
    file = console.settings.console_advice
    advice = None if file is None else read_advice(file, scope)
    context = {"given": {}, "fault": "", "lines": None, "rehearsed": None, **more}
    return render_page(
        request, "policies.html", status, topics=_topics(registry, scope), digest=registry.digest,
        teams=sorted({route.team for route in registry.list_routes() if scope is None or route.team in scope}),
        may=viewer.may_anywhere(Role.OPERATOR), advice=advice, **context,
    )  # fmt: skip


def _topics(registry: Registry, scope: Scope) -> list[dict[str, Any]]:
    exact = [*registry.exact.items(), *((f"/{pattern.pattern}/", route) for pattern, route in registry.patterns)]
    return [_describe_route(registry, topic, route) for topic, route in exact if scope is None or route.team in scope]


def _describe_route(registry: Registry, topic: str, route: PolicyRoute) -> dict[str, Any]:
    plan = route.default_plan
    limits = ", ".join(limit.format_limit() for limit in registry.team_limits.get(route.team, ()))
    return {
        "topic": topic, "team": route.team, "policy": plan.name, "retry_to": plan.retry_to, "park_to": plan.park_to,
        "ordered": plan.ordered, "limits": limits, "group": route.group, "rules": len(route.rules),
    }  # fmt: skip


def _describe_check(found: waiting_entries.Rehearsed, left_alone: int | None) -> dict[str, Any]:
    counts = [{"team": team, "policy": policy, "moves": _moves(moves)} for (team, policy), moves in sorted(found.counts.items())]
    examples = [
        {"move": move.value, "letter": str(each.was), "due_ms": each.was.due_at_ms, "new_due_ms": each.due_at_ms,
         "target": each.target, "reason": each.reason}
        for move, some in found.examples.items() for each in some
    ]  # fmt: skip
    total = _moves(sum(found.counts.values(), Counter()))
    return {"counts": counts, "examples": examples, "left_alone": left_alone, "total": total}


def _moves(moves: Counter[Any]) -> list[tuple[str, int]]:
    return [(move.value, number) for move, number in moves.most_common()]
