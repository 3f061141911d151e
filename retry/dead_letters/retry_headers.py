"""Header names of ours. The only place that spells them; those of the frameworks are in `retry.dead_letters.frameworks`."""

from __future__ import annotations

ID = "retry-id"
ATTEMPT = "retry-attempt"
SOURCE = "retry-source"
DUE_MS = "retry-due-ms"
POLICY = "retry-policy"
FIRST_FAILED_MS = "retry-first-failed-ms"
PARKED_REASON = "retry-parked-reason"
PARKED_FAULT = "retry-parked-fault"
# Of a definition that was parked: `retry-source` is of letters alone.
TASK_SOURCE = "task-source"
RETRY_AT_MS = "retry-at-ms"

# Written by the service: replaced on every pass, never stacked. RETRY_AT_MS is a wish, and consumed.
OURS = frozenset({ID, ATTEMPT, SOURCE, DUE_MS, POLICY, FIRST_FAILED_MS, PARKED_REASON, PARKED_FAULT, RETRY_AT_MS})
# What a record must keep for its attempts to be counted; the rest of ours is dropped where it would not fit otherwise.
ESSENTIAL = frozenset({ID, ATTEMPT, PARKED_REASON, FIRST_FAILED_MS})
