"""Reads and checks the request that makes a timer. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
import orjson
from msgspec import Meta

from backoff import PolicyInvalid, duration_ms
from backoff.parse import parse_policy
from retry.delay_queue.envelopes import Call
from retry.errors import UrlRefused
from retry.http_client.ssrf_guard import find_host
from retry.record import Headers
from retry.scheduling.timers.callers import refuse_content

BODY_BYTES_MAX, HEADERS_MAX, HEADER_BYTES_MAX = 256 << 10, 64, 8 << 10
AHEAD_MS_MAX = 10 * 366 * 86_400_000
KEY_CHARACTERS_MAX = 255
_TIMEOUT_MS_MAX = 600_000
_USUAL_POLICY = "{}"
_METHODS = ("POST", "PUT", "PATCH", "DELETE", "GET")
_DURATION = {"pattern": "^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]*")
# More digits are no time of any calendar, and Python refuses to read thousands of them.
_MILLISECONDS = re.compile("[0-9]{1,15}")
_SET_BY_THE_SERVICE = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect",
    "proxy-authorization", "proxy-connection",
})  # fmt: skip


class TimerBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The request for a timer."""

    # What the description demands beyond types is checked by `read`, whose refusals say what to change.
    url: Annotated[str, Meta(
        description="what is called; https and port 443, but for hosts that the operator lists",
        extra_json_schema={"pattern": "^https?://.", "maxLength": 2048},
    )]
    at: Annotated[str | int | None, Meta(
        description="when: ISO 8601 with an offset, or epoch milliseconds; what is past is due at once",
    )] = None
    after: Annotated[str | None, Meta(description="or in how long: 30s, 5m, 1h30m", extra_json_schema=_DURATION)] = None
    method: Annotated[str, Meta(description="how", extra_json_schema={"enum": list(_METHODS)})] = "POST"
    headers: Annotated[dict[str, str], Meta(description="sent along, 64 and 8 KiB at most")] = {}
    body: Annotated[msgspec.Raw, Meta(
        description="sent: a text without its quotes, any other JSON as it is written; 256 KiB at most",
    )] = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    body_base64: Annotated[str | None, Meta(
        description="or sent as these bytes", extra_json_schema={"contentEncoding": "base64"},
    )] = None
    policy: Annotated[dict[str, Any] | None, Meta(
        description="when a call that failed is made again, as in the policy file: backoff, jitter, max_attempts, max_age; what "
        "is left out is the usual one",
    )] = None
    timeout: Annotated[str | None, Meta(
        description="how long one call may take, up to what the operator allows", extra_json_schema=_DURATION,
    )] = None
    idempotency_key: Annotated[str | None, Meta(
        description="as the header Idempotency-Key", extra_json_schema={"minLength": 1, "maxLength": KEY_CHARACTERS_MAX},
    )] = None  # fmt: skip


class TimerRequest(NamedTuple):
    """A request for a timer; `call` has no id yet, and `mark` is a fingerprint of 16 bytes, to tell it from others."""

    due_at_ms: int
    host: str
    call: Call
    headers: Headers
    body: bytes
    mark: bytes
    idempotency_key: str | None


def read(raw: bytes, idempotency_key: str | None, now_ms: int) -> TimerRequest:
    """Read the timer that a request's body asks for; raises Problem, whose detail says what to change."""
    try:
        request = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise refuse_content(f"the body is not a timer: {error}; see /docs") from None
    except RecursionError:
        raise refuse_content("the body is nested too deeply; send a body like that as a text, or as body_base64") from None
    key = request.idempotency_key if idempotency_key is None else idempotency_key
    if not all(1 <= len(each) <= KEY_CHARACTERS_MAX for each in (key, request.idempotency_key) if each is not None):
        raise refuse_content(f"an idempotency key has 1 to {KEY_CHARACTERS_MAX} characters")
    method = request.method.upper()
    if method not in _METHODS:
        raise refuse_content(f"method: {request.method[:20]!r} is not one of {', '.join(_METHODS)}")
    body, kind = _body(request)
    try:
        host = find_host(request.url)
    except UrlRefused as refused:
        raise refuse_content(f"url: {refused}") from None
    call = Call(request.url, method, "", 1, _policy(request), _timeout_ms(request))
    headers = _build_headers(request, kind)
    mark = hashlib.blake2b(repr((request.at, request.after, call, headers, body)).encode(), digest_size=16).digest()
    return TimerRequest(_due_at_ms(request, now_ms), host, call, headers, body, mark, key)


