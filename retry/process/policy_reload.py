"""The policy file while the service runs: looked at again when it changes or when asked, and used only if it is whole."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from retry import clock
from retry.errors import PolicyFileInvalid, RetryError
from retry.kafka import topics
from retry.kafka.interface import KafkaException
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.policies.yaml_document import Own
from retry.settings import Settings

log = logging.getLogger(__name__)

_EVERY_S = 2.0
# A file of 14,000 teams is worked on for seconds; whoever needs the interpreter meanwhile waits so long for it each time.
_SHARED_S = 0.001
# What has a file without teams come into use: of a worker, and of the console.
ALLOW_EMPTY, AGAIN = "start the worker with --allow-empty", "start the console again"

OnPolicies = Callable[[Registry], None]


def load_policies(settings: Settings) -> Registry:
    """Load the policy file of a deployment; empty without one, for other entry sources. Raises PolicyFileInvalid."""
    if settings.policies is None:
        return Registry()
    own = topics.list_internal_topics(settings.app_id)
    return load(settings.policies, Own(frozenset(own), topics.build_topic_names(settings.app_id).parked))


def watch_policies(settings: Settings, *, starts_empty: bool = True) -> Callable[[], Registry]:
    """Give the console the policy file as it is now; what cannot be used is logged, the one of before stays. For any thread.

    Raises PolicyFileInvalid where the first one cannot be used, or has neither teams nor tasks and `starts_empty` is false.
    """
    file, looking = PolicyFile(settings, if_meant=AGAIN), threading.Lock()
    if not starts_empty:
        refuse_emptied_file(settings, file.registry)

    def registry() -> Registry:
        with looking:
            file.refresh_registry(lambda _registry: None)
            return file.registry

    return registry


def refuse_emptied_file(settings: Settings, found: Registry) -> None:
    """Raise PolicyFileInvalid where the file that was just read is empty: the one that the console goes by is not."""
    if is_empty(found):
        raise build_empty_refusal(settings, "the one that the console uses has some", AGAIN)


class PolicyFile:
    """The policy file of a deployment, the registry that it holds, and what is wrong with it if anything is.

    Args:
      allow_empty: whether a file without teams and tasks may take the place of one that has some; `if_meant` says how.
    """

    def __init__(self, settings: Settings, *, allow_empty: bool = False, if_meant: str = ALLOW_EMPTY) -> None:
        self._settings, self._allow_empty, self._if_meant = settings, allow_empty, if_meant
        self.registry = load_policies(settings)
        self.trouble: str | None = None
        self.used_at_ms = clock.wall_ms()
        self.refusals = 0
        self._seen: tuple[int, ...] | None = self._stamp()
        self._asked = threading.Event()
        self._looking = clock.Interval(_EVERY_S)

    def request_reload(self) -> None:
        """Ask to read the policy file again at the next look, whether it has changed or not; safe in a signal handler."""
        self._asked.set()

    def refresh_registry(self, use: OnPolicies) -> None:
        """Read it if it has changed or was asked for, every two seconds; what is wrong leaves the old registry in use."""
        if not self._looking.is_due() and not self._asked.is_set():
            return
        stamp = self._stamp()
        if stamp == self._seen and not self._asked.is_set():
            return
        self._asked.clear()
        try:
            with _share_interpreter():
                registry = load_policies(self._settings)
                self._refuse_empty(registry)
                use(registry)
        except (RetryError, KafkaException, TimeoutError) as error:
            self.trouble, self.refusals = str(error), self.refusals + 1
            log.error("the policy file is not used, the old one stays: %s", error)
            # A file that is wrong stays so until it changes; brokers that did not answer are asked again.
            self._seen = stamp if isinstance(error, RetryError) else None
            return
        self._seen = stamp
        self.registry, self.trouble, self.used_at_ms = registry, None, clock.wall_ms()
        log.info("policy file read again: %d topics and patterns, sha256 %s", len(registry.list_routes()), registry.digest)

    def _refuse_empty(self, registry: Registry) -> None:
        """Refuse a file that was truncated, or mounted empty: it would stop everybody's retries."""
        if not self._allow_empty and is_empty(registry) and not is_empty(self.registry):
            in_use = f"the one in use has {len(self.registry.list_routes()):,} topics and patterns"
            raise build_empty_refusal(self._settings, in_use, self._if_meant)

    def describe(self) -> dict[str, object]:
        """Describe for health which policy file is in use, since when, and what is wrong with it."""
        file, digest = str(self._settings.policies), self.registry.digest
        return {"file": file, "sha256": digest, "used_since_ms": self.used_at_ms, "error": self.trouble}

    def _stamp(self) -> tuple[int, ...]:
        # Through links: a mounted configuration changes by pointing elsewhere.
        try:
            about = self._settings.policies.stat() if self._settings.policies else None
        except OSError:
            return ()
        return (about.st_mtime_ns, about.st_size, about.st_ino) if about else ()


def build_empty_refusal(settings: Settings, before: str, if_meant: str = ALLOW_EMPTY) -> PolicyFileInvalid:
    """Build the refusal of a policy file without teams; `before` says what there was."""
    reason = f"has no team and no task, while {before}; if that is meant, {if_meant}"
    return PolicyFileInvalid(str(settings.policies), 1, "file", reason)


def is_empty(registry: Registry) -> bool:
    return not registry.list_routes() and registry.tasks is None


@contextmanager
def _share_interpreter() -> Iterator[None]:
    """Have this thread give the interpreter up sooner than usual, since others must not wait for what it does."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(before_s, _SHARED_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
