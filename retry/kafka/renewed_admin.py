"""The admin client of a process that lives long: made anew where it has heard from no broker for a while, and a new one does.

A client of librdkafka (2.16) can lose its brokers for good, and from inside that looks as if they did not answer:

- a broker that comes back, and is not let in by its controller yet, tells of no broker at all; the client forgets all that
  it knew, and asks nobody any more (issue 5301 of librdkafka)
- `list_offsets` goes on asking with the leader epoch that it learnt first, and is refused (FENCED_LEADER_EPOCH)
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


class RenewedAdmin:
    """Does whatever an `AdminClient` does, for several threads.

    Args:
      make: a new client that has just heard from a broker; raises `BrokersUnreachable` where none answers.
    """

    def __init__(self, client: AdminClient, make: Callable[[], AdminClient]) -> None:
        self._client, self._make = client, make
        # Calls may still be waiting for its answers.
        self._former: AdminClient | None = None
        self._heard_at_s = monotonic_s()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def heard(self, *, any_broker: bool) -> None:
        """Note whether a broker has answered; after ten seconds without one, a new client is tried. For one thread."""
        if any_broker:
            self._heard_at_s = monotonic_s()
        if monotonic_s() - self._heard_at_s < SILENT_S:
            return
        self._heard_at_s = monotonic_s()
        try:
            made = self._make()
        except BrokersUnreachable as error:
            log.debug("a new client hears from no broker, either: %s", error)
            return
        log.warning("brokers answer a new client and not the old one, which had lost them: the new one asks from now on")
        self._former, self._client = self._client, made
