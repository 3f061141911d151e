"""No template has what the pages' security forbids (inline scripts, code in attributes, text past the filter), or broken HTML."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path

import pytest

import retry.console
from retry.console.web.application import FOLDER

TEMPLATES = sorted(Path(retry.console.__file__).parent.glob("*/templates/*.html"))
FORBIDDEN = {
    "an inline script": r"<script(?![^>]*\bsrc=)[^>]*>",
    "an inline style": r"<style|\sstyle=",
    "code in an attribute": r"\s(?:on[a-z]+|hx-on[:\w-]*)=|javascript:|hx-vals=['\"]js:|hx-trigger=\"[^\"]*\[",
    "an address of elsewhere": r"(?:src|href|action)=\"(?:https?:)?//",
    "a paragraph that ends before its content": r"<p[ >](?:(?!</p>)[\s\S])*?<(?:form|div|[dou]l|table|details|section|pre)\b",
    "text that is not escaped": r"\|\s*safe(?!\s+if\b)(?!\s*}}\s*$)|autoescape false",
}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_template_has(template: Path, what: str) -> None:
    text = re.sub(r'\{\{ "<br>"\|safe if not loop.last \}\}', "", template.read_text())
    found = re.search(FORBIDDEN[what], text)
    assert found is None, text[max(0, found.start() - 60) : found.end() + 60]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_every_form_that_posts_has_the_token_of_the_sign_in(template: Path) -> None:
    for form in re.findall(r"<form[^>]*method=\"post\".*?</form>", template.read_text(), re.DOTALL):
        assert 'name="csrf" value="{{ csrf }}"' in form or 'action="/sign-in"' in form, form


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_every_table_has_a_caption_or_a_name(template: Path) -> None:
    for table in re.findall(r"<table[^>]*>.*?</table>", template.read_text(), re.DOTALL):
        assert "<caption" in table or "aria-label" in table.partition(">")[0], table[:200]


def test_every_block_of_the_style_sheet_is_closed() -> None:
    text = (FOLDER / "console.css").read_text()
    depths = list(accumulate((char == "{") - (char == "}") for char in text))
    assert (min(depths), depths[-1]) == (0, 0)
