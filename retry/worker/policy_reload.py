"""The policy file while the service runs: looked at again when it changes or when asked, and used only if it is whole."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import KafkaException

from retry import clock
from retry.errors import RetryError
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.settings import Settings

log = logging.getLogger(__name__)

_EVERY_S = 2.0

Use = Callable[[Registry], None]


class PolicyFile:
    """One file, the registry that it holds, and what is wrong with it if anything is.

    Args:
      check: refuses what must not be done with this deployment's topics.
    """

    def __init__(self, settings: Settings, check: Callable[[Settings, Registry], None]) -> None:
        self._settings, self._check = settings, check
        self.registry = self._loaded()
        self.trouble: str | None = None
        self.used_at_ms = clock.wall_ms()
        self.refusals = 0
        self._seen: tuple[int, ...] | None = self._stamp()
        self._asked = threading.Event()
        self._next_s = clock.monotonic_s() + _EVERY_S

    def ask(self) -> None:
        """Have it read again at the next look, whether it has changed or not; safe in a signal handler."""
        self._asked.set()

    def look(self, use: Use) -> None:
        """Read it if it has changed or was asked for, every two seconds; what is wrong leaves the old registry in use."""
        now_s = clock.monotonic_s()
        if now_s < self._next_s and not self._asked.is_set():
            return
        self._next_s = now_s + _EVERY_S
        stamp = self._stamp()
        if stamp == self._seen and not self._asked.is_set():
            return
        self._asked.clear()
        try:
            registry = self._loaded()
            use(registry)
        except (RetryError, KafkaException, TimeoutError) as error:
            self.trouble, self.refusals = str(error), self.refusals + 1
            log.error("the policy file is not used, the old one stays: %s", error)
            # A file that is wrong stays so until it changes; brokers that did not answer are asked again.
            self._seen = stamp if isinstance(error, RetryError) else None
            return
        self._seen = stamp
        self.registry, self.trouble, self.used_at_ms = registry, None, clock.wall_ms()
        log.info("policy file read again: %d topics and patterns, sha256 %s", len(registry.routes()), registry.digest)

    def about(self) -> dict[str, object]:
        """For health."""
        file, digest = str(self._settings.policies), self.registry.digest
        return {"file": file, "sha256": digest, "used_since_ms": self.used_at_ms, "trouble": self.trouble}

    def _loaded(self) -> Registry:
        # Whoever comes in by a door needs no policies.
        registry = Registry() if self._settings.policies is None else load(self._settings.policies)
        self._check(self._settings, registry)
        return registry

    def _stamp(self) -> tuple[int, ...]:
        # Through links: a mounted configuration changes by pointing elsewhere.
        try:
            about = self._settings.policies.stat() if self._settings.policies else None
        except OSError:
            return ()
        return (about.st_mtime_ns, about.st_size, about.st_ino) if about else ()
