"""A schedule as the REST API shows it: the fields of the Go scheduler, of what waits and of what was sent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, TypedDict

from retry.delay_queue import entry as entries
from retry.scheduling.messages import headers as names
from retry.delay_queue.entry import Entry
from retry.record import Headers

# As JSON has it; names with a hyphen cannot be written as attributes.
Shown = TypedDict(
    "Shown",
    {"id": str, "epoch": int, "timestamp": int, "topic": str, "target-topic": str, "target-key": str, "value": str | None},
)


def of_entry(key: bytes, entry: Entry) -> Shown:
    """Of one that waits."""
    told, source = dict(entry.headers), entries.source(key)
    return _shown(told, entries.due_at_ms(key) // 1_000, source.topic, entry.destination, entry.key, entry.value)


def of_history(headers: Headers, key: bytes | None, value: bytes | None) -> Shown:
    """Of one that was sent."""
    told = dict(headers)
    epoch, topic, target = _number(told.get(names.EPOCH)), _text(told.get(names.TOPIC)), _text(told.get(names.TARGET_TOPIC))
    return _shown(told, epoch, topic, target, key, value)


def _shown(
    told: Mapping[str, Any], epoch: int, topic: str, target: str, key: bytes | None, value: bytes | None
) -> Shown:
    return {
        "id": _text(told.get(names.KEY)),
        "epoch": epoch,
        "timestamp": _number(told.get(names.TIMESTAMP)),
        "topic": topic,
        "target-topic": target,
        "target-key": _text(key),
        "value": None if value is None else b64encode(value).decode(),
    }


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _number(raw: bytes | None) -> int:
    return int(raw) if raw and len(raw) <= 19 and raw.isascii() and raw.isdigit() else 0
