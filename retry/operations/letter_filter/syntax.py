"""A filter, read: terms, what is not, all of some, any of some. `str` of each is a filter that reads as the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backoff.duration import duration_text

# A text in which `*` stands for any characters, none included. Matching takes linear time: nothing goes back over a text.

_QUOTED = frozenset('"()')
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "*": "\\*"})


def quote_text(*parts: str) -> str:
    """Quote a text so that a filter takes it as it is; between several parts anything may stand.

    >>> print(quote_text('not "so" *'), quote_text("a", "b"))
    "not \\"so\\" \\*" "a*b"
    """
    return '"' + "*".join(part.translate(_ESCAPES) for part in parts) + '"'


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern with `*`, as the texts before, between and behind the stars; a single part where there is no star.

    >>> Glob(("com.", ".Timeout")).compile_whole()("com.acme.Timeout"), Glob(("acme",)).anywhere()("com.acme.Timeout")
    (True, True)
    """

    parts: tuple[str, ...]

    def compile_whole(self) -> Callable[[str], bool]:
        """Build a test of whether a whole text matches."""
        if len(self.parts) == 1:
            return self.parts[0].__eq__
        first, *inner, last = self.parts

        def matches(text: str) -> bool:
            end = len(text) - len(last)
            return text.startswith(first) and text.endswith(last) and _in_order(inner, text, len(first), end)

        return matches

    def anywhere(self) -> Callable[[str], bool]:
        """Build a test of whether any part of a text matches, in capitals or not."""
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
        return quote_text(*self.parts)


def make_glob(parts: Sequence[str]) -> Glob:
    """Make the glob of these parts; two stars in a row are one."""
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


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: in milliseconds since 1970, or from the moment on when the filter is asked."""

    ms: int
    from_now: bool

    def at_ms(self, now_ms: int) -> int:
        return self.ms + now_ms if self.from_now else self.ms

    def __str__(self) -> str:
        if not self.from_now:
            return (EPOCH + timedelta(milliseconds=self.ms)).isoformat(timespec="milliseconds")
        return ("-" if self.ms < 0 else "") + duration_text(abs(self.ms)) if self.ms else "now"


@dataclass(frozen=True, slots=True)
class Span:
    """Milliseconds that have gone by."""

    ms: int

    def __str__(self) -> str:
        return duration_text(self.ms)


Bound = int | Span | Moment


@dataclass(frozen=True, slots=True)
class Range:
    """A range from one bound to another, both included; a bound is None where the range is open."""

    low: Bound | None
    high: Bound | None

    def __str__(self) -> str:
        if self.low == self.high and isinstance(self.low, int):
            return str(self.low)
        return f"{'' if self.low is None else self.low}..{'' if self.high is None else self.high}"


@dataclass(frozen=True, slots=True)
class Term:
    """One question to a letter.

    Attributes:
      field: what is asked for, as `team`.
      name: which header, or the path in the value, `$.a.b`; empty of other fields.
      value: what it is to be.
    """

    field: str
    name: str
    value: Glob | Range

    def __str__(self) -> str:
        return f"{self.field}{'.' if self.name else ''}{self.name}{'=' if self.field == 'value' else ':'}{self.value}"


@dataclass(frozen=True, slots=True)
class Not:
    of: Filter

    def __str__(self) -> str:
        return f"-{self.of}" if isinstance(self.of, Term) else f"-({self.of})"


@dataclass(frozen=True, slots=True)
class AllOf:
    """Filters that must all hold; with none in it, every letter is selected."""

    of: tuple[Filter, ...]

    def __str__(self) -> str:
        return " ".join(f"({each})" if isinstance(each, AnyOf) else str(each) for each in self.of)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Filters of which at least one must hold."""

    of: tuple[Filter, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.of))


Filter = Term | Not | AllOf | AnyOf
EVERYTHING = AllOf(())


def negate(of: Filter) -> Filter:
    """Negate a filter; the negation of a `Not` is the filter in it."""
    return of.of if isinstance(of, Not) else Not(of)


def all_of(parts: Iterable[Filter]) -> Filter:
    """Combine filters that must all hold: an `AllOf` among them is flattened, and a single filter is returned as it is."""
    flat = [each for part in parts for each in (part.of if isinstance(part, AllOf) else (part,))]
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: Iterable[Filter]) -> Filter:
    """Combine filters of which one must hold: an `AnyOf` among them is flattened, and a single filter is returned as it is."""
    flat = [each for part in parts for each in (part.of if isinstance(part, AnyOf) else (part,))]
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))
