"""Header names: ours, and where the common frameworks write what we read. The only place that spells them.

A framework's header never chooses a topic: the origin named here is used only where the policy's allow-list has it.
"""

from __future__ import annotations

ID = "retry-id"
ATTEMPT = "retry-attempt"
SOURCE = "retry-source"
DUE_MS = "retry-due-ms"
POLICY = "retry-policy"
FIRST_FAILED_MS = "retry-first-failed-ms"
PARKED_REASON = "retry-parked-reason"
RETRY_AT_MS = "retry-at-ms"

# Written by the service: replaced on every pass, never stacked. RETRY_AT_MS is a wish, and consumed.
OURS = frozenset({ID, ATTEMPT, SOURCE, DUE_MS, POLICY, FIRST_FAILED_MS, PARKED_REASON, RETRY_AT_MS})
# What a record must keep for its attempts to be counted; the rest of ours is dropped where it would not fit otherwise.
ESSENTIAL = frozenset({ID, ATTEMPT, PARKED_REASON, FIRST_FAILED_MS})

# The most telling first: a cause before the wrapper that frameworks put around it.
EXCEPTION = (
    "exception-class",
    "kafka_dlt-exception-cause-fqcn",
    "kafka_exception-cause-fqcn",
    "kafka_dlt-exception-fqcn",
    "kafka_dlt-key-exception-fqcn",
    "kafka_exception-fqcn",
    "x-exception-fqcn",
    "__connect.errors.exception.class.name",
    "__streams.errors.exception",
    "dead-letter-cause-class-name",
    "dead-letter-exception-class-name",
    "delayed-retry-cause-class-name",
    "delayed-retry-exception-class-name",
    "MT-Fault-ExceptionType",
    "NServiceBus.ExceptionInfo.ExceptionType",
    "exception-type",
    "dlq-error-class",
)
ORIGIN_TOPIC = (
    "kafka_dlt-original-topic",
    "kafka_original-topic",
    "__connect.errors.topic",
    "__streams.errors.topic",
    "__dlq.errors.topic",
    "x-original-topic",
    "dead-letter-topic",
    "source_topic",
    "topic_poisoned",
    "kafka-topic",
    "original-topic",
    "dlq-original-topic",
)
# Where no header tells: names that frameworks derive from the origin's.
DEAD_LETTER_SUFFIXES = (".DLT", "-dlt", ".dlt", ".DLQ", "-dlq", ".dlq", "-dead-letter", ".dead-letter", "_error")

TOLD = frozenset(EXCEPTION) | frozenset(ORIGIN_TOPIC)
