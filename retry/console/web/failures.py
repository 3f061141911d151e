"""Failures: kinds of failures in a list that is ordered and narrowed, with how they went in the last day."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.acting.audit import REVEAL
from retry.console.reading.group_list import GroupPage
from retry.console.rows import FailureState, Group
from retry.console.web import filters, masks
from retry.console.web.app import Console, console_of, query_of, render_page, viewer_of
from retry.console.web.failures_view import FIELDS, FailuresView, build_facets, read_view
from retry.console.web.rights import Role, Sight, needs
from retry.errors import FilterInvalid
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter

PART = "failures"
ROWS = 30
_REASON_CHARS_MAX = 200


def build_routes(console: Console) -> list[Route]:
    console.keep_fresh(PART, "failures_live.html", partial(_build_live_page, console))
    return [Route("/failures", render_failures)]


def _build_live_page(console: Console, sight: Sight, argument: str) -> dict[str, Any] | None:
    view = read_view(dict(parse_qsl(argument)))
    letter_filter = parse(view.q, groups=True)
    if filters.asks_payload(letter_filter):
        # A scope does not say who may see payloads; the page was made for somebody who may, once that was written down.
        return None
    masks.demand_filter(console.registry(), sight, letter_filter)
    return _build_page(view, letter_filter, _list_groups(console, sight, view, letter_filter), sight)


@needs(Role.VIEWER, *FIELDS)
def render_failures(request: Request) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    view = read_view(query_of(request))
    shared: dict[str, Any] = {
        "view": view, "saved": console.replica.notes.filters(viewer.scope()), "teams": filters.list_teams_to_save_for(viewer),
    }  # fmt: skip
    try:
        letter_filter = filters.read(view.q, viewer, console.registry())
        page = _list_groups(console, viewer.sight(), view, letter_filter)
        if filters.asks_payload(letter_filter):
            teams = {team for group in page.rows for team in group.teams}
            console.audit.write(REVEAL, viewer.name, f"filter {letter_filter}", teams=teams)
    except FilterInvalid as fault:
        return render_page(request, "failures.html", HTTPStatus.BAD_REQUEST, fault=fault, groups=None, **shared)
    # What payloads say is looked for once, by the one who asked.
    live = None if filters.asks_payload(letter_filter) else (PART, view.encode())
    parts = _build_page(view, letter_filter, page, viewer.sight())
    return render_page(request, "failures.html", fault=None, live=live, **{**shared, **parts})


def _list_groups(console: Console, sight: Sight, view: FailuresView, letter_filter: Filter) -> GroupPage:
    return console.replica.list_groups(sight.scope, letter_filter, view.after, ROWS, show=view.show, order=view.order)


def _build_page(view: FailuresView, letter_filter: Filter, groups: GroupPage, sight: Sight) -> dict[str, Any]:
    open_count = sum(n for state, n in groups.states.items() if state is not FailureState.RESOLVED)
    return {
        "view": view, "groups": groups, "states": FailureState, "facets": build_facets(letter_filter, groups.facets or ()),
        "open_count": open_count, "page_title": _describe_title(open_count, groups.states.get(FailureState.NEW, 0)),
        "may": sight.may_act(), "may_act_for": sight.may_act_for, "pause_form": _fill_pause_form,
    }  # fmt: skip


def _describe_title(open_count: int, new_count: int) -> str:
    """The title of the page, as a tab has it: what is new first, then how many there are."""
    new = f"({new_count:,} new) " if new_count else ""
    return f"{new}{open_count:,} open failure{'' if open_count == 1 else 's'}"


def _fill_pause_form(group: Group) -> str:
    """Fill in the form of pauses: with the only topic of a kind of failures, else with its only team, else with neither."""
    scope, names = ("topic", group.topics) if len(group.topics) == 1 else ("team", group.teams)
    chosen = {"scope": scope, "name": names[0]} if len(names) == 1 else {}
    return urlencode({**chosen, "reason": (group.cause or "")[:_REASON_CHARS_MAX]})
