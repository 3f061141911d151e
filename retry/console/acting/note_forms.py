"""What operators write beside kinds of failures: owner, note and link, merges and splits, what is resolved; and saved filters.

| path | fields | what it does |
| --- | --- | --- |
| `POST /failures/{id}/note` | owner, note, link | writes them; all empty removes the note |
| `POST /failures/{id}/assign` | those of the list's address, or page | makes whoever asks its owner, and goes back to the list,
  or to the failure where page is `failure` |
| `POST /failures/{id}/merge` | group, several times | counts these kinds as this one |
| `POST /failures/{id}/apart` | group, those of the list's address | says that the two differ: no merge is offered again |
| `POST /failures/{id}/split` | by | makes kinds of their own by `frames`, `topic`, `consumer-group` or `attempt` |
| `POST /failures/{id}/undo` | change | takes back a merge or a split |
| `POST /failures/{id}/resolve`, `/reopen` | | says that nothing, or something, is to be done |
| `POST /filters`, `/filters/delete` | name, text, team, page | keeps a filter for a team, or no more; then shows the page |
"""

from __future__ import annotations

import re
from http import HTTPStatus
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.reading.notes import CHARS_MAX
from retry.console.rows import Group
from retry.console.web.app import Console, console_of, demand_found, form_of, viewer_of
from retry.console.web.failures import FIELDS, read_view
from retry.console.web.group import teams_of
from retry.console.web.rights import EVERY_TEAM, Role, demand_role, needs

# Of ids and words.
_OTHERS_CHARS_MAX = 1_024
_LINK = re.compile(r"https?://[^\s\"'<>\\]+")
_SPLITS = ("frames", "topic", "consumer-group", "attempt")
_MERGED_MAX = 100
_PAGES = ("letters", "failures")


def build_routes(console: Console) -> list[Route]:  # noqa: ARG001
    of_group = {
        "note": save_note, "assign": assign, "merge": merge, "apart": keep_apart, "split": split, "undo": undo_regrouping,
        "resolve": resolve, "reopen": reopen,
    }  # fmt: skip
    return [
        *(Route(f"/failures/{{id}}/{what}", endpoint, methods=["POST"]) for what, endpoint in of_group.items()),
        Route("/filters", save_filter, methods=["POST"]), Route("/filters/delete", delete_filter, methods=["POST"]),
    ]  # fmt: skip


@needs(Role.OPERATOR, "owner", "note", "link")
def save_note(request: Request) -> Response:
    group, link = _find_group(request), _read_field(request, "link")
    if link and not _LINK.fullmatch(link):
        # What runs code is no address either, as javascript: is.
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the link is not one like https://tracker.example.com/17")
    notes, by = console_of(request).replica.notes, viewer_of(request).name
    # Who has letters of this kind later has no part in what was written for these teams.
    teams = teams_of(console_of(request).replica, group)
    owner, note = _read_field(request, "owner"), _read_field(request, "note")
    notes.set_note(group.id, owner=owner, note=note, link=link, by=by, teams=teams)
    return _back(group)


@needs(Role.OPERATOR, "page", *FIELDS)
def assign(request: Request) -> Response:
    group, by = _find_group(request), viewer_of(request).name
    teams = teams_of(console_of(request).replica, group)
    console_of(request).replica.notes.set_note(group.id, owner=by, note=group.note, link=group.link, by=by, teams=teams)
    return _back(group) if _read_field(request, "page") == "failure" else _back_to_list(request)


@needs(Role.OPERATOR, "group", *FIELDS)
def keep_apart(request: Request) -> Response:
    group, other = _find_group(request), _require_operator(request, _read_field(request, "group"))
    if group.id == other.id:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "a kind of failures does not differ from itself")
    console_of(request).replica.notes.keep_apart(group.id, other.id, viewer_of(request).name)
    return _back_to_list(request)


@needs(Role.OPERATOR, repeated=("group",))
def merge(request: Request) -> Response:
    group = _find_group(request)
    given = dict.fromkeys(str(each) for each in form_of(request).getlist("group"))
    others = [_require_operator(request, each).id for each in list(given)[: _MERGED_MAX + 1]]
    others = [each for each in others if each != group.id]
    if not 1 <= len(others) <= _MERGED_MAX:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"choose 1 to {_MERGED_MAX} other kinds of failures")
    console_of(request).replica.notes.merge(others, group.id, viewer_of(request).name)
    return _back(group)


