"""Makes, shows, ends and lists timers, for one team at a time. What another team has does not exist."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from retry import clock
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.errors import LookupsBusy, RecordUnwritten, UrlRefused
from retry.http_client.ssrf_guard import SsrfGuard
from retry.kafka.record_producer import Records
from retry.scheduling.timers import entry_source as source
from retry.scheduling.timers.callers import Problem, Quotas, refuse_content
from retry.scheduling.timers.read_model import View, WaitingTimer, build_cursor
from retry.scheduling.timers.timer_request import TimerRequest
from retry.telemetry.call_records import Called

_VET_S = 5.0
_PREFIX = "tmr_"
_ID_BYTES, _RANDOM_IDS = 16, 256
_ENDED = ("delivered", "parked")
PAGE_MAX = 500


class LastCall(msgspec.Struct, frozen=True):
    """The last call of a timer."""

    attempt: Annotated[int, Meta(description="its number, from 1")]
    at: Annotated[str, Meta(description="when it was made")]
    took_ms: Annotated[int, Meta(description="how long it took")]
    status: Annotated[int | None, Meta(description="status of the answer; null where there was none")]
    error: Annotated[str | None, Meta(description="why there was none")]
    body: Annotated[str, Meta(description="the first 1,024 bytes of the answer")]


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer: with `made_at`, `url` and `method` while it waits, with `reason` once it has ended."""

    id: Annotated[str, Meta(description="its name, and `webhook-id` of every call")]
    state: Annotated[str, Meta(
        description="`parked`: given up, see `reason`", extra_json_schema={"enum": ["waiting", *_ENDED]},
    )]
    at: Annotated[str, Meta(description="when the next call is due, or the last one was")]
    made_at: Annotated[str, Meta(description="when it was made")] | UnsetType = UNSET
    url: Annotated[str, Meta(description="what is called")] | UnsetType = UNSET
    method: Annotated[str, Meta(description="how")] | UnsetType = UNSET
    attempt: Annotated[int, Meta(description="number of that call, from 1")]
    reason: Annotated[str | None, Meta(
        description="`max_attempts`, `max_age`, or `gone` where the host answered 410",
    )] | UnsetType = UNSET
    last_call: Annotated[LastCall | None, Meta(description="the last call, where there was one")]  # fmt: skip


class Page(msgspec.Struct, frozen=True):
    """A page of timers that wait, in due order."""

    timers: Annotated[list[Timer], Meta(description="these")]
    cursor: Annotated[str | None, Meta(description="where the next page begins")]


class TimerAnswer(NamedTuple):
    timer: Timer
    new: bool


class _Visible(NamedTuple):
    timer: Timer
    mark: str


