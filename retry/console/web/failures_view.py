"""What a page of failures shows, as its address has it; and facets, which write its filter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from retry.console.reading.facets import FIELDS as FACET_FIELDS
from retry.console.reading.facets import Facet
from retry.console.reading.filter_sql import conjuncts
from retry.console.reading.group_list import OPEN, SHOWN
from retry.console.reading.group_order import COLUMNS, MOST_LETTERS, Order, parse_order
from retry.console.web import filters
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
        """The fields of an address or a form that mean this; what goes without saying is left out."""
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
        FacetLink(value, n, str(all_of([letter_filter, parse(filters.exactly(facet.field, value))])), False)
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
