"""What the name of a dead-letter topic implies, where the headers do not tell.

| name | origin | group |
| --- | --- | --- |
| `<t>.DLT` `<t>-dlt` `<t>.dlt` `<t>.DLQ` `<t>-dlq` `<t>.dlq` `<t>-dead-letter` `<t>.dead-letter` `<t>_error` | t | |
| `<t>-retry-<n>` | t | |
| `<t>__<group>__dlq` `<t>__<group>__retry` `<t>__<group>__<n>__retry` | t | after the last `__` |
| `error.<t>.<group>` | t | after the last dot |
| `dlq.<t>` | t | |
| `dead-letter-topic-<channel>` `dlq-lcc-<id>` | | |

`<t>.<group>.dlt` cannot be told from `<t>.dlt`, so its group is taken only where a header names t; a header also says
where the group begins in `error.<t>.<group>`. A suffix is looked for before a prefix: later hops append.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_NAMELESS = ("dead-letter-topic-", "dlq-lcc-")
_SUFFIX = re.compile(r"(.+)(?:[.]DLT|-dlt|[.]dlt|[.]DLQ|-dlq|[.]dlq|-dead-letter|[.]dead-letter|_error|-retry-[0-9]{1,19})")
_GROUPED = re.compile(r"(.+?)__(?:dlq|(?:[0-9]+__)?retry)")
_ERROR, _DLQ, _GROUP_DLT = "error.", "dlq.", ".dlt"


class Implied(NamedTuple):
    """Origin and group, as far as a name tells."""

    topic: str | None
    group: str | None


@lru_cache(10_000)
def infer_from_name(topic: str, origin: str | None = None) -> Implied:
    """Infer the origin topic and the consumer group of letters from the name of their dead-letter topic.

    Args:
      origin: the topic that a header names, if one does; it is not questioned, and tells where a group begins.
    """
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