class Timers:
    """The timers of a deployment; `topic` is the changelog, and `bytes_max` how large a record of it may be."""

    def __init__(
        self, view: View, records: Records, guard: SsrfGuard, *, topic: str, bytes_max: int, codec: EnvelopeCodec
    ) -> None:
        self._view, self._records, self._guard = view, records, guard
        self._topic, self._bytes_max, self._codec = topic, bytes_max, codec

    async def create_timer(self, team: str, request: TimerRequest, quotas: Quotas) -> TimerAnswer:
        """Make a timer, or find the one that the same request made; raises Problem where it is not made, or that is not known."""
        timer_id = _id(team, request.idempotency_key)
        if request.idempotency_key is not None and (existing := self._existing(team, timer_id, request.mark)) is not None:
            return TimerAnswer(existing, new=False)
        await quotas.timer(team)
        await self._vet(request.call.url, team)
        key, entry = source.build_timer_entry(
            timer_id, team, request.host, due_at_ms=request.due_at_ms, version=clock.wall_ms(), body=request.body,
            headers=request.headers, call=msgspec.structs.replace(request.call, id=timer_id), mark=request.mark,
        )  # fmt: skip
        envelope = self._codec.encode(key, entry)
        if len(key) + len(envelope) > self._bytes_max:
            limit = f"the {self._bytes_max:,} bytes that the changelog takes"
            raise refuse_content(f"the timer is larger than {limit}; send a reference to its body")
        timer = WaitingTimer(key, entry)
        await self._write(timer_id, key, envelope, timer)
        return TimerAnswer(_build_waiting(timer, None), new=True)

    def get(self, team: str, timer_id: str) -> Timer:
        """Show a timer that waits, or what became of it; raises Problem where there is none, or it ended too long ago."""
        visible = self._find_visible_timer(team, timer_id)
        if visible is None:
            raise Problem(HTTPStatus.NOT_FOUND, "there is no such timer: it was ended, or called long ago, or never was")
        return visible.timer

    async def cancel_timer(self, team: str, timer_id: str) -> None:
        """End a timer that waits; a call that is under way is not recalled. Raises Problem where none waits."""
        timer = self._view.timer(timer_id)
        if timer is None or timer.entry.team != team or self._find_visible_timer(team, timer_id) is None:
            raise Problem(HTTPStatus.NOT_FOUND, "no such timer waits: it was called or ended, or never was")
        key, envelope = source.cancel_row(timer_id, timer.version)
        await self._write(timer_id, key, envelope, None)

    def between(self, team: str, from_ms: int, to_ms: int, after: str, rows_max: int) -> Page:
        """List a page of timers that wait, in due order; raises Problem where `after` is not what a page before this one gave."""
        try:
            at = base64.b64decode(after, b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise refuse_content("cursor: it is none of a page before") from None
        timers = self._view.between(from_ms, to_ms, at, team, rows_max + 1)
        for timer in timers:
            _demand_opened(timer)
        page = timers[:rows_max]
        more = base64.urlsafe_b64encode(build_cursor(page[-1])).decode() if len(timers) > rows_max else None
        return Page([_build_waiting(timer, self._view.last_call(timer.id)) for timer in page], more)

    def _find_visible_timer(self, team: str, timer_id: str) -> _Visible | None:
        timer, last = self._view.timer(timer_id), self._view.last_call(timer_id)
        ended = last if last is not None and last.decision in _ENDED else None
        if timer is not None and timer.entry.team == team:
            _demand_opened(timer)
            attempt = timer.entry.call.attempt if timer.entry.call is not None else 0
            # The call that ended it may be read before the end of its entry is.
            if ended is None or ended.attempt < attempt or ended.at_ms < timer.version:
                return _Visible(_build_waiting(timer, last), (timer.entry.key or b"").hex())
        return _Visible(_build_ended(ended), ended.mark) if ended is not None and ended.team == team else None

    def _existing(self, team: str, timer_id: str, mark: bytes) -> Timer | None:
        visible = self._find_visible_timer(team, timer_id)
        if visible is not None and visible.mark != mark.hex():
            raise Problem(HTTPStatus.CONFLICT, "this idempotency key belongs to another timer; take another")
        return visible.timer if visible is not None else None

    async def _vet(self, url: str, team: str) -> None:
        try:
            async with asyncio.timeout(_VET_S):
                await self._guard.vet_url(url, team)
        except UrlRefused as refused:
            raise refuse_content(f"url: {refused}") from None
        except (OSError, TimeoutError, LookupsBusy):
            # A host that is away may be back when it is called; it is checked again then.
            return

    async def _write(self, timer_id: str, key: bytes, envelope: bytes, timer: WaitingTimer | None) -> None:
        partition = entry_keys.find_shard(source.hash_timer_id(timer_id), self._view.shards)
        try:
            offset = await self._records.write_record(self._topic, partition, key, envelope)
        except RecordUnwritten:
            detail = "it is not known whether this was taken in; ask again with the same idempotency key"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "1"}) from None
        self._view.note_write(partition, offset, timer_id, timer)


def _demand_opened(timer: WaitingTimer) -> None:
    """Refuse to tell of a timer whose key is not here, rather than to say that there is none."""
    if isinstance(timer.entry, envelopes.Unopened):
        detail = "it waits, and cannot be read here: the key is missing that it is sealed under"
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "60"})


def _random() -> Iterator[str]:
    """Make ids that nobody can guess. The system is asked for many at once: that takes as long as for one."""
    while True:
        random = secrets.token_bytes(_RANDOM_IDS * _ID_BYTES)
        yield from (random[at : at + _ID_BYTES].hex() for at in range(0, len(random), _ID_BYTES))


_random_ids = _random()


def _id(team: str, idempotency_key: str | None) -> str:
    if idempotency_key is None:
        return _PREFIX + next(_random_ids)
    return _PREFIX + hashlib.blake2b(f"{team}\0{idempotency_key}".encode(), digest_size=16).hexdigest()


def _build_waiting(timer: WaitingTimer, last: Called | None) -> Timer:
    call = timer.entry.call or envelopes.Call("")
    return Timer(
        id=call.id, state="waiting", at=clock.iso(timer.due_at_ms), made_at=clock.iso(timer.version), url=call.url,
        method=call.method, attempt=call.attempt,
        last_call=_build_last_call(last) if last is not None and call.attempt > 1 else None,
    )  # fmt: skip


def _build_ended(last: Called) -> Timer:
    return Timer(
        id=last.id, state=last.decision, at=clock.iso(last.due_ms), attempt=last.attempt, reason=last.reason,
        last_call=_build_last_call(last),
    )  # fmt: skip


def _build_last_call(last: Called) -> LastCall:
    return LastCall(last.attempt, clock.iso(last.at_ms), last.took_ms, last.status, last.error, body=last.body)
