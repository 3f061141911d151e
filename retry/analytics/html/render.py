"""Findings → the page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import resources
from operator import itemgetter
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from backoff import duration_text
from retry.analytics.advice.choose_attempts import merge_delays
from retry.analytics.html import format as words
from retry.analytics.html import plots

Rows = list[dict[str, Any]]

# Of more a picture shows nothing; the tables and the JSON have them.
_KINDS_MAX, _BARS_MAX, _TEAMS_MAX, _LABEL_CHARS_MAX = 9, 15, 8, 40
_TO_RECOVERY = "from first failure to recovery"


def render_report(findings: Mapping[str, Any]) -> str:
    """Render the findings as one HTML file without any script; its policy allows none, so nothing in a name can run."""
    style = _file("style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = _environment().from_string(_file("page.html"))
    return template.render(**findings, plots=_plots(findings), style=Markup(style), style_digest=digest)  # noqa: S704 - our own file


def warm_up() -> None:
    """Load what draws pictures, and draw one: that takes a second, which Spark needs to start as well."""
    plots.waste([{"kind": "", "retries": 1, "wasted": 0}])


def _plots(findings: Mapping[str, Any]) -> dict[str, Markup]:
    compared = [row for row in findings["comparison"] if row["recovery"] is not None]
    drawn: dict[str, tuple[Rows, Callable[[Rows], str]]] = {
        "worth": (_attempts_worth(findings["worth"]), plots.worth),
        "incidence_by_attempt": (_of_teams(findings["incidence_by_attempt"]), plots.incidence_by_attempt),
        "incidence_by_time": (_of_teams(findings["incidence_by_time"]), plots.incidence_by_time),
        "waste": (_name_rows([row for row in findings["waste"] if row["retries"]], "team", "exception"), plots.waste),
        "time_to_recovery": (_name_rows(findings["time_to_recovery"], "policy"), partial(plots.ranges, title=_TO_RECOVERY)),
        "comparison": (_name_rows(compared, "policy"), plots.comparison),
        "fingerprints": (_seen_when(findings), plots.fingerprints),
        "lateness": (_name_rows(findings["lateness"], "policy"), partial(plots.ranges, title="sent after it was due")),
        "retries_over_time": (
            _of_teams(findings["retries_over_time"]), partial(plots.retries_over_time, storms=_of_teams(findings["storms"])),
        ),
    }  # fmt: skip
    # Altair and vl-convert have escaped what is text.
    return {name: Markup(draw(rows)) for name, (rows, draw) in drawn.items() if rows}  # noqa: S704


def _attempts_worth(worth: Rows) -> Rows:
    return [
        {**hazard, "kind": _label_of(kind), "is_worth": _worth_label(kind, hazard["attempt"])}
        for kind in worth[:_KINDS_MAX]
        for hazard in kind["hazards"]
    ]


def _label_of(kind: Mapping[str, Any]) -> str:
    return _label(kind, "team", "exception", "where") if kind["where"] else _label(kind, "team", "exception")


def _worth_label(kind: Mapping[str, Any], attempt: int) -> str:
    if kind["verdict"] == "unknown":
        return "too little data"
    return "worth making" if attempt <= kind["attempts"] else "not worth it"


def _of_teams(rows: Rows) -> Rows:
    teams = list(dict.fromkeys(row["team"] for row in rows))[:_TEAMS_MAX]
    return [_numbers(row) | {"team": _label(row, "team")} for row in rows if row["team"] in teams]


def _name_rows(rows: Rows, *columns: str) -> Rows:
    """Name each row as its `kind`: in a picture two of one name would be one."""
    named = [_numbers(row) | {"kind": _label(row, *columns), "team": _label(row, "team")} for row in rows[:_BARS_MAX]]
    return list({row["kind"]: row for row in reversed(named)}.values())[::-1]


def _seen_when(findings: Mapping[str, Any]) -> Rows:
    key = itemgetter("team", "exception", "fingerprint")
    order = {key(row): n for n, row in enumerate(findings["fingerprints"][:_BARS_MAX])}
    rows = [row for row in findings["fingerprints_over_time"] if key(row) in order]
    rows.sort(key=lambda row: (order[key(row)], row["at_ms"]))

    # Two teams may see one fingerprint, and would be drawn over each other.
    def name_kind(row: Mapping[str, Any]) -> str:
        team, exception = words.format_name(row["team"], 14), words.format_name(row["exception"], 18)
        return f"{team} · {exception} {words.format_name(row['fingerprint'])[:6]}"

    return [_numbers(row) | {"kind": name_kind(row)} for row in rows]


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the texts of a row: a picture gets names only in the form in which they are shown."""
    return {name: value for name, value in row.items() if not isinstance(value, str)}


def _label(row: Mapping[str, Any], *columns: str) -> str:
    return " · ".join(words.format_name(row[column], _LABEL_CHARS_MAX) for column in columns)


@cache
def _environment() -> Environment:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    named = (words.count, words.noun, words.at_most, words.share, words.duration, words.moment, words.trend, words.money)
    environment.filters |= {each.__name__: each for each in (*named, duration_text)}
    environment.filters |= {"name": words.format_name, "dotted": words.break_after_dots, "merged": merge_delays}
    return environment


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