@needs(Role.OPERATOR, "by")
def split(request: Request) -> Response:
    group, by_what = _find_group(request), _read_field(request, "by")
    if by_what not in _SPLITS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"split by one of {', '.join(_SPLITS)}")
    console_of(request).replica.notes.split(group.id, by_what, viewer_of(request).name)
    return _back(group)


@needs(Role.OPERATOR, "change")
def undo_regrouping(request: Request) -> Response:
    group, change = _find_group(request), _read_field(request, "change")
    notes = console_of(request).replica.notes
    if change not in {each[0] for each in notes.changes(group.id)} or not notes.undo_regrouping(change, viewer_of(request).name):
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such merge or split, or it was taken back")
    # A part of a split is no group any more.
    left = console_of(request).replica.find_group(viewer_of(request).scope(), group.id)
    return RedirectResponse("/failures", HTTPStatus.SEE_OTHER) if left is None else _back(left)


@needs(Role.OPERATOR)
def resolve(request: Request) -> Response:
    group = _find_group(request)
    console_of(request).replica.notes.resolve(group.id, viewer_of(request).name)
    return _back(group)


@needs(Role.OPERATOR)
def reopen(request: Request) -> Response:
    group = _find_group(request)
    console_of(request).replica.notes.reopen(group.id, viewer_of(request).name)
    return _back(group)


@needs(Role.VIEWER, "name", "text", "team", "page")
def save_filter(request: Request) -> Response:
    name, text, team = (_read_field(request, field) for field in ("name", "text", "team"))
    if not name:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "give the filter a name")
    _demand_team(request, team)
    console_of(request).replica.notes.save_filter(name, text, team, viewer_of(request).name)
    return RedirectResponse(f"{_read_page(request)}?{urlencode({'q': text})}", HTTPStatus.SEE_OTHER)


@needs(Role.VIEWER, "name", "team", "page")
def delete_filter(request: Request) -> Response:
    name, team = _read_field(request, "name"), _read_field(request, "team")
    _demand_team(request, team)
    console_of(request).replica.notes.delete_filter(name, team, viewer_of(request).name)
    return RedirectResponse(_read_page(request), HTTPStatus.SEE_OTHER)


def _demand_team(request: Request, team: str) -> None:
    """A filter of a team takes the role operator there; everybody's, in all teams."""
    demand_role(viewer_of(request), Role.OPERATOR, team or EVERY_TEAM)


def _find_group(request: Request) -> Group:
    return _require_operator(request, str(request.path_params["id"]))


def _require_operator(request: Request, group_id: str) -> Group:
    """The group, of all of whose teams this viewer is operator: what is changed about it is changed for all of them."""
    viewer = viewer_of(request)
    group = console_of(request).replica.find_group(viewer.scope(), group_id)
    found = demand_found(group, "there is no such kind of failures, or no letter of it is left")
    for team in found.teams or (EVERY_TEAM,):
        demand_role(viewer, Role.OPERATOR, team)
    if not all(viewer.may(Role.OPERATOR, team) for team in teams_of(console_of(request).replica, found)):
        reason = "letters of other teams are of this kind, too: changing it takes the role operator in each of these teams"
        raise HTTPException(HTTPStatus.FORBIDDEN, reason)
    return found


def _read_field(request: Request, field: str) -> str:
    # As a browser counts what is typed: it sends each line's end as two characters.
    text = str(form_of(request).get(field, "")).replace("\r\n", "\n").strip()
    most = CHARS_MAX.get(field, _OTHERS_CHARS_MAX)
    if len(text) > most:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"{field} has more than {most:,} characters")
    return text


def _read_page(request: Request) -> str:
    page = _read_field(request, "page") or _PAGES[0]
    if page not in _PAGES:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"page is one of {', '.join(_PAGES)}")
    return f"/{page}"


def _back_to_list(request: Request) -> Response:
    view = read_view({name: _read_field(request, name) for name in FIELDS if form_of(request).get(name)})
    return RedirectResponse(view.link(after=view.after), HTTPStatus.SEE_OTHER)


def _back(group: Group) -> Response:
    return RedirectResponse(f"/failures/{quote(group.id, safe='')}", HTTPStatus.SEE_OTHER)
