"""Environment → one frozen value, read once and checked whole. The only reader of `os.environ`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import msgspec

from retry.errors import SettingsInvalid
from retry.printable import is_text

_PREFIX = "RETRY_"
_KAFKA_PREFIX, _REGISTRY_PREFIX = _PROPERTIES = "RETRY_KAFKA_", "RETRY_REGISTRY_"
_HOST = re.compile(r"\s*(\*|(\*\.)?[\w-]+(\.[\w-]+)*)?\s*", re.ASCII)
_ORIGIN = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:[0-9]{1,5})?", re.ASCII)
_DECODER = re.compile(r"\s*([A-Za-z0-9._*?-]+=[A-Za-z0-9._-]+)?\s*", re.ASCII)
_SECRET = re.compile(r"password|passphrase|secret|token|jaas|key|oauthbearer", re.IGNORECASE)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one process of the service runs. Each field is the environment variable `RETRY_<FIELD>`.

    Attributes:
      bootstrap_servers: the brokers, as a list of host:port.
      app_id: prefix of the service's topics, consumer groups and transactional ids.
      policies: path of the policy file.
      data_dir: directory of the tables. Each worker needs one of its own.
      instance: name of this worker in its consumer groups, different from all others and the same after a restart. If empty, it
        is made from the host name and the data directory.
      shards: partitions of the changelog, when `retry topics create` creates it.
      http_addr: address of health and metrics: `/health/live`, `/health/ready`, `/health/ready/<shard>`, `/metrics`. Port 0 picks
        a free port and logs it.
      http_hosts: host names under which HTTP requests are answered, separated by commas: `*.example.com` for all names below it,
        `*` for all. IP addresses, localhost and the host that it listens on are always answered.
      sweep_interval_ms: pause between two searches for due entries.
      batch_records: most letters, or entries, in one transaction.
      batch_bytes: most bytes of letters in one transaction, headers and keys included. A single letter may be larger.
      table_cache_bytes: memory for RocksDB's cached blocks and unwritten rows, for all shards together.
      lineages: most recent lineages that each worker remembers of all teams together, at about 70 bytes each. Set it alike on all
        workers.
      stalled_s: how long a part of the worker may stand still although it has work. Then the process ends with exit code 1.
      standby: 1 keeps copies of the shards that other workers own, so that this worker takes them over sooner.
      positions_every_s: how often the committed offsets of the policy file's `group`s are written down. 0 never.
      log_format: `text` for lines that people read, `json` for an object in each line.
      log_level: what is logged at least: `debug`, `info`, `warning` or `error`. `debug` names each letter that is delivered.
      traces: 1 sends OpenTelemetry spans of letters, calls and requests, as `OTEL_…` variables say. Needs the extra `otel`.
      calls: most webhooks in flight in one worker.
      calls_per_host: most webhooks in flight to one host.
      call_timeout_ms: longest time of one webhook: name lookup, connection and answer together.
      encryption_keys: path of a file of keys, whose lines `retry keys new` makes, the newest first. Payloads are encrypted at
        rest with it. Give it to workers, API, console and commands alike. It is read again when it changes.
      webhook_allow: networks and hosts that webhooks may reach although they are private, without TLS or on another port than
        443. Set it alike for workers and API.
      webhook_secrets: path of a file of keys that sign webhooks, whose lines `retry api secret` makes: a team and its key, the
        newest first. It is read again when it changes.
      webhook_certificates: path of a folder with TEAM.crt and TEAM.key in PEM: what calls of a team show to receivers that ask
        for a certificate. It is read again when it changes.
      api_addr: address where `retry api` listens. Port 0 picks a free port.
      api_tokens: path of a file of tokens, whose lines `retry api token` makes. Required when the API listens beyond loopback.
      api_requests_per_s: most requests of one team in a second, for each API process. 0 is no limit.
      api_timers_per_team: most timers of one team that may wait. 0 is no limit.
      api_metrics_open: 1 shows the API's metrics without a token.
      api_audit: which calls of the API are logged, each with its team: 0 none, 1 what changes timers and what is refused, 2 all.
      api_tls_cert: path of the API's certificate, PEM, with the chain above it. With it and its key the API speaks HTTPS alone.
      api_tls_key: path of its key, PEM without a passphrase. Both files are read again when they change.
      scheduler_tls_cert: the same for the REST API of `retry scheduler`.
      scheduler_tls_key: path of its key.
      console_addr: address where `retry console` listens. Port 0 picks a free port.
      console_url: address of the console as its viewers write it, like https://retry.example.com: for links, and where a provider
        sends who has signed in.
      console_tokens: path of a file of tokens with their roles, whose lines `retry console token` makes.
      console_tls_cert: path of the certificate chain with which the console speaks TLS itself.
      console_tls_key: path of the key of that certificate.
      console_tls_proxy: 1 says that a proxy in front of the console speaks TLS, under `console_url`.
      console_oidc_issuer: URL of an OpenID Connect provider that people sign in at.
      console_oidc_client_id: what that provider calls the console.
      console_oidc_client_secret: path of a file with the secret that the provider gave it. None where it gave none.
      console_oidc_claim: what the provider says of a person that `console_oidc_roles` has lines for.
      console_oidc_roles: path of a file that says which role each value of that claim has.
      console_proxy_from: addresses of a proxy that says in headers who asks, by commas, as `10.0.0.5,10.1.0.0/24`. Empty is none.
      console_proxy_secret: path of a file with the secret that this proxy sends along.
      console_proxy_roles: path of a file that says which role each of the groups has that this proxy tells.
      console_session_s: how long somebody stays signed in.
      console_session_key: path of a file with a key that all consoles behind one address share, so that who has signed in at one
        is known to all, also after a restart. None keeps sign-ins in each console alone.
      console_schedulers: names and URLs of the REST APIs of other schedulers, by commas, as `eu=http://10.0.0.5:8000`.
      console_advice: path of what `retry analytics advise --json` wrote, which the pages of policies and of a failure show. None
        is none.
      console_notifications: path of a file of rules: who is told of new failures, holds and what is overdue, and where. None is
        nobody.
      console_decoders: which decoder of an installed package reads values of which dead-letter topics, by commas, as
        `payments.*=acme-cbor`. The first that matches counts.
      kafka: librdkafka properties, from `RETRY_KAFKA_*`.
      registry: properties of the schema registry's client, from `RETRY_REGISTRY_*`, `url` among them.
      kafka_consumer, kafka_producer: more librdkafka properties for one kind of client; not from the environment.
      session_timeout_ms: session timeout of the consumer groups; not from the environment.
      sweep_records: most entries that one transaction delivers; 0 is `batch_records`; not from the environment.
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    app_id: str = msgspec.field(default="retry")
    policies: Path | None = None
    data_dir: Path = Path("retry-data")
    instance: str = ""
    shards: int = 8
    http_addr: str = "127.0.0.1:8080"
    http_hosts: str = ""
    sweep_interval_ms: int = 25
    batch_records: int = 5_000
    batch_bytes: int = 16 << 20
    table_cache_bytes: int = 64 << 20
    lineages: int = 500_000
    stalled_s: int = 60
    standby: int = 0
    positions_every_s: int = 10
    log_format: str = "text"
    log_level: str = "info"
    traces: int = 0
    calls: int = 512
    calls_per_host: int = 32
    call_timeout_ms: int = 15_000
    encryption_keys: Path | None = None
    webhook_allow: str = ""
    webhook_secrets: Path | None = None
    webhook_certificates: Path | None = None
    api_addr: str = "127.0.0.1:8081"
    api_tokens: Path | None = None
    api_requests_per_s: int = 1_000
    api_timers_per_team: int = 1_000_000
    api_metrics_open: int = 0
    api_audit: int = 1
    api_tls_cert: Path | None = None
    api_tls_key: Path | None = None
    scheduler_tls_cert: Path | None = None
    scheduler_tls_key: Path | None = None
    console_addr: str = "127.0.0.1:8082"
    console_url: str = ""
    console_tokens: Path | None = None
    console_tls_cert: Path | None = None
    console_tls_key: Path | None = None
    console_tls_proxy: int = 0
    console_oidc_issuer: str = ""
    console_oidc_client_id: str = ""
    console_oidc_client_secret: Path | None = None
    console_oidc_claim: str = "groups"
    console_oidc_roles: Path | None = None
    console_proxy_from: str = ""
    console_proxy_secret: Path | None = None
    console_proxy_roles: Path | None = None
    console_session_s: int = 28_800
    console_session_key: Path | None = None
    console_schedulers: str = ""
    console_advice: Path | None = None
    console_notifications: Path | None = None
    console_decoders: str = ""
    kafka: dict[str, str] = {}
    registry: dict[str, str] = {}
    kafka_consumer: dict[str, str] = {}
    kafka_producer: dict[str, str] = {}
    session_timeout_ms: int = 6_000
    sweep_records: int = 0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", self.app_id):
            raise SettingsInvalid("RETRY_APP_ID", f"{self.app_id!r} cannot begin a topic name; use letters, digits, . _ -")
        if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", self.instance):
            raise SettingsInvalid("RETRY_INSTANCE", f"{self.instance!r} is no name; use letters, digits, . _ -")
        if not all(map(_HOST.fullmatch, self.http_hosts.split(","))):
            fault = f"{self.http_hosts!r} is not names by commas, without ports; *.example.com is all below it, * is all"
            raise SettingsInvalid("RETRY_HTTP_HOSTS", fault)
        if not all(map(_DECODER.fullmatch, self.console_decoders.split(","))):
            fault = f"{self.console_decoders!r} is not topics=name by commas, like payments.*=acme-cbor"
            raise SettingsInvalid("RETRY_CONSOLE_DECODERS", fault)
        for name, value, fault in self._list_faults():
            raise SettingsInvalid(_PREFIX + name.upper(), f"{value} is {fault}")
        if unsupported := find_group_protocol_fault(self.kafka):
            raise SettingsInvalid("RETRY_KAFKA_GROUP_PROTOCOL", unsupported)
        self.http_host_port()
        self.api_host_port()
        self.console_host_port()
        if self.console_url and not _ORIGIN.fullmatch(self.console_url):
            fault = f"{self.console_url!r} is not scheme://host or scheme://host:port, like https://retry.example.com"
            raise SettingsInvalid("RETRY_CONSOLE_URL", fault)

    def _list_faults(self) -> Iterator[tuple[str, object, str]]:
        for name, low, high in BOUNDS:
            if not low <= getattr(self, name) <= high:
                yield name, getattr(self, name), f"not from {low:,} to {high:,}"
        for name, words in WORDS:
            if getattr(self, name) not in words:
                yield name, repr(getattr(self, name)), f"none of {', '.join(words)}"

    def http_host_port(self) -> tuple[str, int]:
        """Return host and port of `http_addr`; raises SettingsInvalid where the address is not host:port."""
        return _host_port("RETRY_HTTP_ADDR", self.http_addr)

    def api_host_port(self) -> tuple[str, int]:
        """Return host and port of `api_addr`; raises SettingsInvalid where the address is not host:port."""
        return _host_port("RETRY_API_ADDR", self.api_addr)

    def console_host_port(self) -> tuple[str, int]:
        """Return host and port of `console_addr`; raises SettingsInvalid where the address is not host:port."""
        return _host_port("RETRY_CONSOLE_ADDR", self.console_addr)

    def __repr__(self) -> str:
        hidden = ("kafka", "registry")
        plain = [f"{n}={getattr(self, n)}" for n in self.__struct_fields__ if not n.startswith(hidden)]
        secret = [f"{n}={_format_properties(getattr(self, n))}" for n in self.__struct_fields__ if n.startswith("kafka")]
        # A URL may hold a password.
        return f"Settings({', '.join(plain + secret)}, registry={dict.fromkeys(self.registry, '***')})"


def _format_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: "***" if _SECRET.search(name) else value for name, value in properties.items()}


NOT_FROM_ENVIRONMENT = frozenset({"kafka", "registry", "kafka_consumer", "kafka_producer", "session_timeout_ms", "sweep_records"})


def find_group_protocol_fault(properties: Mapping[str, str]) -> str | None:
    """Find why consumers cannot have the group protocol that some librdkafka properties say; None where they can."""
    protocol = properties.get("group.protocol", "classic")
    if protocol.lower() == "classic":
        return None
    return (
        f"{protocol!r} is not supported, since brokers decide then when a worker that is silent loses its shards; unset it, or "
        "set it to classic"
    )


def _host_port(variable: str, address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingsInvalid(variable, f"{address!r} is not host:port, like 127.0.0.1:8080")
    return host.strip("[]"), int(port)


WORDS = (("log_format", ("text", "json")), ("log_level", ("debug", "info", "warning", "error")))
_LEAST_CACHE = 8 << 20
BOUNDS = (
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
    ("api_requests_per_s", 0, 1_000_000),
    ("api_timers_per_team", 0, 1_000_000_000),
    ("api_metrics_open", 0, 1),
    ("api_audit", 0, 2),
    ("console_tls_proxy", 0, 1),
    ("console_session_s", 60, 604_800),
)


def copy_environment() -> dict[str, str]:
    """Copy the variables of this process, for processes started beside it and for settings of other names."""
    return dict(os.environ)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from `environ`, or else from the environment of this process.

    Variables that begin with RETRY_ and are none of the service's are passed over; `list_unknown_variables` tells them. Raises
    SettingsInvalid where a value cannot be used.
    """
    found = {k: v for k, v in (os.environ if environ is None else environ).items() if k.startswith(_PREFIX)}
    if wrong := next((k for k, v in found.items() if not is_text(v)), None):
        raise SettingsInvalid(wrong, "is not UTF-8 text")
    kafka = {_property(k, _KAFKA_PREFIX): v for k, v in found.items() if k.startswith(_KAFKA_PREFIX)}
    registry = {_property(k, _REGISTRY_PREFIX): v for k, v in found.items() if k.startswith(_REGISTRY_PREFIX) and v != ""}
    if registry and "url" not in registry:
        raise SettingsInvalid("RETRY_REGISTRY_URL", f"not set, but {', '.join(sorted(registry))} of the registry's client is")
    plain = {k: v for k, v in found.items() if k in VARIABLES and v != ""}
    values: dict[str, object] = {"kafka": kafka, "registry": registry}
    for variable, text in plain.items():
        values[variable.removeprefix(_PREFIX).lower()] = _convert_text(variable, text)
    return Settings(**values)  # type: ignore[arg-type]


