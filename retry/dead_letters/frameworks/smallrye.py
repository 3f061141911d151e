"""SmallRye Reactive Messaging, also known from Quarkus. It writes in front: of duplicates the first is the newest.

The newest exception is the one that counts, so its first value is taken; of the topics, partitions and offsets that
delayed retries pile up the last is the record that failed first. A letter that ran out of delayed retries has none of
the `dead-letter-*` headers.
"""

from __future__ import annotations

from retry.dead_letters.frameworks.dialect import Dialect, any_of, count, name, number, text

_BROKEN = "deserialization-failure-reason"


def _dead(what: str) -> str:
    return f"dead-letter-{what}"


def _late(what: str) -> str:
    return f"delayed-retry-{what}"


DEAD_LETTER = Dialect(
    family="smallrye",
    marks=any_of(*(_dead(what) for what in ("reason", "topic", "partition", "offset", "exception-class-name"))),
    prepends=True,
    origin_topic=name(_dead("topic"), first=True),
    origin_partition=count(_dead("partition"), first=True),
    origin_offset=number(_dead("offset"), first=True),
    attempts=count(_late("count"), plus=1, first=True),
    exception=name(_dead("exception-class-name"), first=True),
    cause=name(_dead("cause-class-name"), first=True),
    message=text(_dead("reason"), _BROKEN, first=True),
)

DELAYED_RETRY = Dialect(
    family="smallrye",
    marks=any_of(*(_late(what) for what in ("count", "reason", "topic", "exception-class-name"))),
    prepends=True,
    origin_topic=name(_late("topic")),
    origin_partition=count(_late("partition")),
    origin_offset=number(_late("offset")),
    origin_timestamp_ms=number(_late("original-timestamp")),
    attempts=count(_late("count"), plus=1, first=True),
    exception=name(_late("exception-class-name"), first=True),
    cause=name(_late("cause-class-name"), first=True),
    message=text(_late("reason"), _BROKEN, first=True),
)

DIALECTS = (DEAD_LETTER, DELAYED_RETRY)
