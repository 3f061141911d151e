"""Headers → who wrote the letter, and what failed. Total: there are no headers and no value that it refuses.

The framework that wrote last is believed, see `plan`. What it does not say is not taken from an earlier hop: origin and
group may follow from the topic's name, the number of failed deliveries from our own count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from retry.dead_letters.failure import FIELDS, Failure
from retry.dead_letters.frameworks import brokers, header_values, libraries
from retry.dead_letters.frameworks.header_values import Dialect, HeaderLocation, Places, Read, Tier
from retry.dead_letters.frameworks.libraries import AD_HOC, OWN
from retry.dead_letters.frameworks.task_queues import read_envelope
from retry.record import Header

# Header names of a team's own for the fields of a failure.

Aliases = Mapping[str, tuple[str, ...]]

ALIASABLE = frozenset(FIELDS)
_READERS: dict[str, Read] = dict.fromkeys(ALIASABLE, header_values.decode_name) | {
    "origin_partition": header_values.parse_digits_int32,
    "origin_offset": header_values.parse_digits,
    "origin_timestamp_ms": header_values.parse_digits,
    "attempts": header_values.parse_digits_int32,
    "message": header_values.message,
}


def overrule(fields: dict[str, Any], headers: Mapping[str, bytes | None], aliases: Aliases) -> None:
    """Put what aliases say in place of what the framework's headers said; a letter that only aliases know becomes `ad-hoc`.

    Of several names of a field the first counts that says something.
    """
    for field, names in aliases.items():
        value = _read_first(headers, names, _READERS[field])
        if value is not None:
            fields[field] = max(1, value) if field == "attempts" and isinstance(value, int) else value
            if field in ("cause", "message"):
                fields.pop("cause_message", None)
            if fields.get("family", OWN.family) == OWN.family:
                fields["family"] = AD_HOC.family


def _read_first(headers: Mapping[str, bytes | None], names: tuple[str, ...], read: Read) -> str | int | None:
    for name in names:
        raw = headers.get(name)
        if raw and (value := read(raw)) is not None:
            return value
    return None


# What the name of a dead-letter topic implies, where the headers do not tell.
#
# | name | origin | group |
# | --- | --- | --- |
# | `<t>.DLT` `<t>-dlt` `<t>.dlt` `<t>.DLQ` `<t>-dlq` `<t>.dlq` `<t>-dead-letter` `<t>.dead-letter` `<t>_error` | t | |
# | `<t>-retry-<n>` | t | |
# | `<t>__<group>__dlq` `<t>__<group>__retry` `<t>__<group>__<n>__retry` | t | after the last `__` |
# | `error.<t>.<group>` | t | after the last dot |
# | `dlq.<t>` | t | |
# | `dead-letter-topic-<channel>` `dlq-lcc-<id>` | | |
#
# `<t>.<group>.dlt` cannot be told from `<t>.dlt`, so its group is taken only where a header names t; a header also says where
# the group begins in `error.<t>.<group>`. A suffix is looked for before a prefix: later hops append.

_NAMELESS = ("dead-letter-topic-", "dlq-lcc-")
_SUFFIX = re.compile(r"(.+)(?:[.]DLT|-dlt|[.]dlt|[.]DLQ|-dlq|[.]dlq|-dead-letter|[.]dead-letter|_error|-retry-[0-9]{1,19})")
_GROUPED = re.compile(r"(.+?)__(?:dlq|(?:[0-9]+__)?retry)")
_ERROR, _DLQ, _GROUP_DLT = "error.", "dlq.", ".dlt"


class Implied(NamedTuple):
    topic: str | None
    group: str | None


@lru_cache(10_000)
def infer_from_name(topic: str, origin: str | None = None) -> Implied:
    """Infer the origin topic and the consumer group of letters from the name of their dead-letter topic."""
    by_name = _infer_from_name(topic)
    if origin is None:
        return by_name
    if topic.endswith(_GROUP_DLT) and topic.startswith(f"{origin}."):
        return Implied(origin, topic[len(origin) + 1 : -len(_GROUP_DLT)] or None)
    if topic.startswith(f"{_ERROR}{origin}."):
        return Implied(origin, topic[len(_ERROR) + len(origin) + 1 :] or None)
    return Implied(origin, by_name.group)


def _infer_from_name(topic: str) -> Implied:
    if topic.startswith(_NAMELESS):
        return Implied(None, None)
    grouped = _GROUPED.fullmatch(topic)
    if grouped:
        origin, _, group = grouped[1].rpartition("__")
        if origin and group:
            return Implied(origin, group)
    suffixed = _SUFFIX.fullmatch(topic)
    if suffixed:
        return Implied(suffixed[1], None)
    if topic.startswith(_ERROR):
        origin, _, group = topic.removeprefix(_ERROR).rpartition(".")
        return Implied(origin, group) if origin and group else Implied(None, None)
    return Implied(topic.removeprefix(_DLQ) or None if topic.startswith(_DLQ) else None, None)


# Which framework wrote last, and what to read then: a plan, made once for every set of header names.
#
# A letter may carry headers of several frameworks, since most copy what they find. The one that wrote last is believed:
#
# 1. a framework before names written by hand, these before our own headers;
# 2. of frameworks the one whose marks stand last, since all but SmallRye append;
# 3. SmallRye, which writes in front of what it copies, only where no other is found: whether it was there first cannot be
#    seen, and a dead-letter topic of SmallRye's that is read by something else is the likelier case. Of its two kinds of
#    headers the one in front.

# Where marks stand equally late, which is only where two share a name, the first one here.
DIALECTS: tuple[Dialect, ...] = (
    *brokers.APACHE_KAFKA, *libraries.SPRING, *libraries.SMALLRYE, *libraries.DOTNET, *brokers.BRIDGED, *libraries.OTHERS
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
      fields: places by field; the first place that has content counts.
      attempts: places of counts, of which the largest is taken; where the dialect has none, the place of our own count.
    """

    family: str
    tier: Tier
    fields: dict[str, tuple[ReadAt, ...]]
    attempts: tuple[tuple[int, HeaderLocation], ...]
    names_origin: bool


