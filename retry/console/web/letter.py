"""One letter: why it is due when, what happened to it, its headers, and its payload for those who may see it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.reading import lists
from retry.console.rows import DepartedLetter, LetterRow
from retry.console.web import letter_editor, masks
from retry.console.web.app import Console, console_of, demand_found, render_page, viewer_of
from retry.console.web.letter_editor import OpenedLetter
from retry.console.web.letter_timeline import draw_timeline, find_last_stop
from retry.console.web.masks import MaskedParts
from retry.console.web.payload_views import PayloadView, build_masked_view, format_header, list_value_parts, list_views
from retry.console.web.rights import Role, Sight, needs
from retry.console.web.stack_trace import parse_stack_trace
from retry.dead_letters.dead_letter import read
from retry.dead_letters.frameworks.detection import KNOWN
from retry.dead_letters.retry_headers import OURS, find_stack_header
from retry.delay_queue import entry_keys
from retry.errors import RetryError
from retry.kafka import consumer_groups
from retry.kafka.interface import KafkaException
from retry.kafka.target_probe import TargetProbe
from retry.operations import blocked_lanes
from retry.operations.cluster import Cluster
from retry.operations.explain import evidence as letter_evidence
from retry.operations.explain import search
from retry.operations.explain.explanation import explain_evidence
from retry.operations.found_letter import FoundLetter
from retry.operations.letter_filter.syntax import Filter, Term, all_of, make_glob
from retry.operations.waiting_entries import WaitingEntry
from retry.policies.masks import MESSAGE
from retry.policies.registry import Registry
from retry.record import Record
from retry.telemetry.outcomes import DISCARD

# What `retry explain` says of a letter, from what the replica and the letter's record tell: no topic is searched for it.

_AHEAD_MAX = 100


def explain_letter(console: Console, row: LetterRow, found: FoundLetter, *, has_message: bool) -> dict[str, list[str]]:
    """Explain a letter in sentences, by section; empty if it is of no dead-letter topic, or the brokers do not answer.

    Args:
      has_message: whether they may say what the exception says.
    """
    location = _location(row)
    if row.kind != "letter" or location is None:
        return {}
    try:
        return _explain(console, row, found, location, has_message)
    except (RetryError, KafkaException, TimeoutError):
        return {}


def _explain(
    console: Console, row: LetterRow, found: FoundLetter, location: search.LetterLocation, has_message: bool
) -> dict[str, list[str]]:
    cluster, registry, now_ms = console.cluster(), console.registry(), console.clock_ms()
    entry = found.entry
    record = letter_evidence.record_from_entry(location, entry) if entry else _as_it_came(location, found)
    letter = read(record, registry.route(location.topic).aliases)
    if not has_message:
        letter = replace(letter, failure=replace(letter.failure, message=None, cause_message=None))
    waiting = None if entry is None else WaitingEntry(_build_waiting_key(row, location), entry, _head(console, row))
    forecast = next(cluster.inspector(registry).decide_letters([record], now_ms)) if letter.copyable() else None
    evidence = letter_evidence.LetterEvidence(
        location, missing=None, record=record, letter=letter, position=location.offset + 1, waiting=waiting,
        blocked=_find_block(console, cluster, registry, row), forbidden=None,
        workers=consumer_groups.count_members(cluster.admin, cluster.names.table_group), decision=_decision(row, found),
        delivery=_delivery(row, found),
    )  # fmt: skip
    return explain_evidence(evidence, registry, forecast, now_ms).sentences


def _location(row: LetterRow) -> search.LetterLocation | None:
    if row.topic is None or row.partition is None or row.offset is None:
        return None
    return search.LetterLocation(row.topic, row.partition, row.offset)


def _as_it_came(location: search.LetterLocation, found: FoundLetter) -> Record:
    theirs = [header for header in found.headers if header[0] not in OURS]
    return Record(location, found.key, found.value, theirs, found.record.timestamp())


def _build_waiting_key(row: LetterRow, location: search.LetterLocation) -> bytes:
    lane = entry_keys.lane(row.team or "", location.topic, row.target)
    stem = entry_keys.build_key_stem(location.topic, location.partition)
    return entry_keys.build_key(row.due_at_ms or 0, stem, location.offset, lane)


def _head(console: Console, row: LetterRow) -> bytes | None:
    """The key of the letter that it waits behind."""
    if not row.behind or row.key is None:
        return None
    same = (("topic", row.topic or ""), ("key", row.key.decode("utf-8", "replace")), ("state", "waiting"))
    letter_filter = all_of([Term(field, "", make_glob([text])) for field, text in same])
    for ahead in console.replica.list_letters(None, letter_filter, None, _AHEAD_MAX).rows:
        location = _location(ahead)
        if not ahead.behind and ahead.team == row.team and location is not None:
            return _build_waiting_key(ahead, location)
    return None


def _find_block(console: Console, cluster: Cluster, registry: Registry, row: LetterRow) -> str | None:
    if row.state != "waiting":
        return None
    controls = lists.merge_controls(console.replica.controls())
    why = blocked_lanes.build_policy_check(registry, cluster.names, TargetProbe(cluster.admin, writes=False), controls)
    return why(entry_keys.Lane(row.team or "", row.topic or "", row.target))


def _decision(row: LetterRow, found: FoundLetter) -> search.DecisionRecord:
    if found.entry is not None:
        return search.read_entry_decision(found.entry)._replace(failed_ms=row.failed_ms)
    what = DISCARD if row.state == "discarded" else "park"
    return search.DecisionRecord(
        row.lineage or "", row.team or "", row.policy or "", attempt=(row.attempt or 0) + 1, first_failed_ms=row.first_failed_ms,
        failed_ms=row.failed_ms, taken_ms=None, decision=what, reason=row.reason, due_ms=None, target=row.target,
    )  # fmt: skip


def _delivery(row: LetterRow, found: FoundLetter) -> search.Delivery | None:
    return search.Delivery(found.place, None, row.reason, row.action, row.attempt) if found.entry is None else None


_HEADERS_MAX, _HEADER_CHARS_MAX, _STACK_BYTES_MAX = 500, 2_000, 256 << 10
# What an engineer asks first of all that is known of a letter.
_GONE = "there is no such letter, or it waits and rests no more"
_FIRST, _SENTENCES = ("now", "due", "next", "policy", "letter"), 5


def build_routes(console: Console) -> list[Route]:  # noqa: ARG001
    return [Route("/letters/{name:path}/reveal", reveal, methods=["POST"]), Route("/letters/{name:path}", render_letter)]


@needs(Role.VIEWER)
def render_letter(request: Request) -> Response:
    """Render the page of a letter, with the payload as its shape only; for a letter that has left, what became of it."""
    replica, asked = console_of(request).replica, (viewer_of(request).scope(), request.path_params["name"])
    row = replica.find_letter(*asked)
    if row is None and (departed := replica.find_departed(*asked)):
        return _render_departed(request, departed)
    return render_opened(request, _open_row(request, demand_found(row, _GONE)), is_revealed=False)


def _render_departed(request: Request, departed: DepartedLetter) -> Response:
    """The page that says what became of a letter; where it only waits until another time, or rests, its own."""
    for each in departed.present:
        if each.letter == departed.letter:
            return RedirectResponse(f"/letters/{quote(each.name)}", HTTPStatus.SEE_OTHER)
    console = console_of(request)
    events, now_ms = console.replica.lineage(viewer_of(request).scope(), departed.lineage), console.clock_ms()
    last, timeline = find_last_stop(events, now_ms), draw_timeline(events, now_ms)
    return render_page(request, "departed_letter.html", departed=departed, last=last, events=events, timeline=timeline)


@needs(Role.VIEWER)
def reveal(request: Request) -> Response:
    """Render the page of a letter with its payload, after the audit has a record of that."""
    opened = open_letter(request)
    demand_reveal(request, opened.row)
    write_reveal(request, opened.row)
    form = letter_editor.begin_form(request, opened)
    return render_opened(request, opened, is_revealed=True, form=form)


def demand_reveal(request: Request, row: LetterRow) -> None:
    """Raise HTTPException 403 where the viewer may not see the payload of a letter."""
    if not viewer_of(request).may_reveal(row.team):
        reason = f"this takes the right to reveal payloads of team {row.team or 'of letters of no known team'}"
        raise HTTPException(HTTPStatus.FORBIDDEN, reason)


def write_reveal(request: Request, row: LetterRow) -> None:
    """Write to the audit that the viewer is going to see the payload of a letter; raises RecordUnwritten."""
    console_of(request).audit.reveal(viewer_of(request).name, [row.name], [row.team] if row.team else [])


def open_letter(request: Request) -> OpenedLetter:
    """Find the letter that the path names, and read its record; raises HTTPException 404 where the viewer may see none."""
    found = console_of(request).replica.find_letter(viewer_of(request).scope(), request.path_params["name"])
    return _open_row(request, demand_found(found, _GONE))


def _open_row(request: Request, row: LetterRow) -> OpenedLetter:
    console, scope = console_of(request), viewer_of(request).scope()
    found, trouble = _find_record(console, scope, row)
    decoded = console.framed.decode(found.value) if console.framed and found and found.value else None
    return OpenedLetter(row, found, trouble, decoded, masks.find_masked(console.registry(), viewer_of(request).sight(), row.team))


def render_opened(
    request: Request, opened: OpenedLetter, *, is_revealed: bool, form: letter_editor.EditForm | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:  # fmt: skip
    """Render the page of a letter; `form` is the form that edits its value, None where nobody edits it here."""
    page = _build_page(request, opened, is_revealed=is_revealed)
    return render_page(request, "letter.html", status, revealed=is_revealed, form=form, **page)


def _build_page(request: Request, opened: OpenedLetter, *, is_revealed: bool) -> dict[str, Any]:
    console, viewer = console_of(request), viewer_of(request)
    row, found, trouble, decoded, masked = opened
    shown = _view_value(console, opened) if found and is_revealed else RevealedValue([])
    value = found.value if found else None
    is_shown = is_revealed and (value is None or bool(shown.views))
    stack_header, stack = _find_stack(found, masked, is_revealed=is_revealed) if found else ("", "")
    sentences = explain_letter(console, row, found, has_message=MESSAGE not in masked.others) if found else {}
    events = console.replica.lineage(viewer.scope(), row.lineage) if row.lineage else []
    return {
        "row": row, "trouble": trouble, "found": found is not None, "may_reveal": viewer.may_reveal(row.team),
        "may_act": viewer.may(Role.OPERATOR, row.team),
        "stack_header": stack_header, "stack": stack, "errors": parse_stack_trace(stack), "sentences": sentences,
        "main_sentences": [line for section in _FIRST for line in sentences.get(section, ())][:_SENTENCES],
        "events": events, "timeline": draw_timeline(events, console.clock_ms()),
        "headers": _group_headers(found, masked, is_revealed=is_revealed) if found else [],
        "value_bytes": None if value is None else len(value),
        "shape": list_value_parts(value, decoded.json if decoded else None) if found and not is_shown else [],
        "views": shown.views, "value_note": shown.note,
    }  # fmt: skip


class RevealedValue(NamedTuple):
    """The ways in which a value is shown, and what is to be said of them in a sentence."""

    views: list[PayloadView]
    note: str = ""


def _view_value(console: Console, opened: OpenedLetter) -> RevealedValue:
    value = opened.found.value if opened.found else None
    if value is None:
        return RevealedValue([])
    if paths := opened.masked.paths:
        masked = masks.mask_json(opened.decoded.json if opened.decoded else value, paths)
        if masked is None:
            return RevealedValue([], "Fields of it are masked for you, and it is no JSON in which these could be found")
        return RevealedValue([build_masked_view(masked)], f"Masked for you: {', '.join(paths)}")
    own = console.decoders.decode(opened.row.topic or "", value)
    note = f"The decoder {own.name} did not read it: {own.fault}" if own and own.fault else ""
    return RevealedValue(list_views(value, opened.decoded, own), note)


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


def find_example(console: Console, sight: Sight, letter_filter: Filter) -> dict[str, Any] | None:
    """Find what a page shows of the first letter that a filter means, its payload hidden; None where there is no such letter."""
    rows = console.replica.list_letters(sight.scope, letter_filter, None, 1).rows
    if not rows:
        return None
    found, trouble = _find_record(console, sight.scope, rows[0])
    masked = masks.find_masked(console.registry(), sight, rows[0].team)
    _, stack = _find_stack(found, masked, is_revealed=False) if found else ("", "")
    value = found.value if found else None
    return {
        "row": rows[0], "trouble": trouble, "stack": stack, "errors": parse_stack_trace(stack),
        "value_bytes": None if value is None else len(value), "shape": list_value_parts(value)[0].says if found else "",
    }  # fmt: skip


def _find_stack(found: FoundLetter, masked: MaskedParts, *, is_revealed: bool) -> tuple[str, str]:
    """The header that has the stack trace, and its text; empty where there is none, or it is hidden as payloads are."""
    if masked.hides_stack:
        return "", ""
    name, value = find_stack_header([header for header in found.headers if is_revealed or header[0] in KNOWN]) or ("", b"")
    return name, value[:_STACK_BYTES_MAX].decode("utf-8", "backslashreplace")


def _group_headers(
    found: FoundLetter, masked: MaskedParts, *, is_revealed: bool
) -> list[tuple[str, list[tuple[str, str | None, int]]]]:
    """Group headers by who writes them; each has its name, its value where that is shown, and its length in bytes."""
    groups: dict[str, list[tuple[str, str | None, int]]] = {"of the service": [], "of the framework": [], "others": []}
    for name, value in found.headers[:_HEADERS_MAX]:
        of = "of the service" if name in OURS else "of the framework" if name in KNOWN else "others"
        text = None if value is None else format_header(name, value[:_HEADER_CHARS_MAX], is_known=of == "of the framework")
        is_shown = (is_revealed or of != "others") and not masked.hides_header(name, value, found.failure)
        groups[of].append((name, text if is_shown else None, len(value or b"")))
    return [(of, held) for of, held in groups.items() if held]
