"""Something that only the brokers know, asked for while somebody looks, in a thread of its own: no page waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from retry import clock
from retry.errors import RetryError
from retry.kafka.interface import KafkaException

log = logging.getLogger(__name__)

_EVERY_S = 10.0
_Found = TypeVar("_Found")


class LookedUp(Generic[_Found]):
    """A value that is looked up in a thread of its own, every ten seconds at most.

    Args:
      what: for the thread and the log.
      look: finds the value; is given the value before.
      unknown: the value where the brokers do not answer, and before they have.
    """

    def __init__(self, what: str, look: Callable[[_Found], _Found], unknown: _Found) -> None:
        self._what, self._look, self._unknown, self._found = what, look, unknown, unknown
        self._due = clock.Interval(_EVERY_S, at_once=True)
        self._lock = threading.Lock()
        self._looking = False

    def read_latest(self) -> _Found:
        """Return the last value at once, and start a new look-up where one is due."""
        with self._lock:
            if not self._looking and self._due.is_due():
                self._looking = True
                threading.Thread(target=self._run_lookup, name=self._what, daemon=True).start()
            return self._found

    def _run_lookup(self) -> None:
        found = self._unknown
        try:
            found = self._look(self._found)
        except (RetryError, KafkaException, TimeoutError) as error:
            log.debug("%s: nobody tells: %s", self._what, error)
        finally:
            with self._lock:
                self._found, self._looking = found, False
