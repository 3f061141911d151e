"""Environment → one frozen value, read once and checked whole. The only reader of `os.environ`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from retry.errors import SettingsInvalid

_PREFIX = "RETRY_"
_KAFKA_PREFIX, _REGISTRY_PREFIX = _PROPERTIES = "RETRY_KAFKA_", "RETRY_REGISTRY_"
_SECRET = re.compile(r"password|passphrase|secret|token|jaas|key|oauthbearer", re.IGNORECASE)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one worker runs. Each field is the environment variable `RETRY_<FIELD>`.

    Attributes:
      bootstrap_servers: host:port list of the brokers.
      app_id: prefix of the service's topics, consumer groups and transactional ids.
      policies: path of the policy file.
      data_dir: where the tables lie; a worker needs one of its own.
      instance: the worker's own name in its groups; "" takes one from host name and data directory.
      shards: partitions of the changelog when it is created, 1 to 1,000.
      http_addr: where health and metrics are served; port 0 picks a free one.
      sweep_interval_ms: pause between looks for due entries, 1 to 60,000.
      batch_records: letters or entries in one transaction, at most.
      batch_bytes: bytes of letters in one transaction, at most; one letter may be larger.
      table_cache_bytes: memory for cached blocks and for unwritten rows, all shards together.
      lineages: how many recent lineages are remembered at most, by every worker; some 70 bytes each.
      stalled_s: how long a part of the worker may stand still with work before it; then the process ends, 5 to 3,600.
      standby: 1 keeps copies of the shards that other workers own, so that they are taken over sooner; 0 does not.
      positions_every_s: how often what the groups of the policy file have committed is written down, 1 to 3,600; 0 does not.
      traces: 1 sends a span for each retry that is delivered, as `OTEL_…` says; takes the extra `otel`. 0 does not.
      calls: HTTP calls under way at a time, all hosts together.
      calls_per_host: the same of one host.
      call_timeout_ms: how long one call may take, lookup, connection and answer together, 100 to 600,000.
      webhook_allow: networks and hosts that may be called though they are not public, have no TLS, or another port than 443.
      webhook_secrets: path of a file with a secret a line, `whsec_…`; calls are signed by each of them.
      api_addr: where `retry api` listens; port 0 picks a free one.
      api_tokens: path of a file with a line for each token: whose it is, and its SHA-256.
      kafka: librdkafka properties, from `RETRY_KAFKA_*`.
      registry: properties of the schema registry's client, from `RETRY_REGISTRY_*`, `url` among them.
      kafka_consumer, kafka_producer: more of them for one kind of client; not from the environment.
      session_timeout_ms: of group members; not from the environment.
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    app_id: str = msgspec.field(default="retry")
    policies: Path | None = None
    data_dir: Path = Path("retry-data")
    instance: str = ""
    shards: int = 8
    http_addr: str = "127.0.0.1:8080"
    sweep_interval_ms: int = 25
    batch_records: int = 5_000
    batch_bytes: int = 16 << 20
    table_cache_bytes: int = 64 << 20
    lineages: int = 500_000
    stalled_s: int = 60
    standby: int = 0
    positions_every_s: int = 10
    traces: int = 0
    calls: int = 512
    calls_per_host: int = 32
    call_timeout_ms: int = 15_000
    webhook_allow: str = ""
    webhook_secrets: Path | None = None
    api_addr: str = "127.0.0.1:8081"
    api_tokens: Path | None = None
    kafka: dict[str, str] = {}
    registry: dict[str, str] = {}
    kafka_consumer: dict[str, str] = {}
    kafka_producer: dict[str, str] = {}
    session_timeout_ms: int = 6_000

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", self.app_id):
            raise SettingsInvalid(
                "RETRY_APP_ID", f"{self.app_id!r} cannot begin a topic name; use letters, digits, . _ -"
            )
        if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", self.instance):
            raise SettingsInvalid("RETRY_INSTANCE", f"{self.instance!r} is no name; use letters, digits, . _ -")
        for name, low, high in _BOUNDS:
            if not low <= getattr(self, name) <= high:
                raise SettingsInvalid(_PREFIX + name.upper(), f"{getattr(self, name)} is not from {low:,} to {high:,}")
        self.http_host_port()
        self.api_host_port()

    def http_host_port(self) -> tuple[str, int]:
        """Host and port of `http_addr`.

        Raises:
          SettingsInvalid: it is not host:port.
        """
        return _host_port("RETRY_HTTP_ADDR", self.http_addr)

    def api_host_port(self) -> tuple[str, int]:
        """Host and port of `api_addr`.

        Raises:
          SettingsInvalid: it is not host:port.
        """
        return _host_port("RETRY_API_ADDR", self.api_addr)

    def __repr__(self) -> str:
        hidden = ("kafka", "registry")
        plain = [f"{n}={getattr(self, n)}" for n in self.__struct_fields__ if not n.startswith(hidden)]
        secret = [f"{n}={_shown(getattr(self, n))}" for n in self.__struct_fields__ if n.startswith("kafka")]
        # A URL may hold a password.
        return f"Settings({', '.join(plain + secret)}, registry={dict.fromkeys(self.registry, '***')})"


def _shown(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: "***" if _SECRET.search(name) else value for name, value in properties.items()}


_NOT_FROM_ENVIRONMENT = frozenset({"kafka", "registry", "kafka_consumer", "kafka_producer", "session_timeout_ms"})
def _host_port(variable: str, address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingsInvalid(variable, f"{address!r} is not host:port, like 127.0.0.1:8080")
    return host.strip("[]"), int(port)


_LEAST_CACHE = 8 << 20
_BOUNDS = (
    ("shards", 1, 1_000),
    ("sweep_interval_ms", 1, 60_000),
    ("batch_records", 1, 100_000),
    ("batch_bytes", 1 << 10, 1 << 30),
    ("table_cache_bytes", _LEAST_CACHE, 1 << 40),
    ("lineages", 1_000, 100_000_000),
    ("stalled_s", 5, 3_600),
    ("standby", 0, 1),
    ("session_timeout_ms", 1_000, 3_600_000),
    ("positions_every_s", 0, 3_600),
    ("traces", 0, 1),
    ("calls", 1, 100_000),
    ("calls_per_host", 1, 10_000),
    ("call_timeout_ms", 100, 600_000),
)


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings that the environment holds.

    Raises:
      SettingsInvalid: a variable that begins with RETRY_ is unknown, or its value cannot be used.
    """
    found = {k: v for k, v in (os.environ if environ is None else environ).items() if k.startswith(_PREFIX)}
    kafka = {_property(k, _KAFKA_PREFIX): v for k, v in found.items() if k.startswith(_KAFKA_PREFIX)}
    registry = {_property(k, _REGISTRY_PREFIX): v for k, v in found.items() if k.startswith(_REGISTRY_PREFIX) and v != ""}
    if registry and "url" not in registry:
        raise SettingsInvalid("RETRY_REGISTRY_URL", f"not set, but {', '.join(sorted(registry))} of the registry's client is")
    plain = {k: v for k, v in found.items() if not k.startswith(_PROPERTIES) and v != ""}
    values: dict[str, object] = {"kafka": kafka, "registry": registry}
    for variable, text in plain.items():
        values[variable.removeprefix(_PREFIX).lower()] = _typed(variable, text)
    return Settings(**values)  # type: ignore[arg-type]


