"""Libraries in Ruby and Go, what teams write by hand, and ourselves. All values are UTF-8 text."""

from __future__ import annotations

from retry.dead_letters import retry_headers as ours
from retry.dead_letters.frameworks.dialect import Dialect, Tier, all_of, any_of, count, locate_name, locate_number, locate_text

KARAFKA = Dialect(
    family="karafka",
    marks=all_of("source_topic", "source_offset"),
    origin_topic=locate_name("source_topic"),
    origin_partition=count("source_partition"),
    origin_offset=locate_number("source_offset"),
    consumer_group=locate_name("source_consumer_group"),
    attempts=count("source_attempts"),
)

WATERMILL = Dialect(
    family="watermill",
    marks=any_of("topic_poisoned", "reason_poisoned"),
    origin_topic=locate_name("topic_poisoned"),
    attempts=count("_watermill_requeuer_retries", plus=1),
    message=locate_text("reason_poisoned"),
    stage=locate_name("handler_poisoned"),
)

# Counts its own failures; the one that brought the record to it comes before. `x-retry-attempt-count` counts waiting.
# Of two headers of one name it reads and sets the first.
CRONSUMER = Dialect(
    family="kafka-cronsumer",
    marks=(
        any_of("x-retry-attempt-count")
        + all_of("x-retry-count", "x-error-message")
        + all_of("x-retry-count", "x-produce-time")
    ),
    attempts=count("x-retry-count", plus=1, first=True),
    message=locate_text("x-error-message", first=True),
)

UBER = Dialect(
    family="uber",
    marks=any_of("kafka-topic", "kafka-consumergroup", "kafka-retrycount", "kafka-attemptcount"),
    origin_topic=locate_name("kafka-topic"),
    origin_partition=count("kafka-partition"),
    origin_offset=locate_number("kafka-offset"),
    consumer_group=locate_name("kafka-consumergroup"),
    attempts=count("kafka-retrycount", plus=1) + count("kafka-attemptcount"),
)

# Its count shares our name: it is one more at each failure, before the record is scheduled or given up.
ETF1 = Dialect(
    family="etf1",
    marks=all_of(ours.ATTEMPT, "retry-original-timestamp"),
    unless=frozenset({ours.ID}),
    attempts=count(ours.ATTEMPT),
)

_AD_HOC_MARKS = (
    "exception-class", "original-topic", "original-offset", "failure-reason", "failure-count", "dlq-original-topic",
    "dlq-error-class", "dlq-reason", "dlq-attempts", "dlq-stack", "replay_count", "x-retry-count", "x-error-message",
    "__krafka.dlq.exception.message",
)  # fmt: skip

AD_HOC = Dialect(
    family="ad-hoc",
    tier=Tier.AD_HOC,
    marks=any_of(*_AD_HOC_MARKS),
    origin_topic=locate_name("original-topic", "dlq-original-topic"),
    origin_partition=count("original-partition"),
    origin_offset=locate_number("original-offset"),
    attempts=count("failure-count", "dlq-attempts") + count("replay_count", "x-retry-count", plus=1),
    exception=locate_name("exception-class", "dlq-error-class"),
    message=locate_text("failure-reason", "dlq-reason", "x-error-message", "__krafka.dlq.exception.message"),
)

OWN = Dialect(
    family="own",
    tier=Tier.OWN,
    marks=any_of(ours.ID, ours.SOURCE),
    attempts=count(ours.ATTEMPT, plus=1),
)

DIALECTS = (KARAFKA, WATERMILL, CRONSUMER, UBER, ETF1, AD_HOC, OWN)
