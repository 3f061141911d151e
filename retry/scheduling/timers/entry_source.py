"""The entry source of HTTP timers, which has no topic: `retry api` writes their entries to the changelog itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retry.delay_queue import entry_keys
from retry.delay_queue.envelopes import Call, Named, build_cancel
from retry.intake.batch import BatchResult
from retry.record import Headers

# What stands where entries of other entry sources have the topic that they came from.
TOPIC = "timers"
_SOURCE = "timers"


class TimersSource:
    """Lets calls go where the guard lets them; see `retry.intake.entry_source.EntrySource`."""

    topics: Sequence[str] = ()

    def reads_topic(self, topic: str) -> bool:  # noqa: ARG002
        return False

    def prepare(self, messages: Sequence[Any], now_ms: int, into: BatchResult) -> None:
        """Do nothing, since it is never given messages."""

    def permits_target(self, team: str, destination: str) -> bool:  # noqa: ARG002
        """Whether it is a host and no topic."""
        return "://" in destination


def hash_timer_id(timer_id: str) -> bytes:
    return entry_keys.hash_name(_SOURCE, TOPIC, timer_id.encode())


def build_timer_entry(
    timer_id: str, team: str, host: str, due_at_ms: int, version: int, body: bytes, headers: Headers, call: Call, mark: bytes
) -> tuple[bytes, Named]:
    """Build key and entry of a timer; `host` is what `find_host` gives, `mark` the fingerprint of its request."""
    of, lane = hash_timer_id(timer_id), entry_keys.build_named_lane(team, TOPIC, host)
    entry = Named(host, mark, body, headers=headers, timestamp_ms=None, team=team, failed_at_ms=None, call=call)
    return entry_keys.build_named_key(due_at_ms, of, version, *_derive_origin(of), lane), entry


def cancel_row(timer_id: str, version: int) -> tuple[bytes, bytes]:
    """Build key and envelope of a record that ends a timer of this version or an earlier one."""
    of = hash_timer_id(timer_id)
    return build_cancel(of, version, *_derive_origin(of))


def _derive_origin(name: bytes) -> tuple[bytes, int]:
    # It came from no record: its name stands where others have an offset.
    return entry_keys.build_key_stem(TOPIC, 0), int.from_bytes(name[:6], "big")