def environments(settings: Settings, processes: int) -> list[dict[str, str]]:
    """This process's environment for each of several workers: what one worker needs of its own differs, memory is shared out."""
    share = max(_LEAST_CACHE, settings.table_cache_bytes // processes)
    return [
        {
            **os.environ,
            "RETRY_DATA_DIR": str(settings.data_dir / str(n)),
            "RETRY_INSTANCE": settings.instance and f"{settings.instance}-{n}",
            "RETRY_TABLE_CACHE_BYTES": str(share),
        }
        for n in range(processes)
    ]


def cache_dir() -> Path:
    """Where fetched jars are kept, shared by all checkouts of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dead-letter-retry"


def _property(variable: str, prefix: str) -> str:
    return variable.removeprefix(prefix).lower().replace("_", ".")


def _typed(variable: str, text: str) -> object:
    fields = {f.name: f.type for f in msgspec.structs.fields(Settings) if f.name not in _NOT_FROM_ENVIRONMENT}
    name = variable.removeprefix(_PREFIX).lower()
    if name not in fields:
        known = ", ".join(_PREFIX + f.upper() for f in fields)
        raise SettingsInvalid(variable, f"no such setting; known are {known}, RETRY_KAFKA_* and RETRY_REGISTRY_*")
    if fields[name] is int:
        try:
            return int(text)
        except ValueError:
            raise SettingsInvalid(variable, f"{text!r} is not a whole number") from None
    return text if fields[name] is str else Path(text)
