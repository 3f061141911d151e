"""One kind of failures: what its letters have in common, whose it is, and merges and splits that stand for it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.replica.replica import Replica
from retry.console.replica.rows import Group
from retry.console.web import filters
from retry.console.web.app import Console, console_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs

# These terms go with the group's own on the page of letters.
_TERMS = {"topic": "topic", "consumer-group": "consumer-group", "attempt": "attempt"}
PART = "group"
BY = ("frames", "topic", "consumer-group", "attempt")


def build_routes(console: Console) -> list[Route]:
    """The page of one group."""

    def make_fragment(sight: Sight, argument: str) -> str:
        shown = _build_page(console, sight, argument)
        return console.templates.get_template("group_live.html").render(now_ms=console.clock_ms(), **shown)

    console.live.register(PART, make_fragment)
    return [Route("/failures/{id}", render_group)]


@needs(Role.VIEWER)
def render_group(request: Request) -> Response:
    """One kind of failures."""
    wanted = request.path_params["id"]
    parts = _build_page(console_of(request), viewer_of(request).sight(), wanted)
    return render_page(request, "group.html", live=(PART, wanted), **parts)


def _build_page(console: Console, sight: Sight, wanted: str) -> dict[str, Any]:
    """Collect the template variables for the page of one group.

    Raises:
      HTTPException: 404, there is no such group.
    """
    replica, scope = console.replica, sight.scope
    group = replica.find_group(scope, wanted)
    if group is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such kind of failures, or no letter of it any more")
    splits = replica.splits(scope, group.id)
    teams = teams_of(replica, group)
    # They name kinds and people of each of these teams.
    changes = replica.notes.changes(group.id) if scope is None or scope.issuperset(teams) else []
    return {
        "group": group, "letters_q": _format_filter(group), "changes": changes,
        "by": [(each, [split for split in splits if split.by == each]) for each in BY], "term": _term,
        "may_act": sight.may_act_for(group.teams), "may_write": sight.may_act_for(teams),
    }  # fmt: skip


def _format_filter(group: Group) -> str:
    """The filter of its letters."""
    return filters.exactly("group", group.id)


def _term(group: Group, by: str, value: str | None) -> str | None:
    """The filter of letters that have something in common; None where no filter asks for that."""
    if value is None or by not in _TERMS:
        return None
    return f"{_format_filter(group)} {filters.exactly(_TERMS[by], value)}"


def teams_of(replica: Replica, group: Group) -> tuple[str, ...]:
    """List the teams that have letters in a group, also those that the viewer does not see: its notes concern all of them."""
    whole = replica.find_group(None, group.id)
    return group.teams if whole is None else whole.teams

