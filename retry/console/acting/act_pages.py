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

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
import orjson
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from backoff import PolicyInvalid, duration_ms
from retry.console.acting import actions, api_answers, standing_actions
from retry.console.rows import LetterRow, Page
from retry.console.web import filters
from retry.console.web.app import Console, console_of, form_of, render_page, viewer_of
from retry.console.web.rights import Role, Viewer, needs
from retry.errors import ActionRefused, FilterInvalid, WriteNotShown
from retry.operations.act.options import KINDS, OPTIONS_OF, ActOptions, OptionsInvalid
from retry.operations.act.selection import says_states
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import all_of
from retry.operations.moments import parse_moment_ms

# What was typed into the form of an action, or sent to the API → what is asked for. No I/O.

# A page has at most so many letters to be chosen.
NAMES_MAX = 10_000
REASON_MAX = 1_000
_TOO_DEEP = "merge_patch: objects lie in each other too deep"
# Of the form, beside the names of letters.
FIELDS = (
    "q", "state", "kind", "to", "at", "spread", "postpone", "ramp", "keep", "settle", "silence", "set_headers", "removed",
    "merge_patch", "has_value", "value", "now", "reason",
)  # fmt: skip
_OF_KINDS = frozenset[str]().union(*OPTIONS_OF.values())
_DURATIONS = ("spread", "postpone", "settle", "silence")
# What the form says besides the filter.
_STATES = {"waiting": "state:waiting", "parked": "state:parked", "both": "(state:waiting or state:parked)"}
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_Read = TypeVar("_Read")


class ActBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    kind: str
    filter: str = ""
    letters: list[str] = []
    reason: str = ""
    at: str | int | None = None
    spread: str | None = None
    postpone: str | None = None
    ramp: bool | None = None
    keep: float | None = None
    settle: str | None = None
    silence: str | None = None
    to: str | None = None
    value: str | None = None
    value_base64: str | None = None
    set_headers: dict[str, str] = {}
    remove_headers: list[str] = []
    merge_patch: dict[str, Any] | None = None
    now: bool = False


_decode = msgspec.json.Decoder(ActBody).decode


def parse_body(body: bytes) -> actions.Ask:
    """Parse the JSON body of a request to the API for a preview; raises OptionsInvalid, which names the field."""
    try:
        given = _decode(body)
    except msgspec.MsgspecError as error:
        raise OptionsInvalid(str(error)) from None
    except RecursionError:
        raise OptionsInvalid(_TOO_DEEP) from None
    if given.value is not None and given.value_base64 is not None:
        raise OptionsInvalid("give value or value_base64, not both")
    value = None if given.value is None else given.value.encode()
    if given.value_base64 is not None:
        try:
            value = base64.b64decode(given.value_base64, validate=True)
        except (binascii.Error, ValueError):
            raise OptionsInvalid("value_base64: it is no base64") from None
    times = {name: _read(name, getattr(given, name), duration_ms) for name in _DURATIONS}
    at_ms = given.at if isinstance(given.at, int) else _read("at", given.at, parse_moment_ms)
    try:
        patch = None if given.merge_patch is None else orjson.dumps(given.merge_patch).decode()
    except orjson.JSONEncodeError:
        raise OptionsInvalid(_TOO_DEEP) from None
    found = ActOptions(
        at=at_ms, ramp=given.ramp, keep=given.keep, to=given.to, value=value, set_headers=given.set_headers,
        removed=given.remove_headers, merge_patch=patch, now=given.now, **times,
    )  # fmt: skip
    return _build_ask(given.kind, given.filter, given.letters, found, given.reason)


