"""Failures: kinds of failures in a list that is ordered and narrowed, with how they went in the last day.

What a page shows stands in its address; its facets are links that write the filter there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.acting.audit import REVEAL
from retry.console.reading.facets import FIELDS as FACET_FIELDS
from retry.console.reading.facets import Facet
from retry.console.reading.filter_sql import conjuncts
from retry.console.reading.group_list import OPEN, SHOWN, GroupPage
from retry.console.reading.group_order import COLUMNS, MOST_LETTERS, Order, parse_order
from retry.console.rows import FailureState, Group
from retry.console.web import filters, masks
from retry.console.web.app import Console, console_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs
from retry.errors import FilterInvalid
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter, Glob, Term, all_of

FIELDS = ("q", "show", "sort", "after")


class FailuresView(NamedTuple):
    """Filter, states, order and page of the list of failures."""

    q: str = ""
    show: str = OPEN
    order: Order = MOST_LETTERS
    after: str | None = None

    def encode(self) -> str:
        return urlencode(self.list_fields())

    def list_fields(self) -> dict[str, str]:
        """List the fields of an address or a form that stand for the view; fields with their usual value are left out."""
        given = {
            "q": self.q, "show": "" if self.show == OPEN else self.show,
            "sort": "" if self.order == MOST_LETTERS else str(self.order), "after": self.after or "",
        }  # fmt: skip
        return {name: value for name, value in given.items() if value}

    def link(self, **changed: Any) -> str:
        """Build the address of another view: the first page, unless `after` says which."""
        encoded = self._replace(**{"after": None, **changed}).encode()
        return f"/failures?{encoded}" if encoded else "/failures"

    def link_by(self, column: str) -> str:
        """Build the address of the same list ordered by a column; the other way where it is already."""
        order = COLUMNS[column]
        turned = Order(column, not self.order.is_descending)
        return self.link(order=turned if self.order.column == column else order)

    def is_by(self, column: str) -> bool:
        return self.order.column == column


def read_view(given: Mapping[str, str]) -> FailuresView:
    """Read the fields of an address or a form; raises HTTPException 400 where there is no such state or column."""
    show, sort = given.get("show", OPEN), given.get("sort", str(MOST_LETTERS))
    if show not in SHOWN:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"show is one of {', '.join(SHOWN)}")
    if (order := parse_order(sort)) is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"sort is one of {', '.join(COLUMNS)}; with - before it, the other way round")
    return FailuresView(given.get("q", ""), show, order, given.get("after"))


# Facets: a click on a value puts its term into the filter, or takes it out again.


class FacetLink(NamedTuple):
    """A value of a facet, and what the filter becomes when it is clicked.

    Attributes:
      letters: how many of the list have it; None where that was not counted.
      is_on: whether the filter asks for it already.
    """

    value: str
    letters: int | None
    q: str
    is_on: bool


class FacetLinks(NamedTuple):
    field: str
    links: tuple[FacetLink, ...]
    more: int


def build_facets(letter_filter: Filter, facets: Collection[Facet]) -> list[FacetLinks]:
    """Build the links of all facets that have values, with those first that the filter asks for."""
    counted = {each.field: each for each in facets}
    found = (_build_links(letter_filter, counted.get(field) or Facet(field, (), 0)) for field in FACET_FIELDS)
    return [each for each in found if each.links]


def _build_links(letter_filter: Filter, facet: Facet) -> FacetLinks:
    parts = conjuncts(letter_filter)
    letters = dict(facet.values)
    chosen = [each for each in parts if _is_value(each, facet.field)]
    on = [
        FacetLink(value := _format_value(each), letters.get(value), str(all_of(other for other in parts if other != each)), True)
        for each in dict.fromkeys(chosen)
    ]
    off = [
        FacetLink(value, n, str(all_of([letter_filter, parse(filters.make_exact_term(facet.field, value))])), False)
        for value, n in facet.values if all(value != each.value for each in on)
    ]  # fmt: skip
    return FacetLinks(facet.field, (*on, *off), facet.more)


def _is_value(part: Filter, field: str) -> bool:
    """Whether part of a filter asks for one value of a field and nothing else."""
    if not isinstance(part, Term) or part.field != field:
        return False
    value = part.value
    return len(value.parts) == 1 if isinstance(value, Glob) else isinstance(value.low, int) and value.low == value.high


def _format_value(part: Filter) -> str:
    """Return the value that a part of a filter asks for, which `_is_value` holds of."""
    value = part.value if isinstance(part, Term) else ""
    return value.parts[0] if isinstance(value, Glob) else str(value)


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
