"""The conditions of a rule, as the file has them → questions to a letter. All of them must hold.

Nothing here takes longer than a letter's text is long: globs do not go back over it, and expressions are RE2, which
runs in linear time. Of messages and of header values only the beginning is looked at.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import re2
from msgspec import UNSET

from backoff import PolicyInvalid, duration_ms
from retry.policies import schema
from retry.policies.route import Condition, MatchInput
from retry.policies.yaml_document import Document

_TEXT_MAX = 4_096
# A compiled expression of this size needs a tenth of a second at the very worst; most need some microseconds.
_EXPRESSION_BYTES_MAX = 1 << 18
_ATTEMPTS_MAX = 1_000_000
_RANGE = re.compile(r"([0-9]{1,7})?(\.\.)?([0-9]{1,7})?")


def conditions(document: Document, rule: schema.RuleSection, path: str) -> tuple[Condition, ...]:
    """Read the conditions of a rule, static ones first, cheap ones before dear ones; raises PolicyFileInvalid without any."""
    read_conditions: list[Condition] = []
    for key, read in _READERS.items():
        if (value := getattr(rule, key)) is not UNSET:
            if key == "headers":
                value = {n: schema.convert_value(document, v, schema.Texts, f"{path}.headers.{n}") for n, v in value.items()}
            try:
                read_conditions += read(value)
            except PolicyInvalid as invalid:
                document.reject_path(f"{path}.{invalid.path}", invalid.reason)
    if not read_conditions:
        document.reject_path(path, f"asks nothing of a letter; give it one of {', '.join(_READERS)}")
    return tuple(read_conditions)


def _exception(value: schema.Texts) -> Iterator[Condition]:
    fits, get_names = _glob(value), attrgetter("failure.exception", "failure.thrown", "failure.cause")
    yield Condition("exception", _format_value(value), get_names, lambda names: any(map(fits, names)))


def _name(key: str, value: schema.Texts) -> Iterator[Condition]:
    yield Condition(key, _format_value(value), attrgetter(f"failure.{key}"), _glob(value))


def _message(value: str) -> Iterator[Condition]:
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = _EXPRESSION_BYTES_MAX, True, False
    try:
        search = re2.compile(value.encode(), options).search
    except UnicodeEncodeError:
        raise PolicyInvalid("message", "has half of a surrogate pair, which no text has") from None
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "no reason given"
        raise PolicyInvalid("message", f"{value!r:.60} is not an RE2 expression: {reason:.100}") from None

    def occurs(text: str | None) -> bool:
        return text is not None and search(text[:_TEXT_MAX].encode(errors="replace")) is not None

    yield Condition("message", value, attrgetter("failure.message"), occurs)


def _attempt(value: object) -> Iterator[Condition]:
    shown = repr(value) if not isinstance(value, int) or value.bit_length() < 64 else "a number that large"
    bounds = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if type(value) is int:
        low, high = value, value
    elif bounds is not None and (bounds[1] or bounds[3]) and not (bounds[3] and not bounds[2]):
        low = int(bounds[1] or 1)
        high = int(bounds[3] or _ATTEMPTS_MAX) if bounds[2] else low
    else:
        low, high = 0, 0
    if not 1 <= low <= high <= _ATTEMPTS_MAX:
        raise PolicyInvalid("attempt", f"{shown:.40} is not a number or a range from 1 upwards, like 3, 3.., 2..5 or ..4")
    yield Condition("attempt", str(value), attrgetter("attempt"), lambda attempt: low <= attempt <= high)


def _age(value: object) -> Iterator[Condition]:
    least_ms = duration_ms(value, "age")
    yield Condition("age", str(value), attrgetter("age_ms"), lambda age_ms: age_ms >= least_ms)


def _match_headers(value: dict[str, schema.Texts]) -> Iterator[Condition]:
    if not value:
        raise PolicyInvalid("headers", "names no header")
    yield from (_header(name, globs) for name, globs in value.items())


def _header(name: str, globs: schema.Texts) -> Condition:
    fits = _glob(globs)

    def last_value(match_input: MatchInput) -> str | None:
        for each, value in reversed(match_input.headers):
            if each == name:
                return (value or b"")[:_TEXT_MAX].decode(errors="replace")
        return None

    return Condition(f"headers.{name}", _format_value(globs), last_value, lambda text: text is not None and fits(text))


def _null_value(value: object) -> Iterator[Condition]:
    if not isinstance(value, bool):
        reason = "in a rule it is a condition, true or false; retry and cancel are for the topic, the team or defaults"
        raise PolicyInvalid("null_value", reason)
    yield Condition("null_value", str(value).lower(), attrgetter("null_value"), lambda null: null is value)




def _glob(value: schema.Texts) -> Callable[[str | None], bool]:
    globs = [value] if isinstance(value, str) else value
    match = re.compile("|".join(map(fnmatch.translate, globs))).match
    return lambda name: match(name or "") is not None


def _format_value(value: schema.Texts) -> str:
    return value if isinstance(value, str) else ", ".join(value)


_READERS: dict[str, Callable[[Any], Iterator[Condition]]] = {
    "exception": _exception, "cause": partial(_name, "cause"), "stage": partial(_name, "stage"), "null_value": _null_value,
    "attempt": _attempt, "age": _age, "headers": _match_headers, "message": _message,
}  # fmt: skip
