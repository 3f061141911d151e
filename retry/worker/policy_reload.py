"""The policy file while the service runs: looked at again when it changes or when asked, and used only if it is whole."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from retry import clock
from retry.errors import RetryError
from retry.kafka import topics
from retry.kafka.interface import KafkaException
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.policies.yaml_document import Own
from retry.settings import Settings

log = logging.getLogger(__name__)

_EVERY_S = 2.0

OnPolicies = Callable[[Registry], None]


def loaded(settings: Settings) -> Registry:
    """What the policy file of a deployment says; nothing where it has none: other entry sources need no policies.

    Raises:
      PolicyFileInvalid: the file cannot be used, or not with the topics of this deployment.
    """
    if settings.policies is None:
        return Registry()
    own = topics.internal(settings.app_id)
    return load(settings.policies, Own(frozenset(own), topics.names(settings.app_id).parked))


def newest(settings: Settings) -> Callable[[], Registry]:
    """Gives the policy file as it is now; what cannot be used is logged, and the one of before stays. For any thread.

    Raises:
      PolicyFileInvalid: the file cannot be used.
    """
    file, looking = PolicyFile(settings), threading.Lock()

    def registry() -> Registry:
        with looking:
            file.look(lambda _registry: None)
            return file.registry

    return registry


class PolicyFile:
    """The policy file of a deployment, the registry that it holds, and what is wrong with it if anything is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.registry = loaded(settings)
        self.trouble: str | None = None
        self.used_at_ms = clock.wall_ms()
        self.refusals = 0
        self._seen: tuple[int, ...] | None = self._stamp()
        self._asked = threading.Event()
        self._looking = clock.Interval(_EVERY_S)

    def ask(self) -> None:
        """Have it read again at the next look, whether it has changed or not; safe in a signal handler."""
        self._asked.set()

    def look(self, use: OnPolicies) -> None:
        """Read it if it has changed or was asked for, every two seconds; what is wrong leaves the old registry in use."""
        if not self._looking.is_due() and not self._asked.is_set():
            return
        stamp = self._stamp()
        if stamp == self._seen and not self._asked.is_set():
            return
        self._asked.clear()
        try:
            registry = loaded(self._settings)
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
        return {"file": file, "sha256": digest, "used_since_ms": self.used_at_ms, "error": self.trouble}

    def _stamp(self) -> tuple[int, ...]:
        # Through links: a mounted configuration changes by pointing elsewhere.
        try:
            about = self._settings.policies.stat() if self._settings.policies else None
        except OSError:
            return ()
        return (about.st_mtime_ns, about.st_size, about.st_ino) if about else ()
