"""SmallRye Reactive Messaging, also known from Quarkus. It writes in front: of duplicates the first is the newest.

The newest exception is the one that counts, so its first value is taken; of the topics, partitions and offsets that
delayed retries pile up the last is the record that failed first. A letter that ran out of delayed retries has none of
the `dead-letter-*` headers.
"""

from __future__ import annotations

from retry.dead_letters.frameworks.dialect import Dialect, any_of, count, locate_name, locate_number, locate_text

_BROKEN = "deserialization-failure-reason"


def _dead(what: str) -> str:
    return f"dead-letter-{what}"


def _late(what: str) -> str:
    return f"delayed-retry-{what}"


DEAD_LETTER = Dialect(
    family="smallrye",
    marks=any_of(*(_dead(what) for what in ("reason", "topic", "partition", "offset", "exception-class-name"))),
    prepends=True,
    origin_topic=locate_name(_dead("topic"), first=True),
    origin_partition=count(_dead("partition"), first=True),
    origin_offset=locate_number(_dead("offset"), first=True),
    attempts=count(_late("count"), plus=1, first=True),
    exception=locate_name(_dead("exception-class-name"), first=True),
    cause=locate_name(_dead("cause-class-name"), first=True),
    message=locate_text(_dead("reason"), _BROKEN, first=True),
)

DELAYED_RETRY = Dialect(
    family="smallrye",
    marks=any_of(*(_late(what) for what in ("count", "reason", "topic", "exception-class-name"))),
    prepends=True,
    origin_topic=locate_name(_late("topic")),
    origin_partition=count(_late("partition")),
    origin_offset=locate_number(_late("offset")),
    origin_timestamp_ms=locate_number(_late("original-timestamp")),
    attempts=count(_late("count"), plus=1, first=True),
    exception=locate_name(_late("exception-class-name"), first=True),
    cause=locate_name(_late("cause-class-name"), first=True),
    message=locate_text(_late("reason"), _BROKEN, first=True),
)

DIALECTS = (DEAD_LETTER, DELAYED_RETRY)
