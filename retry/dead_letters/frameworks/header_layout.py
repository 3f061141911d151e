"""What of a letter's headers is alike in letter after letter, and what each has of its own: worked out once for their names.

A framework writes the same names in the same order again and again, and nearly all of their values too. Who reads many
letters keeps what follows from those, and looks only at what is left: where the record was that failed, what its exception
said, and what a stack trace or a list of deaths comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

import msgspec

from retry.dead_letters import retry_headers as ours
from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.detection_plan import KNOWN, DetectionPlan, ReadAt, plan

Values = tuple[bytes | None, ...]

# Nothing that is written for a letter depends on these.
_IGNORED = frozenset({"origin_timestamp_ms", "attempts"})
_OWN = frozenset({"origin_offset", "message"})
# Their values are short and seldom change, so they need not be read to be compared.
_PLAIN_READERS = frozenset({header_values.name, header_values.digits_int32, header_values.int32})


class HeaderLayout(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Where in the headers of a letter it says what.

    Attributes:
      plan: who wrote the letter; None where nothing tells, or only its value.
      alike: values → those that are mostly alike, as they are.
      derived: fields that are read from values which are not alike, but mostly come to the same.
      origin_offset: places of it.
      messages: places of the exception's message.
      retry_at: place of the wish when to be retried; None where there is none.
    """

    plan: DetectionPlan | None
    alike: Callable[[Values], Values]
    derived: tuple[tuple[ReadAt, ...], ...]
    origin_offset: tuple[ReadAt, ...]
    messages: tuple[int, ...]
    retry_at: int | None


def layout(names: tuple[str, ...]) -> HeaderLayout | None:
    """The layout of headers with these names; None where they tell of an earlier retry."""
    of_ours = [n for n, name in enumerate(names) if name in ours.OURS]
    if [names[n] for n in of_ours] not in ([], [ours.RETRY_AT_MS]):
        return None
    retry_at = of_ours[0] if of_ours else None
    known = [n for n, name in enumerate(names) if name in KNOWN and n != retry_at]
    detected = plan(tuple([names[n] for n in known]))
    if detected is None:
        return HeaderLayout(None, _getter(()), (), (), (), retry_at)
    fields = {field: tuple((known[n], read) for n, read in places) for field, places in detected.fields.items()}
    telling = {field: places for field, places in fields.items() if field not in _IGNORED | _OWN}
    plain = {field for field, places in telling.items() if all(read in _PLAIN_READERS for _, read in places)}
    alike = sorted({n for field in plain for n, _ in telling[field]})
    return HeaderLayout(
        detected,
        _getter(alike),
        tuple(places for field, places in telling.items() if field not in plain),
        fields.get("origin_offset", ()),
        tuple(n for n, _ in fields.get("message", ())),
        retry_at,
    )


def _getter(places: Sequence[int]) -> Callable[[Values], Values]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[n] for n in places)
