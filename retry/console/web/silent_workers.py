"""Whether any worker runs, as the group that shares the shards tells; where none does, since when that is seen here."""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from retry import clock
from retry.console.web.app import Console
from retry.errors import RetryError
from retry.kafka import consumer_groups
from retry.kafka.interface import KafkaException

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 10.0


class Workers(NamedTuple):
    """What is known of the workers.

    Attributes:
      running: how many; None where nobody tells.
      silent_since_ms: since when none runs, as far as this console has seen; None while one does.
    """

    running: int | None
    silent_since_ms: int | None = None


class SilentWorkers:
    """Asks the brokers every ten seconds at most, in a thread of its own: no page waits for it. Only while somebody looks."""

    def __init__(self, console: Console) -> None:
        self._console, self._looking = console, clock.Interval(_LOOK_EVERY_S, at_once=True)
        self._found = Workers(None)
        self._lock = threading.Lock()
        self._asking = False

    def look(self) -> Workers:
        """What was found last."""
        with self._lock:
            if not self._asking and self._looking.is_due():
                self._asking = True
                threading.Thread(target=self._ask, name="workers", daemon=True).start()
            return self._found

    def _ask(self) -> None:
        running: int | None = None
        try:
            cluster = self._console.cluster()
            running = consumer_groups.members(cluster.admin, cluster.names.table_group)
        except (RetryError, KafkaException, TimeoutError) as error:
            log.debug("nobody tells which workers run: %s", error)
        with self._lock:
            since_ms = self._found.silent_since_ms
            self._found = Workers(running, (since_ms or self._console.clock_ms()) if running == 0 else None)
            self._asking = False
