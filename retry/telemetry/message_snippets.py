"""Finds what a program has printed of its data in a message: JSON, records and objects as text, rows of a table.

    order {"id": 17, "name": "Ann"} refused  →  order {#} refused

Members that say what is wrong stay, such as `code` and `reason`, and those that say where, such as `host` and `topic`.
"""

from __future__ import annotations

import re

_BRACKET = re.compile(r"[\[\](){}]")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MEMBERS = re.compile(
    r"""[\[({]\s*(?:\\?["'][\w\ .$-]{1,60}\\?["']\s*: | [\w.-]{1,60}\s?=(?!=)) | \{\s*\w{1,60}:\s""", re.VERBOSE | re.ASCII
)
_KEPT = re.compile(
    r"""
    (?<!\w)(?:
        (?: collection | column | constraint | \w{0,20}code | \w{0,20}error | exception | field | host | hostname | queue | reason
          | status\w{0,20} | table | topic )\\?["']?\s*[:=]
        | (?: desc\w{0,20} | details? | message | msg | str | type )\s*=
    )\s*\\?["']?(?P<value> [^"'{}=,]{1,120})
    """,
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)  # fmt: skip
_ROW_ITEM = re.compile(r"\s*(?:[+-]?[0-9]|null\s*\Z)", re.IGNORECASE)
_ROW_ITEMS_MIN = 3
_NO_ROW = ")", "[", "]", "{", "}", ": ", "=", '"', "'"


def replace_snippets(text: str) -> str:
    """Return the text with # in place of what is in brackets and is data.

    >>> replace_snippets('refused {"id": 17, "error": "no such order"} of Order[id=4, name=Ann]')
    'refused {# no such order} of Order[#]'
    """
    if not _BRACKET.search(text):
        return text
    ends, parts, done = _find_ends(text), list[str](), 0
    for (start, end), after in zip(ends.items(), [*ends, len(text)][1:], strict=True):
        if start < done:
            continue
        if _MEMBERS.match(text, start):
            kept = [found["value"].strip() for found in _KEPT.finditer(text, start + 1, end)]
            parts += text[done : start + 1], " ".join(["#", *kept])
            done = end
        elif text[start] == "(" and end <= after and _is_row(text[start + 1 : end]):
            parts += text[done : start + 1], "#"
            done = end
    return "".join([*parts, text[done:]])


def _find_ends(text: str) -> dict[int, int]:
    """The positions of brackets that open, in their order → where they are closed.

    One that is never closed ends where one around it is closed, or else with its line.
    """
    ends, opened = dict[int, int](), list[int]()
    for found in _BRACKET.finditer(text):
        at, bracket = found.start(), found[0]
        if bracket in _CLOSING:
            ends[at] = -1
            opened.append(at)
            continue
        # Brackets that are nobody's are few in what programs print: only the newest are looked at.
        depth = next((n for n, start in enumerate(reversed(opened[-8:]), 1) if _CLOSING[text[start]] == bracket), 0)
        for start in opened[len(opened) - depth :]:
            ends[start] = at
        del opened[len(opened) - depth :]
    line_end = -1
    for start in opened:
        if line_end < start:
            found_at = text.find("\n", start)
            line_end = len(text) if found_at < 0 else found_at
        ends[start] = line_end
    return ends


def _is_row(content: str) -> bool:
    """Whether it is a row of a table: three values or more, a number or nothing among them."""
    if any(mark in content for mark in _NO_ROW):
        return False
    items = content.split(",")
    return len(items) >= _ROW_ITEMS_MIN and any(map(_ROW_ITEM.match, items))
