"""Findings → the page, or a page for each team and one that leads to them; and which rows each of its pictures shows."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from operator import itemgetter
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from backoff import duration_text
from retry.analytics.advice.choose_attempts import merge_delays
from retry.analytics.html import format as words
from retry.analytics.html import plots
from retry.analytics.quality import describe_quality
from retry.printable import escape_unprintable

Row = Mapping[str, Any]
Findings = Mapping[str, Any]
Rows = list[dict[str, Any]]

# Of more a picture shows nothing; the tables and the JSON have them.
_KINDS_MAX, _BARS_MAX, _TEAMS_MAX, _LABEL_CHARS_MAX = 9, 15, 9, 40
# Each can be seen on white and on nearly black, and none is the colour of a verdict.
PALETTE = ("#7d6fe0", "#1f9e78", "#b8801c", "#c2578b", "#1d94a8", "#7a8f2a", "#a66a45", "#5f7de8")


class Panel(NamedTuple):
    """One of several small pictures, and what stands above it; `number` is that of its team's colour."""

    title: str
    number: str
    svg: Markup


def label_team(team: str | None) -> str:
    """Shorten a team's name as pictures, and the numbers of colours, have it."""
    return words.format_name(team, _LABEL_CHARS_MAX)


def number_teams(findings: Findings) -> dict[str, int]:
    """Number the colours of the teams with most letters, in the order of their names: so they keep them from week to week."""
    largest = [label_team(row["team"]) for row in findings["teams"][: len(PALETTE)]]
    return {team: n for n, team in enumerate(sorted(dict.fromkeys(largest)))}


def draw_pictures(findings: Findings, numbers: Mapping[str, int]) -> dict[str, Markup | list[Panel]]:
    """Draw all that has rows, by name: a picture, or a list of panels."""
    colors = {team: PALETTE[n] for team, n in numbers.items()}
    # Altair and vl-convert have escaped what is text.
    drawn: dict[str, Markup | list[Panel]] = {
        name: Markup(svg) for name, svg in _draw_wide(findings, colors)  # noqa: S704
    }  # fmt: skip
    panels = {
        "worth": (plots.draw_worth, [
            (_label(kind, "team"), _format_title(kind), _judge_attempts(kind)) for kind in _list_kinds(findings)
        ]),
        "incidence_by_attempt": (plots.draw_incidence_by_attempt, _split_by_team(findings["incidence_by_attempt"])),
        "incidence_by_time": (plots.draw_incidence_by_time, _split_by_team(_select_in_period(findings))),
        "retries_over_time": (plots.draw_retries_over_time, _split_by_team([
            row | {"is_storm": is_storm}
            for is_storm, name in ((False, "retries_over_time"), (True, "storms")) for row in findings[name]
        ])),
    }  # fmt: skip
    for name, (draw, rows) in panels.items():
        if rows:
            pictures = draw([(team, own) for team, _, own in rows], colors)
            drawn[name] = [
                Panel(title, str(numbers.get(team, "")), Markup(svg))  # noqa: S704
                for (team, title, _), svg in zip(rows, pictures, strict=True)
            ]
    return drawn