def plan(names: tuple[str, ...]) -> DetectionPlan | None:
    """Return the plan for letters whose known headers have these names, in order; None where names do not tell who wrote them."""
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
    readable = {field: tuple((n, place.read) for n, place in places) for field, places in fields.items() if places}
    attempts = locate_fields(dialect.attempts) or locate_fields(libraries.OWN.attempts)
    return DetectionPlan(dialect.family, dialect.tier, readable, attempts, bool(fields["origin_topic"]))


def _lateness(dialect: Dialect, at: dict[str, int]) -> tuple[int, bool, int]:
    marks = [mark for mark in dialect.marks if mark <= at.keys()]
    # Of marks that need each other the earliest: our own names stand last whenever they were written.
    return dialect.tier, not dialect.prepends, max(min(at[name] for name in mark) for mark in marks)


_cached_plan = lru_cache(4_096)(_build_plan)


def recognise(headers: Sequence[Header], topic: str, value: bytes | None = None, aliases: Aliases | None = None) -> Failure:
    """Read the failure that a letter tells of in its headers, or in its value where a task queue wrote an envelope.

    Args:
      topic: the dead-letter topic, whose name implies an origin where the headers name none.
      aliases: field of `Failure` (one of `ALIASABLE`) → header names, which take precedence; of several the first that says
        something, of duplicates the last.
    """
    known = [header for header in headers if header[0] in KNOWN]
    detected = plan(tuple([name for name, _ in known]))
    fields = _read(detected, [value for _, value in known]) if detected else {}
    if detected is None or detected.tier is Tier.OWN:
        fields |= read_envelope(value)
    if aliases:
        overrule(fields, dict(headers), aliases)
    return _complete_failure(fields, topic)


@lru_cache(10_000)
def make_unknown_failure(topic: str) -> Failure:
    """Make the failure of a letter that tells nothing: one for all such letters of a topic."""
    named = infer_from_name(topic)
    return Failure(origin_topic=named.topic, consumer_group=named.group)


def _complete_failure(fields: dict[str, Any], topic: str) -> Failure:
    if not fields:
        return make_unknown_failure(topic)
    if "origin_topic" not in fields or "consumer_group" not in fields:
        named = infer_from_name(topic, fields.get("origin_topic"))
        # A header that is there and names no topic says that there is none, as where a punctuator failed.
        fields.setdefault("origin_topic", named.topic)
        fields.setdefault("consumer_group", named.group)
    return Failure(**fields)


def _read(plan: DetectionPlan, values: Sequence[bytes | None]) -> dict[str, Any]:
    fields: dict[str, Any] = {"family": plan.family}
    for field, places in plan.fields.items():
        if (content := find_content(places, values)) is not None:
            fields[field] = content
    if plan.names_origin:
        fields.setdefault("origin_topic", None)
    if plan.attempts:
        fields["attempts"] = max([_read_attempts(place, values[n]) for n, place in plan.attempts])
    return fields


def find_content(places: Iterable[ReadAt], values: Sequence[bytes | None]) -> str | int | None:
    """Return the first content that can be read at one of the places, in their order; None where there is none."""
    for n, read in places:
        raw = values[n]
        if raw and (content := read(raw)) is not None:
            return content
    return None


def _read_attempts(place: HeaderLocation, raw: bytes | None) -> int:
    count = place.read(raw) if raw else None
    return max(1, count + place.plus) if isinstance(count, int) else 1
