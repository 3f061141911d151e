"""One kind of failures: when and where its letters failed, what became of their retries, whose it is, and what was done."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.reading.advice import find_group_advice
from retry.console.reading.group_details import COMMON_BY, PERIODS, CommonValue, FailureBar, GroupDetails, Period, join_bars
from retry.console.reading.replica import Replica
from retry.console.rows import Group
from retry.console.web import filters
from retry.console.web.app import Console, console_of, demand_found, query_of, render_page, viewer_of
from retry.console.web.failure_chart import draw_chart, format_filter, nice_most
from retry.console.web.letter import find_example
from retry.console.web.rights import Role, Sight, needs
from retry.delivery.act import ENDED_MS
from retry.operations.letter_filter.parse import parse

PART = "group"
_PERIOD = "24h"
# What can be split by, and which are asked for by a term of the same name; frames are asked for by none.
_SPLITS = frozenset({"topic", "consumer-group", "attempt", "frames"})
_DONE = {
    "retry": "retried", "redirect": "redirected", "park": "parked", "discard": "discarded", "edit": "edited", "patch": "patched",
    "undo": "brought back", "erase": "erased", "note": "wrote", "resolved": "resolved it", "merged": "merged",
    "split": "split it",
}  # fmt: skip


class Chart(NamedTuple):
    """When letters failed, drawn for wide screens and for narrow ones, each with the end of its scale."""

    period: str
    wide: Markup
    wide_most: int
    narrow: Markup
    narrow_most: int


def build_routes(console: Console) -> list[Route]:
    console.keep_fresh(PART, "group_live.html", partial(_build_live_page, console))
    return [Route("/failures/{id}", render_group)]


@needs(Role.VIEWER, "period")
def render_group(request: Request) -> Response:
    wanted, console, sight = request.path_params["id"], console_of(request), viewer_of(request).sight()
    period = PERIODS.get(query_of(request).get("period", _PERIOD))
    if period is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"period is one of {', '.join(PERIODS)}")
    parts = _build_page(console, sight, wanted, period)
    example = find_example(console, sight, parse(parts["letters_q"], groups=True))
    return render_page(request, "group.html", live=(PART, f"{period.name}/{wanted}"), example=example, **parts)


def _build_live_page(console: Console, sight: Sight, argument: str) -> dict[str, Any]:
    period, _, wanted = argument.partition("/")
    return _build_page(console, sight, wanted, PERIODS.get(period, PERIODS[_PERIOD]))


def _build_page(console: Console, sight: Sight, wanted: str, period: Period) -> dict[str, Any]:
    """Collect the template variables for the page of one group; raises HTTPException 404 where there is none."""
    replica, scope = console.replica, sight.scope
    group = demand_found(replica.find_group(scope, wanted), "there is no such kind of failures, or no letter of it any more")
    details, letters_q = replica.load_group_details(scope, group.id, period), filters.exactly("group", group.id)
    file = console.settings.console_advice
    teams = teams_of(replica, group)
    # They name kinds and people of each of these teams.
    changes = replica.notes.changes(group.id) if scope is None or scope.issuperset(teams) else []
    return {
        "group": group, "letters_q": letters_q, "changes": changes, "chart": _draw(details, letters_q, period),
        "several_topics": len({each.topic for each in details.common if each.topic}) > 1,
        "periods": tuple(PERIODS), "common": _group_common(details, letters_q), "recovery": details.recovery,
        "before": details.before, "done": _DONE, "actions_since_ms": console.clock_ms() - ENDED_MS,
        "advice": None if file is None else find_group_advice(file, group), "has_advice": file is not None,
        "may_act": sight.may_act_for(group.teams), "may_write": sight.may_act_for(teams), "splits": _SPLITS,
    }  # fmt: skip


def _draw(details: GroupDetails, letters_q: str, period: Period) -> Chart:
    def link(bar: FailureBar) -> str:
        return "/letters?" + urlencode({"q": f"{letters_q} {format_filter(bar)}"})

    narrow, what = list(join_bars(details.bars, period.joined)), f"Failures of the last {period.name}, as links to their letters"
    return Chart(
        period.name, draw_chart(details.bars, link, what), nice_most(max(bar.failed for bar in details.bars)),
        draw_chart(narrow, link, what), nice_most(max(bar.failed for bar in narrow)),
    )  # fmt: skip


def _group_common(details: GroupDetails, letters_q: str) -> list[tuple[str, list[tuple[CommonValue, str | None]]]]:
    """Values by what they are of, each with the filter of the letters that have it; None where no filter asks for that."""
    return [
        (by, found) for by in COMMON_BY
        if (found := [(each, _narrow_filter(each, letters_q)) for each in details.common if each.by == by])
        # Nobody writes a version: there is nothing to tell apart.
        and not (by == "version" and all(each.value is None for each, _ in found))
    ]  # fmt: skip


def _narrow_filter(each: CommonValue, letters_q: str) -> str | None:
    if each.by == "frames":
        return None
    if each.value is None:
        # What is not known never matches.
        return f"{letters_q} -{each.by}:*" if each.by not in ("attempt", "partition") else None
    of_topic = f" {filters.exactly('topic', each.topic)}" if each.topic else ""
    return f"{letters_q}{of_topic} {filters.exactly(each.by, each.value)}"


def teams_of(replica: Replica, group: Group) -> tuple[str, ...]:
    """List the teams that have letters in a group, also those that the viewer does not see: its notes concern all of them."""
    whole = replica.find_group(None, group.id)
    return group.teams if whole is None else whole.teams
