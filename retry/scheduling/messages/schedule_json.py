"""A schedule as the REST API shows it: the fields of the Go scheduler, of what waits and of what was sent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, TypedDict

from retry.delay_queue import entry_keys
from retry.delay_queue.envelopes import Entry
from retry.record import Headers
from retry.scheduling.messages import headers as names

# As JSON has it; names with a hyphen cannot be written as attributes.
ScheduleJson = TypedDict(
    "ScheduleJson",
    {"id": str, "epoch": int, "timestamp": int, "topic": str, "target-topic": str, "target-key": str, "value": str | None},
)


def of_entry(key: bytes, entry: Entry) -> ScheduleJson:
    """Show a schedule that waits."""
    by_name, source = dict(entry.headers), entry_keys.source(key)
    at_s = entry_keys.due_at_ms(key) // 1_000
    return _build_schedule_json(by_name, at_s, source.topic, entry.destination, entry.key, entry.value)


def of_history(headers: Headers, key: bytes | None, value: bytes | None) -> ScheduleJson:
    """Show a schedule that was sent."""
    by_name = dict(headers)
    topic, target = _decode_bytes(by_name.get(names.TOPIC)), _decode_bytes(by_name.get(names.TARGET_TOPIC))
    return _build_schedule_json(by_name, _decode_epoch_s(by_name.get(names.EPOCH)), topic, target, key, value)


def _build_schedule_json(
    by_name: Mapping[str, Any], epoch: int, topic: str, target: str, key: bytes | None, value: bytes | None
) -> ScheduleJson:
    return {
        "id": _decode_bytes(by_name.get(names.KEY)),
        "epoch": epoch,
        "timestamp": _decode_epoch_s(by_name.get(names.TIMESTAMP)),
        "topic": topic,
        "target-topic": target,
        "target-key": _decode_bytes(key),
        "value": None if value is None else b64encode(value).decode(),
    }


def _decode_bytes(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _decode_epoch_s(raw: bytes | None) -> int:
    return int(raw) if raw and len(raw) <= 19 and raw.isascii() and raw.isdigit() else 0
