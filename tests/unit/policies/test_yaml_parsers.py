"""Policy files are read fast, with libyaml, and what is read so is what the parser in Python reads, line by line."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from retry.errors import PolicyFileInvalid
from retry.policies import yaml_document
from retry.policies.yaml_document import read_plain

TEXTS = [
    "teams:\n  shop:\n    topics:\n    - {dead_letters: orders.DLT, retry_to: orders, ordered: true}\n",
    "a: [1, 2.5, no, ~, 'x', \"y\\n\"]\nb: folded\n  text\nd:\n",
    "# only a comment\n---\nkey: 'it''s'\n",
    "# only a comment\n",
    "[1, [2, {a: b}]]",
    "ключ: значение\n'^.*\\.DLT$': {x: 0x1f, y: 012, z: 1_000}\n",
]
UNUSUAL = [
    "a: &a 1", "a: *a", "a: !!str 1", "a: 1\na: 2", "on: 1", "1: 2", "{a: 1}: 2", "a: 2026-01-01", "--- a\n--- b", "a: [", "\x00",
    "a: >\n  folded\n  text\n", "a: |\n  kept\n  text\n", "|#",
]  # fmt: skip
WHOLE = {"teams: {}": True, "{}": True, "": True, "team: {}": False, "[teams]": False}


def read_slowly(text: str) -> tuple[object, dict[str, int]]:
    """The values and lines that nodes parsed in Python give."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_document, "read_plain", lambda *_: None)
        document = yaml_document.read(text, "file")
    return document.value, document.lines


def test_libyaml_is_there_so_that_a_large_file_is_read_in_seconds() -> None:
    assert yaml.__with_libyaml__


@pytest.mark.parametrize("text", TEXTS)
def test_both_ways_find_the_same_values_in_the_same_lines(text: str) -> None:
    assert read_plain(text, ()) == read_slowly(text)


@pytest.mark.parametrize("text", [*UNUSUAL, "a: " + "[" * 30 + "]" * 30])
def test_what_may_be_refused_is_read_slowly(text: str) -> None:
    assert read_plain(text, ()) is None


@pytest.mark.parametrize("text", WHOLE)
def test_a_wrong_file_is_read_slowly(text: str) -> None:
    assert (read_plain(text, ["teams", "defaults"]) is not None) is WHOLE[text]


@given(st.text(alphabet="ab:1-[]{},'\"\n &*!#~.|>?0ey", max_size=30))
def test_nothing_is_read_fast_that_reads_otherwise_slowly(text: str) -> None:
    plain = read_plain(text, ())
    if plain is None:
        return
    try:
        slow = read_slowly(text)
    except PolicyFileInvalid as error:
        pytest.fail(f"{text!r} is read fast, and refused slowly: {error}")
    # As text, since what is no number does not equal itself.
    assert repr(plain) == repr(slow)
