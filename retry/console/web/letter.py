"""One letter: why it is due when, what happened to it, its headers, and its payload for those who may see it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.replica.rows import LetterRow
from retry.console.web.app import Console, console_of, render_page, viewer_of
from retry.console.web.explained_letter import sentences
from retry.console.web.payload_shape import shape
from retry.console.web.payload_views import views
from retry.console.web.rights import Role, needs
from retry.dead_letters.frameworks.detection_plan import KNOWN
from retry.dead_letters.retry_headers import OURS
from retry.errors import RetryError
from retry.kafka.interface import KafkaException
from retry.operations.letters.found_letter import FoundLetter
from retry.scheduling.tasks.framed_values import FramedValues

_HEADERS_MAX, _HEADER_CHARS_MAX = 500, 2_000


def build_routes(console: Console) -> list[Route]:
    """The page of one letter, and its payload."""
    framed = FramedValues(console.settings.registry) if console.settings.registry else None

    @needs(Role.VIEWER)
    def render_letter(request: Request) -> Response:
        """A letter, whose payload is shown as its shape."""
        row = _find_letter(request)
        return render_page(request, "letter.html", revealed=False, **_build_page(request, row, framed, is_revealed=False))

    @needs(Role.VIEWER)
    def reveal(request: Request) -> Response:
        """A letter with its payload, after that is written down."""
        row, viewer = _find_letter(request), viewer_of(request)
        if not viewer.may_reveal(row.team):
            reason = f"this takes the right to reveal payloads of team {row.team or 'of letters of no known team'}"
            raise HTTPException(HTTPStatus.FORBIDDEN, reason)
        console_of(request).audit.reveal(viewer.name, [row.name], [row.team] if row.team else [])
        return render_page(request, "letter.html", revealed=True, **_build_page(request, row, framed, is_revealed=True))

    return [Route("/letters/{name:path}/reveal", reveal, methods=["POST"]), Route("/letters/{name:path}", render_letter)]


def _find_letter(request: Request) -> LetterRow:
    row = console_of(request).replica.find_letter(viewer_of(request).scope(), request.path_params["name"])
    if row is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such letter, or it waits and rests no more")
    return row


def _build_page(request: Request, row: LetterRow, framed: FramedValues | None, *, is_revealed: bool) -> dict[str, Any]:
    console, viewer = console_of(request), viewer_of(request)
    found, trouble = _find_record(console, viewer.scope(), row)
    value = found.value if found else None
    framed_json = framed.decode_json(value) if framed and value else None
    return {
        "row": row, "trouble": trouble, "found": found is not None, "may_reveal": viewer.may_reveal(row.team),
        "may_act": viewer.may(Role.OPERATOR, row.team),
        "sentences": sentences(console, row, found) if found else {},
        "events": console.replica.lineage(viewer.scope(), row.lineage) if row.lineage else [],
        "headers": _group_headers(found, is_revealed) if found else [],
        "value_bytes": None if value is None else len(value),
        "shape": shape(value, framed_json) if found and not is_revealed else [],
        "views": views(value, framed_json) if found and is_revealed else [],
    }  # fmt: skip


def _find_record(console: Console, scope: Any, row: LetterRow) -> tuple[FoundLetter | None, str]:
    """The letter's record, or why it cannot be read: the rest of the page is shown anyway."""
    try:
        found = console.replica.payloads.find_letter(scope, row.name)
    except (RetryError, KafkaException, TimeoutError) as error:
        return None, f"its record cannot be read now: {error}"
    if found is not None:
        return found, ""
    if console.replica.find_letter(scope, row.name) is None:
        return None, "its record has just gone: it waits and rests no more"
    return None, "its record cannot be read now: no broker gave it in time"


def _group_headers(found: FoundLetter, is_revealed: bool) -> list[tuple[str, list[tuple[str, str | None, int]]]]:
    """Group headers by who writes them; each has its name, its value where that is shown, and its length in bytes."""
    groups: dict[str, list[tuple[str, str | None, int]]] = {"of the service": [], "of the framework": [], "others": []}
    for name, value in found.headers[:_HEADERS_MAX]:
        of = "of the service" if name in OURS else "of the framework" if name in KNOWN else "others"
        text = None if value is None else value[:_HEADER_CHARS_MAX].decode("utf-8", "backslashreplace")
        shown = text if is_revealed or of != "others" else None
        groups[of].append((name, shown, len(value or b"")))
    return [(of, held) for of, held in groups.items() if held]
