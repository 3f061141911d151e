"""Facets: how many of some letters there are of each team, topic, exception, consumer group, state and attempt.

All are counted in one query over cells, which takes 7 ms with a million letters of 1,500 cells; see docs/evidence/console.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from retry.clock import Deadline
from retry.console.folding.sql import select_rows

# Fields of filters, in the order in which they are shown, and the columns of cells that a term with the field looks at.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "team": ("team",), "topic": ("topic",), "exception": ("exception", "thrown", "cause"), "consumer-group": ("consumer_group",),
    "state": ("state",), "attempt": ("attempt",),
}  # fmt: skip
VALUES_MAX = 8
_COLUMNS = ", ".join(f"c.{column}" for columns in FIELDS.values() for column in columns)
# What a framework puts around each exception would be the first value of all, and tells nothing.
_IS_SHOWN = {"exception": "thrown IS NULL"}
# Of letters nothing is read, only of their cells; where even these are too many the list is shown without facets.
COUNT_S = 0.5
_STEPS = 20_000


class FacetValue(NamedTuple):
    value: str
    letters: int


class Facet(NamedTuple):
    """The values of a field that most letters have, at most `VALUES_MAX`, and how many more values there are."""

    field: str
    values: tuple[FacetValue, ...]
    more: int


def count_facets(
    connection: sqlite3.Connection, counts: Mapping[int, int], seconds: float = COUNT_S
) -> tuple[Facet, ...] | None:
    """Count letters by the values of all fields, in one query; None where the time for that is over. `counts` is by cell."""
    of_values = " UNION ALL ".join(_count_values(field, columns) for field, columns in FIELDS.items())
    rest = (
        f"FROM (WITH meant AS MATERIALIZED (SELECT c.id, {_COLUMNS}, json_extract(j.value, '$[1]') AS n FROM json_each(?) j"
        " CROSS JOIN cells c ON c.id = json_extract(j.value, '$[0]'))"
        " SELECT field, value, n, row_number() OVER (PARTITION BY field ORDER BY n DESC, value) AS place,"
        f" count(*) OVER (PARTITION BY field) AS of_field FROM ({of_values})) WHERE place <= ? ORDER BY place"
    )
    parameters = orjson.dumps(list(counts.items())).decode(), VALUES_MAX
    try:
        with _limit_time(connection, seconds):
            rows = select_rows(connection, ("field", "CAST(value AS TEXT)", "n", "of_field"), rest, parameters)
    except TimeoutError:
        return None
    found: dict[str, list[FacetValue]] = {field: [] for field in FIELDS}
    more = dict.fromkeys(FIELDS, 0)
    for field, value, letters, of_field in rows:
        found[field].append(FacetValue(value, letters))
        more[field] = of_field - len(found[field])
    return tuple(Facet(field, tuple(values), more[field]) for field, values in found.items() if values)


def _count_values(field: str, columns: tuple[str, ...]) -> str:
    """Build a query for the values of a field: a letter counts once for each value, in whichever column it stands."""
    if len(columns) == 1:
        value = columns[0]
        return f"SELECT '{field}' AS field, {value} AS value, sum(n) AS n FROM meant WHERE {value} IS NOT NULL GROUP BY {value}"
    each = " UNION ALL ".join(
        f"SELECT id, n, {column} AS value, {_IS_SHOWN.get(column, '1')} AS is_shown FROM meant WHERE {column} IS NOT NULL"
        for column in columns
    )
    once = f"SELECT n, value, max(is_shown) AS is_shown FROM ({each}) GROUP BY id, value"
    return f"SELECT '{field}' AS field, value, sum(n) AS n FROM ({once}) GROUP BY value HAVING max(is_shown)"


@contextmanager
def _limit_time(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Stop what is asked of a connection when the time is over, and raise TimeoutError then."""
    deadline = Deadline(seconds)
    connection.set_progress_handler(lambda: int(deadline.has_passed()), _STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if not deadline.has_passed():
            raise
        raise TimeoutError from error
    finally:
        connection.set_progress_handler(None, 0)
