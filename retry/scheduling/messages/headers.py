"""Header names of scheduled messages, as the Go kafka-message-scheduler has them, and three of ours."""

from __future__ import annotations

from retry.dead_letters.retry_headers import SCHEDULE_SOURCE

# All of these are the scheduler's: none of them passes through.
PREFIX = "scheduler-"

EPOCH = "scheduler-epoch"
TARGET_TOPIC = "scheduler-target-topic"
TARGET_KEY = "scheduler-target-key"

TIMESTAMP = "scheduler-timestamp"
KEY = "scheduler-key"
TOPIC = "scheduler-topic"

# On our own tombstones: the offset of the schedule that they end. Read back, such a one says nothing of later schedules.
DONE = "scheduler-done"
# On the tombstones of `retry migrate`: the offset of the schedule that was moved. To a scheduler it cancels, as any null does.
MIGRATED = "scheduler-migrated"
# Of a message that was parked, where it lies: `retry-source` is of letters alone.
SOURCE = SCHEDULE_SOURCE
