"""The headers that the service writes: their names, and what it tells of a retry. Those of frameworks are in `frameworks`.

Whatever a framework calls it, the header with a stack trace is found here, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retry.record import Headers

ID = "retry-id"
ATTEMPT = "retry-attempt"
SOURCE = "retry-source"
DUE_MS = "retry-due-ms"
POLICY = "retry-policy"
FIRST_FAILED_MS = "retry-first-failed-ms"
PARKED_REASON = "retry-parked-reason"
PARKED_FAULT = "retry-parked-fault"
# Of a letter that an operator acted on: which action it was, and what it was before that was discarded or edited.
ACTION, ACTION_BEFORE = "retry-action", "retry-action-before"
# The latter, of a former version that is only kept.
SUPERSEDED = b"superseded"
# And of one that was erased: nothing is left of it but which letter it was.
ERASED = b"erased"
# Of a definition that was parked: `retry-source` is of letters alone.
TASK_SOURCE = "task-source"
# Of a schedule that was parked, likewise.
SCHEDULE_SOURCE = "scheduler-source"
RETRY_AT_MS = "retry-at-ms"
# Where a letter lay in another service before `retry migrate` moved it; it stays, so that it can be found and moved back.
MIGRATED_FROM = "retry-migrated-from"
# The time that a record had, where its topic took none so old and it was sent with the time of sending; it stays, too.
TIMESTAMP_MS = "retry-timestamp-ms"
# Of calls by HTTP; the first is also that of Standard Webhooks.
WEBHOOK_ID, WEBHOOK_URL, WEBHOOK_ERROR = "webhook-id", "webhook-url", "webhook-error"

# Written by the service: replaced on every pass, never stacked. RETRY_AT_MS is a wish, and consumed.
OURS = frozenset({ID, ATTEMPT, SOURCE, DUE_MS, POLICY, FIRST_FAILED_MS, PARKED_REASON, PARKED_FAULT, RETRY_AT_MS,
                  ACTION, ACTION_BEFORE})  # fmt: skip
# What a record must keep for its attempts to be counted; the rest of ours is dropped where it would not fit otherwise.
ESSENTIAL = frozenset({ID, ATTEMPT, PARKED_REASON, FIRST_FAILED_MS})
# A parked letter can be returned only where it says which letter it was.
ESSENTIAL_WHERE_PARKED = ESSENTIAL | {SOURCE}


def make_retry_headers(
    id_: bytes, attempt: bytes, source: bytes, due_ms: bytes, policy: bytes, first_failed_ms: bytes
) -> Headers:
    """Make the headers that a retry carries beside those of the original record; they come last."""
    return [
        (ID, id_), (ATTEMPT, attempt), (SOURCE, source), (DUE_MS, due_ms), (POLICY, policy), (FIRST_FAILED_MS, first_failed_ms),
    ]  # fmt: skip


def make_webhook_headers(*, id_: str, reason: str | None, attempt: int, url: str, error: str | None) -> Headers:
    """Make the headers that a parked timer carries beside those that it was made with."""
    ours = {WEBHOOK_ID: id_, PARKED_REASON: reason, ATTEMPT: attempt, WEBHOOK_URL: url, WEBHOOK_ERROR: error}
    return [(name, str(value).encode()) for name, value in ours.items()]


def set_in(headers: Headers, *new: tuple[str, bytes | None]) -> Headers:
    """Return headers with some set, in front of those that the service writes of a retry; None as a value removes a header."""
    given = dict(new)
    kept = [header for header in headers if header[0] not in given]
    at = next((n for n, header in enumerate(kept) if header[0] in OURS), len(kept))
    return [*kept[:at], *((name, value) for name, value in given.items() if value is not None), *kept[at:]]


_WRITTEN = 6
# Policy and attempt.
RetryLabels = tuple[bytes, bytes]


def read_labels_of_retries(all_headers: Sequence[Headers]) -> list[RetryLabels | None]:
    """Read policy and attempt of many retries, as `read_labels` does; None where headers are not those of a retry.

    Headers that end as `make_retry_headers` wrote them take no call of their own.
    """
    if min(map(len, all_headers), default=0) < _WRITTEN:
        return list(map(read_labels, all_headers))
    return [
        (policy, attempt)
        if b == ATTEMPT and e == POLICY and c == SOURCE and f == FIRST_FAILED_MS and a == ID and d == DUE_MS
        and policy is not None and attempt is not None
        else read_labels(last)
        for last in [headers[-_WRITTEN:] for headers in all_headers]
        for (a, _), (b, attempt), (c, _), (d, _), (e, policy), (f, _) in [last]
    ]  # fmt: skip


def read_labels(headers: Headers) -> RetryLabels | None:
    """Read the policy and attempt of a retry, for its labels; None where the headers are not those of a retry."""
    ours = dict(headers[-_WRITTEN:])
    policy, attempt = ours.get(POLICY), ours.get(ATTEMPT)
    if policy is None or attempt is None or SOURCE not in ours or PARKED_REASON in ours:
        return None
    return policy, attempt


_STACK_HEADER = re.compile(r"(?:stack[-_.]?trace|traceback|[-_.]stack)$", re.IGNORECASE)


def is_stack_header(name: str) -> bool:
    return _STACK_HEADER.search(name) is not None


def find_stack_header(headers: Headers) -> tuple[str, bytes] | None:
    """Return name and value of the first header with a stack trace; None where there is none."""
    return next(((name, value) for name, value in headers if value and is_stack_header(name)), None)
