"""A letter's value edited on its own page and retried, in one action.

| path | what it does |
| --- | --- |
| `POST /letters/{name}/edit` | `do=check`: the page with the difference; `do=save`: the workers do it; goes to the action |
| `POST /letters/{name}/difference` | the difference alone, while somebody types |

It takes the role operator and the right to reveal payloads, both in the letter's team. What is saved is an action of the kind
`edit` that retries, worked out and started as any other. A form that is sent twice is one action: its id is made from the form.
"""

from __future__ import annotations

import hmac
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.acting import actions, standing_actions
from retry.console.acting.act_pages import REASON_MAX
from retry.console.acting.previews import KeptPreview
from retry.console.web import letter, letter_editor
from retry.console.web.app import Console, console_of, form_of, render_page, viewer_of
from retry.console.web.letter_editor import EditForm, OpenedLetter
from retry.console.web.rights import Role, demand_role, needs
from retry.console.web.value_editor import ValueEditor, ValueInvalid
from retry.delay_queue import action_records
from retry.errors import ActionRefused
from retry.operations.act.options import ActOptions
from retry.operations.act.preview import describe_reason

_FIELDS = ("value", "reason", "seen", "attempt", "do")
# One letter is read and looked at; on a slow broker the page of the preview follows, from which it is started.
_WAIT_S = 10.0
_CHANGED = "Its value, or your sign-in, is another one since you revealed it. Look at the difference, then save again"


def build_routes(console: Console) -> list[Route]:  # noqa: ARG001
    return [
        Route("/letters/{name:path}/edit", edit_letter, methods=["POST"]),
        Route("/letters/{name:path}/difference", render_difference, methods=["POST"]),
    ]


@needs(Role.OPERATOR, *_FIELDS)
def edit_letter(request: Request) -> Response:
    opened, is_seen = _open(request)
    try:
        editor = letter_editor.open_editor(request, opened)
    except ValueInvalid as wrong:
        return letter.render_opened(request, opened, is_revealed=True, form=EditForm(str(wrong)), status=HTTPStatus.CONFLICT)
    form = _read_form(request, opened, editor)
    if form_of(request).get("do") != "save":
        return letter.render_opened(request, opened, is_revealed=True, form=form)
    try:
        return _save(request, opened, editor, form, is_seen=is_seen)
    except ActionRefused as refused:
        form = form._replace(fault=str(refused))
        return letter.render_opened(request, opened, is_revealed=True, form=form, status=HTTPStatus.CONFLICT)


@needs(Role.OPERATOR, *_FIELDS)
def render_difference(request: Request) -> Response:
    opened, is_seen = _open(request)
    try:
        form = _read_form(request, opened, letter_editor.open_editor(request, opened))
    except ValueInvalid as wrong:
        form = EditForm(str(wrong))
    return render_page(request, "difference.html", form=form if is_seen else form._replace(fault=_CHANGED))


def _open(request: Request) -> tuple[OpenedLetter, bool]:
    opened = letter.open_letter(request)
    demand_role(viewer_of(request), Role.OPERATOR, opened.row.team)
    letter.demand_reveal(request, opened.row)
    if opened.found is None:
        raise ActionRefused(opened.trouble)
    seen = str(form_of(request).get("seen", ""))
    is_seen = hmac.compare_digest(seen.encode(), letter_editor.compute_value_mark(request, opened).encode())
    if not is_seen:
        letter.write_reveal(request, opened.row)
    return opened, is_seen


def _read_form(request: Request, opened: OpenedLetter, editor: ValueEditor) -> EditForm:
    given = form_of(request)
    typed = str(given.get("value", editor.text)).replace("\r\n", "\n")
    seen, attempt = letter_editor.compute_value_mark(request, opened), str(given.get("attempt", ""))[:64]
    return EditForm("", editor.form, typed, str(given.get("reason", "")), seen, attempt, editor.check(typed))


def _save(request: Request, opened: OpenedLetter, editor: ValueEditor, form: EditForm, *, is_seen: bool) -> Response:
    """Have the letter edited and retried; raises ActionRefused where that is not done, with why."""
    console, viewer = console_of(request), viewer_of(request)
    if not is_seen:
        raise ActionRefused(_CHANGED)
    if form.edited is not None and form.edited.fault:
        raise ActionRefused("It was not saved: see what is wrong with it")
    if len(form.reason) > REASON_MAX:
        raise ActionRefused(f"The reason has more than {REASON_MAX:,} characters")
    action_id = _make_action_id(request, opened, form)
    if standing_actions.find_action(console.replica, viewer.scope(), action_id) is None:
        options = ActOptions(value=editor.read(form.text), now=True)
        asked = actions.Ask(action_records.EDIT, "", (opened.row.name,), options, form.reason.strip())
        kept = actions.begin_preview(console, viewer, asked, bytes.fromhex(action_id))
        if not kept.done.wait(_WAIT_S):
            return RedirectResponse(f"/act/{action_id}", HTTPStatus.SEE_OTHER)
        _demand_doable(console, kept)
        actions.start_action(console, viewer, action_id, 1)
        standing_actions.await_shown(lambda: standing_actions.find_action(console.replica, viewer.scope(), action_id) is not None)
    return RedirectResponse(f"/actions/{action_id}", HTTPStatus.SEE_OTHER)


def _demand_doable(console: Console, kept: KeptPreview) -> None:
    """Raise ActionRefused with why nothing can be done for the letter; what was tried in vain may be tried again."""
    found = kept.found
    if kept.is_started or (found is not None and found.chosen.count):
        return
    console.previews.drop_preview(kept)
    if kept.fault is not None:
        raise ActionRefused(str(kept.fault)) from kept.fault
    reasons = "; ".join(describe_reason(reason) for reason in (found.chosen.refused if found else ()))
    raise ActionRefused(f"Nothing can be done for this letter: {reasons or describe_reason('gone')}")


def _make_action_id(request: Request, opened: OpenedLetter, form: EditForm) -> str:
    """Make the id of the action from what the form holds: nobody can choose one that there is already."""
    parts = (opened.row.name, form.seen, form.attempt, form.text, form.reason)
    return letter_editor.hash_for_session(request, (part.encode() for part in parts), action_records.ACTION_BYTES)
