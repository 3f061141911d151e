"""What names say by their words: of topics, that dead letters lie there; of headers, which field of a failure they may hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from retry.dead_letters.failure import FIELDS
from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.detection import infer_from_name
from retry.printable import escape_unprintable
from retry.record import Header

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[._-]+")
_DEAD = re.compile(
    r"(?:^|-)(?:dl[tqx]|xq|dead-?letters?(?:-?(?:topic|queue))?|dead-(?:topic|queue|messages?)|poison(?:ed)?)(?:-|$)"
)
# Of words that stand for other things as well the letters must say the rest.
_MAYBE = re.compile(r"^errors?(?:-|$)|(?:^|-)(?:errors?|failed|failures?|rejected|rejects|dead|skipped|quarantine)$")
_RETRY = re.compile(r"(?:^|-)(?:retry|retries)(?:-[0-9]{1,19})?$")
_TAIL = re.compile(r"[._-]?(?:dl[tq]|dead[._-]?letters?(?:[._-]?(?:topic|queue))?|poison(?:ed)?(?:[._-]queue)?)$", re.IGNORECASE)


def split_words(name: str) -> list[str]:
    """Split a name into words, in small letters.

    >>> split_words("acme.orderService_DLT")
    ['acme', 'order', 'service', 'dlt']
    """
    return [word for word in _BETWEEN.split(_CAMEL.sub("-", name).lower()) if word]


def is_retry(topic: str) -> bool:
    """Whether a topic's name says that retries go through it, which a framework or this service reads by itself."""
    return bool(_RETRY.search("-".join(split_words(topic))))


def is_dead(topic: str) -> bool:
    """Whether a topic's name says that dead letters lie there.

    >>> [is_dead(name) for name in ("orders.DLT", "ordersDeadLetterQueue", "error.orders.billing", "oddlty")]
    [True, True, False, False]
    """
    return bool(_DEAD.search("-".join(split_words(topic)))) and not is_retry(topic)


def may_be_dead(topic: str) -> bool:
    """Whether a topic's name may mean dead letters, and its letters must tell: `orders_error`, `error.orders.billing`."""
    return bool(_MAYBE.search("-".join(split_words(topic)))) and not is_retry(topic)


def find_subject(topic: str) -> str:
    """Return the origin that the name of a dead-letter topic implies, or else the name without its word for dead letters.

    >>> find_subject("payments.orders.DLT"), find_subject("billingDeadLetters"), find_subject("dlq")
    ('payments.orders', 'billing', 'dlq')
    """
    return infer_from_name(topic).topic or _TAIL.sub("", topic) or topic


def find_first_words(subjects: Collection[str]) -> dict[str, str]:
    """Map each subject to the word that tells teams apart: the first, or the first after the words that all begin with.

    >>> find_first_words(["acme.payments.orders", "acme.shop.carts"])
    {'acme.payments.orders': 'payments', 'acme.shop.carts': 'shop'}
    >>> find_first_words(["payments.orders", "payments.refunds"])
    {'payments.orders': 'payments', 'payments.refunds': 'payments'}
    """
    parts = {each: split_words(each) or [each] for each in subjects}
    # The last word but one is still the team's: what begins alike is the company's, or the environment's.
    alike = _count_alike(parts.values()) if len(parts) > 1 else 0
    return {each: of[alike] for each, of in parts.items()}


def _count_alike(names: Iterable[list[str]]) -> int:
    names = list(names)
    longest = min(len(name) for name in names) - 2
    return next((n for n in range(max(0, longest)) if len({name[n] for name in names}) > 1), max(0, longest))


# Headers that no framework's row knows → which field of a failure each seems to hold. A guess, checked against its values.
#
# What both name and values speak for becomes an alias; what only the name speaks for becomes a question.

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
    """The fields of a failure that unknown headers seem to hold, each with its header, and questions for a person."""

    aliases: dict[str, str]
    questions: list[str]


def guess_field(letters: Iterable[Iterable[Header]], topics: Collection[str], groups: Collection[str]) -> Guess:
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
    spoken = "-".join(split_words(name))
    return next((field for field, pattern in _NAMES.items() if pattern.search(spoken)), None)


def _is_sentence(values: list[bytes]) -> bool:
    return all(b" " in value for value in values)


def _holds(field: str, values: list[bytes], known: Collection[str] | None) -> bool:
    """Whether all values are such as this field may have."""
    if field in ("origin_partition", "origin_offset", "origin_timestamp_ms"):
        return all(header_values.parse_digits(value) is not None for value in values)
    if field == "attempts":
        return all(
            (count := header_values.parse_digits_int32(value)) is not None and count <= _LIKELY_ATTEMPTS for value in values
        )
    texts = [value.decode(errors="replace") for value in values]
    if known is not None:
        return all(text in known for text in texts)
    return field == "message" or all(_CLASS.fullmatch(text) for text in texts)
