"""What is asked for when a timer is made: read, checked, and put into the words of the engine. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import orjson

from backoff import PolicyInvalid, duration_ms
from backoff.parse import policy as parsed
from retry.scheduling.timers.problem_json import Problem, bad
from retry.delay_queue.entry import Call
from retry.record import Headers
from retry.errors import UrlRefused
from retry.delivery.webhooks.ssrf_guard import host_of

BODY_BYTES_MAX = 256 << 10
HEADERS_MAX, HEADER_BYTES_MAX = 64, 8 << 10
AHEAD_MS_MAX = 10 * 366 * 86_400_000
KEY_CHARACTERS_MAX = 255
_TIMEOUT_MS_MAX = 600_000
_METHODS = ("POST", "PUT", "PATCH", "DELETE", "GET")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]*")
_OURS = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect",
    "proxy-authorization", "proxy-connection",
})  # fmt: skip


class Asked(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The JSON of a request, field by field; see `retry.scheduling.timers.openapi` for what each means."""

    url: str
    at: str | int | None = None
    after: str | None = None
    method: str = "POST"
    headers: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw(b"null")
    body_base64: str | None = None
    policy: dict[str, Any] | None = None
    timeout: str | None = None
    idempotency_key: str | None = None


class Wanted(NamedTuple):
    """A timer as it is wanted; `call` has no id yet.

    Attributes:
      mark: 16 bytes that tell the same wish from others.
    """

    due_at_ms: int
    host: str
    call: Call
    headers: Headers
    body: bytes
    mark: bytes
    idempotency_key: str | None


def read(raw: bytes, idempotency_key: str | None, now_ms: int) -> Wanted:
    """The timer that a request's body asks for.

    Raises:
      Problem: it asks for none, and the detail says what to change.
    """
    try:
        asked = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad(f"the body is not a timer: {error}; see /docs") from None
    key = asked.idempotency_key if idempotency_key is None else idempotency_key
    if key is not None and not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        raise bad(f"an idempotency key has 1 to {KEY_CHARACTERS_MAX} characters")
    method = asked.method.upper()
    if method not in _METHODS:
        raise bad(f"method: {asked.method[:20]!r} is not one of {', '.join(_METHODS)}")
    body, kind = _body(asked)
    try:
        host = host_of(asked.url)
    except UrlRefused as refused:
        raise bad(f"url: {refused}") from None
    call = Call(asked.url, method, "", 1, _policy(asked), _timeout_ms(asked))
    headers = _headers(asked, kind)
    mark = hashlib.blake2b(repr((asked.at, asked.after, call, headers, body)).encode(), digest_size=16).digest()
    return Wanted(_due_at_ms(asked, now_ms), host, call, headers, body, mark, key)


_decode = msgspec.json.Decoder(Asked).decode


def moment_ms(text: str | int, what: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time with an offset, or of such a number.

    Raises:
      Problem: it is neither.
    """
    if isinstance(text, int) or (text.isascii() and text.isdigit()):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise bad(f"{what}: {text[:50]!r} is no time; write it like 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise bad(f"{what}: {text[:50]!r} has no offset; end it with Z or +02:00")
    return int(moment.timestamp() * 1_000)


def _due_at_ms(asked: Asked, now_ms: int) -> int:
    if (asked.at is None) == (asked.after is None):
        raise bad("give either at, a time, or after, a duration like 5m")
    due_at_ms = now_ms + _duration_ms(asked.after, "after") if asked.after is not None else moment_ms(asked.at or 0, "at")
    if not 0 <= due_at_ms <= now_ms + AHEAD_MS_MAX:
        raise bad("the time is before 1970 or more than ten years from now; is it in milliseconds?")
    return due_at_ms


def _duration_ms(text: str, what: str) -> int:
    try:
        return duration_ms(text, what)
    except PolicyInvalid as error:
        raise bad(str(error)) from None


def _timeout_ms(asked: Asked) -> int:
    found = _TIMEOUT_MS_MAX if asked.timeout is None else _duration_ms(asked.timeout, "timeout")
    if not 1 <= found <= _TIMEOUT_MS_MAX:
        raise bad("timeout: it is not from 1ms to 10m")
    return found


def _policy(asked: Asked) -> str:
    policy = asked.policy or {}
    try:
        parsed(policy)
    except PolicyInvalid as error:
        raise bad(f"policy: {error}") from None
    return orjson.dumps(policy, option=orjson.OPT_SORT_KEYS).decode()


def _body(asked: Asked) -> tuple[bytes, str | None]:
    """What is sent, and its type where that is known."""
    told = bytes(asked.body).strip()
    if told != b"null" and asked.body_base64 is not None:
        raise bad("give either body or body_base64")
    if asked.body_base64 is not None:
        try:
            body, kind = base64.b64decode(asked.body_base64, validate=True), None
        except (binascii.Error, ValueError):
            raise bad("body_base64: it is no base64") from None
    elif told.startswith(b'"'):
        body, kind = str(msgspec.json.decode(told)).encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8"
    else:
        body, kind = (b"", None) if told == b"null" else (told, "application/json")
    if len(body) > BODY_BYTES_MAX:
        raise bad(f"the body is larger than {BODY_BYTES_MAX:,} bytes; send a reference to it")
    return body, kind


def _headers(asked: Asked, kind: str | None) -> Headers:
    if len(asked.headers) > HEADERS_MAX or sum(len(n) + len(v) for n, v in asked.headers.items()) > HEADER_BYTES_MAX:
        raise bad(f"headers: there are more than {HEADERS_MAX}, or more than {HEADER_BYTES_MAX:,} bytes of them")
    for name, value in asked.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise bad(f"headers: {name[:50]!r} has a name or a value that no header may have")
        if name.lower() in _OURS or name.lower().startswith("webhook-"):
            raise bad(f"headers: {name} is set by this service; leave it out")
    found = {name: value.encode("latin-1") for name, value in asked.headers.items()}
    if kind is not None and "content-type" not in {name.lower() for name in found}:
        found["Content-Type"] = kind.encode()
    return list(found.items())


def too_large(bytes_max: int) -> Problem:
    """A timer that fits into no record."""
    return bad(f"the timer is larger than the {bytes_max:,} bytes that the changelog takes; send a reference to its body")
