"""A client of the schema registry that goes by the certificates and keys that its files hold now.

The client reads files when it is made. So where others are there, another client is made, and takes over when the registry has
answered it: until then, and where files cannot be used, the one before goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retry import clock
from retry.errors import SettingsInvalid
from retry.kafka.client_certificate import FILES
from retry.reloaded_file import hash_files

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

log = logging.getLogger(__name__)

_DEFAULTS: dict[str, Any] = {"timeout": 3, "max.retries": 1, "retries.wait.ms": 200}
_NUMBERS = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity")
_LOOK_EVERY_S = 5.0
_NOT_FOUND = 404

_Answer = TypeVar("_Answer")


class RegistryClient:
    """A client of the schema registry; for one thread.

    Args:
      config: properties of the client, `url` among them.

    Raises:
      SettingsInvalid: the client refuses them.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._files = [Path(config[name]) for name in FILES if config.get(name)]
        self._held = self._refused = hash_files(self._files)
        try:
            self._client = _make_client(config)
        except (ValueError, TypeError, OSError) as error:
            raise SettingsInvalid("RETRY_REGISTRY_*", str(error)) from None
        self._looking = clock.Interval(_LOOK_EVERY_S)

    def send_request(self, request: Callable[[SchemaRegistryClient], _Answer]) -> _Answer:
        """Return what the registry answers to a request; raises whatever the client raises."""
        if self._files and self._looking.is_due():
            self._reload_credentials(request)
        return request(self._client)

    def _reload_credentials(self, request: Callable[[SchemaRegistryClient], object]) -> None:
        held = hash_files(self._files)
        if held == self._held:
            return
        try:
            made = _make_client(self._config)
            _see_answered(made, request)
        except Exception as error:  # whatever the client's own client meets on the way
            if held != self._refused:
                log.warning(
                    "the files of RETRY_REGISTRY_* have changed and are not used yet: %s; the registry is asked as before, and "
                    "they are tried again with the next question", error,
                )  # fmt: skip
            self._refused = held
            return
        log.info("the registry is asked with the files that RETRY_REGISTRY_* name now: %s", ", ".join(map(str, self._files)))
        self._client, self._held = made, held


def is_missing(error: Exception) -> bool:
    """Whether the registry has answered that it has no such thing."""
    return getattr(error, "http_status_code", 0) == _NOT_FOUND


def _see_answered(client: SchemaRegistryClient, request: Callable[[SchemaRegistryClient], object]) -> None:
    try:
        request(client)
    except Exception as error:
        if not is_missing(error):
            raise


def _make_client(config: Mapping[str, str]) -> SchemaRegistryClient:
    # It brings an HTTP client and cryptography along, a fifth of a second of a worker's start.
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient(_DEFAULTS | {name: int(text) if name in _NUMBERS else text for name, text in config.items()})
