"""What the name of a topic says by its words: that dead letters lie there, or retries, and of which subject."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from retry.dead_letters.frameworks.topic_names import infer_from_name

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[._-]+")
_DEAD = re.compile(
    r"(?:^|-)(?:dl[tqx]|xq|dead-?letters?(?:-?(?:topic|queue))?|dead-(?:topic|queue|messages?)|poison(?:ed)?)(?:-|$)"
)
# Of words that stand for other things as well the letters must say the rest.
_MAYBE = re.compile(r"^errors?(?:-|$)|(?:^|-)(?:errors?|failed|failures?|rejected|rejects|dead|skipped|quarantine)$")
_RETRY = re.compile(r"(?:^|-)(?:retry|retries)(?:-[0-9]{1,19})?$")
_TAIL = re.compile(r"[._-]?(?:dl[tq]|dead[._-]?letters?(?:[._-]?(?:topic|queue))?|poison(?:ed)?(?:[._-]queue)?)$", re.IGNORECASE)


def words(name: str) -> list[str]:
    """The words of a name, in small letters.

    >>> words("acme.orderService_DLT")
    ['acme', 'order', 'service', 'dlt']
    """
    return [word for word in _BETWEEN.split(_CAMEL.sub("-", name).lower()) if word]


def is_retry(topic: str) -> bool:
    """Whether a topic's name says that retries go through it, which a framework or this service reads by itself."""
    return bool(_RETRY.search("-".join(words(topic))))


def is_dead(topic: str) -> bool:
    """Whether a topic's name says that dead letters lie there.

    >>> [is_dead(name) for name in ("orders.DLT", "ordersDeadLetterQueue", "error.orders.billing", "oddlty")]
    [True, True, False, False]
    """
    return bool(_DEAD.search("-".join(words(topic)))) and not is_retry(topic)


def may_be_dead(topic: str) -> bool:
    """Whether a topic's name may mean dead letters, and its letters must tell: `orders_error`, `error.orders.billing`."""
    return bool(_MAYBE.search("-".join(words(topic)))) and not is_retry(topic)


def subject(topic: str) -> str:
    """Return the origin that the name of a dead-letter topic implies, or else the name without its word for dead letters.

    >>> subject("payments.orders.DLT"), subject("billingDeadLetters"), subject("dlq")
    ('payments.orders', 'billing', 'dlq')
    """
    return infer_from_name(topic).topic or _TAIL.sub("", topic) or topic


def first_words(subjects: Collection[str]) -> dict[str, str]:
    """Map each subject to the word that tells teams apart: the first, or the first after the words that all begin with.

    >>> first_words(["acme.payments.orders", "acme.shop.carts"])
    {'acme.payments.orders': 'payments', 'acme.shop.carts': 'shop'}
    >>> first_words(["payments.orders", "payments.refunds"])
    {'payments.orders': 'payments', 'payments.refunds': 'payments'}
    """
    parts = {each: words(each) or [each] for each in subjects}
    # The last word but one is still the team's: what begins alike is the company's, or the environment's.
    alike = _count_alike(parts.values()) if len(parts) > 1 else 0
    return {each: of[alike] for each, of in parts.items()}


def _count_alike(names: Iterable[list[str]]) -> int:
    names = list(names)
    longest = min(len(name) for name in names) - 2
    return next((n for n in range(max(0, longest)) if len({name[n] for name in names}) > 1), max(0, longest))
