"""The pictures of the report: rows of its answers in, SVG out.

Altair says what is drawn, vl-convert draws it without a browser. The SVG has presentation attributes only, no script and no
style, and takes its text colour from the page, so it is dark where the page is dark. What a mark stands for is its tooltip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import altair as alt
import vl_convert

from retry.analytics.html import format as words

Rows = Sequence[Mapping[str, Any]]
# Of each small picture, the team and its rows.
Panels = Sequence[tuple[str, Rows]]
# Of each team that has one of its own.
Colors = Mapping[str, str]

_SVG = "http://www.w3.org/2000/svg"
# Distinguishable for the colour-blind, and against white and nearly black.
GOOD, BAD, UNKNOWN = "#2f8fd8", "#e0663a", "#8a94a3"
VERDICTS = ("worth making", "not worth it", "not sure yet")
RECOVERED, GIVEN_UP = "recovered", "parked, or too old"
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
# Three beside each other on a screen, two on paper, one on a phone.
_PANEL_WIDTH, _PANEL_HEIGHT, _PANEL_TICKS_MAX = 284, 170, 5
# What vl-convert measures with, and what has the same widths elsewhere.
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"


def draw_worth(panels: Panels, colors: Colors) -> list[str]:
    """Draw the chance of each attempt to recover; return one SVG text for each panel.

    Rows have `attempt`, `chance`, `at least`, `at most`, and `is_worth` in the words of `VERDICTS`.
    """
    scale = alt.Scale(domain=list(VERDICTS), range=[GOOD, BAD, UNKNOWN])
    x = alt.X("attempt:O", title="attempt", axis=alt.Axis(labelAngle=0))
    # Stacked, bars with round ends would be clipped, by an id that may be twice in a page.
    y = alt.Y("chance:Q", title="chance to recover", axis=_percent(), scale=alt.Scale(domain=[0, 1]), stack=None)
    color = alt.Color("is_worth:N", title=None, scale=scale, legend=None)
    # What is not known is not filled: it is told apart without colours, too.
    fill = alt.condition(f"datum.is_worth == '{VERDICTS[-1]}'", alt.value(0.15), alt.value(1))
    outline = alt.Stroke("is_worth:N", scale=scale, legend=None)
    bars = alt.Chart().mark_bar(cornerRadiusEnd=2, strokeWidth=1.5)
    bars = bars.encode(x=x, y=y, color=color, stroke=outline, fillOpacity=fill)
    bounds = alt.Chart().mark_rule(color="currentColor", opacity=0.65).encode(x=x, y=alt.Y("at least:Q"), y2="at most:Q")
    # Where a bar has no height, its colour still tells.
    feet = alt.Chart().mark_circle(size=36, opacity=1).encode(x=x, y=y, color=color)
    return _draw_panels(alt.layer(bars, bounds, feet), panels, colors)


def draw_incidence_by_attempt(panels: Panels, colors: Colors) -> list[str]:
    """Draw by attempt which parts of the letters recovered or were given up; return one SVG text for each panel.

    Rows have `attempt`, and the parts of `retry.analytics.questions.recovery`.
    """
    drawn: list[tuple[str, Rows]] = []
    for name, rows in panels:
        start = [] if any(row["attempt"] == 0 for row in rows) else [_NOTHING | {"attempt": 0}]
        drawn.append((name, [*start, *rows]))
    most = max(row["attempt"] for _, rows in panels for row in rows)
    axis = alt.Axis(tickMinStep=1, tickCount=max(1, min(most, 8)), format="d")
    scale = alt.Scale(domain=[0, max(1, most)])
    return _draw_curves(drawn, colors, alt.X("attempt:Q", title="after attempt", axis=axis, scale=scale))


def draw_incidence_by_time(panels: Panels, colors: Colors) -> list[str]:
    """Draw by time which parts of the letters recovered or were given up; return one SVG text for each panel.

    Rows have `time_ms`, and the parts of `retry.analytics.questions.recovery`.
    """
    every = [row for _, rows in panels for row in rows]
    # The axis is logarithmic and has no 0: it begins where the first letter recovered, or half way before that.
    begin_ms = max(1, min((row["time_ms"] for row in every if row["part_recovered"]), default=1_000) / 2)
    drawn: list[tuple[str, Rows]] = []
    for name, rows in panels:
        shown = [{**row, "time_ms": max(row["time_ms"], begin_ms)} for row in rows]
        drawn.append((name, [_NOTHING | {"time_ms": begin_ms}, *shown]))
    times = _times((row["time_ms"] for _, rows in drawn for row in rows), _PANEL_TICKS_MAX)
    return _draw_curves(drawn, colors, alt.X("time_ms:Q", title="time since the first failure", **times))


_NOTHING = dict.fromkeys(("part_recovered", "part_recovered_low", "part_recovered_high", "part_parked", "part_expired"), 0)


def draw_waste(rows: Rows) -> str:
    """Draw as SVG how many retries of each kind were wasted and how many not; rows have `kind`, `retries`, `wasted`."""
    good, bad = "of letters that recovered, or still may", "wasted: of letters that were parked in the end"
    parts = [{"kind": row["kind"], "part": good, "order": 0, "retries": row["retries"] - row["wasted"]} for row in rows]
    parts += [{"kind": row["kind"], "part": bad, "order": 1, "retries": row["wasted"]} for row in rows]
    return _svg(
        _make_chart(parts).mark_bar().encode(
            x=alt.X("sum(retries):Q", title="retries sent", axis=_build_count_axis()), y=_build_kind_axis(rows), order="order:O",
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=[good, bad], range=[GOOD, BAD]), legend=_legend()),
        ).properties(width=_WIDTH - 250, height=alt.Step(_ROW))
    )  # fmt: skip


def draw_ranges(rows: Rows, colors: Colors, title: str) -> str:
    """Draw percentiles of times as SVG, for rows in which any time was measured.

    Rows have `kind`, `team`, `p50_ms`, `p90_ms`, `p99_ms`.
    """
    points = [
        {"kind": row["kind"], "team": row["team"], "of 100": f"{p} of 100", "ms": max(1, row[f"p{p}_ms"])}
        for row in rows for p in (50, 90, 99) if row[f"p{p}_ms"] is not None
    ]  # fmt: skip
    color = _color_teams(colors, rows)
    x = alt.X("ms:Q", title=title, **_times(point["ms"] for point in points))
    by_kind: dict[tuple[str, str], list[float]] = {}
    for point in points:
        by_kind.setdefault((point["kind"], point["team"]), []).append(point["ms"])
    bars = [{"kind": kind, "team": team, "from": min(ms), "to": max(ms)} for (kind, team), ms in by_kind.items()]
    spans = _make_chart(bars).mark_rule(strokeWidth=3, opacity=0.5).encode(
        x=alt.X("from:Q"), x2="to:Q", y=_build_kind_axis(rows), color=color
    )  # fmt: skip
    shape = alt.Shape("of 100:N", title=None, scale=alt.Scale(range=["circle", "diamond", "triangle-right"]), legend=_legend())
    dots = _make_chart(points).mark_point(size=100, opacity=1, filled=True).encode(
        x=x, y=_build_kind_axis(rows), color=color, shape=shape
    )  # fmt: skip
    return _svg(alt.layer(spans, dots).properties(width=_WIDTH - 250, height=alt.Step(_ROW)))


def draw_comparison(rows: Rows, colors: Colors) -> str:
    """Draw as SVG which part of the ended letters recovered, with its bounds.

    Rows have `kind`, `team`, `recovery`, `recovery_low`, `recovery_high`.
    """
    x = alt.X("recovery:Q", title="recovered of what ended", axis=_percent(), scale=alt.Scale(domain=[0, 1]))
    color = _color_teams(colors, rows)
    spans = _make_chart(rows).mark_rule(strokeWidth=5, opacity=0.35).encode(
        x=alt.X("recovery_low:Q"), x2="recovery_high:Q", y=_build_kind_axis(rows), color=color
    )  # fmt: skip
    dots = _make_chart(rows).mark_circle(size=110, opacity=1).encode(x=x, y=_build_kind_axis(rows), color=color)
    return _svg(alt.layer(spans, dots).properties(width=_WIDTH - 250, height=alt.Step(_ROW)))


def draw_fingerprints(rows: Rows, colors: Colors) -> str:
    """Draw as SVG how often each fingerprint was seen when; rows have `kind`, `team`, `at_ms`, `until_ms`, `failures`."""
    return _svg(
        _make_chart(rows).mark_rect(cornerRadius=1).encode(
            x=_when([row["at_ms"] for row in rows]), x2="until_ms:T", y=_build_kind_axis(rows),
            # No gradient in the legend: it would need an id, and two pictures may lie in one page.
            opacity=alt.Opacity("failures:Q", title="failures", scale=alt.Scale(type="sqrt", range=[0.2, 1]),
                                legend=alt.Legend(orient="top", type="symbol")),
            color=_color_teams(colors, rows),
        ).properties(width=_WIDTH - 250, height=alt.Step(22))
    )  # fmt: skip


def draw_retries_over_time(panels: Panels, colors: Colors) -> list[str]:
    """Draw the retries sent in the busiest minute of each step, and mark storms; return one SVG text for each panel.

    Rows have `minute_ms`, `sent`, `is_storm`.
    """
    every = [row for _, rows in panels for row in rows]
    x = _when([row["minute_ms"] for row in every], "minute_ms", _PANEL_TICKS_MAX)
    y = alt.Y("sent:Q", title="retries in a minute", axis=_build_count_axis(max(row["sent"] for row in every)))
    usual, storms = (alt.Chart().transform_filter(f"{'' if is_storm else '!'}datum.is_storm") for is_storm in (False, True))
    lines = usual.mark_line(strokeWidth=1.5, interpolate="step-after").encode(x=x, y=y)
    # A line through one minute cannot be seen.
    dots = usual.mark_circle(size=14, opacity=1).encode(x=x, y=y)
    above = storms.mark_point(strokeWidth=2, shape="triangle-down", yOffset=-8, color=BAD, filled=True, opacity=1)
    return _draw_panels(alt.layer(lines, dots, above.encode(x=x, y=y, size=alt.value(90))), panels, colors)


def _draw_curves(panels: Panels, colors: Colors, x: alt.X) -> list[str]:
    y: dict[str, Any] = {"title": "of all letters", "axis": _percent(), "scale": alt.Scale(domain=[0, 1])}
    drawn = []
    for name, rows in panels:
        lines: list[dict[str, Any]] = [{**row, "what": RECOVERED, "part": row["part_recovered"]} for row in rows]
        lines += [{**row, "what": GIVEN_UP, "part": row["part_parked"] + row["part_expired"]} for row in rows]
        drawn.append((name, lines))
    once = alt.Chart().transform_filter(f"datum.what == '{RECOVERED}'")
    bands = once.mark_area(opacity=0.18, interpolate="step-after").encode(
        x=x, y=alt.Y("part_recovered_low:Q", **y), y2="part_recovered_high:Q"
    )  # fmt: skip
    dashes = alt.Scale(domain=[RECOVERED, GIVEN_UP], range=[[1, 0], [5, 4]])
    dash, y_part = alt.StrokeDash("what:N", title=None, scale=dashes, legend=None), alt.Y("part:Q", **y)
    line = alt.Chart().mark_line(strokeWidth=2, interpolate="step-after").encode(x=x, y=y_part, strokeDash=dash)
    dots = alt.Chart().mark_circle(size=18, opacity=1).encode(x=x, y=y_part, detail="what:N")
    return _draw_panels(alt.layer(bands, line, dots), drawn, colors)


def _draw_panels(chart: alt.LayerChart | alt.FacetChart, panels: Panels, colors: Colors) -> list[str]:
    """Draw one small chart for each panel, in the colour of its team. It is described once: that takes longer than drawing."""
    spec = chart.properties(
        data=alt.InlineData(values=[]), width=_PANEL_WIDTH, height=_PANEL_HEIGHT, autosize=alt.AutoSizeParams(type="fit")
    ).to_dict()  # fmt: skip
    return [_draw(spec | {"data": {"values": list(rows)}}, colors.get(name, UNKNOWN)) for name, rows in panels]


def _make_chart(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=list(rows)))


def _list_values(rows: Rows, column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows))


def _build_kind_axis(rows: Rows) -> alt.Y:
    return alt.Y("kind:N", title=None, sort=_list_values(rows, "kind"), axis=alt.Axis(labelLimit=275))


def _color_teams(colors: Colors, rows: Rows) -> alt.Color:
    shown = {**colors, **{team: UNKNOWN for team in _list_values(rows, "team") if team not in colors}}
    return alt.Color("team:N", title=None, scale=alt.Scale(domain=list(shown), range=list(shown.values())), legend=None)


def _legend() -> alt.Legend:
    return alt.Legend(orient="top", labelLimit=300, columnPadding=24, symbolOpacity=1)


def _when(times: Sequence[float], column: str = "at_ms", ticks: int = 8) -> alt.X:
    # In the shortest way in which the ticks can be told apart.
    within_ms = max(times, default=0) - min(times, default=0)
    shown = "%d %b" if within_ms >= 4 * _DAY_MS else "%d %b %H:%M" if within_ms >= _DAY_MS else "%H:%M"
    shown = shown if within_ms >= _TEN_MINUTES_MS else "%H:%M:%S"
    title = None if within_ms >= _DAY_MS else f"UTC, {words.moment(min(times, default=0))[:10]}"
    axis = alt.Axis(format=shown, labelOverlap=True, tickCount=ticks)
    return alt.X(f"{column}:T", title=title, scale=alt.Scale(type="utc"), axis=axis)


def _build_count_axis(most: int | None = None) -> alt.Axis:
    if most is None or most > _FEW:
        return alt.Axis(tickMinStep=1, format=",d", labelSeparation=6)
    # There would be halves, which are written as the same whole number twice.
    return alt.Axis(values=list(range(most + 1)), format=",d")


def _percent() -> alt.Axis:
    return alt.Axis(format="%", tickCount=5)


def _times(times_ms: Iterable[float], most: int = 100) -> dict[str, Any]:
    times = [max(1, each) for each in times_ms]
    low, high = min(times, default=1), max(times, default=1)
    ticks: list[float] = [tick for tick in _TICKS_MS if low <= tick <= high]
    if len(ticks) < _TICKS_LEAST:
        ticks = [tick for tick in _MORE_TICKS_MS if low <= tick <= high]
    if len(ticks) < 2:
        ticks = sorted({low, high})
    ticks = ticks[:: -(-len(ticks) // most)]
    labels = "".join(f"datum.value == {tick} ? '{words.duration(tick)}' : " for tick in ticks) + "''"
    axis = alt.Axis(values=ticks, labelExpr=labels, labelOverlap=True)
    return {"scale": alt.Scale(type="log", domain=[low / 1.1, high * 1.1], nice=False), "axis": axis}


def _svg(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> str:
    return _draw(chart.to_dict(), UNKNOWN)


def _draw(spec: dict[str, Any], color: str) -> str:
    """Draw with one colour for all marks that have none of their own."""
    text = {
        "labelColor": "currentColor", "titleColor": "currentColor",
        "labelFontSize": 13, "titleFontSize": 13, "titleFontWeight": "normal",
    }  # fmt: skip
    grid = {"gridColor": "currentColor", "gridOpacity": 0.12, "domainColor": "currentColor", "domainOpacity": 0.4}
    ticks = {"tickColor": "currentColor", "tickOpacity": 0.4}
    key = {**text, "symbolBaseFillColor": "currentColor", "symbolBaseStrokeColor": "currentColor"}
    config = {
        "background": None, "font": _FONT, "padding": {"left": 12, "right": 12, "top": 4, "bottom": 4}, "view": {"stroke": None},
        "axis": {**text, **grid, **ticks}, "legend": key,
        "mark": {"color": color}, "area": {"color": color},
    }  # fmt: skip
    return _add_titles(vl_convert.vegalite_to_svg(spec | {"config": config}, allowed_base_urls=[]))


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
