"""The fields that a term may ask for, and how the value of each is read. Values of text need no reading: they are globs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from backoff import PolicyInvalid, duration_ms
from retry.errors import FilterInvalid
from retry.operations.letter_filter.syntax import EPOCH, Bound, Moment, Range, Span

DISCARDED = "discarded"
STATES = ("waiting", "parked", DISCARDED)
_NUMBER_MAX = 2**31 - 1
_MS_MAX = 253_402_300_799_999
_MILLISECOND = timedelta(milliseconds=1)
# How a term with each field looks: for messages.
EXAMPLES = {
    "team": "team:payments", "state": "state:parked", "exception": "exception:*.GatewayTimeout", "cause": "cause:java.net.*",
    "message": 'message:"card declined"', "topic": "topic:payments.orders.DLT", "partition": "partition:2",
    "consumer-group": "consumer-group:billing", "version": "version:2.14.1", "key": "key:4711", "header": "header.tenant:acme",
    "attempt": "attempt:3..", "age": "age:>2h", "due": "due:<10m", "failed": "failed:2026-01-31T12:00..2026-01-31T13:00",
    "fingerprint": "fingerprint:51a0c3de77b1f00d", "group": "group:51a0c3de77b1f00d",
    "failed-again": "failed-again:5f3a0c17de90b311", "value": "value.$.order.id=4711",
}  # fmt: skip
# What operators have merged and split of kinds of failures; see `retry.console.folding.regrouping`.
GROUP = "group"
# What an action has sent and failed once more; see `retry.console.reading.action_outcomes`.
FAILED_AGAIN = "failed-again"
# What the console's replica alone tells; each takes a name that is written whole.
OF_CONSOLE = frozenset({GROUP, FAILED_AGAIN})
_ACTION = re.compile(r"[0-9a-f]{16}")
NAMED = frozenset({"header", "value"})
# An object's member, or an element of a list.
PATH = re.compile(r"\$(\.[^.]+)+")


def check_name(field: str, text: str, column: int) -> None:
    """Raise `FilterInvalid` where this is no name of a group, or no id of an action."""
    if "*" in text:
        raise FilterInvalid(column, f"a {field} is named whole, without *; write {EXAMPLES[field]}")
    if field == FAILED_AGAIN and not _ACTION.fullmatch(text):
        raise FilterInvalid(column, f"{text!r:.40} is no id of an action; write {EXAMPLES[field]}")


def read_range(field: str, text: str, column: int) -> Range:
    """Read the value of a term with one of `RANGES`; raises `FilterInvalid` where it is no such range."""
    read = _BOUNDS[field]
    comparison = re.match(r"[<>]=?", text)
    if comparison:
        sign, rest = comparison[0], text[comparison.end() :]
        bound = read(rest, column + len(sign))
        # A millisecond is the finest that a time is known to: there is no telling `>` from `>=`.
        if isinstance(bound, int) and sign in "<>":
            bound = _number(field, str(bound + 1 if sign == ">" else bound - 1), column)
        found = Range(bound, None) if sign[0] == ">" else Range(None, bound)
    elif ".." in text:
        low, _, high = text.partition("..")
        bounds = [read(part, at) if part else None for part, at in ((low, column), (high, column + len(low) + 2))]
        found = Range(*bounds)
    elif field in _NOUNS:
        number = read(text, column)
        found = Range(number, number)
    else:
        raise FilterInvalid(column, f"{field} takes a bound or a range; write {_forms(field)}")
    if found.low is None and found.high is None:
        raise FilterInvalid(column, f"the range has neither beginning nor end; write {_forms(field)}")
    if _ends_early(found):
        raise FilterInvalid(column, f"the range ends before it begins; write {_forms(field)}")
    return found


def _ends_early(found: Range) -> bool:
    """Whether nothing is in a range, whatever time it is."""
    match found.low, found.high:
        case (int(low), int(high)) | (Span(low), Span(high)):
            return low > high
        case Moment(low, from_now), Moment(high, from_now_too):
            return from_now == from_now_too and low > high
    return False


def _forms(field: str) -> str:
    return _FORMS[field]


_FORMS = {
    "attempt": "attempt:3, attempt:3.. or attempt:2..5", "partition": "partition:2, partition:..3 or partition:2..5",
    "age": "age:>2h, age:<2h or age:1h..2h", "due": "due:<10m, due:>2026-01-31T12:00 or due:now..10m",
    "failed": "failed:>-1h or failed:2026-01-31T12:00..2026-01-31T13:00",
}  # fmt: skip
# The numbers that a field counts.
_NOUNS = {"attempt": "number of attempts", "partition": "number of a partition"}


def _number(field: str, text: str, column: int) -> Bound:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _NUMBER_MAX):
        raise FilterInvalid(column, f"{text!r:.40} is no {_NOUNS[field]}; write {_forms(field)}")
    return int(text)


def _age(text: str, column: int) -> Bound:
    try:
        return Span(duration_ms(text))
    except PolicyInvalid as invalid:
        raise FilterInvalid(column, f"{invalid.reason}, as in {_forms('age')}") from None


def _moment(field: str, text: str, column: int) -> Bound:
    if text == "now":
        return Moment(0, True)
    back = text.startswith("-")
    try:
        return Moment((-1 if back else 1) * duration_ms(text[back:]), True)
    except PolicyInvalid:
        pass
    if text.isascii() and text.isdigit() and len(text) <= 15 and int(text) <= _MS_MAX:
        return Moment(int(text), False)
    try:
        moment = datetime.fromisoformat(text)
        at_ms = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        at_ms = -1
    if not 0 <= at_ms <= _MS_MAX:
        reason = f"{text!r:.40} is no moment; write now, 10m, -10m or 2026-01-31T12:00:00+00:00, as in {_forms(field)}"
        raise FilterInvalid(column, reason)
    return Moment(at_ms, False)


_BOUNDS: dict[str, Callable[[str, int], Bound]] = {
    "age": _age, **{field: partial(_number, field) for field in _NOUNS},
    **{field: partial(_moment, field) for field in ("due", "failed")},
}  # fmt: skip
RANGES = frozenset(_BOUNDS)
