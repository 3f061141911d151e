"""The pictures of the report: rows of its answers in, SVG out.

Altair says what is drawn, vl-convert draws it without a browser. The SVG has presentation attributes only, no script and no
style, and takes its text colour from the page, so it is dark where the page is dark. What a mark stands for is its tooltip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

import altair as alt
import vl_convert

from retry.analytics.html import format as words

Rows = Sequence[dict[str, Any]]

_SVG = "http://www.w3.org/2000/svg"
# Distinguishable for the colour-blind, and against white and nearly black.
GOOD, BAD, UNKNOWN = "#2f8fd8", "#e0663a", "#8a94a3"
_PALETTE = (GOOD, "#e0a52b", "#2ba37a", "#b267c9", BAD, "#5f7de8", "#c2578b", "#7a9a2f")
_DAY_MS, _TEN_MINUTES_MS = 86_400_000, 600_000
# Where these are too few, those between them, too.
_TICKS_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 6 * 3_600_000, _DAY_MS, 7 * _DAY_MS, 30 * _DAY_MS)
_MORE_TICKS_MS = sorted({
    *_TICKS_MS,
    *(times * unit_ms for unit_ms in (1, 1_000, 60_000) for times in (2, 5, 20, 30)), 200, 500,
    *(times * 3_600_000 for times in (2, 12)), *(times * _DAY_MS for times in (2, 3, 14)),
})  # fmt: skip
_TICKS_LEAST, _FEW = 3, 5
_WIDTH, _ROW = 860, 26
# What vl-convert measures with, and what has the same widths elsewhere.
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"


def worth(rows: Rows) -> str:
    """Chance of each attempt: `kind`, `attempt`, `hazard`, `hazard_low`, `hazard_high`, `is_worth`."""
    colors = alt.Scale(domain=["worth making", "not worth it", "too little data"], range=[GOOD, BAD, UNKNOWN])
    x = alt.X("attempt:O", title="attempt", axis=alt.Axis(labelAngle=0))
    # Stacked, bars with round ends would be clipped, by an id that may be twice in a page.
    y = alt.Y("hazard:Q", title="chance to recover", axis=_percent(), scale=alt.Scale(domain=[0, 1]), stack=None)
    color = alt.Color("is_worth:N", title=None, scale=colors, legend=_legend())
    # The rows belong to the whole, not to the layers: else every panel would have all of them.
    bars = alt.Chart().mark_bar(cornerRadiusEnd=2).encode(x=x, y=y, color=color)
    bounds = alt.Chart().mark_rule(color="currentColor", opacity=0.65).encode(x=x, y=alt.Y("hazard_low:Q"), y2="hazard_high:Q")
    # Where a bar has no height, its colour still tells.
    feet = alt.Chart().mark_circle(size=36, opacity=1).encode(x=x, y=y, color=color)
    panels = alt.layer(bars, bounds, feet, data=alt.InlineData(values=list(rows))).properties(width=250, height=120)
    header = alt.Header(labelLimit=260, labelAnchor="start")
    facet = alt.Facet("kind:N", title=None, sort=_list_values(rows, "kind"), header=header)
    return _svg(panels.facet(facet=facet, columns=3).resolve_axis(x="independent"))


def incidence_by_attempt(rows: Rows) -> str:
    """Parts that recovered and were given up: `team`, `attempt`, and the parts of `retry.analytics.questions.recovery`."""
    parked_at_once = {row["team"] for row in rows if row["attempt"] == 0}
    start = [_make_empty_plot(team) | {"attempt": 0} for team in _list_values(rows, "team") if team not in parked_at_once]
    return _curves([*start, *rows], alt.X("attempt:Q", title="after attempt", axis=alt.Axis(tickMinStep=1, format="d")))


def incidence_by_time(rows: Rows) -> str:
    """Parts that recovered and were given up: `team`, `time_ms`, and the parts of `retry.analytics.questions.recovery`."""
    # The axis is logarithmic and has no 0: it begins where the first letter recovered, or half way before that.
    begin_ms = max(1, min((row["time_ms"] for row in rows if row["part_recovered"]), default=1_000) / 2)
    start = [_make_empty_plot(team) | {"time_ms": begin_ms} for team in _list_values(rows, "team")]
    shown = [row | {"time_ms": max(row["time_ms"], begin_ms)} for row in rows]
    title = "time since the first failure, logarithmic"
    return _curves([*start, *shown], alt.X("time_ms:Q", title=title, **_times(row["time_ms"] for row in [*start, *shown])))


def _make_empty_plot(team: str) -> dict[str, Any]:
    names = ("part_recovered", "part_recovered_low", "part_recovered_high", "part_parked", "part_expired")
    return {"team": team, **dict.fromkeys(names, 0)}


def waste(rows: Rows) -> str:
    """Retries by what they were good for: `kind`, `retries`, `wasted`."""
    good, bad = "of letters that recovered, or still may", "wasted: of letters that were parked in the end"
    parts = [{"kind": row["kind"], "part": good, "order": 0, "retries": row["retries"] - row["wasted"]} for row in rows]
    parts += [{"kind": row["kind"], "part": bad, "order": 1, "retries": row["wasted"]} for row in rows]
    return _svg(
        _make_chart(parts).mark_bar().encode(
            x=alt.X("sum(retries):Q", title="retries sent", axis=_build_count_axis()), y=_build_kind_axis(rows), order="order:O",
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=[good, bad], range=[GOOD, BAD]), legend=_legend()),
        ).properties(width=_WIDTH - 250, height=alt.Step(_ROW))
    )  # fmt: skip


def ranges(rows: Rows, title: str) -> str:
    """Percentiles of times: `kind`, `p50_ms`, `p90_ms`, `p99_ms`."""
    points = [{"kind": row["kind"], "percentile": f"p{p}", "ms": max(1, row[f"p{p}_ms"])} for row in rows for p in (50, 90, 99)]
    x = alt.X("ms:Q", title=title, **_times(point["ms"] for point in points))
    bars = [{"kind": row["kind"], "from": max(1, row["p50_ms"]), "to": max(1, row["p99_ms"])} for row in rows]
    spans = _make_chart(bars).mark_rule(strokeWidth=3, color=UNKNOWN, opacity=0.5).encode(
        x=alt.X("from:Q"), x2="to:Q", y=_build_kind_axis(rows)
    )
    color = alt.Color("percentile:N", title=None, scale=alt.Scale(range=[GOOD, "#e0a52b", BAD]), legend=_legend())
    dots = _make_chart(points).mark_circle(size=110, opacity=1).encode(x=x, y=_build_kind_axis(rows), color=color)
    return _svg(alt.layer(spans, dots).properties(width=_WIDTH - 250, height=alt.Step(_ROW)))


def comparison(rows: Rows) -> str:
    """Part that recovered of what ended, with its bounds: `kind`, `team`, `recovery`, `recovery_low`, `recovery_high`."""
    x = alt.X("recovery:Q", title="recovered of what ended", axis=_percent(), scale=alt.Scale(domain=[0, 1]))
    color = _teams(rows)
    spans = _make_chart(rows).mark_rule(strokeWidth=5, opacity=0.35).encode(
        x=alt.X("recovery_low:Q"), x2="recovery_high:Q", y=_build_kind_axis(rows), color=color
    )  # fmt: skip
    dots = _make_chart(rows).mark_circle(size=110, opacity=1).encode(x=x, y=_build_kind_axis(rows), color=color)
    return _svg(alt.layer(spans, dots).properties(width=_WIDTH - 250, height=alt.Step(_ROW)))


def fingerprints(rows: Rows) -> str:
    """How often each was seen when: `kind`, `at_ms`, `until_ms`, `failures`."""
    return _svg(
        _make_chart(rows).mark_rect(cornerRadius=1).encode(
            x=_when(rows, "at_ms"), x2="until_ms:T", y=_build_kind_axis(rows),
            # No gradient in the legend: it would need an id, and two pictures may lie in one page.
            opacity=alt.Opacity("failures:Q", title="failures", scale=alt.Scale(type="sqrt", range=[0.12, 1]),
                                legend=alt.Legend(orient="top", type="symbol")),
            color=alt.value(BAD),
        ).properties(width=_WIDTH - 250, height=alt.Step(22))
    )  # fmt: skip


def retries_over_time(rows: Rows, storms: Rows) -> str:
    """Retries sent in the busiest minute of each step: `team`, `minute_ms`, `sent`; storms have the same columns."""
    axis = _build_count_axis(max(row["sent"] for row in rows))
    x, y = _when(rows, "minute_ms"), alt.Y("sent:Q", title="retries in a minute", axis=axis)
    lines = _make_chart(rows).mark_line(strokeWidth=1.5, interpolate="step-after").encode(x=x, y=y, color=_teams(rows))
    # A line through one minute cannot be seen.
    dots = _make_chart(rows).mark_circle(size=14, opacity=1).encode(x=x, y=y, color=_teams(rows))
    above = _make_chart(storms).mark_point(strokeWidth=2, shape="triangle-down", yOffset=-8, color=BAD, filled=True, opacity=1)
    layers = [lines, dots, above.encode(x=x, y=y, size=alt.value(90))] if storms else [lines, dots]
    return _svg(alt.layer(*layers).properties(width=_WIDTH - 90, height=200))


def _curves(rows: Rows, x: alt.X) -> str:
    y: dict[str, Any] = {"title": "of all letters", "axis": _percent(), "scale": alt.Scale(domain=[0, 1])}
    color = _teams(rows)
    bands = _make_chart(rows).mark_area(opacity=0.18, interpolate="step-after").encode(
        x=x, y=alt.Y("part_recovered_low:Q", **y), y2="part_recovered_high:Q", color=color
    )  # fmt: skip
    recovered, given_up = "recovered", "parked, or too old"
    lines = [{**row, "what": recovered, "part": row["part_recovered"]} for row in rows]
    lines += [{**row, "what": given_up, "part": row["part_parked"] + row["part_expired"]} for row in rows]
    dashes = alt.Scale(domain=[recovered, given_up], range=[[1, 0], [5, 4]])
    dash, y_part = alt.StrokeDash("what:N", title=None, scale=dashes, legend=_legend()), alt.Y("part:Q", **y)
    drawn = _make_chart(lines).mark_line(strokeWidth=2, interpolate="step-after")
    drawn = drawn.encode(x=x, y=y_part, color=color, strokeDash=dash)
    dots = _make_chart(lines).mark_circle(size=30, opacity=1).encode(x=x, y=y_part, color=color)
    return _svg(alt.layer(bands, drawn, dots).properties(width=_WIDTH - 90, height=240))


def _make_chart(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=list(rows)))


def _list_values(rows: Rows, column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows))


def _build_kind_axis(rows: Rows) -> alt.Y:
    return alt.Y("kind:N", title=None, sort=_list_values(rows, "kind"), axis=alt.Axis(labelLimit=275))


def _teams(rows: Rows) -> alt.Color:
    teams = _list_values(rows, "team")
    colors = [_PALETTE[n % len(_PALETTE)] for n in range(len(teams))]
    return alt.Color("team:N", title=None, scale=alt.Scale(domain=sorted(teams), range=colors), legend=_legend())


def _legend() -> alt.Legend:
    return alt.Legend(orient="top", labelLimit=300, columnPadding=24, symbolOpacity=1)


def _when(rows: Rows, column: str) -> alt.X:
    times = [row[column] for row in rows]
    # In the shortest way in which eight ticks can be told apart.
    within_ms = max(times, default=0) - min(times, default=0)
    shown = "%d %b %H:%M" if within_ms >= _DAY_MS else "%H:%M" if within_ms >= _TEN_MINUTES_MS else "%H:%M:%S"
    title = None if within_ms >= _DAY_MS else f"UTC, {words.moment(min(times, default=0))[:10]}"
    axis = alt.Axis(format=shown, labelOverlap=True, tickCount=8)
    return alt.X(f"{column}:T", title=title, scale=alt.Scale(type="utc"), axis=axis)


def _build_count_axis(most: int | None = None) -> alt.Axis:
    if most is None or most > _FEW:
        return alt.Axis(tickMinStep=1, format=",d")
    # There would be halves, which are written as the same whole number twice.
    return alt.Axis(values=list(range(most + 1)), format=",d")


def _percent() -> alt.Axis:
    return alt.Axis(format="%", tickCount=5)


def _times(times_ms: Iterable[float]) -> dict[str, Any]:
    times = [max(1, each) for each in times_ms]
    low, high = min(times, default=1), max(times, default=1)
    ticks: list[float] = [tick for tick in _TICKS_MS if low <= tick <= high]
    if len(ticks) < _TICKS_LEAST:
        ticks = [tick for tick in _MORE_TICKS_MS if low <= tick <= high]
    if len(ticks) < 2:
        ticks = sorted({low, high})
    labels = "".join(f"datum.value == {tick} ? '{words.duration(tick)}' : " for tick in ticks) + "''"
    axis = alt.Axis(values=ticks, labelExpr=labels, labelOverlap=True)
    return {"scale": alt.Scale(type="log", domain=[low / 1.1, high * 1.1], nice=False), "axis": axis}


def _svg(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> str:
    text = {
        "labelColor": "currentColor", "titleColor": "currentColor",
        "labelFontSize": 13, "titleFontSize": 13, "titleFontWeight": "normal",
    }  # fmt: skip
    grid = {"gridColor": "currentColor", "gridOpacity": 0.12, "domainColor": "currentColor", "domainOpacity": 0.4}
    ticks = {"tickColor": "currentColor", "tickOpacity": 0.4}
    config = {
        "background": None, "font": _FONT, "padding": {"left": 12, "right": 12, "top": 4, "bottom": 4}, "view": {"stroke": None},
        "axis": {**text, **grid, **ticks}, "legend": text, "header": text,
    }  # fmt: skip
    return _add_titles(vl_convert.vegalite_to_svg(chart.to_dict() | {"config": config}, allowed_base_urls=[]))


def _add_titles(svg: str) -> str:
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(svg)  # noqa: S314 - written a moment ago by vl-convert
    for mark in list(root.iter()):
        if (label := mark.get("aria-label")) and mark.get("aria-roledescription") not in ("axis", "legend", "title"):
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = label
            mark.insert(0, title)
    for each in root.iter():
        # Said by the title now, or of no use to who reads.
        for name in ("aria-label", "aria-roledescription", "aria-hidden", "role", "pointer-events"):
            each.attrib.pop(name, None)
    root.attrib.pop("xmlns:xlink", None)
    return ElementTree.tostring(root, encoding="unicode")
