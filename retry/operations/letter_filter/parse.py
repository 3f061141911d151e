"""The text of a filter → the filter. Columns count characters, from 1.

    filter = terms ("or" terms)*
    terms  = ("-"? (term | "(" filter ")"))+
    term   = field ":" value | "header." name ":" value | "value." path "=" value
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from retry.errors import FilterInvalid
from retry.operations.letter_filter.fields import (
    EXAMPLES,
    FAILED_AGAIN,
    GROUP,
    NAMED,
    OF_CONSOLE,
    PATH,
    RANGES,
    STATES,
    check_name,
    read_range,
)
from retry.operations.letter_filter.syntax import EVERYTHING, Filter, Glob, Range, Term, all_of, any_of, make_glob, negate
from retry.policies.yaml_document import suggest_word

BYTES_MAX, DEPTH_MAX = 1_024, 8
_OR = re.compile(r"or(?=[\s()]|$)", re.IGNORECASE)
_FIELD = re.compile(r'[^\s()":=]*')
_BARE = re.compile(r'[^\s()"]*')
_BLANK = re.compile(r"\s*")
_NOT_KNOWN_HERE = {
    GROUP: "what operators merged and split is known in the console alone; ask there, or write fingerprint: and the number of"
    " each kind",
    FAILED_AGAIN: "what failed again of an action is known in the console alone; ask there",
}
_WORDS = {"and": "terms side by side must all hold anyway; leave it out", "not": "write - before the term, as -team:payments"}


def parse(text: str, *, groups: bool = False) -> Filter:
    """Parse the text of a filter; an empty one selects every letter.

    Args:
      groups: whether the filter may ask for groups, and for what failed again of an action, which the console alone knows.

    Raises:
      FilterInvalid: the text is no filter; names the column, and what to write instead.
    """
    used = 0
    for column, char in enumerate(text, 1):
        used += len(char.encode("utf-8", "surrogatepass"))
        if used > BYTES_MAX:
            raise FilterInvalid(column, f"a filter has at most {BYTES_MAX:,} bytes; write a shorter one, as with * in names")
    return EVERYTHING if text.isspace() or not text else _Parser(text, groups).parse_filter()


class _Parser:
    """Reads a text from left to right, without going back."""

    def __init__(self, text: str, groups: bool) -> None:
        self._text, self._at, self._groups = text, 0, groups
        self._known = [field for field in EXAMPLES if groups or field not in OF_CONSOLE]

    def parse_filter(self) -> Filter:
        found = self._any(0)
        if self._at < len(self._text):
            self._reject_filter('no ( is open here; text that has parentheses needs quotes, as message:"f(x)"')
        return found

    def _any(self, depth: int) -> Filter:
        """Parse terms with `or` between them, up to the end or to a parenthesis that closes."""
        parts = [self._all(depth)]
        while self._or():
            parts.append(self._all(depth))
        return any_of(parts)

    def _all(self, depth: int) -> Filter:
        parts: list[Filter] = []
        while not self._ends() and not _OR.match(self._text, self._at):
            parts.append(self._one(depth))
        if not parts:
            self._reject_filter("a term is missing here; or stands between two terms, as team:payments or team:billing")
        return all_of(parts)

    def _one(self, depth: int) -> Filter:
        if self._text[self._at] != "-":
            return self._parse_group(depth) if self._text[self._at] == "(" else self._term()
        self._at += 1
        next_char = self._text[self._at : self._at + 1]
        if not next_char or next_char in "-)" or next_char.isspace():
            self._reject_filter("- stands once, right before a term, as -team:payments")
        return negate(self._parse_group(depth) if next_char == "(" else self._term())

    def _parse_group(self, depth: int) -> Filter:
        opened = self._at
        if depth == DEPTH_MAX:
            self._reject_filter(f"parentheses are nested more than {DEPTH_MAX} deep; write the same with fewer")
        self._at += 1
        found = self._any(depth + 1)
        if self._at == len(self._text):
            raise FilterInvalid(opened + 1, "this ( is not closed; write ) behind what belongs to it")
        self._at += 1
        return found

    def _term(self) -> Term:
        start, word = self._at, self._match(_FIELD)
        mark = self._text[self._at : self._at + 1]
        if mark not in (":", "="):
            self._at = start
            self._reject_filter(_alone(word, self._known))
        field, dot, name = word.partition(".")
        example = EXAMPLES.get(field)
        if example is None or (dot and field not in NAMED):
            instead = suggest_word(field, self._known) or f"; write {_either(self._known)}"
            raise FilterInvalid(start + 1, f"there is no field {word!r:.40}{instead}")
        if field in OF_CONSOLE and not self._groups:
            raise FilterInvalid(start + 1, _NOT_KNOWN_HERE[field])
        if (field == "header" and not name) or (field == "value" and not PATH.fullmatch(name)):
            raise FilterInvalid(start + 1, f"{field} needs {'a path' if field == 'value' else 'a name'}; write {example}")
        if (mark == "=") != (field == "value"):
            self._reject_filter(f"write {'=' if field == 'value' else ':'} here, as in {example}")
        self._at += 1
        return Term(field, name, self._parse_value(field, example))

    def _parse_value(self, field: str, example: str) -> Glob | Range:
        start = self._at
        quoted = self._text[start : start + 1] == '"'
        value = self._parse_quoted() if quoted else make_glob(self._match(_BARE).split("*"))
        if self._at == start:
            self._reject_filter(f'{field} has no value; write {example}, or "" for an empty one')
        if self._text[self._at : self._at + 1] not in ("", ")") and not self._text[self._at].isspace():
            self._reject_filter(
                "a blank is missing here; text that has blanks, quotes or parentheses needs quotes around all of it"
            )
        text = "*".join(value.parts)
        if field in RANGES:
            return read_range(field, text, start + 1 + quoted)
        if field == "state" and text not in STATES:
            known = " or ".join(f"state:{each}" for each in STATES)
            raise FilterInvalid(start + 1, f"there is no state {text!r:.40}; write {known}")
        if field in OF_CONSOLE:
            check_name(field, text, start + 1)
        return value

    def _parse_quoted(self) -> Glob:
        opened, parts = self._at, [""]
        self._at += 1
        while (char := self._text[self._at : self._at + 1]) != '"':
            if not char:
                raise FilterInvalid(opened + 1, 'this " is not closed; write " behind the text, and \\" for one in it')
            if char == "\\":
                self._at += 1
                char = self._text[self._at : self._at + 1]
                if not char or char not in '"\\*':
                    self._at -= 1
                    self._reject_filter('\\ stands before ", * or \\ alone; write \\\\ for one in the text')
                parts[-1] += char
            elif char == "*":
                parts.append("")
            else:
                parts[-1] += char
            self._at += 1
        self._at += 1
        return make_glob(parts)

    def _ends(self) -> bool:
        """Whether nothing follows, but for blanks, or a parenthesis closes."""
        self._match(_BLANK)
        return self._text[self._at : self._at + 1] in ("", ")")

    def _or(self) -> bool:
        return not self._ends() and bool(self._match(_OR))

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found[0] if found else ""

    def _reject_filter(self, reason: str) -> NoReturn:
        raise FilterInvalid(self._at + 1, reason)


def _alone(word: str, known: Sequence[str]) -> str:
    if reason := _WORDS.get(word.lower()):
        return reason
    if word in EXAMPLES:
        return f"{word} has no value; write {EXAMPLES[word]}"
    shown = f"message:{word:.40}" if word else 'message:"card declined"'
    return f"text needs a field; write {shown} to look for it in messages, or {_either(known)}"


def _either(known: Sequence[str]) -> str:
    return f"{EXAMPLES['team']}, or another of {', '.join(known)}"
