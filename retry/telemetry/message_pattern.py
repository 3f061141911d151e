"""What messages of one failure have in common: numbers, ids, data that is quoted and the like are put aside, the words stay.

What is part of a program or of a schema stays too: a column, an argument, a host, the code of an error. It is linear in the
length of a message, whatever the message says: no pattern begins twice in one run of characters that it reads.
"""

from __future__ import annotations

import re

# Digits of error codes, which tell failures apart, stand for themselves until all others are taken out.
DIGITS, MARKED = "0123456789", "".join(map(chr, range(16, 26)))
_UNMARKED = str.maketrans(MARKED, DIGITS)
_COMMON_CHARS_MAX = 512
# How far inside quoted text quoted text is looked for.
_DEPTH_MAX = 3
_BEFORE_CHARS = 24

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? {1,2})?(?:[0-9]{1,2}[ -])?"
    rf"(?:{'|'.join(_MONTHS)})[a-z]{{0,6}}"
    r"[ -]{1,2}[0-9]{1,4}(?:,? [0-9][0-9:.]*)*(?: [A-Z]{2,4}(?: [0-9]{4})?)?"
)
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII)
_IDENTITY = re.compile(r"@[0-9a-f]{4,16}(?!\w)", re.ASCII)
_QUERY = re.compile(r"\?[\w.%-]+=[^\s\"'<>)\]]*", re.ASCII)
_KEY_VALUE = re.compile(r"\)=\([^()]*\)")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=])(?=[A-Za-z]*[0-9+/])[A-Za-z0-9+/]{8,}={1,2}(?![^\s\"'),;\]}])")
# Each is looked for only where the character is that it cannot be without.
_RARE = (("@", _MAIL, "#"), ("@", _IDENTITY, "@#"), ("?", _QUERY, ""), (")=(", _KEY_VALUE, ")=(#)"), ("=", _BASE64, "#"))

_UNIT = (
    "ns|us|µs|ms|millis|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|weeks?"
    "|[kKMGT]i?B|[kmgt]b|bytes?|%"
)
_PART = "[A-Za-z]*[0-9][A-Za-z0-9]*"
# What may follow a part with a digit: another one, hexadecimal, or the five characters at the end of a pod's name.
_NEXT = rf"[.:,+_-]{{1,2}}(?:{_PART}|[0-9a-fA-F]{{2,12}}(?![A-Za-z0-9])|[b-df-hj-np-tv-xz0-9]{{5}}(?![A-Za-z0-9]))"
_DIFFERS = re.compile(
    rf"""
    (?P<quoted> "[^"]*" | `[^`]*` | (?<!\w)'[^']*' | “[^“”]*” | «[^«»]*» )
    | \[(?=[^\[\]]{{0,45}}:)[0-9a-fA-F:.%]{{2,45}}\](?::[0-9]+)?
    | (?<![A-Za-z0-9])
      (?:(?<!:)::)?(?:(?<![\w)\]])[+-])?
      (?: (?:[A-Z]{{1,3}}-)?{_PART} | [a-fA-F]{{8,}}(?![A-Za-z0-9]) )
      (?:{_NEXT})*
      (?:[ ]?(?:{_UNIT})(?!\w))?
    """,
    re.VERBOSE | re.ASCII,
)  # fmt: skip
_LISTED = re.compile(r"\#(?:[\s,]+\#)+")

# The name of something that programs and schemas are made of, and the words that announce one.
_NAME = re.compile(r"[A-Za-z_$<][\w$.<>#\[\]-]*(?:\([\w$.<>, \[\]]*\))?", re.ASCII)
_CODE_NAME = re.compile(r"[A-Za-z]+_\w*|[a-z]+[A-Z]\w*|(?:[\w$<>-]+\.){2,}[\w$]+|.*\)|.*[\w>]\#\w+", re.ASCII)
_BUILT_IN = re.compile(
    "int|integer|long|short|byte|bytes|float|double|decimal|number|str|string|bool|boolean|char|list|dict|tuple|set|map|array"
    "|object|None|NoneType|null|undefined"
)
_ANNOUNCED = re.compile(
    r"\b(?:argument|attribute|because|class|collection|column|constraint|element|field|function|index|invoke|member|method|model"
    r"|module|object|parameter|path|property|properties|reading|references|relation|schema|table|type|variable)s?[^\w]*\Z"
    r"|\b(?:for|foreign|primary|unique) key \Z",
    re.IGNORECASE | re.ASCII,
)
_SAID = re.compile(r"\b(?:desc\w*|details?|errors?|messages?|msg|reason|str)\W{0,3}\Z", re.IGNORECASE | re.ASCII)
_WORDS = re.compile(r"(?<![A-Za-z])[A-Za-z]{2,}\s[A-Za-z]{2,}\s[A-Za-z]{2,}")
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,20}://")


def find_common_text(message: str) -> str:
    """Return what a message has in common with others of its kind, 512 characters at most.

    Args:
      message: with 0 in place of every digit, and those of error codes marked, see `retry.telemetry.fingerprint`.
    """
    text = replace_snippets(message)
    for sign, pattern, instead in _RARE:
        if sign in text:
            text = pattern.sub(instead, text)
    if any(month in text for month in _MONTHS):
        text = _DATE.sub("#", text)
    text = " ".join(_take_out(text, 0).split())
    text = _LISTED.sub("#", text)[:_COMMON_CHARS_MAX]
    return text if text.isprintable() else text.translate(_UNMARKED)


def _take_out(text: str, depth: int) -> str:
    return _DIFFERS.sub(lambda found: _replace_quoted(found, depth) if found["quoted"] else "#", text)


def _replace_quoted(found: re.Match[str], depth: int) -> str:
    """Keep quoted text that is part of a program, or what somebody said of a failure; else it is data."""
    quoted, text, (start, end) = found[0], found.string, found.span()
    content, before, after = quoted[1:-1], text[max(0, start - _BEFORE_CHARS) : start], text[end : end + 2]
    if depth < _DEPTH_MAX and (_is_of_program(quoted, before, after) or _is_said(content, before, after)):
        return f"{quoted[0]}{_take_out(content, depth + 1)}{quoted[-1]}"
    return "#"


def _is_of_program(quoted: str, before: str, after: str) -> bool:
    content = quoted[1:-1]
    if _URL.match(content):
        return True
    if not _NAME.fullmatch(content):
        return False
    if quoted[0] == "`" or _BUILT_IN.fullmatch(content) or _CODE_NAME.fullmatch(content):
        return True
    if any(digit in content for digit in DIGITS):
        return False
    # As in `"shop"."orders"`, `order["amount"]`, and where there is nothing else.
    is_qualified = after == f".{quoted[0]}" or before[-2:] == f"{quoted[0]}."
    is_subscript = before[-1:] == "[" and before[-2:-1].isalnum() and after[:1] == "]"
    is_alone = not before and not after
    return is_qualified or is_subscript or is_alone or bool(_ANNOUNCED.search(before))


def _is_said(content: str, before: str, after: str) -> bool:
    """Whether it is a sentence about the failure: the last argument of an inner error, or after a word like `message`."""
    if any(digit in content for digit in MARKED):
        return True
    return (after[:1] == ")" or bool(_SAID.search(before))) and bool(_WORDS.search(content))


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
