"""Who wrote a dead letter, and what its headers say: one table row a framework, one engine that reads the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from retry.dead_letters import retry_headers as ours
from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.detection import (
    ALIASABLE,
    KNOWN,
    Aliases,
    DetectionPlan,
    ReadAt,
    find_content,
    make_unknown_failure,
    plan,
    recognise,
)
from retry.dead_letters.frameworks.header_values import Read, Tier
from retry.dead_letters.frameworks.task_queues import find_envelopes, may_be

__all__ = [
    "ALIASABLE", "KNOWN", "Aliases", "HeaderLayout", "Values", "find_content", "find_envelopes", "find_layout",
    "make_unknown_failure", "may_be", "recognise",
]  # fmt: skip


Values = tuple[bytes | None, ...]
CutText = Callable[[bytes], bytes | None]

# What a retry carries that fails again: each of these once, the first two always. Letters with others of ours are rare.
_RETURNED = (ours.ID, ours.ATTEMPT, ours.POLICY, ours.FIRST_FAILED_MS, ours.DUE_MS, ours.SOURCE)

# Nothing that is written for a letter depends on these.
_IGNORED = frozenset({"origin_timestamp_ms", "attempts"})
_OWN = frozenset({"origin_offset", "message", "cause_message"})
# What a message is read from, where that is not all of the value: a stack trace.
_CUTS: dict[Read, CutText] = {
    header_values.find_java_message: header_values.cut_java_root_message,
    header_values.find_dotnet_message: header_values.cut_dotnet_root_message,
}
# Their values are short and seldom change, so they need not be read to be compared.
_PLAIN_READERS = frozenset({header_values.decode_name, header_values.parse_digits_int32, header_values.parse_int32})


class ReturnedAt(NamedTuple):
    """The places of the headers that tell of an earlier retry; None for those of the last three that are missing."""

    id: int
    attempt: int
    policy: int | None
    first_failed_ms: int | None
    due_ms: int | None


class HeaderLayout(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The places of what a letter's headers say, worked out once for all letters that have the same header names.

    Attributes:
      plan: who wrote the letter; None where nothing tells, or only its value.
      telling: places of the headers that detection reads, in the order in which it takes them.
      kept: by place, whether it is a header of the original record, and not of ours.
      alike: values → those that are mostly alike from letter to letter, unchanged.
      derived: places of fields whose values differ from letter to letter, while what is read from them is mostly equal.
      messages: places of the message that the failure is grouped by, that of the root cause first; with what cuts it out of a
        stack trace, or None where the whole value is the message.
    """

    plan: DetectionPlan | None
    telling: tuple[int, ...]
    kept: tuple[bool, ...]
    alike: Callable[[Values], Values]
    derived: tuple[tuple[ReadAt, ...], ...]
    origin_offset: tuple[ReadAt, ...]
    messages: tuple[tuple[int, CutText | None], ...]
    retry_at: int | None
    returned: ReturnedAt | None

    def cut_message(self, values: Values) -> bytes | None:
        """Cut out the message that a failure is grouped by; None where there is none."""
        for n, cut in self.messages:
            raw = values[n]
            if text := cut(raw) if cut and raw else raw:
                return text
        return None

    def may_be_envelope(self) -> bool:
        """Whether the value may be what tells who wrote the letter."""
        return self.plan is None or self.plan.tier is Tier.OWN


def find_layout(names: tuple[str, ...]) -> HeaderLayout | None:
    """Find the layout of headers with such names; None where they tell more of an earlier retry than one that fails again."""
    # Of duplicates the last is the newest.
    of_ours = {name: n for n, name in enumerate(names) if name in ours.OURS}
    retry_at, returned = of_ours.pop(ours.RETRY_AT_MS, None), _find_returned(of_ours)
    if of_ours and returned is None:
        return None
    kept = tuple(name not in ours.OURS for name in names)
    known = [n for n, name in enumerate(names) if kept[n] and name in KNOWN]
    known += [n for name, n in of_ours.items() if name in KNOWN]
    detected = plan(tuple([names[n] for n in known]))
    if detected is None:
        return HeaderLayout(
            plan=None, telling=tuple(known), kept=kept, alike=_getter(()), derived=(), origin_offset=(), messages=(),
            retry_at=retry_at, returned=returned,
        )  # fmt: skip
    fields = {field: tuple((known[n], read) for n, read in places) for field, places in detected.fields.items()}
    telling = {field: places for field, places in fields.items() if field not in _IGNORED | _OWN}
    plain = {field for field, places in telling.items() if all(read in _PLAIN_READERS for _, read in places)}
    alike = sorted({n for field in plain for n, _ in telling[field]})
    alike += [n for n in (returned[1:3] if returned else ()) if n is not None]
    return HeaderLayout(
        plan=detected, telling=tuple(known), kept=kept, alike=_getter(alike),
        derived=tuple(places for field, places in telling.items() if field not in plain),
        origin_offset=fields.get("origin_offset", ()), retry_at=retry_at, returned=returned,
        messages=tuple((n, _CUTS.get(read)) for n, read in fields.get("cause_message", ()) + fields.get("message", ())),
    )  # fmt: skip


def _find_returned(of_ours: dict[str, int]) -> ReturnedAt | None:
    if ours.ID not in of_ours or ours.ATTEMPT not in of_ours or not of_ours.keys() <= set(_RETURNED):
        return None
    policy, first_failed_ms, due_ms = map(of_ours.get, _RETURNED[2:5])
    return ReturnedAt(of_ours[ours.ID], of_ours[ours.ATTEMPT], policy, first_failed_ms, due_ms)


def _getter(places: Sequence[int]) -> Callable[[Values], Values]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[n] for n in places)
