"""The filter line: what is typed → a filter, as far as its viewer may ask; and what could come next in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus

from starlette.exceptions import HTTPException

from retry.console.reading.filter_sql import OF_PAYLOAD
from retry.console.reading.filter_sql import asks_payload as asks_payload
from retry.console.rows import Names
from retry.console.web import masks
from retry.console.web.rights import EVERY_TEAM, Role, Viewer
from retry.operations.letter_filter.fields import EXAMPLES, STATES
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter, quote_text
from retry.policies.registry import Registry

_LAST = re.compile(r'(?:^|[\s(])(-?)([^\s()":=]*)(?:(:)("?)([^\s()"]*))?$')
_PLAIN = re.compile(r'[^\s()"*\\]+')
COMPLETIONS_MAX = 12


def read(text: str, viewer: Viewer, registry: Registry) -> Filter:
    """Parse the filter that a text means; raises FilterInvalid where it is none, and HTTPException 403 where it asks for what
    this viewer may not see."""
    letter_filter = parse(text, groups=True)
    if asks_payload(letter_filter) and not viewer.reveals_all():
        reason = "a filter on values or headers takes the right to reveal payloads, of every team that you see"
        raise HTTPException(HTTPStatus.FORBIDDEN, reason)
    masks.demand_filter(registry, viewer.sight(), letter_filter)
    return letter_filter


def list_completions(text: str, names: Names) -> list[str]:
    """List whole filters that complete the last term of a text, by a field or by a value that exists; empty where none fits.

    >>> list_completions("team:a st", Names())
    ['team:a state:']
    >>> list_completions("topic:pay", Names(topics=("orders.DLT", "payments.DLT")))
    ['topic:payments.DLT']
    """
    found = _LAST.search(text)
    if found is None:
        return []
    minus, field, mark, _, begun = found.groups()
    before = text[: found.start(1)] + minus
    if mark is None:
        fields = (each for each in EXAMPLES if each.startswith(field) and each not in OF_PAYLOAD)
        return [f"{before}{each}:" for each in fields][:COMPLETIONS_MAX]
    fitting = _fitting(_values(field, names), begun)
    return [f"{before}{field}:{value if _PLAIN.fullmatch(value) else quote_text(value)}" for value in fitting]


def _values(field: str, names: Names) -> Iterable[str]:
    known = {
        "team": names.teams, "topic": names.topics, "exception": names.exceptions, "cause": names.exceptions,
        "consumer-group": names.consumer_groups, "state": STATES, "due": ("now..10m", "<-1s", "<1h"), "age": (">1h", ">1d"),
        "failed": (">-1h", "-2h..-1h"),
        "attempt": ("1", "3.."),
    }  # fmt: skip
    return known.get(field, ())


def _fitting(values: Iterable[str], begun: str) -> list[str]:
    """List up to 12 values that contain a text, in any case; those that begin with the text come first."""
    wanted = begun.lower()
    held = [value for value in values if wanted in value.lower() and value != begun]
    return sorted(held, key=lambda value: (not value.lower().startswith(wanted), value))[:COMPLETIONS_MAX]


def make_exact_term(field: str, value: str) -> str:
    """Write the filter term that selects exactly one value of a field.

    >>> print(make_exact_term("topic", "a.DLT"), make_exact_term("message", 'not "so" *'))
    topic:a.DLT message:"not \\"so\\" \\*"
    """
    return f"{field}:{value if value and _PLAIN.fullmatch(value) else quote_text(value)}"


def list_teams_to_save_for(viewer: Viewer) -> list[str]:
    """List the teams for which somebody may save a filter; an empty name is everybody."""
    own = sorted(team for team in viewer.roles if team != EVERY_TEAM and viewer.may(Role.OPERATOR, team))
    return ["", *own] if viewer.may(Role.OPERATOR, None) else own
