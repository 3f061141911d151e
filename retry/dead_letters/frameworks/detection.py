"""Headers → who wrote the letter, and what failed. Total: there are no headers and no value that it refuses.

The framework that wrote last is believed, see `plan`. What it does not say is not taken from an earlier hop: origin and
group may follow from the topic's name, the number of failed deliveries from our own count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks.aliases import Aliases, overrule
from retry.dead_letters.frameworks.detection_plan import KNOWN, DetectionPlan, ReadAt, plan
from retry.dead_letters.frameworks.dialect import HeaderLocation, Tier
from retry.dead_letters.frameworks.task_queues import read_envelope
from retry.dead_letters.frameworks.topic_names import infer_from_name
from retry.record import Header


def recognise(headers: Sequence[Header], topic: str, value: bytes | None = None, aliases: Aliases | None = None) -> Failure:
    """Read the failure that a letter tells of in its headers, or in its value where a task queue wrote an envelope.

    Args:
      headers: all of them in their order; those that are not in `KNOWN` matter only to `aliases`.
      topic: the dead-letter topic, whose name implies an origin where the headers name none.
      value: for task queues that write envelopes.
      aliases: field of `Failure` (one of `ALIASABLE`) → header names, which take precedence; of several the first
        that says something, of duplicates the last. Numbers are ASCII digits, and are taken as they are.
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
    """The failure of a letter that tells nothing: one for all of a topic."""
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
        if (content := first_content(places, values)) is not None:
            fields[field] = content
    if plan.names_origin:
        fields.setdefault("origin_topic", None)
    if plan.attempts:
        fields["attempts"] = max([_read_attempts(place, values[n]) for n, place in plan.attempts])
    return fields


def first_content(places: Iterable[ReadAt], values: Sequence[bytes | None]) -> str | int | None:
    """Return the first content that can be read at one of the places, in their order; None where there is none."""
    for n, read in places:
        raw = values[n]
        if raw and (content := read(raw)) is not None:
            return content
    return None


def _read_attempts(place: HeaderLocation, raw: bytes | None) -> int:
    count = place.read(raw) if raw else None
    return max(1, count + place.plus) if isinstance(count, int) else 1
