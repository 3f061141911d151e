"""One kind of failures: when and where its letters failed, what became of their retries, whose it is, and what was done.

When they failed is drawn as bars that are links: each leads to the letters of its time that still wait or rest. It is SVG without
style or script, with its places in parts of its width, so that it fits any screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from itertools import takewhile
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
from retry.console.web.formats import format_minute
from retry.console.web.letter import find_example
from retry.console.web.rights import Role, Sight, needs
from retry.delivery.act import ENDED_MS
from retry.operations.letter_filter.parse import parse

_HIGH, _BASE = 96, 112
_LABELS_MAX = 7
_DRAWN = Markup(
    '<div class="drawn"><svg role="group" aria-label="{}" width="100%" height="{}">{}</svg><div class="ticks">{}</div></div>'
)
_LINE = Markup('<line x1="0" x2="100%" y1="{0}" y2="{0}"/>')
_TICK = Markup("<span>{}</span>")
_BAR = Markup(
    '<a href="{href}" aria-label="{label}"><title>{label}</title>'
    '<rect class="hit" x="{x:.2f}%" y="0" width="{wide:.2f}%" height="{base}"/>'
    '<rect x="{inner_x:.2f}%" y="{y}" width="{inner:.2f}%" height="{high}"/></a>'
)


def draw_chart(bars: Sequence[FailureBar], link: Callable[[FailureBar], str], what: str) -> Markup:
    """Draw the bars over a line of times; `link` gives the address that a bar leads to."""
    most, wide = round_scale_up(max(bar.failed for bar in bars)), 100 / len(bars)
    top = _BASE - _HIGH
    parts = [_LINE.format(y) for y in (top, _BASE - _HIGH // 2, _BASE)]
    for n, bar in enumerate(bars):
        if bar.failed:
            high = max(2, round(_HIGH * bar.failed / most))
            x = n * wide
            parts.append(_BAR.format(
                href=link(bar), label=f"{describe_time(bar)}: {bar.failed:,} failed", x=x, wide=wide, base=_BASE,
                inner_x=x + wide * 0.1, y=_BASE - high, inner=wide * 0.8, high=high,
            ))  # fmt: skip
    step = next(each for each in range(1, len(bars) + 1) if len(bars) % each == 0 and len(bars) // each <= _LABELS_MAX)
    ticks = [_TICK.format(format_minute(bars[n].from_ms)) for n in range(0, len(bars), step)]
    return _DRAWN.format(what, _BASE, Markup("").join(parts), Markup("").join(ticks))


def round_scale_up(most: int) -> int:
    """Return the end of a scale that a person can read: 2, 4, 10, 20 or 50 times a power of ten, so that its half is whole.

    >>> [round_scale_up(each) for each in (0, 1, 3, 7, 11, 45, 51, 1814)]
    [2, 2, 4, 10, 20, 50, 100, 2000]
    """
    powers = takewhile(lambda power: power <= 10 * max(1, most), (10**n for n in range(30)))
    ends = (step * power for power in powers for step in (2, 4, 5, 10))
    return next(end for end in ends if end >= most and end % 2 == 0)


def format_filter(bar: FailureBar) -> str:
    """Write the term that asks for letters of the time of a bar; both its ends are included.

    >>> format_filter(FailureBar(1_790_000_000_000, 1_790_000_120_000, 1))
    'failed:2026-09-21T14:13:20..2026-09-21T14:15:19.999'
    """
    first, last = _in_utc(bar.from_ms), _in_utc(bar.to_ms - 1)
    return f"failed:{first:%Y-%m-%dT%H:%M:%S}..{last:%Y-%m-%dT%H:%M:%S}.{(bar.to_ms - 1) % 1_000:03}"


def describe_time(bar: FailureBar) -> str:
    """Say from when to when a bar counts.

    >>> describe_time(FailureBar(1_790_000_000_000, 1_790_003_600_000, 1))
    '21 Sep 14:13 to 15:13 UTC'
    """
    first, end = _in_utc(bar.from_ms), _in_utc(bar.to_ms)
    return f"{first:%-d %b %H:%M} to {end:%H:%M} UTC"


def _in_utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


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
    details, letters_q = replica.load_group_details(scope, group.id, period), filters.make_exact_term("group", group.id)
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
        period.name, draw_chart(details.bars, link, what), round_scale_up(max(bar.failed for bar in details.bars)),
        draw_chart(narrow, link, what), round_scale_up(max(bar.failed for bar in narrow)),
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
    of_topic = f" {filters.make_exact_term('topic', each.topic)}" if each.topic else ""
    return f"{letters_q}{of_topic} {filters.make_exact_term(each.by, each.value)}"


def teams_of(replica: Replica, group: Group) -> tuple[str, ...]:
    """List the teams that have letters in a group, also those that the viewer does not see: its notes concern all of them."""
    whole = replica.find_group(None, group.id)
    return group.teams if whole is None else whole.teams
