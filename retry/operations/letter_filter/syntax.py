"""A filter, read: terms, what is not, all of some, any of some. `str` of each is a filter that reads as the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backoff.duration import duration_text
from retry.operations.letter_filter.glob import Glob

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: in milliseconds since 1970, or from the moment on when the filter is asked."""

    ms: int
    from_now: bool

    def at_ms(self, now_ms: int) -> int:
        """Return the time in milliseconds since 1970."""
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
    """The negation of a filter."""

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
