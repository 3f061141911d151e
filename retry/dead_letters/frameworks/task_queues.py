"""Task queues that have no headers: Celery over Kombu's Kafka transport, and Dramatiq. They write JSON values.

A value is looked into only where its first 2 KiB have a word that they write and it is no larger than 64 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from retry.dead_letters.frameworks import header_values

_BYTES_MAX = 65_536
_HEAD_BYTES = 2_048
_CELERY, _DRAMATIQ = b'"content-type"', b'"actor_name"'
_TRACE_FRAME = '\n  File "'
_CLASS = re.compile(r"[A-Za-z_][\w.]{0,511}")
_DEAD_QUEUES = (".XQ", ".DQ")

EnvelopeFields = dict[str, object]


class _CeleryHeaders(msgspec.Struct):
    id: str
    task: str
    retries: int | None = None
    exc: object = None


class _Celery(msgspec.Struct, rename="kebab"):
    headers: _CeleryHeaders
    content_type: str
    body: msgspec.Raw


class _DramatiqOptions(msgspec.Struct):
    retries: int | None = None
    traceback: str | None = None


class _Dramatiq(msgspec.Struct):
    queue_name: str
    actor_name: str
    message_id: str
    options: _DramatiqOptions


_decode_celery = msgspec.json.Decoder(_Celery).decode
_decode_dramatiq = msgspec.json.Decoder(_Dramatiq).decode


def may_be(value: bytes | None) -> bool:
    """Whether a value may be an envelope; asked of every letter without headers."""
    if not value or value[:1] != b"{" or len(value) > _BYTES_MAX:
        return False
    return value.find(_CELERY, 0, _HEAD_BYTES) >= 0 or value.find(_DRAMATIQ, 0, _HEAD_BYTES) >= 0


def find_envelopes(values: Iterable[bytes | None]) -> list[int]:
    """Find the positions of values that may be envelopes of task queues: `may_be`, of many in one call."""
    return [
        n for n, value in enumerate(values)
        if value and value[:1] == b"{"
        and (value.find(_CELERY, 0, _HEAD_BYTES) >= 0 or value.find(_DRAMATIQ, 0, _HEAD_BYTES) >= 0) and may_be(value)
    ]  # fmt: skip


def read_envelope(value: bytes | None) -> EnvelopeFields:
    """Read the fields of a failure from a task queue's envelope, its family among them; empty where the value is no envelope."""
    if value is None or not may_be(value):
        return {}
    try:
        return _dramatiq(_decode_dramatiq(value)) if _DRAMATIQ in value[:_HEAD_BYTES] else _celery(_decode_celery(value))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}  # Somebody's JSON with the same words: no envelope.


def _celery(envelope: _Celery) -> EnvelopeFields:
    headers = envelope.headers
    fields: EnvelopeFields = {"family": "celery", "stage": _truncate_name(headers.task)}
    if headers.retries is not None:
        fields["attempts"] = _count_attempts(headers.retries)
    if isinstance(headers.exc, str):
        fields["exception"] = _class(re.split(r"[(:\n]", headers.exc, maxsplit=1)[0])
    return fields


def _dramatiq(envelope: _Dramatiq) -> EnvelopeFields:
    queue = envelope.queue_name
    for suffix in _DEAD_QUEUES:
        queue = queue.removesuffix(suffix)
    fields: EnvelopeFields = {"family": "dramatiq", "stage": _truncate_name(envelope.actor_name)}
    if queue:
        fields["origin_topic"] = _truncate_name(queue)
    if envelope.options.retries is not None:
        fields["attempts"] = _count_attempts(envelope.options.retries)
    if envelope.options.traceback:
        fields["exception"], fields["message"] = _python(envelope.options.traceback)
    return fields


def _python(trace: str) -> tuple[str | None, str | None]:
    """Class and message of a Python traceback: the first line behind the last frame that is not indented."""
    _, frame, rest = trace.rpartition(_TRACE_FRAME)
    last_lines = [line for line in rest.splitlines()[1:] if line and not line[0].isspace()] if frame else []
    if not last_lines:
        return None, None
    name, _, text = last_lines[0].partition(": ")
    exception = _class(name)
    return exception, header_values.message(text.encode("utf-8", "replace")) if exception else None


def _class(word: str) -> str | None:
    return word.strip() if _CLASS.fullmatch(word.strip()) else None


def _truncate_name(text: str) -> str | None:
    return header_values.decode_name(text.encode("utf-8", "replace"))


def _count_attempts(retries: int) -> int:
    return retries + 1 if 0 < retries < header_values.INT32_MAX else 1