def parse_form(form: FormData) -> actions.Ask:
    """Parse the posted form of an action; an empty field counts as not given. Raises OptionsInvalid, which names the field."""
    asked = OPTIONS_OF.get(str(form.get("kind", "")), frozenset[str]())
    text = {name: str(value).strip() for name, value in form.multi_items() if name in asked or name not in _OF_KINDS}
    times = {name: _read(name, text.get(name) or None, duration_ms) for name in _DURATIONS}
    # An empty value is one, too: a box says that there is to be a new one.
    value = str(form.get("value", "")).encode() if text.get("has_value") and "value" in asked else None
    found = ActOptions(
        at=_read("at", text.get("at") or None, parse_moment_ms), ramp={"yes": True, "no": False}.get(text.get("ramp", "")),
        keep=_read("keep", text.get("keep") or None, _part), to=text.get("to") or None, value=value,
        set_headers=_parse_headers(text.get("set_headers", "")), removed=_split_lines(text.get("removed", "")),
        merge_patch=text.get("merge_patch") or None, now=text.get("now") == "yes", **times,
    )  # fmt: skip
    names = [str(each) for each in form.getlist("name")]
    words = " ".join(filter(None, (_parenthesize(text.get("q", "")), _STATES.get(text.get("state", ""), ""))))
    return _build_ask(text.get("kind", ""), words, names, found, text.get("reason", ""))


def list_typed_fields(form: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in form.items() if name not in ("csrf", "name", "select", "selected")}


def _build_ask(kind: str, words: str, names: Iterable[str], found: ActOptions, reason: str) -> actions.Ask:
    if kind not in KINDS:
        raise OptionsInvalid(f"kind: it is one of {', '.join(KINDS)}")
    chosen = tuple(dict.fromkeys(names))
    if len(chosen) > NAMES_MAX:
        raise OptionsInvalid(f"{len(chosen):,} letters are chosen, and {NAMES_MAX:,} can be; use a filter")
    if len(reason) > REASON_MAX:
        raise OptionsInvalid(f"reason: it has more than {REASON_MAX:,} characters")
    if found.keep is not None and not 0 < found.keep < 1:
        raise OptionsInvalid("keep: it is a part of letters, between 0 and 1")
    return actions.Ask(kind, words, chosen, found, reason)


def _read(name: str, given: str | None, read: Callable[[str], _Read]) -> _Read | None:
    if given is None:
        return None
    try:
        return read(given)
    except PolicyInvalid as invalid:
        raise OptionsInvalid(f"{name}: {invalid.reason}") from None
    except ValueError as invalid:
        raise OptionsInvalid(f"{name}: {invalid}") from None


def _part(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r:.40} is no number like 0.9") from None


def _parenthesize(words: str) -> str:
    return f"({words})" if _OR.search(words) else words


def _parse_headers(text: str) -> dict[str, str]:
    found = {}
    for line in _split_lines(text):
        name, mark, value = line.partition(":")
        if not mark or not name.strip():
            raise OptionsInvalid(f"set_headers: {line!r:.60} is not `name: value`")
        found[name.strip()] = value.strip()
    return found


def _split_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


# A preview of a small deployment is there by then, and its page needs no loading again.
_WAIT_S = 3.0
# Each has some 60 characters.
_IN_ADDRESS_MAX = 250
_NOTHING_CHOSEN = "choose some letters first, or write a filter"
_ID = re.compile(r"[0-9a-f]{16}")


def build_routes(console: Console) -> list[Route]:  # noqa: ARG001
    return [
        Route("/act", form), Route("/act", request_preview, methods=["POST"]), Route("/act/{id}", preview),
        Route("/act/{id}/start", start, methods=["POST"]), Route("/act/{id}/drop", drop_preview, methods=["POST"]),
    ]  # fmt: skip


@needs(Role.OPERATOR, *FIELDS, "selected", repeated=("name",))
def form(request: Request) -> Response:
    given = request.query_params
    names = given.getlist("name")
    if given.get("selected") and not names:
        return _form(request, list_typed_fields(given), [], _NOTHING_CHOSEN, HTTPStatus.BAD_REQUEST)
    return _form(request, list_typed_fields(given), names)


