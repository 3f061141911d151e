"""For users of the scheduler: records that schedule a message, cancel one, or try one again. Needs no client library.

    from confluent_kafka import Producer
    from retry.scheduling import client

    record = client.schedule(topic="online-videos", key=b"vid1", value=b"video 1", at=1893456000,
                             schedule_id="vid1-online", schedules_topic="schedules")
    Producer({"bootstrap.servers": "localhost:9092"}).produce(**record)

Each of these returns what `confluent_kafka.Producer.produce` takes, and any other client needs: topic, key, value, headers.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

from backoff import Exponential
from retry.clock import wall_ms
from retry.dead_letters import retry_headers
from retry.scheduling.messages import schedule_request as names

Header = tuple[str, bytes | None]

ATTEMPT, FIRST_TRIED = retry_headers.ATTEMPT, "retry-original-timestamp"
_ATTEMPTS_MAX = 50
_DELAYS = Exponential(delay_ms=10_000, factor=2.0, max_delay_ms=3_600_000)


class ScheduleRecord(TypedDict):
    topic: str
    key: bytes
    value: bytes | None
    headers: list[Header]


class AttemptsUsedUp(Exception):
    """The message was tried as often as it may be; it belongs on a dead-letter topic."""


def schedule(
    *, topic: str, key: bytes | None, value: bytes, at: float | datetime.datetime, schedule_id: str | bytes,
    schedules_topic: str = "schedules", headers: Iterable[Header] = (),
) -> ScheduleRecord:
    """Make the record that has a message sent to `topic` at a time. The same `schedule_id` again replaces it.

    Args:
      at: seconds since 1970, or a datetime with a time zone; to the next whole second, never earlier.
      headers: of the message; those that begin with `scheduler-` are left out.

    Raises ValueError where something is missing.
    """
    if not topic or not schedules_topic or not schedule_id:
        raise ValueError("topic, schedules_topic and schedule_id must not be empty")
    if value is None:
        raise ValueError("a message without a value cannot be scheduled: it would cancel")
    kept = [header for header in headers if not header[0].startswith(names.PREFIX)]
    own: list[Header] = [(names.EPOCH, b"%d" % _seconds(at)), (names.TARGET_TOPIC, topic.encode())]
    if key is not None:
        own.append((names.TARGET_KEY, key))
    return ScheduleRecord(topic=schedules_topic, key=_bytes(schedule_id), value=value, headers=[*kept, *own])


def cancel(*, schedule_id: str | bytes, schedules_topic: str = "schedules") -> ScheduleRecord:
    """Make the record that cancels the schedule that waits under this id, if one does; raises ValueError."""
    if not schedules_topic or not schedule_id:
        raise ValueError("schedules_topic and schedule_id must not be empty")
    return ScheduleRecord(topic=schedules_topic, key=_bytes(schedule_id), value=None, headers=[])


def schedule_retry(
    *, topic: str, key: bytes | None, value: bytes, headers: Sequence[Header], schedule_id: str | bytes,
    schedules_topic: str = "schedules", attempts_max: int = _ATTEMPTS_MAX, delays: Callable[[int], int] = _DELAYS,
    now: float | None = None,
) -> ScheduleRecord:
    """Make the record that has a failed message sent once more, later each time: after 10, 20, 40 … seconds, at most an hour.

    How often it was tried is counted in its headers, so give those that it came with. `delays` are milliseconds by attempt, from
    1; see `backoff`. Raises AttemptsUsedUp after `attempts_max` times, and ValueError as `schedule`.
    """
    now = wall_ms() / 1_000 if now is None else now
    attempt = count_attempts(headers) + 1
    if attempt > attempts_max:
        raise AttemptsUsedUp(f"tried {attempt - 1} times")
    own = {FIRST_TRIED: int(now), ATTEMPT: attempt} if attempt == 1 else {ATTEMPT: attempt}
    kept = [header for header in headers if header[0] not in own] + [(name, b"%d" % number) for name, number in own.items()]
    at = now + delays(attempt) / 1_000
    return schedule(
        topic=topic, key=key, value=value, at=at, schedule_id=schedule_id, schedules_topic=schedules_topic, headers=kept
    )  # fmt: skip


def is_scheduled_message(headers: Iterable[Header] | None) -> bool:
    """Whether a message with these headers was sent by a scheduler."""
    return any(name == names.KEY for name, _ in headers or ())


def count_attempts(headers: Iterable[Header] | None) -> int:
    """Count how often a message with these headers was tried again."""
    digits = next((value for name, value in headers or () if name == ATTEMPT), None)
    return int(digits) if digits and len(digits) <= 9 and digits.isdigit() else 0


def _seconds(at: float | datetime.datetime) -> int:
    if isinstance(at, datetime.datetime):
        if at.tzinfo is None:
            raise ValueError("a datetime without a time zone is no moment")
        at = at.timestamp()
    if not math.isfinite(at) or at < 0:
        raise ValueError(f"{at} is no moment since 1970")
    return math.ceil(at)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
