"""The schema registry, asked by the client that comes with the producers and consumers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retry import clock
from retry.clock import monotonic_s
from retry.errors import SchemaUnavailable, SettingsInvalid
from retry.kafka.connection import FILES
from retry.reloaded_file import hash_files

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

# A client of the schema registry that goes by the certificates and keys that its files hold now.
#
# The client reads files when it is made. So where others are there, another client is made, and takes over when the registry
# has answered it: until then, and where files cannot be used, the one before goes on.

log = logging.getLogger(__name__)

_DEFAULTS: dict[str, Any] = {"timeout": 3, "max.retries": 1, "retries.wait.ms": 200}
_NUMBERS = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity")
_LOOK_EVERY_S = 5.0
_NOT_FOUND = 404

_Answer = TypeVar("_Answer")


class RegistryClient:
    """A client of the schema registry with the properties of `config`, `url` among them; for one thread. Raises SettingsInvalid.
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


# Everything else that is taken in waits meanwhile: in each ten seconds no more than five are spent on asking, but for one answer.
_AGAIN_S, _PATIENCE_S = 10.0, 5.0
_REFERENCES_MAX = 100

# Kind and texts, those that the last refers to before it; of PROTOBUF each is a name and, in the next line, a base64 descriptor.
Written = tuple[str, tuple[str, ...]]
_PROTOBUF = "PROTOBUF"


class Schemas:
    """Schemas by number; for one thread. An empty `config` is no registry.

    A number that could not be had is not asked for again for ten seconds, and nor is any while the registry does not answer.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._client = RegistryClient(config) if config else None
        # A client remembers what it was answered, whatever the form that was asked for: descriptors take one of their own.
        self._descriptors = RegistryClient(config) if config else None
        self._missing: dict[int, float] = {}
        self._silent_until_s = 0.0
        self._silence = ""
        self._window_s = self._waited_s = 0.0

    def __call__(self, number: int) -> Written:
        """Kind and texts of a schema; raises SchemaUnavailable where no registry has it, or answers."""
        now_s = monotonic_s()
        if self._client is None:
            raise SchemaUnavailable(f"schema {number}: there is no registry; set RETRY_REGISTRY_URL")
        if now_s < self._missing.get(number, 0.0):
            raise SchemaUnavailable(f"the registry has no schema {number}")
        if now_s < self._silent_until_s:
            raise SchemaUnavailable(f"schema {number}: {self._silence}")
        try:
            written = self._client.send_request(lambda client: self._fetch(client, number))
            if written[0] == _PROTOBUF and self._descriptors is not None:
                return self._descriptors.send_request(lambda client: self._fetch(client, number, "serialized"))
            return written
        except Exception as error:  # whatever the client's own client meets on the way
            if is_missing(error):
                self._missing = {n: until_s for n, until_s in self._missing.items() if now_s < until_s}
                self._missing[number] = now_s + _AGAIN_S
                raise SchemaUnavailable(f"the registry has no schema {number}: {error!s:.200}") from error
            raise self._keep_quiet(number, error) from error
        finally:
            self._add_wait(now_s)

    def _fetch(self, client: SchemaRegistryClient, number: int, form: str | None = None) -> Written:
        schema = client.get_schema(number, fmt=form)
        texts: dict[tuple[str, int], str] = {}
        kind = schema.schema_type or "AVRO"
        if form is not None or kind != _PROTOBUF:
            self._refer(client, schema, texts, until_s=monotonic_s() + _PATIENCE_S, form=form)
        return kind, (*texts.values(), _name_text(f"{number}.proto", schema, form))

    def _add_wait(self, began_s: float) -> None:
        now_s = monotonic_s()
        if now_s >= self._window_s:
            self._window_s, self._waited_s = now_s + _AGAIN_S, 0.0
        self._waited_s += now_s - began_s
        if self._waited_s >= _PATIENCE_S:
            self._silence, self._silent_until_s = "the registry is too slow", self._window_s

    def _keep_quiet(self, number: int, error: Exception) -> SchemaUnavailable:
        self._silence = f"the registry did not answer: {error!r:.200}"
        self._silent_until_s = monotonic_s() + _AGAIN_S
        return SchemaUnavailable(f"schema {number}: {self._silence}")

    def _refer(
        self, client: SchemaRegistryClient, schema: Any, into: dict[tuple[str, int], str], *, until_s: float, form: str | None
    ) -> None:
        """The texts of all that a schema refers to, each after what it refers to itself."""
        for each in schema.references or ():
            version = each.subject, each.version
            if version in into or len(into) >= _REFERENCES_MAX:
                continue
            if monotonic_s() > until_s:
                raise TimeoutError("too slow for so many references")
            referred = client.get_version(each.subject, each.version, fmt=form).schema
            into[version] = ""  # one that refers back to itself ends here, and is no schema afterwards
            self._refer(client, referred, into, until_s=until_s, form=form)
            del into[version]
            into[version] = _name_text(each.name or "", referred, form)


def _name_text(name: str, schema: Any, form: str | None) -> str:
    return (schema.schema_str or "") if form is None else f"{name}\n{schema.schema_str or ''}"
