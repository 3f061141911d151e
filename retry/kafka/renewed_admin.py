"""The admin client of a process that lives long: made anew where it has not been answered for a while, and brokers are there.

A client of librdkafka (2.16) can lose its brokers for good, or the leaders of some partitions, and from inside that looks as
if they did not answer:

- a broker that comes back, and is not let in by its controller yet, tells of no broker at all; the client forgets all that
  it knew, and asks nobody any more (issue 5301 of librdkafka)
- `list_offsets` goes on asking with the leader epoch that it learnt first, and is refused (FENCED_LEADER_EPOCH); of several
  brokers only those answer whose partitions kept their leaders
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from retry.clock import monotonic_s
from retry.errors import BrokersUnreachable
from retry.kafka.interface import AdminClient

log = logging.getLogger(__name__)

SILENT_S = 10.0
# A partition may be without a leader for hours, and no client would hear of it.
SILENT_S_MAX = 300.0


class RenewedAdmin:
    """Does whatever an `AdminClient` does, for several threads.

    Args:
      make: a new client that has just heard from a broker; raises `BrokersUnreachable` where none answers.
    """

    def __init__(self, client: AdminClient, make: Callable[[], AdminClient]) -> None:
        self._client, self._make = client, make
        # Calls may still be waiting for its answers.
        self._former: AdminClient | None = None
        self._answered_at_s, self._patience_s = monotonic_s(), SILENT_S

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def note_answered(self, *, all_answered: bool) -> None:
        """Note whether all that was asked for was answered; after ten seconds in which it was not, a new client is tried.

        For one thread. If that has not helped, it waits twice as long before the next one.
        """
        if all_answered:
            self._answered_at_s, self._patience_s = monotonic_s(), SILENT_S
        if monotonic_s() - self._answered_at_s < self._patience_s:
            return
        self._answered_at_s = monotonic_s()
        try:
            made = self._make()
        except BrokersUnreachable as error:
            log.debug("a new client hears from no broker, either: %s", error)
            return
        log.warning("brokers have not answered all questions for %.0f s: a new client asks from now on", self._patience_s)
        self._former, self._client = self._client, made
        self._patience_s = min(2 * self._patience_s, SILENT_S_MAX)