VARIABLES = {
    _PREFIX + each.name.upper(): each.type for each in msgspec.structs.fields(Settings) if each.name not in NOT_FROM_ENVIRONMENT
}
# They say where commands find settings, and are none themselves.
_OF_COMMANDS = frozenset({"RETRY_CONFIG", "RETRY_CONTEXT"})


def list_unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Say of each variable that begins with RETRY_ and is none of the service's that it is passed over, in a sentence."""
    names = sorted(each for each in (os.environ if environ is None else environ) if each.startswith(_PREFIX) and is_text(each))
    told = ((name, find_unknown_setting(name)) for name in names if name not in _OF_COMMANDS)
    return [f"{name} is passed over: {unknown}" for name, unknown in told if unknown]


def find_unknown_setting(variable: str) -> str:
    """Say that a variable is no setting, and which one may be meant; empty where it is one."""
    if variable in VARIABLES or any(variable.startswith(each) and variable != each for each in _PROPERTIES):
        return ""
    near = get_close_matches(variable, VARIABLES, 1, 0.8)
    return "no such setting" + (f", did you mean {near[0]}?" if near else "")


def set_variables(values: Mapping[str, str], *, over: bool) -> None:
    """Set variables for this process and those that it starts: all, or without `over` those that have no value yet."""
    os.environ.update({name: value for name, value in values.items() if over or not os.environ.get(name)})


def split_environment(settings: Settings, processes: int) -> list[dict[str, str]]:
    """Copy the environment for each of several workers, each with its own directory, name and share of the table cache."""
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


def find_cache_dir() -> Path:
    """Return the folder of fetched jars and classes of Spark, shared by all checkouts of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dead-letter-retry"


def find_config_dir() -> Path:
    """Return the folder of what this user has chosen for commands."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dead-letter-retry"


def find_java_home() -> str | None:
    """Return the folder of the Java to run, from JAVA_HOME; None for the Java on the PATH."""
    return os.environ.get("JAVA_HOME")


def set_spark_address(address: str) -> None:
    """Name the address of Spark's driver, unless `SPARK_LOCAL_IP` names one.

    Else Spark looks up this machine's own name, which in a container or behind a company's name server may have no address.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", address)


def is_submitted() -> bool:
    """Whether `spark-submit` runs this process, which then has a Java process, a cluster and a configuration already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _property(variable: str, prefix: str) -> str:
    return variable.removeprefix(prefix).lower().replace("_", ".")


def _convert_text(variable: str, text: str) -> object:
    kind = VARIABLES[variable]
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise SettingsInvalid(variable, f"{text!r} is not a whole number") from None
    return text if kind is str else Path(text)
