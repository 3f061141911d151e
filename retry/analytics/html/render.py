"""Findings → the page, or a page for each team and one that leads to them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from backoff import duration_text
from retry.analytics.advice.choose_attempts import merge_delays
from retry.analytics.html import format as words
from retry.analytics.html import plots
from retry.analytics.html.pictures import PALETTE, draw_pictures, label_team, number_teams
from retry.analytics.quality import describe_quality
from retry.printable import escape_unprintable

Findings = Mapping[str, Any]
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
    plots.waste([{"kind": "", "retries": 1, "wasted": 0}])


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
