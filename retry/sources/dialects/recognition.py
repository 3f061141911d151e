"""Headers → who wrote the letter, and what failed. Total: there are no headers and no value that it refuses.

A letter may carry headers of several frameworks, since most copy what they find. The one that wrote last is believed:

1. a framework before names written by hand, these before our own headers;
2. of frameworks the one whose marks stand last, since all but SmallRye append;
3. SmallRye, which writes in front of what it copies, only where no other is found: whether it was there first cannot be
   seen, and a dead-letter topic of SmallRye's that is read by something else is the likelier case. Of its two kinds of
   headers the one in front.

What that one does not tell is not taken from an earlier hop: origin and group may follow from the topic's name, the
number of failed deliveries from our own count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from retry.entry import Header
from retry.failure import Failure
from retry.sources.dialects import brokers, dotnet, kafka, libraries, smallrye, spring, values
from retry.sources.dialects.dialect import Dialect, Place, Places, Read, Tier
from retry.sources.dialects.envelopes import opened
from retry.sources.dialects.topic_names import implied

Aliases = Mapping[str, tuple[str, ...]]

# Where marks stand equally late, which is only where two share a name, the first one here.
DIALECTS: tuple[Dialect, ...] = (
    *kafka.DIALECTS, *spring.DIALECTS, *smallrye.DIALECTS, *dotnet.DIALECTS, *brokers.DIALECTS, *libraries.DIALECTS
)  # fmt: skip

ALIASABLE = frozenset(Failure.__struct_fields__) - {"family"}
_FIELDS = tuple(name for name in Failure.__struct_fields__ if name in ALIASABLE - {"attempts"})
KNOWN = frozenset(
    {place.header for dialect in DIALECTS for field in ALIASABLE for place in getattr(dialect, field)}
    | {name for dialect in DIALECTS for mark in dialect.marks for name in mark}
)
_ALIAS_READERS: dict[str, Any] = dict.fromkeys(ALIASABLE, values.name) | {
    "origin_partition": values.digits_int32,
    "origin_offset": values.digits,
    "origin_timestamp_ms": values.digits,
    "attempts": values.digits_int32,
    "message": values.message,
}
_PLANNED_NAMES_MAX = 64


class _Plan(NamedTuple):
    """What to read from a letter whose known headers have certain names, in a certain order."""

    family: str
    tier: Tier
    fields: tuple[tuple[str, tuple[tuple[str, Read], ...]], ...]
    attempts: Places
    firsts: frozenset[str]
    names_origin: bool


def recognise(found: Sequence[Header], topic: str, value: bytes | None = None, aliases: Aliases | None = None) -> Failure:
    """What a letter says of its failure.

    Args:
      found: its headers in their order; those that are not in `KNOWN` matter only to `aliases`.
      topic: the dead-letter topic, whose name implies an origin where the headers name none.
      value: for task queues that write envelopes.
      aliases: field of `Failure` (one of `ALIASABLE`) → header names, which take precedence; of several the first
        that says something, of duplicates the last. Numbers are ASCII digits, and are taken as they are.
    """
    known = tuple([name for name, _ in found if name in KNOWN])
    plan = _plan(known) if len(known) <= _PLANNED_NAMES_MAX else _plan.__wrapped__(known)
    fields = _read(plan, found) if plan else {}
    if plan is None or plan.tier is Tier.OWN:
        fields |= opened(value)
    if aliases:
        _overrule(fields, dict(found), aliases)
    return _completed(fields, topic)


@lru_cache(10_000)
def unknown(topic: str) -> Failure:
    """The failure of a letter that tells nothing: one for all of a topic."""
    named = implied(topic)
    return Failure(origin_topic=named.topic, consumer_group=named.group)


def _completed(fields: dict[str, Any], topic: str) -> Failure:
    if not fields:
        return unknown(topic)
    if "origin_topic" not in fields or "consumer_group" not in fields:
        named = implied(topic, fields.get("origin_topic"))
        # A header that is there and names no topic says that there is none, as where a punctuator failed.
        fields.setdefault("origin_topic", named.topic)
        fields.setdefault("consumer_group", named.group)
    return Failure(**fields)


def _read(plan: _Plan, found: Sequence[Header]) -> dict[str, Any]:
    told = dict(found)  # Of duplicates the last.
    if plan.firsts:
        told |= {name: value for name, value in reversed(found) if name in plan.firsts}
    fields: dict[str, Any] = {"family": plan.family}
    for field, places in plan.fields:
        for header, read in places:
            raw = told[header]
            if raw and (said := read(raw)) is not None:
                fields[field] = said
                break
    if plan.names_origin:
        fields.setdefault("origin_topic", None)
    if plan.attempts:
        fields["attempts"] = max([_attempts(place, told[place.header]) for place in plan.attempts])
    return fields


def _attempts(place: Place, raw: bytes | None) -> int:
    said = place.read(raw) if raw else None
    return max(1, said + place.plus) if isinstance(said, int) else 1


@lru_cache(4_096)
def _plan(names: tuple[str, ...]) -> _Plan | None:
    """The plan for letters with these known names: frameworks write the same ones in the same order again and again."""
    present = frozenset(names)
    spoken = [dialect for dialect in DIALECTS if dialect.is_in(present)]
    if not spoken:
        return None
    at = {name: n for n, name in enumerate(names)}
    from_end = {name: n for n, name in enumerate(reversed(names))}
    dialect = max(spoken, key=lambda one: _lateness(one, from_end if one.prepends else at))
    fields = [(field, _present(getattr(dialect, field), present)) for field in _FIELDS]
    attempts = _present(dialect.attempts, present) or _present(libraries.OWN.attempts, present)
    return _Plan(
        dialect.family,
        dialect.tier,
        tuple((field, tuple((place.header, place.read) for place in places)) for field, places in fields if places),
        attempts,
        frozenset(place.header for _, places in [*fields, ("", attempts)] for place in places if place.first),
        any(field == "origin_topic" and places for field, places in fields),
    )


def _lateness(dialect: Dialect, at: dict[str, int]) -> tuple[int, bool, int]:
    return dialect.tier, not dialect.prepends, max(at.get(name, -1) for mark in dialect.marks for name in mark)


def _present(places: Places, names: frozenset[str]) -> Places:
    return tuple(place for place in places if place.header in names)


def _overrule(fields: dict[str, Any], told: dict[str, bytes | None], aliases: Aliases) -> None:
    for field, names in aliases.items():
        for name in names:
            raw = told.get(name)
            said = _ALIAS_READERS[field](raw) if raw else None
            if said is not None:
                fields[field] = max(1, said) if field == "attempts" else said
                if fields.get("family", "own") == "own":
                    fields["family"] = libraries.AD_HOC.family
                break