@needs(Role.OPERATOR, *FIELDS, "select", repeated=("name",))
def request_preview(request: Request) -> Response:
    given = form_of(request)
    names = [str(each) for each in given.getlist("name")]
    if "kind" not in given:
        return _show_form_of_chosen(request, str(given.get("q", "")), names if given.get("select") != "all" else [])
    try:
        kept = actions.begin_preview(console_of(request), viewer_of(request), parse_form(given))
    except (OptionsInvalid, FilterInvalid, ActionRefused) as wrong:
        return _form(request, list_typed_fields(given), names, str(wrong), HTTPStatus.BAD_REQUEST)
    kept.done.wait(_WAIT_S)
    return RedirectResponse(f"/act/{kept.id}", HTTPStatus.SEE_OTHER)


@needs(Role.OPERATOR)
def preview(request: Request) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    kept = actions.find_preview(console, viewer, action_id(request))
    found = api_answers.kept_object(kept, console.registry(), viewer_of(request).sight())
    find_letter = partial(console.replica.find_letter, viewer.scope())
    examples = [(each, find_letter(each["letter"])) for each in found.get("examples", ())]
    others = standing_actions.find_others(console, viewer.scope(), kept, found["teams"]) if "teams" in found else None
    return render_page(
        request, "preview.html", found=found, fault=kept.refusal, as_of_ms=kept.made_ms, examples=examples, others=others,
        listed=kept.words if _is_filter(kept.words) else "",
    )  # fmt: skip


@needs(Role.OPERATOR, "expect")
def start(request: Request) -> Response:
    console, viewer, found = console_of(request), viewer_of(request), action_id(request)
    try:
        # Its own page says that it is started, also where nothing else is shown of it yet.
        with suppress(WriteNotShown):
            actions.start_action(console, viewer, found, parse_expected_count(form_of(request).get("expect")))
    except (ActionRefused, OptionsInvalid) as refused:
        kept = console.previews.find_preview(found, viewer.name)
        if kept is None:
            raise
        # By an address of its own, so that whoever goes back or loads it again does not send the form once more.
        kept.refusal = str(refused)
        return RedirectResponse(f"/act/{kept.id}", HTTPStatus.SEE_OTHER)
    return RedirectResponse(f"/actions/{found}", HTTPStatus.SEE_OTHER)


@needs(Role.OPERATOR, "expect")
def drop_preview(request: Request) -> Response:
    console = console_of(request)
    console.previews.drop_preview(actions.find_preview(console, viewer_of(request), action_id(request)))
    return RedirectResponse("/letters", HTTPStatus.SEE_OTHER)


def action_id(request: Request) -> str:
    """Return the id in the path; raises HTTPException 404 where it is none."""
    text = str(request.path_params["id"])
    if not _ID.fullmatch(text):
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such action, or it is older than 30 days")
    return text


def parse_expected_count(given: Any) -> int | None:
    """Parse the number of letters that somebody typed, None where nothing was; raises OptionsInvalid where it is no number."""
    text = str(given or "").replace(",", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise OptionsInvalid(f"{text!r:.20} is no number of letters")
    return int(text)


def _show_form_of_chosen(request: Request, words: str, names: list[str]) -> Response:
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


def _is_filter(words: str) -> bool:
    """Whether these words alone say which letters are meant: single letters, and those of an undo, are named otherwise."""
    try:
        parse(words, groups=True)
    except FilterInvalid:
        return False
    return True


def _count_by_state(console: Console, viewer: Viewer, words: str) -> dict[str, Page[LetterRow]] | None:
    try:
        letter_filter = parse(words, groups=True)
        if says_states(letter_filter) or filters.asks_payload(letter_filter):
            return None
        scope = viewer.sight().acts
        each = {state: all_of([letter_filter, parse(f"state:{state}")]) for state in ("waiting", "parked")}
        return {state: console.replica.list_letters(scope, those, None, 1) for state, those in each.items()}
    except FilterInvalid:
        return None
