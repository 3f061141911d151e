"""Headers that no framework's row knows → which field of a failure each seems to hold. A guess, checked against its values.

What both name and values speak for becomes an alias; what only the name speaks for becomes a question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from retry.dead_letters.failure import FIELDS
from retry.dead_letters.frameworks import header_values
from retry.operations.discover.topic_words import words
from retry.printable import escape_unprintable
from retry.record import Header

_ORIGIN = r"(?:orig(?:in(?:al)?)?|source|src|failed|input|from)"
# Of a name's words, joined by dashes. The first that fits is taken, so what says more stands first.
_NAMES: dict[str, re.Pattern[str]] = {
    field: re.compile(rf"(?:^|-)(?:{pattern})$")
    for field, pattern in {
        "origin_topic": rf"{_ORIGIN}-topic(?:-name)?",
        "origin_partition": rf"{_ORIGIN}-partition(?:-id)?",
        "origin_offset": rf"{_ORIGIN}-offset",
        "origin_timestamp_ms": rf"{_ORIGIN}-(?:timestamp|time)(?:-ms)?",
        "consumer_group": r"(?:consumer-)?group(?:-id|-name)?",
        "attempts": r"(?:attempts?|tries|retry|retries|(?:re)?deliver(?:y|ies))(?:-(?:count|number|no|num|attempts?))?",
        "cause": r"(?:root-)?cause(?:-(?:class|type|name|fqcn))?",
        "message": r"(?:exception|error|err|failure|fail|reject(?:ion)?)-(?:message|msg|reason|description|details?|text)|reason",
        "exception": r"(?:exception|error|err|throwable|failure)(?:-(?:class|type|name|fqcn))?(?:-name)?",
    }.items()
}
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|/)[\w$]+)+|\w*(?:Error|Exception|Failure|Timeout|Fault)")
_LIKELY_ATTEMPTS = 10_000
# What an alias may be in a policy file, and what a terminal and a comment show as it is.
_NAME_CHARS_MAX = 200


class Guess(NamedTuple):
    """The fields of a failure that unknown headers seem to hold.

    Attributes:
      aliases: field of a failure → header.
      questions: sentences for a person.
    """

    aliases: dict[str, str]
    questions: list[str]


def guess(letters: Iterable[Iterable[Header]], topics: Collection[str], groups: Collection[str]) -> Guess:
    """Guess which fields of a failure the unknown headers of letters hold.

    Args:
      letters: of each letter, the headers that no framework's row has.
      topics, groups: those of the cluster: a value that names a topic or a group must be one of them.
    """
    values: dict[str, list[bytes]] = {}
    for headers in letters:
        for name, value in headers:
            if value and not name.startswith("$"):
                values.setdefault(name, []).append(value)
    found = Guess({}, [])
    known: Mapping[str, Collection[str]] = {"origin_topic": topics, "consumer_group": groups}
    for name, of in values.items():
        field = _field(name)
        if field is None or not name.isprintable() or len(name) > _NAME_CHARS_MAX:
            continue
        if field == "exception" and _is_sentence(of):
            field = "message"
        if field not in found.aliases and _holds(field, of, known.get(field)):
            found.aliases[field] = name
        elif field in ("exception", "origin_topic", "consumer_group", "cause"):
            shown = escape_unprintable(of[-1].decode(errors="replace"), 60)
            header = escape_unprintable(name)
            found.questions.append(f"does the header {header} hold the {field}, as in {shown!r}? Then name it in aliases")
    return Guess({field: found.aliases[field] for field in FIELDS if field in found.aliases}, found.questions)


def _field(name: str) -> str | None:
    spoken = "-".join(words(name))
    return next((field for field, pattern in _NAMES.items() if pattern.search(spoken)), None)


def _is_sentence(values: list[bytes]) -> bool:
    return all(b" " in value for value in values)


def _holds(field: str, values: list[bytes], known: Collection[str] | None) -> bool:
    """Whether all values are such as this field may have."""
    if field in ("origin_partition", "origin_offset", "origin_timestamp_ms"):
        return all(header_values.digits(value) is not None for value in values)
    if field == "attempts":
        return all((count := header_values.digits_int32(value)) is not None and count <= _LIKELY_ATTEMPTS for value in values)
    texts = [value.decode(errors="replace") for value in values]
    if known is not None:
        return all(text in known for text in texts)
    return field == "message" or all(_CLASS.fullmatch(text) for text in texts)
