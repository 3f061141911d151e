"""Now: what somebody who is woken up has to know, each a sentence with a link; then how much waits, is due and recovers."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backoff import duration_text
from retry.console.reading import lists
from retry.console.reading.urgent_failures import Rates
from retry.console.rows import Held, LetterRow, Scope
from retry.console.rows import Now as Snapshot
from retry.console.web import workers
from retry.console.web.app import Console, console_of, render_page, viewer_of
from retry.console.web.formats import duration, format_count, format_letters
from retry.console.web.rights import Role, needs
from retry.console.web.workers import LookedUp, Workers, list_silences
from retry.delay_queue.entry_keys import Lane
from retry.kafka.target_probe import TargetProbe
from retry.operations import blocked_lanes
from retry.operations.act.overview import ActionOverview
from retry.operations.letter_filter.parse import parse

# Why letters that are due were not sent: a pause, a target that is closed, or maybe a limit or a circuit breaker.
#
# What is used of limits is in the workers' memory, so all that can be said of those here is that there is one; `/health/ready`
# of a worker says whether it is that. Which breakers are not closed workers write down.

_LOOKED_AT_MAX = 500
_OVERDUE = parse("state:waiting due:<-1s")


class OverdueLane(NamedTuple):
    """Letters of one team, from one topic, for one target, that are overdue.

    Attributes:
      since_ms: when the oldest of them was due.
      why: what keeps them; None where nothing is known to.
    """

    team: str | None
    topic: str
    target: str
    since_ms: int
    why: str | None

    def is_in(self, scope: Scope) -> bool:
        return scope is None or self.team in scope


def find_overdue_lanes(console: Console) -> LookedUp[tuple[OverdueLane, ...]]:
    """Build a background look-up of lanes that are overdue; it looks at the 500 letters that are overdue for longest.

    A lane is the letters with the same team, topic and target.
    """

    def find_lanes(_before: tuple[OverdueLane, ...]) -> tuple[OverdueLane, ...]:
        oldest: dict[tuple[str | None, str, str], LetterRow] = {}
        for row in console.replica.list_letters(None, _OVERDUE, None, _LOOKED_AT_MAX).rows:
            oldest.setdefault((row.team, row.topic or "", row.target), row)
        return _describe_overdue(console, oldest) if oldest else ()

    return LookedUp("overdue letters", find_lanes, ())


def _describe_overdue(console: Console, oldest: dict[tuple[str | None, str, str], LetterRow]) -> tuple[OverdueLane, ...]:
    cluster, registry = console.cluster(), console.registry()
    controls = lists.merge_controls(console.replica.controls())
    probe = TargetProbe(cluster.admin, writes=False)
    breakers, by_policies = (
        console.replica.open_breakers(),
        blocked_lanes.build_policy_check(registry, cluster.names, probe, controls),
    )
    of_letters = blocked_lanes.add_limits_check(by_policies, registry, breakers)
    of_named = blocked_lanes.add_limits_check(blocked_lanes.build_control_check(probe, controls), registry, breakers)
    return tuple(
        OverdueLane(team, topic, target, row.due_at_ms or 0,
                    (of_letters if row.kind == "letter" else of_named)(Lane(team or "", topic, target)))
        for (team, topic, target), row in oldest.items()
    )  # fmt: skip


PART = "now"
_LINES_MAX = 5


def build_routes(console: Console) -> list[Route]:
    seen = _LookedUp(workers.watch_silent_workers(console), find_overdue_lanes(console))

    @needs(Role.VIEWER)
    def render_home_page(request: Request) -> Response:
        console, scope = console_of(request), viewer_of(request).scope()
        return render_page(request, "now.html", live=(PART, ""), **_build_page(console, scope, seen))

    console.keep_fresh(PART, "now_live.html", lambda sight, _argument: _build_page(console, sight.scope, seen))
    return [Route("/", render_home_page), *workers.build_routes(console, seen.workers)]


class _LookedUp(NamedTuple):
    workers: LookedUp[Workers]
    overdue: LookedUp[tuple[OverdueLane, ...]]


def _build_page(console: Console, scope: Scope, seen: _LookedUp) -> dict[str, Any]:
    now, group = console.replica.load_now(scope), seen.workers.read_latest()
    overdue = [lane for lane in seen.overdue.read_latest() if lane.is_in(scope)] if now.overdue else []
    counts = zip(now.failed_by_hour, now.retried_by_hour, strict=True)
    urgent = console.replica.load_urgent_failures(scope)
    return {
        "due": [(bar.from_ms, (bar.count,)) for bar in now.due],
        "by_hour": list(zip(now.hours_from_ms, counts, strict=True)),
        "now": now, "sentence": describe_now(now, len(urgent.growing)), "silences": list_silences(now.workers, group),
        "urgent": urgent,
        "growing": [(each, describe_rates(rates)) for each, rates in urgent.growing], "overdue": overdue,
        "running_actions": [each for each in now.actions if each.status == "running"],
        "held_actions": [each for each in now.actions if each.status == "held"], "describe_action": describe_action,
        "pauses": [each for each in now.held if each.what == "pause"], "lines_max": _LINES_MAX,
        "breakers": [each for each in now.breakers if each.state != "closed"],
        "near_retention_q": _near_retention_q(now.near_retention_age_ms or 0), "page_title": describe_title(now),
    }  # fmt: skip


def _near_retention_q(age_ms: int) -> str:
    """Who failed so long ago has failed first even earlier: no letter is left out."""
    return f"(state:parked or state:discarded) age:>{duration_text(age_ms)}"


def describe_title(now: Snapshot) -> str:
    """Build the page title for a browser tab: new groups first, then how many letters wait and are parked."""
    new = f"({format_count(now.new_groups)} new) " if now.new_groups else ""
    return f"{new}Now: {format_count(now.waiting)} waiting, {format_count(now.parked)} parked"


def describe_now(now: Snapshot, growing: int = 0) -> str:
    """Say in one sentence how much waits, is parked, is new, is growing and is held."""
    if not (now.waiting or now.parked):
        return "Nothing waits."
    parts = [f"{format_count(now.waiting)} {_wait(now.waiting)}"] if now.waiting else ["nothing waits"]
    if now.parked:
        parts.append(f"{format_count(now.parked)} {_are(now.parked)} parked")
    if now.new_groups:
        parts.append(f"{_count_failures(now.new_groups)} {_are(now.new_groups)} new")
    if growing:
        parts.append(f"{_count_failures(growing)} {_are(growing)} growing")
    parts += [_format_held(each) for each in now.held[:3]]
    if len(now.held) > 3:
        parts.append(f"{len(now.held) - 3} more things are held")
    text = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"{text[0].upper()}{text[1:]}."


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _count_failures(count: int) -> str:
    return f"{format_count(count)} failure{'' if count == 1 else 's'}"


def _format_held(held: Held) -> str:
    if held.what == "action":
        return f"an action ({held.scope}) is on hold"
    return f"{held.name} is paused" if held.name else "everything is paused"


def describe_rates(rates: Rates) -> str:
    """Say how much fails now and how much failed before, each with the time in which it was counted.

    >>> describe_rates(Rates(340, 5_100_000, 264, 79_200_000))
    '340 failed in the last 1 h 25 min, 240 an hour; in the 22 h before that it was 12 an hour'
    """
    lately = f"{rates.recent:,} failed in the last {duration(rates.recent_ms)}, {_format_rate(rates.recent_per_hour)} an hour"
    before = "none" if not rates.before else f"{_format_rate(rates.before_per_hour)} an hour"
    return f"{lately}; in the {duration(rates.before_ms)} before that it was {before}"


def _format_rate(per_hour: float) -> str:
    return f"{per_hour:,.0f}" if per_hour >= 10 else f"{per_hour:.1f}"


def describe_action(about: ActionOverview) -> str:
    """Say how far an action has come."""
    done = about.tally.done + about.tally.gone + sum(about.tally.refused.values())
    text = f"{done:,} of {format_letters(about.action.members)} done"
    if about.action.ramp is None:
        return text
    return f"{text}, step {about.open_step} of {len(about.action.ramp.steps)}"
