"""The page on which an action is asked for, its preview, and its start.

| path | what it does |
| --- | --- |
| `GET /act?q=…&name=…` | the form; `name` as often as letters are chosen, none are all that the filter `q` means |
| `POST /act` | without a `kind` goes to the form, with what is selected; else works the preview out, and goes to it |
| `GET /act/{id}` | what would be done |
| `POST /act/{id}/start` | has the workers do it, and goes to the action |
| `POST /act/{id}/drop` | forgets it |
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.acting import act_form, actions, awaited, standing_actions, told
from retry.console.acting.previews import KeptPreview
from retry.console.replica.rows import LetterRow, Page
from retry.console.web import filters
from retry.console.web.app import Console, console_of, form_of, render_page, viewer_of
from retry.console.web.rights import Role, Viewer, needs
from retry.errors import ActionRefused, FilterInvalid
from retry.operations.act import meaning
from retry.operations.act.options import KINDS, OptionsInvalid
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import all_of

# A preview of a small deployment is there by then, and its page needs no loading again.
_WAIT_S = 3.0
# Each has some 60 characters.
_IN_ADDRESS_MAX = 250
_NOTHING_CHOSEN = "choose some letters first, or write a filter"
_ID = re.compile(r"[0-9a-f]{16}")


def build_routes(console: Console) -> list[Route]:  # noqa: ARG001
    """The routes of the table above."""
    return [
        Route("/act", form), Route("/act", request_preview, methods=["POST"]), Route("/act/{id}", preview),
        Route("/act/{id}/start", start, methods=["POST"]), Route("/act/{id}/drop", drop_preview, methods=["POST"]),
    ]  # fmt: skip


@needs(Role.OPERATOR, *act_form.FIELDS, "selected", repeated=("name",))
def form(request: Request) -> Response:
    """The form, filled with what the address says."""
    given = request.query_params
    names = given.getlist("name")
    if given.get("selected") and not names:
        return _form(request, act_form.list_typed_fields(given), [], _NOTHING_CHOSEN, HTTPStatus.BAD_REQUEST)
    return _form(request, act_form.list_typed_fields(given), names)


@needs(Role.OPERATOR, *act_form.FIELDS, "select", repeated=("name",))
def request_preview(request: Request) -> Response:
    """Have a preview worked out."""
    given = form_of(request)
    names = [str(each) for each in given.getlist("name")]
    if "kind" not in given:
        return _show_form_of_chosen(request, str(given.get("q", "")), names if given.get("select") != "all" else [])
    try:
        kept = actions.begin_preview(console_of(request), viewer_of(request), act_form.of_form(given))
    except (OptionsInvalid, FilterInvalid, ActionRefused) as wrong:
        return _form(request, act_form.list_typed_fields(given), names, str(wrong), HTTPStatus.BAD_REQUEST)
    kept.done.wait(_WAIT_S)
    return RedirectResponse(f"/act/{kept.id}", HTTPStatus.SEE_OTHER)


@needs(Role.OPERATOR)
def preview(request: Request) -> Response:
    """Show a preview: what the action would do, and to how many letters."""
    console = console_of(request)
    kept = actions.find_preview(console, viewer_of(request), action_id(request))
    return _preview(request, kept)


@needs(Role.OPERATOR, "expect")
def start(request: Request) -> Response:
    """Have the workers do it."""
    console, viewer, found = console_of(request), viewer_of(request), action_id(request)
    try:
        actions.start_action(console, viewer, found, parse_expected_count(form_of(request).get("expect")))
    except (ActionRefused, OptionsInvalid) as refused:
        kept = console.previews.find_preview(found, viewer.name)
        if kept is None:
            raise
        return _preview(request, kept, str(refused), HTTPStatus.CONFLICT)
    awaited.until(lambda: standing_actions.action(console.replica, viewer.scope(), found) is not None)
    return RedirectResponse(f"/actions/{found}", HTTPStatus.SEE_OTHER)


@needs(Role.OPERATOR)
def drop_preview(request: Request) -> Response:
    """Forget a preview, and go back to the list of letters."""
    console = console_of(request)
    console.previews.drop_preview(actions.find_preview(console, viewer_of(request), action_id(request)))
    return RedirectResponse("/letters", HTTPStatus.SEE_OTHER)


def action_id(request: Request) -> str:
    """The id in the path.

    Raises:
      HTTPException: 404, it is none.
    """
    text = str(request.path_params["id"])
    if not _ID.fullmatch(text):
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such action, or it is older than 30 days")
    return text


def parse_expected_count(given: Any) -> int | None:
    """The number of letters that somebody typed; None where nothing was.

    Raises:
      OptionsInvalid: it is no number.
    """
    text = str(given or "").replace(",", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise OptionsInvalid(f"{text!r:.20} is no number of letters")
    return int(text)


def _show_form_of_chosen(request: Request, words: str, names: list[str]) -> Response:
    """The form for letters that were chosen on another page."""
    if not names and not words.strip():
        return _form(request, {}, [], _NOTHING_CHOSEN, HTTPStatus.BAD_REQUEST)
    if len(names) > _IN_ADDRESS_MAX:
        return _form(request, {"q": words}, names)
    return RedirectResponse("/act?" + urlencode([("q", words), *(("name", name) for name in names)]), HTTPStatus.SEE_OTHER)


def _form(
    request: Request, given: dict[str, str], names: list[str], fault: str = "", status: HTTPStatus = HTTPStatus.OK
) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    actions.demand_seen(console)
    known = console.replica.list_filter_names(viewer.scope())
    counts = None if names else _count_by_state(console, viewer, given.get("q", ""))
    return render_page(
        request, "act.html", status, given=given, names=names, fault=fault, kinds=KINDS, known=known, counts=counts
    )


def _count_by_state(console: Console, viewer: Viewer, words: str) -> dict[str, Page[LetterRow]] | None:
    """How many letters a filter means that wait, and that are parked; None where it says a state, or cannot be counted."""
    try:
        meant = parse(words, groups=True)
        if meaning.says_states(meant) or filters.asks_payload(meant):
            return None
        scope = viewer.sight().acts
        each = {state: all_of([meant, parse(f"state:{state}")]) for state in ("waiting", "parked")}
        return {state: console.replica.list_letters(scope, those, None, 1) for state, those in each.items()}
    except FilterInvalid:
        return None


def _preview(request: Request, kept: KeptPreview, fault: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    found = told.kept_object(kept, console_of(request).registry())
    return render_page(request, "preview.html", status, found=found, fault=fault, as_of_ms=kept.made_ms)
