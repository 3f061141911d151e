"""What others chose commands no terminal: lines for people, JSON, logs."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.analytics.text_report import format_report
from retry.printable import escape_json, escape_unprintable
from retry.process.logs import Visible
from tests.support.findings import findings

# Clears the screen, sets the title, ends the line, turns the text round; the C1 form of an escape, a delete, half a pair.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n\u202eevil\u2066\x9b31m\x7f\u200b\ud800\x00\u2028"


@given(st.text(st.characters()))
def test_a_line_that_is_made_visible_has_nothing_but_what_can_be_printed(text: str) -> None:
    shown = escape_unprintable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


def test_what_was_hidden_can_be_read() -> None:
    told = r"\x1b[2J\x1b]0;owned\x07\r\n\u202eevil\u2066\x9b31m\x7f\u200b\ud800\x00\u2028"
    assert escape_unprintable(HOSTILE) == told
    assert escape_unprintable("Привет, 日本 – “naïve”") == "Привет, 日本 – “naïve”"


def test_a_value_of_a_megabyte_is_no_screen_full() -> None:
    assert len(escape_unprintable("\x1b" * (1 << 20), 100)) <= 100 * len(r"\x1b")
    assert (len(escape_unprintable("x" * (1 << 20))), escape_unprintable("a" * 50 + "b" * 50, 7)) == (10_000, "aaa…bbb")


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_json_reads_the_same_and_has_nothing_that_a_terminal_obeys(value: dict[str, str | int]) -> None:
    value |= {"hostile": HOSTILE.replace("\ud800", "\U000e0001")}
    for indent in (None, 2):
        shown = escape_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(shown) == value
        assert shown.replace("\n", "").isprintable()


def test_the_report_of_hostile_names_is_a_table_of_their_escapes() -> None:
    text = list(format_report(findings({"payments": HOSTILE, "search": "x" * (1 << 20), "x.DLT": HOSTILE, "topic": HOSTILE})))
    assert all(each.isprintable() and len(each) < 500 for each in text)
    assert any(each.startswith(r"\x1b[2J") for each in text)


def test_a_message_is_one_line_of_the_log_whatever_it_holds() -> None:
    record = logging.LogRecord("retry", logging.WARNING, "", 1, "put back: %s", (HOSTILE,), None)
    shown = Visible("%(levelname)s %(message)s").format(record)
    assert shown == "WARNING put back: " + escape_unprintable(HOSTILE)


def test_a_traceback_keeps_its_lines_and_its_message_is_visible() -> None:
    with pytest.raises(ValueError, match="owned") as raised:
        raise ValueError(HOSTILE.replace("\n", " "))
    told = type(raised.value), raised.value, raised.value.__traceback__
    record = logging.LogRecord("retry", logging.ERROR, "", 1, "it failed", (), told)
    lines = Visible().format(record).split("\n")
    assert lines[:2] == ["it failed", "Traceback (most recent call last):"]
    assert all(line.isprintable() for line in lines)
    assert r"\x1b[2J" in lines[-1]
    assert sys.exc_info() == (None, None, None)
