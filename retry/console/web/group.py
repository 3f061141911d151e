"""One kind of failures: what its letters have in common, whose it is, and merges and splits that stand for it."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.replica.replica import Replica
from retry.console.replica.rows import Group
from retry.console.web import charts, filters
from retry.console.web.app import Console, console_of, page, query_of, viewer_of
from retry.console.web.rights import Role, Viewer, needs

# What `fingerprint:` asks for is as it was taken in; these terms go with it on the page of letters.
_TERMS = {"topic": "topic", "consumer-group": "consumer-group", "attempt": "attempt"}
BY = ("frames", "topic", "consumer-group", "attempt")


def routes(console: Console) -> list[Route]:  # noqa: ARG001
    """The page of one group."""
    return [Route("/failures/{id}", show)]


@needs(Role.VIEWER)
def show(request: Request) -> Response:
    """One kind of failures."""
    query_of(request)
    console, viewer, wanted = console_of(request), viewer_of(request), request.path_params["id"]
    group = console.replica.group(viewer.scope(), wanted)
    if group is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such kind of failures, or no letter of it any more")
    splits = console.replica.splits(viewer.scope(), group.id)
    teams, scope = teams_of(console.replica, group), viewer.scope()
    # They name kinds and people of each of these teams.
    changes = console.replica.notes.changes(group.id) if scope is None or scope.issuperset(teams) else []
    return page(
        request, "group.html", group=group, letters_q=_letters(group), changes=changes,
        trend=charts.trend, by=[(each, [split for split in splits if split.by == each]) for each in BY], term=_term,
        may_act=_may_operate(viewer, group.teams), may_write=_may_operate(viewer, teams),
    )  # fmt: skip


def _letters(group: Group) -> str:
    """The filter of its letters."""
    return " or ".join(f"fingerprint:{each}" for each in (group.id, *group.merged))


def _term(group: Group, by: str, value: str | None) -> str | None:
    """The filter of letters that have something in common; None where no filter asks for that."""
    if value is None or by not in _TERMS:
        return None
    own = _letters(group)
    return f"{f'({own})' if group.merged else own} {filters.exactly(_TERMS[by], value)}"


def teams_of(replica: Replica, group: Group) -> tuple[str, ...]:
    """Whose letters are of this kind, also of teams that the viewer does not see: what is said of it is said of all of these."""
    whole = replica.group(None, group.id)
    return group.teams if whole is None else whole.teams


def _may_operate(viewer: Viewer, teams: tuple[str, ...]) -> bool:
    return all(viewer.may(Role.OPERATOR, team) for team in teams) if teams else viewer.may(Role.OPERATOR, None)
