"""The door of HTTP timers, which has no topic: `retry api` writes their entries to the changelog itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retry.delay_queue import entry as entries
from retry.delay_queue.entry import Call, Named
from retry.record import Headers
from retry.intake.settled import Settled

# What stands where entries of other doors have the topic that they came from.
TOPIC = "timers"
_DOOR = "timers"


class Timers:
    """Lets calls go where the guard lets them; see `retry.intake.entry_source.Door`."""

    topics: Sequence[str] = ()

    def reads(self, topic: str) -> bool:  # noqa: ARG002
        """It reads none."""
        return False

    def settle(self, messages: Sequence[Any], now_ms: int, into: Settled) -> None:
        """It is never given any."""

    def permits(self, team: str, destination: str) -> bool:  # noqa: ARG002
        """Whether it is a host and no topic."""
        return "://" in destination


def name(timer_id: str) -> bytes:
    """The name of a timer's entries."""
    return entries.name(_DOOR, TOPIC, timer_id.encode())


def row(
    timer_id: str, team: str, host: str, due_at_ms: int, version: int, body: bytes, headers: Headers, call: Call, mark: bytes
) -> tuple[bytes, bytes]:
    """Key and envelope of a timer.

    Args:
      host: as `host_of` tells it.
      mark: tells what was asked for from everything else that is asked for under the same id.
    """
    of, lane = name(timer_id), entries.named_lane(team, TOPIC, host)
    envelope = entries.encode(Named(host, mark, body, headers, None, team, None, (), None, call))
    return entries.named_key(due_at_ms, of, version, *_place(of), lane), envelope


def cancelled(timer_id: str, version: int) -> tuple[bytes, bytes]:
    """Key and envelope of a record that ends a timer of this version or an earlier one."""
    of = name(timer_id)
    return entries.cancel(of, version, *_place(of))


def _place(name: bytes) -> tuple[bytes, int]:
    # It came from no record: its name stands where others have an offset.
    return entries.key_stem(TOPIC, 0), int.from_bytes(name[:8], "big") >> 1
