"""The headers with which a record that waits elsewhere becomes a letter here. Pure: no clock, no I/O.

| what the other service says | what the letter says |
| --- | --- |
| how many retries it has made | `retry-attempt`, so that the count goes on |
| when the next one is due | `retry-at-ms`, so that the time is kept as far as the policy allows |
| where the record lay | `retry-migrated-from` |

All else stays as it was, so that the record can be given back in its own format.
"""

from __future__ import annotations

from collections.abc import Callable

from retry.dead_letters import retry_headers as ours
from retry.dead_letters.dead_letter import moment, retries_made
from retry.dead_letters.frameworks import header_values
from retry.record import Headers

# Headers of a record and its place → those of the letter; None where the other service does not write such records.
LetterHeaders = Callable[[Headers, bytes], Headers | None]

_ATTEMPTS, _BACKOFF = "retry_topic-attempts", "retry_topic-backoff-timestamp"
_RETRIES = "x-retry-count"
# `ATTEMPTS_HARD_CAP` of Spring's DeadLetterPublishingRecovererFactory; beyond it Spring begins to count anew.
_SPRING_ATTEMPTS_MAX = 32_767


def of_spring(headers: Headers, place: bytes) -> Headers | None:
    """Convert the headers of a record of a Spring Kafka retry topic; where each hop added a header, the last one counts.

    `retry_topic-attempts` numbers the delivery that comes next, so two less is the number of retries that were made.
    """
    last = dict(headers)
    if _ATTEMPTS not in last and _BACKOFF not in last:
        return None
    next_delivery = header_values.byte_or_int32(last.get(_ATTEMPTS) or b"") or 1
    made = next_delivery - 2 if next_delivery <= _SPRING_ATTEMPTS_MAX else 0
    due_ms = header_values.big_integer(last.get(_BACKOFF) or b"")
    return make_moved_headers(headers, place, made, due_ms)


def of_cronsumer(headers: Headers, place: bytes) -> Headers | None:
    """Convert the headers of a record of kafka-cronsumer's topic; the first of equal names counts, and no number means 0 retries.

    Any record is one of its own: what an application writes there for the first time has no headers.
    """
    raw = next((value for name, value in headers if name == _RETRIES), None)
    return make_moved_headers(headers, place, header_values.digits_int32(raw or b"") or 0)


def make_moved_headers(headers: Headers, place: bytes, made: int = 0, due_ms: int | None = None) -> Headers:
    """The headers of a letter that was moved from a place.

    Args:
      made: retries that it had there. One that came from here before keeps its own count where that is higher.
      due_ms: when the next one is due; None where only the policy says so.
    """
    count = max(made, retries_made(dict(headers).get(ours.ATTEMPT, b"0")) or 0)
    due = b"%d" % due_ms if due_ms is not None and moment(b"%d" % due_ms) is not None else None
    return ours.set_in(
        headers,
        (ours.ATTEMPT, b"%d" % count if count > 0 else None),
        (ours.RETRY_AT_MS, due),
        (ours.MIGRATED_FROM, place),
    )
