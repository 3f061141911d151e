"""A text in which `*` stands for any characters, none included. Matching takes linear time: nothing goes back over a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_QUOTED = frozenset('"()')
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "*": "\\*"})


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern with `*`, as the texts before, between and behind the stars; a single part where there is no star.

    >>> Glob(("com.", ".Timeout")).compile_whole()("com.acme.Timeout"), Glob(("acme",)).anywhere()("com.acme.Timeout")
    (True, True)
    """

    parts: tuple[str, ...]

    def compile_whole(self) -> Callable[[str], bool]:
        """Return a test of whether a whole text matches."""
        if len(self.parts) == 1:
            return self.parts[0].__eq__
        first, *inner, last = self.parts

        def matches(text: str) -> bool:
            end = len(text) - len(last)
            return text.startswith(first) and text.endswith(last) and _in_order(inner, text, len(first), end)

        return matches

    def anywhere(self) -> Callable[[str], bool]:
        """Return a test of whether any part of a text matches, in capitals or not."""
        parts = [part.casefold() for part in self.parts]

        def occurs(text: str) -> bool:
            folded = text.casefold()
            return _in_order(parts, folded, 0, len(folded))

        return occurs

    def __str__(self) -> str:
        """Write the glob as a filter has it, in quotes where it needs them."""
        text = "".join(self.parts)
        bare = text.isprintable() and not any(char.isspace() or char in _QUOTED or char == "*" for char in text)
        if bare and len("*".join(self.parts)):
            return "*".join(self.parts)
        return '"' + "*".join(part.translate(_ESCAPES) for part in self.parts) + '"'


def glob(parts: Sequence[str]) -> Glob:
    """The glob of these parts; two stars in a row are one."""
    first, *rest = parts
    return Glob((first, *(part for part in rest[:-1] if part), *rest[-1:]))


def _in_order(parts: Sequence[str], text: str, start: int, end: int) -> bool:
    """Whether a text has all parts between two places, one behind the other."""
    for part in parts:
        found = text.find(part, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return start <= end