def _draw_wide(findings: Findings, colors: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    waste = _name_rows([row for row in findings["waste"] if row["retries"]], "team", "exception")
    compared = _name_rows([row for row in findings["comparison"] if row["recovery"] is not None], "policy")
    recovery = [_cut_times(findings, row) for row in _name_rows(findings["time_to_recovery"], "policy")]
    lateness = [_cut_times(findings, row) for row in _name_rows(findings["lateness"], "policy")]
    seen = _seen_when(findings)
    if waste:
        yield "waste", plots.draw_waste(waste)
    if compared:
        yield "comparison", plots.draw_comparison(compared, colors)
    if any(row["p50_ms"] is not None for row in recovery):
        yield "time_to_recovery", plots.draw_ranges(recovery, colors, "from first failure to recovery")
    if any(row["p50_ms"] is not None for row in lateness):
        yield "lateness", plots.draw_ranges(lateness, colors, "sent after it was due")
    if seen:
        yield "fingerprints", plots.draw_fingerprints(seen, colors)


def _list_kinds(findings: Findings) -> Rows:
    return [kind for kind in findings["worth"][:_KINDS_MAX] if kind["hazards"]]


def _judge_attempts(kind: Row) -> Rows:
    called = {"hazard": "chance", "hazard_low": "at least", "hazard_high": "at most"}
    return [
        {called.get(name, name): value for name, value in hazard.items()} | {"is_worth": judge_attempt(kind, hazard)}
        for hazard in kind["hazards"]
    ]


def judge_attempt(kind: Row, hazard: Row) -> str:
    """Say in a word of `plots.VERDICTS` whether an attempt is worth making; what is not known is never said to be worthless."""
    worth, worthless, unsure = plots.VERDICTS
    if kind["verdict"] == "unknown" or not hazard["at_risk"]:
        return unsure
    if hazard["attempt"] > kind["attempts"]:
        return worthless
    # Where nothing ever recovered one attempt stays, as a probe.
    return worth if hazard["hazard"] or kind["verdict"] == "fewer" else unsure


def _format_title(kind: Row) -> str:
    return _label(kind, "team", "exception", "where") if kind["where"] else _label(kind, "team", "exception")


def _split_by_team(rows: Iterable[Row]) -> list[tuple[str, str, Rows]]:
    by_team: dict[str, Rows] = {}
    for row in rows:
        by_team.setdefault(_label(row, "team"), []).append(_numbers(row))
    return [(team, team, own) for team, own in list(by_team.items())[:_TEAMS_MAX]]


def _longest_ms(findings: Findings) -> int:
    """Compute the length of the period: what is said to have taken longer was measured by a clock that is wrong."""
    return int(findings["period"]["until_ms"] - findings["period"]["since_ms"])


def _select_in_period(findings: Findings) -> Rows:
    # A step of the curve ends a little after what happened in it.
    return [row for row in findings["incidence_by_time"] if row["time_ms"] <= 1.1 * _longest_ms(findings)]


def _cut_times(findings: Findings, row: dict[str, Any]) -> dict[str, Any]:
    longest_ms, names = _longest_ms(findings), ("p50_ms", "p90_ms", "p99_ms")
    return row | {name: row[name] if row[name] <= longest_ms else None for name in names}


def _name_rows(rows: Sequence[Row], *columns: str) -> Rows:
    """Name each row as its `kind`: in a picture two of one name would be one."""
    named = [_numbers(row) | {"kind": _label(row, *columns), "team": _label(row, "team")} for row in rows[:_BARS_MAX]]
    return list({row["kind"]: row for row in reversed(named)}.values())[::-1]


def _seen_when(findings: Findings) -> Rows:
    key = itemgetter("team", "exception", "fingerprint")
    order = {key(row): n for n, row in enumerate(findings["fingerprints"][:_BARS_MAX])}
    rows = [row for row in findings["fingerprints_over_time"] if key(row) in order]
    rows.sort(key=lambda row: (order[key(row)], row["at_ms"]))

    # Two teams may see one fingerprint, and would be drawn over each other.
    def name_kind(row: Row) -> str:
        team, exception = words.format_name(row["team"], 14), words.format_name(row["exception"], 18)
        return f"{team} · {exception} {words.format_name(row['fingerprint'])[:6]}"

    return [_numbers(row) | {"kind": name_kind(row), "team": _label(row, "team")} for row in rows]


def _numbers(row: Row) -> dict[str, Any]:
    """Leave out the texts of a row: a picture gets names only in the form in which they are shown."""
    return {name: value for name, value in row.items() if not isinstance(value, str)}


def _label(row: Row, *columns: str) -> str:
    return " · ".join(words.format_name(row[column], _LABEL_CHARS_MAX) for column in columns)


_READABLE_CHARS_MAX, _DIGITS = 24, 12


def render_report(findings: Findings, *, whole: Findings | None = None) -> str:
    """Render the findings as one HTML file without any script; its policy allows none, so nothing in a name can run.

    Args:
      whole: the findings of all teams, where these are of one: it has the colour that it has there, and a link to them.
    """
    numbers = number_teams(findings if whole is None else whole)
    return _render("page.html", numbers, findings, plots=draw_pictures(findings, numbers), is_part=whole is not None)


def render_pages(whole: Findings, by_team: Mapping[str, Findings]) -> Iterator[tuple[str, str]]:
    """Render a page for each team, one of all, and `index.html` that leads to them: names of files, and what is in them."""
    files = {team: name_page(team) for team in by_team}
    teams = [{"file": files[team], "actions": found["actions"], **found["totals"], "team": team,
              "before": found["totals_before"]} for team, found in by_team.items()]  # fmt: skip
    yield "index.html", _render("index.html", number_teams(whole), whole, pages=teams)
    yield "all.html", render_report(whole)
    for team, found in by_team.items():
        yield files[team], render_report(found, whole=whole)


def name_page(team: str) -> str:
    """Name the file of a team's page, whatever its name holds: what is readable of it, and its SHA-256.

    >>> name_page("Shop & Co/../x")
    'team-shop-co-x-938cee940685.html'
    """
    readable = re.sub("[^a-z0-9]+", "-", team.lower())[:_READABLE_CHARS_MAX].strip("-")
    digest = hashlib.sha256(team.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return "-".join(filter(None, ("team", readable, digest))) + ".html"


def warm_up() -> None:
    """Load what draws pictures, and draw one: that takes a second, which Spark needs to start as well."""
    plots.draw_waste([{"kind": "", "retries": 1, "wasted": 0}])


def _render(name: str, numbers: Mapping[str, int], findings: Findings, **more: Any) -> str:
    colors = [f".c{n} {{ background: {color}; }}" for n, color in enumerate(PALETTE)]
    style = "\n".join([_file("style.css"), *colors])
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    def number(team: str) -> str:
        return str(numbers.get(label_team(team), ""))

    made = {"style": Markup(style), "style_digest": digest, "number_of": number}  # noqa: S704 - our own file
    told = {"quality": describe_quality(findings)}
    return _environment().get_template(name).render(**findings, **more, **made, **told)


def _format_block(action: Mapping[str, Any]) -> str:
    """Format the YAML of an action so that it can be copied whole: what takes the place of the topic, or its rules."""
    lines: Sequence[str] = action["section"] or ["        rules:", *(f"          {line}" for line in action["rule"])]
    return "\n".join(escape_unprintable(line, len(line)) for line in lines)


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(_file)
    )  # fmt: skip
    named = (
        words.count, words.noun, words.at_most, words.share, words.duration, words.moment, words.trend, words.money, words.change,
        words.points, duration_text,
    )  # fmt: skip
    environment.filters |= {each.__name__: each for each in named}
    environment.filters |= {"name": words.format_name, "dotted": words.break_after_dots, "merged": merge_delays}
    environment.filters |= {"block": _format_block, "parenthesised": lambda text: f"({text})" if text else ""}
    return environment


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
