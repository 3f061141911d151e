"""The pages of schedules, tasks and timers: what waits, what was sent lately, and how one is cancelled.

| path | what it does |
| --- | --- |
| `GET /schedules`, `/tasks`, `/timers` | what waits; fields are those of the scheduler's REST API, as `schedule-id` |
| `GET /schedules/history`, `/tasks/history`, `/timers/history` | what was made of them lately; the same fields |
| `POST /entries/cancel` | cancels what waits, through the way by which it came in |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from backoff.recurrence import PAUSED_MS
from retry.console.acting import other_entries, standing_actions
from retry.console.acting.action_pages import read_reason
from retry.console.acting.other_entries import OtherScheduler
from retry.console.rows import LetterRow, Scope
from retry.console.web.app import Console, console_of, form_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, Viewer, demand_role, needs
from retry.delay_queue import entry_keys
from retry.delay_queue.envelopes import Named
from retry.errors import ActionRefused
from retry.kafka import client_config, topics
from retry.kafka.record_producer import Records
from retry.operations.moments import parse_moment_ms
from retry.policies.tasks import TEAM as TASKS
from retry.scheduling.messages.entry_source import TEAM as SCHEDULES
from retry.scheduling.messages.schedule_request import DONE
from retry.scheduling.messages.search import Query, QueryInvalid, SearchPage, parse_query, search
from retry.scheduling.timers import entry_source as timers

# Schedules, tasks and timers that wait: found by their names, and cancelled through the way by which each came in.

KINDS = ("schedule", "task", "timer")
_WITHIN_S = 15.0


class CancelRecord(NamedTuple):
    """The record that cancels a named entry: on the topic where it came in, or on the changelog for a timer."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


def build_cancel_record(where: entry_keys.Source, entry: Named, changelog: str, shards: int, now_ms: int) -> CancelRecord | None:
    """Build the record that cancels an entry; None for an entry that cannot be cancelled, as one that waits to be parked.

    Schedules and tasks end by a null in the partition in which they lie, so that whoever follows their topic sees it too.
    """
    if entry.call is not None:
        key, value = timers.cancel_row(entry.call.id, now_ms)
        return CancelRecord(changelog, entry_keys.find_shard(timers.hash_timer_id(entry.call.id), shards), key, value)
    if entry.team == SCHEDULES:
        mine = (each for each in entry.also if each.value is None and any(name == DONE for name, _ in each.headers))
        done = next(mine, None)
        if done is None or done.partition is None or done.key is None:
            return None
        return CancelRecord(done.topic, done.partition, done.key, None)
    if entry.team == TASKS and entry.plan is not None and entry.key is not None:
        return CancelRecord(where.topic, where.partition, entry.key, None)
    return None


def cancel_named(console: Console, viewer: Viewer, name: str, reason: str) -> None:
    """Cancel the entry of this name, `due/topic/partition/offset`.

    Raises:
      ActionRefused: it cannot be cancelled, or waits no more.
      RecordUnwritten: it is not known whether it was cancelled; cancelling it again does no harm.
    """
    found = console.replica.payloads.find_letter(viewer.scope(), name)
    if found is None or not isinstance(found.entry, Named):
        raise HTTPException(HTTPStatus.NOT_FOUND, "no such schedule, task or timer waits: it was sent, called or cancelled")
    standing_actions.demand_each(viewer, Role.OPERATOR, [found.team or ""])
    changelog = topics.build_topic_names(console.settings.app_id).changelog
    shards = topics.describe(console.cluster().admin, [changelog])[changelog].partitions
    record = build_cancel_record(entry_keys.parse_source(name), found.entry, changelog, shards, console.clock_ms())
    if record is None:
        raise ActionRefused("this one cannot be cancelled here: it only waits to be parked")
    console.audit.write("cancel", viewer.name, reason, [name], [found.team or ""])
    with closing(Records(client_config.build_records_config(console.settings))) as records:
        records.write(record.topic, record.partition, record.key, record.value).result(_WITHIN_S)


_MOMENTS = {"epoch-from", "epoch-to"}
_FIELDS = ("schedule-id", "epoch-from", "epoch-to", "max", "skip", "sort-by")
_PLACES = {"schedule": "/schedules", "task": "/tasks", "timer": "/timers"}
_SHOWN = 100
# A page of a search is looked for among so many, and says where there are more.
_SEARCHED_MAX = 100_000
_BATCH = 1_000


class Searched(NamedTuple):
    """The result of a search, as a page shows it: `faults` says which schedulers did not answer in full, and why."""

    found: SearchPage
    ended_early: bool
    faults: list[str]


