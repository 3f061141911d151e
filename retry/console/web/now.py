"""Now: what waits, what is new, what is held, and whether retries help; a sentence first."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backoff import duration_text
from retry.console.replica.rows import Held, Scope
from retry.console.replica.rows import Now as Snapshot
from retry.console.web.app import Console, console_of, render_page, viewer_of
from retry.console.web.formats import format_count
from retry.console.web.looked_up import LookedUp
from retry.console.web.overdue_lanes import OverdueLane, overdue_lanes
from retry.console.web.rights import Role, Sight, needs
from retry.console.web.silent_workers import Workers, silences, silent_workers

PART = "now"


def build_routes(console: Console) -> list[Route]:
    """Register the live part of the first page, and return its route."""
    seen = _LookedUp(silent_workers(console), overdue_lanes(console))

    @needs(Role.VIEWER)
    def render_home_page(request: Request) -> Response:
        """Show the first page: what waits, what is new, what is held, and whether retries help."""
        console, scope = console_of(request), viewer_of(request).scope()
        return render_page(request, "now.html", live=(PART, ""), **_build_page(console, scope, seen))

    def make_fragment(sight: Sight, _argument: str) -> str:
        shown = _build_page(console, sight.scope, seen)
        return console.templates.get_template("now_live.html").render(now_ms=console.clock_ms(), **shown)

    console.live.register(PART, make_fragment)
    return [Route("/", render_home_page)]


class _LookedUp(NamedTuple):
    workers: LookedUp[Workers]
    overdue: LookedUp[tuple[OverdueLane, ...]]


def _build_page(console: Console, scope: Scope, seen: _LookedUp) -> dict[str, Any]:
    now, group = console.replica.load_now(scope), seen.workers.read_latest()
    overdue = [lane for lane in seen.overdue.read_latest() if lane.is_in(scope)] if now.overdue else []
    counts = zip(now.failed_by_hour, now.retried_by_hour, strict=True)
    return {
        "due": [(bar.from_ms, (bar.count,)) for bar in now.due],
        "by_hour": list(zip(now.hours_from_ms, counts, strict=True)),
        "now": now, "sentence": sentence(now), "silences": silences(now.workers, group), "running": group.running,
        "overdue": overdue, "near_retention_q": _near_retention_q(now.near_retention_age_ms or 0),
    }  # fmt: skip


def _near_retention_q(age_ms: int) -> str:
    """Who failed so long ago has failed first even earlier: no letter is left out."""
    return f"(state:parked or state:discarded) age:>{duration_text(age_ms)}"


def sentence(now: Snapshot) -> str:
    """Say in one sentence how much waits, is parked, is new and is held."""
    if not (now.waiting or now.parked):
        return "Nothing waits."
    parts = [f"{format_count(now.waiting)} {_wait(now.waiting)}"] if now.waiting else ["nothing waits"]
    if now.parked:
        parts.append(f"{format_count(now.parked)} {'is' if now.parked == 1 else 'are'} parked")
    if now.new_groups:
        parts.append(f"{now.new_groups} {'group is' if now.new_groups == 1 else 'groups are'} new")
    parts += [_format_held(each) for each in now.held[:3]]
    if len(now.held) > 3:
        parts.append(f"{len(now.held) - 3} more things are held")
    text = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"{text[0].upper()}{text[1:]}."


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _format_held(held: Held) -> str:
    if held.what == "action":
        return f"an action ({held.scope}) is held"
    return f"{held.name} is paused" if held.name else "everything is paused"