_decode = msgspec.json.Decoder(TimerBody).decode


def parse_moment_ms(text: str | int, what: str) -> int:
    """Read milliseconds since 1970 from an ISO 8601 time with an offset, or from such a number; raises Problem."""
    if isinstance(text, int):
        return text
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise refuse_content(f"{what}: {text[:50]!r} is no time; write it like 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise refuse_content(f"{what}: {text[:50]!r} has no offset; end it with Z or +02:00")
    return int(moment.timestamp() * 1_000)


def _due_at_ms(request: TimerBody, now_ms: int) -> int:
    if (request.at is None) == (request.after is None):
        raise refuse_content("give either at, a time, or after, a duration like 5m")
    due_at_ms = (
        now_ms + _duration_ms(request.after, "after") if request.after is not None else parse_moment_ms(request.at or 0, "at")
    )
    if not 0 <= due_at_ms <= now_ms + AHEAD_MS_MAX:
        raise refuse_content("the time is before 1970 or more than ten years from now; is it in milliseconds?")
    return due_at_ms


def _duration_ms(text: str, what: str) -> int:
    try:
        return duration_ms(text, what)
    except PolicyInvalid as error:
        raise refuse_content(str(error)) from None


def _timeout_ms(request: TimerBody) -> int:
    timeout_ms = _TIMEOUT_MS_MAX if request.timeout is None else _duration_ms(request.timeout, "timeout")
    if not 1 <= timeout_ms <= _TIMEOUT_MS_MAX:
        raise refuse_content("timeout: it is not from 1ms to 10m")
    return timeout_ms


def _policy(request: TimerBody) -> str:
    policy = request.policy
    if not policy:
        return _USUAL_POLICY
    try:
        parse_policy(policy)
    except PolicyInvalid as error:
        raise refuse_content(f"policy: {error}") from None
    return orjson.dumps(policy, option=orjson.OPT_SORT_KEYS).decode()


def _body(request: TimerBody) -> tuple[bytes, str | None]:
    """Read the body to send, and its content type where that is known."""
    raw = bytes(request.body).strip()
    if raw != b"null" and request.body_base64 is not None:
        raise refuse_content("give either body or body_base64")
    if request.body_base64 is not None:
        try:
            body, kind = base64.b64decode(request.body_base64, validate=True), None
        except (binascii.Error, ValueError):
            raise refuse_content("body_base64: it is no base64") from None
    elif raw.startswith(b'"'):
        body, kind = str(msgspec.json.decode(raw)).encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8"
    else:
        body, kind = (b"", None) if raw == b"null" else (raw, "application/json")
    if len(body) > BODY_BYTES_MAX:
        raise refuse_content(f"the body is larger than {BODY_BYTES_MAX:,} bytes; send a reference to it")
    return body, kind


def _build_headers(request: TimerBody, kind: str | None) -> Headers:
    if len(request.headers) > HEADERS_MAX or sum(len(n) + len(v) for n, v in request.headers.items()) > HEADER_BYTES_MAX:
        raise refuse_content(f"headers: there are more than {HEADERS_MAX}, or more than {HEADER_BYTES_MAX:,} bytes of them")
    for name, value in request.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise refuse_content(f"headers: {name[:50]!r} has a name or a value that no header may have")
        if name.lower() in _SET_BY_THE_SERVICE or name.lower().startswith("webhook-"):
            raise refuse_content(f"headers: {name} is set by this service; leave it out")
    headers = {name: value.encode("latin-1") for name, value in request.headers.items()}
    if kind is not None and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = kind.encode()
    return list(headers.items())