def build_routes(console: Console) -> list[Route]:
    others = other_entries.read(console.settings.console_schedulers)
    return [
        *(Route(path, _make_page(kind, "live", others), name=kind) for kind, path in _PLACES.items()),
        *(Route(f"{path}/history", _make_page(kind, "history", others)) for kind, path in _PLACES.items()),
        Route("/entries/cancel", cancel, methods=["POST"]),
    ]  # fmt: skip


def _make_page(kind: str, place: str, others: list[OtherScheduler]) -> Any:
    @needs(Role.VIEWER, *_FIELDS)
    def show_entries(request: Request) -> Response:
        console, viewer = console_of(request), viewer_of(request)
        if place == "history" and (team := other_entries.TEAMS[kind]) is not None:
            demand_role(viewer, Role.VIEWER, team)
        list_entries = _list_named_entries if place == "live" else other_entries.iterate_sent
        asks = others if kind == "schedule" and viewer.may(Role.VIEWER, SCHEDULES) else []
        return _render_schedules(request, kind, place, _Counted(list_entries(console, viewer.scope(), kind)), asks)

    return show_entries


@needs(Role.OPERATOR, "kind", "name", "reason")
def cancel(request: Request) -> Response:
    form = form_of(request)
    kind = str(form.get("kind", ""))
    if kind not in _PLACES:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"kind: it is one of {', '.join(_PLACES)}")
    console, viewer, name = console_of(request), viewer_of(request), str(form.get("name", ""))
    cancel_named(console, viewer, name, read_reason(request))
    standing_actions.await_shown(lambda: console.replica.find_letter(viewer.scope(), name) is None)
    return RedirectResponse(_PLACES[kind], HTTPStatus.SEE_OTHER)


class _Counted:
    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows, self.ended_early = rows, False

    def __iter__(self) -> Iterator[Any]:
        for n, row in enumerate(self._rows):
            if n == _SEARCHED_MAX:
                self.ended_early = True
                return
            yield row


def _list_named_entries(console: Console, scope: Scope, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the named entries of a kind that wait, soonest first, in the form that `search` takes."""
    after: str | None = None
    while True:
        found = console.replica.named_entries(scope, kind, after, _BATCH)
        yield from map(_describe_schedule, found.rows)
        if (after := found.after) is None:
            return


def _describe_schedule(row: LetterRow) -> dict[str, Any]:
    due_s = (row.due_at_ms or 0) // 1_000
    return {
        "id": row.label or "", "epoch": due_s, "timestamp": (row.failed_ms or 0) // 1_000, "topic": row.topic or "",
        "target-topic": row.target, "name": row.name, "team": row.team, "size": row.size_bytes,
    }  # fmt: skip


def _render_schedules(request: Request, kind: str, place: str, rows: _Counted, others: list[OtherScheduler]) -> Response:
    given, viewer = query_of(request), viewer_of(request)
    shown: dict[str, Any] = {"kind": kind, "place": place, "given": given, "several": bool(others)}
    show = partial(render_page, request, "named.html", paused_s=PAUSED_MS // 1_000, **shown)
    try:
        query = parse_query({"sort-by": "epoch asc" if place == "live" else "", **_convert_fields(given)})
    except QueryInvalid as wrong:
        nothing = Searched(SearchPage(0, []), False, [])
        return show(status=HTTPStatus.BAD_REQUEST, fault=str(wrong), searched=nothing, skip=0, may={})
    query = query._replace(rows_max=min(query.rows_max, _SHOWN if not given.get("max") else query.rows_max))
    searched = _search_rows(rows, query, other_entries.ask_schedulers(others, place, query))
    may = {row["team"]: viewer.may(Role.OPERATOR, row["team"]) for row in searched.found.page if row.get("team")}  # type: ignore[typeddict-item]
    return show(fault="", searched=searched, skip=query.skip + len(searched.found.page), may=may)


def _search_rows(rows: _Counted, query: Query, answers: list[other_entries.Answer]) -> Searched:
    def all_rows() -> Iterator[Any]:
        yield from rows
        for answer in answers:
            yield from answer.schedules

    found = search(all_rows(), query)
    # Of others, only those were looked at that may be on this page.
    unseen = sum(each.total - sum(query.matches(row) for row in each.schedules) for each in answers)
    found = found._replace(total=found.total + max(0, unseen))
    return Searched(found, rows.ended_early, [f"{each.scheduler}: {each.fault}" for each in answers if each.fault])


def _convert_fields(given: Mapping[str, str]) -> dict[str, str]:
    written = {name: value.strip() for name, value in given.items() if value.strip()}
    for name in _MOMENTS & written.keys():
        if not written[name].isdigit():
            try:
                written[name] = str(max(0, parse_moment_ms(written[name])) // 1_000)
            except ValueError as wrong:
                raise QueryInvalid(f"{name}: {wrong}") from None
    return written
