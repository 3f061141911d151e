"""Which framework wrote last, and what to read then: a plan, made once for every set of header names.

A letter may carry headers of several frameworks, since most copy what they find. The one that wrote last is believed:

1. a framework before names written by hand, these before our own headers;
2. of frameworks the one whose marks stand last, since all but SmallRye append;
3. SmallRye, which writes in front of what it copies, only where no other is found: whether it was there first cannot be
   seen, and a dead-letter topic of SmallRye's that is read by something else is the likelier case. Of its two kinds of
   headers the one in front.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks import apache_kafka, dotnet, libraries, message_brokers, smallrye, spring
from retry.dead_letters.frameworks.dialect import Dialect, HeaderLocation, Places, Read, Tier

# Where marks stand equally late, which is only where two share a name, the first one here.
DIALECTS: tuple[Dialect, ...] = (
    *apache_kafka.DIALECTS, *spring.DIALECTS, *smallrye.DIALECTS, *dotnet.DIALECTS, *message_brokers.DIALECTS, *libraries.DIALECTS
)  # fmt: skip

_PLACED = tuple(name for name in Failure.__struct_fields__ if name != "family")
_FIELDS = tuple(name for name in _PLACED if name != "attempts")
KNOWN = frozenset(
    {place.header for dialect in DIALECTS for field in _PLACED for place in getattr(dialect, field)}
    | {name for dialect in DIALECTS for mark in dialect.marks for name in mark}
)
_CACHED_NAMES_MAX = 64


# Which of the values, and how it is read.
ReadAt = tuple[int, Read]


class DetectionPlan(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The headers that each field of a failure is read from, by their place among the header names that the plan is for.

    Attributes:
      family, tier: of the dialect that is believed.
      fields: places by field; the first place that has content counts.
      attempts: places of counts, of which the largest is taken; where the dialect has none, the place of our own count.
      names_origin: whether a header for the origin's topic is there, whatever it says.
    """

    family: str
    tier: Tier
    fields: dict[str, tuple[ReadAt, ...]]
    attempts: tuple[tuple[int, HeaderLocation], ...]
    names_origin: bool


def plan(names: tuple[str, ...]) -> DetectionPlan | None:
    """The plan for letters whose known headers have these names, in this order; None where they give nobody away.

    Frameworks write the same names in the same order again and again, so plans are kept, but for unusually many names.
    """
    return _cached_plan(names) if len(names) <= _CACHED_NAMES_MAX else _build_plan(names)


def _build_plan(names: tuple[str, ...]) -> DetectionPlan | None:
    present = frozenset(names)
    candidates = [dialect for dialect in DIALECTS if dialect.is_in(present)]
    if not candidates:
        return None
    last = {name: n for n, name in enumerate(names)}
    from_end = {name: n for n, name in enumerate(reversed(names))}
    dialect = max(candidates, key=lambda one: _lateness(one, from_end if one.prepends else last))

    def locate_fields(places: Places) -> tuple[tuple[int, HeaderLocation], ...]:
        there = (place for place in places if place.header in present)
        return tuple((len(names) - 1 - from_end[p.header] if p.first else last[p.header], p) for p in there)

    fields = {field: locate_fields(getattr(dialect, field)) for field in _FIELDS}
    return DetectionPlan(
        dialect.family,
        dialect.tier,
        {field: tuple((n, place.read) for n, place in places) for field, places in fields.items() if places},
        locate_fields(dialect.attempts) or locate_fields(libraries.OWN.attempts),
        bool(fields["origin_topic"]),
    )


def _lateness(dialect: Dialect, at: dict[str, int]) -> tuple[int, bool, int]:
    marks = [mark for mark in dialect.marks if mark <= at.keys()]
    # Of marks that need each other the earliest: our own names stand last whenever they were written.
    return dialect.tier, not dialect.prepends, max(min(at[name] for name in mark) for mark in marks)


_cached_plan = lru_cache(4_096)(_build_plan)
