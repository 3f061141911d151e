"""The environment variables and the YAML file of the Go kafka-message-scheduler → one frozen value, checked whole.

What it has no variable for is set by `RETRY_*`, as for a worker; where both say something, its variable counts. A variable that
is set to nothing counts as not set.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from retry import settings as environment
from retry.errors import SettingsInvalid
from retry.policies.topic_names import find_topic_fault
from retry.process.logs import build_logging
from retry.settings import Settings, find_group_protocol_fault

# The YAML file of the Go kafka-message-scheduler: librdkafka properties for both clients, the producer and the consumer.

log = logging.getLogger(__name__)

_FILE_SETTING = "CONFIGURATION_FILE"
_SECTIONS = ("kafka.common.configuration", "kafka.producer.configuration", "kafka.consumer.configuration")
# Of the Go client, not of librdkafka.
_GO = "go."
# Said by variables, which win.
_VARIABLES = frozenset({"bootstrap.servers", "group.id", "session.timeout.ms"})

Properties = dict[str, str]


def read_yaml_file(path: str | None) -> tuple[Properties, Properties, Properties]:
    """Read properties for both, for producers, for consumers; none where there is no file. Raises SettingsInvalid."""
    if path is None:
        return {}, {}, {}
    try:
        sections: Any = yaml.safe_load(Path(path).read_text()) or {}
    except OSError as error:
        raise SettingsInvalid(_FILE_SETTING, f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        # Not in the parser's words, which quote the file: it may be a wrong one, and hold secrets.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        raise SettingsInvalid(_FILE_SETTING, f"{path}:{mark.line + 1 if mark else 1}: no YAML; is it the right file?") from None
    if not isinstance(sections, dict):
        raise SettingsInvalid(_FILE_SETTING, f"{path}: not a mapping of {', '.join(_SECTIONS)}")
    if sections and not any(name in sections for name in _SECTIONS):
        raise SettingsInvalid(_FILE_SETTING, f"{path}: has none of {', '.join(_SECTIONS)}; is it the right file?")
    if unknown := sorted(str(name) for name in sections if name not in _SECTIONS):
        raise SettingsInvalid(_FILE_SETTING, f"{path}: no such section: {', '.join(unknown)}; known are {', '.join(_SECTIONS)}")
    common, producer, consumer = (_section(path, name, sections.get(name) or {}) for name in _SECTIONS)
    for name, properties in ((_SECTIONS[0], common), (_SECTIONS[2], consumer)):
        if fault := find_group_protocol_fault(properties):
            raise SettingsInvalid(_FILE_SETTING, f"{path}: {name}: group.protocol: {fault}")
    return common, producer, consumer


def _section(path: str, section: str, properties: Any) -> Properties:
    if not isinstance(properties, dict):
        raise SettingsInvalid(_FILE_SETTING, f"{path}: {section} is no mapping of librdkafka properties")
    if left_out := sorted(name for name in map(str, properties) if name.startswith(_GO)):
        log.warning("%s: %s: of the Go client, and without effect: %s", path, section, ", ".join(left_out))
    kept = {str(name): value for name, value in properties.items() if not str(name).startswith(_GO)}
    return {name: _format_scalar(path, name, value) for name, value in kept.items() if name not in _VARIABLES}


def _format_scalar(path: str, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise SettingsInvalid(_FILE_SETTING, f"{path}: {name}: not a text, number or boolean")


_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(?::(?P<port>[0-9]{1,5}))?")


class HostPort(msgspec.Struct, frozen=True):
    """Host and port. `:8000` means every interface; only where nothing is written is it loopback alone."""

    host: str
    port: int

    @classmethod
    def parse_address(cls, given: Mapping[str, str], name: str, port: int) -> HostPort:
        """Read the address that a variable names, or loopback at `port`; raises SettingsInvalid where it is no address."""
        if name not in given:
            return cls("127.0.0.1", port)
        text = given[name]
        address = _ADDRESS.fullmatch(text)
        if not address or int(address["port"] or port) > 65_535 or text == ":":
            raise SettingsInvalid(name, f"{text!r} is not host:port, like 127.0.0.1:{port} or :{port}")
        return cls(address["host"].strip("[]") or "0.0.0.0", int(address["port"] or port))  # noqa: S104 - what `:8000` says

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_LEVELS = {
    "panic": "CRITICAL", "fatal": "CRITICAL", "error": "ERROR", "warn": "WARNING", "warning": "WARNING",
    "info": "INFO", "debug": "DEBUG", "trace": "DEBUG",
}  # fmt: skip
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_GRACE_S_MAX = 100 * 366 * 86_400
# Of all shards together. Each that is sent is four records: many that are due in one second would otherwise come in few, large,
# late transactions.
_SWEEP_RECORDS = 4_000
# Due times are whole seconds: what is swept more often comes in more transactions, and not much sooner.
_SWEEP_INTERVAL_MS = 100


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one scheduler.

    Attributes:
      since_delta: how many days back missed schedules are still sent when they are read for the first time; 0 is today, -1
        yesterday.
      grace_s: by how much a schedule may be past due when it arrives; None for any time.
      allowed: topics, and patterns that begin with `^`, that may be targets; none for all.
      graylog: where logs go besides, as GELF over UDP.
      decoder: URL that makes values readable, see `retry.scheduling.messages.rest_api`; empty for none.
    """

    topics: tuple[str, ...]
    history: str
    server: HostPort
    metrics: HostPort
    since_delta: int
    grace_s: int | None
    allowed: tuple[str, ...]
    graylog: HostPort | None
    decoder: str
    level: str
    worker: Settings


def read_scheduler_settings(environ: Mapping[str, str] | None = None) -> SchedulerSettings:
    """Read the settings from the environment and the file that it names; raises SettingsInvalid where a value cannot be used."""
    given = {
        name: value for name, value in (environment.copy_environment() if environ is None else environ).items() if value != ""
    }
    server, metrics = HostPort.parse_address(given, "SERVER_ADDR", 8000), HostPort.parse_address(given, "METRICS_ADDR", 8001)
    worker = _worker(given, server, metrics)
    return SchedulerSettings(
        topics=_topics(given, "SCHEDULES_TOPICS", "schedules"), history=_read_topic(given, "HISTORY_TOPIC", "history"),
        server=server, metrics=metrics, since_delta=_parse_integer(given, "SINCE_DELTA", 0, -36_500, 0) or 0,
        grace_s=_parse_integer(given, "SCHEDULE_GRACE_INTERVAL", None, 0, _GRACE_S_MAX),
        allowed=_topics(given, "SCHEDULER_ALLOWED_TARGETS", ""),
        graylog=HostPort.parse_address(given, "GRAYLOG_SERVER", 12201) if "GRAYLOG_SERVER" in given else None,
        decoder=_url(given, "KAFKA_MESSAGE_BODY_DECODER"), worker=worker,
        level=_LEVELS.get(given.get("LOG_LEVEL", "").lower(), worker.log_level.upper()),
    )  # fmt: skip


def _worker(given: Mapping[str, str], server: HostPort, metrics: HostPort) -> Settings:
    own = environment.read_settings(given)
    app_id = given.get("RETRY_APP_ID") or given.get("GROUP_ID", "scheduler-cg")
    if not _TOPIC.fullmatch(app_id):
        raise SettingsInvalid("GROUP_ID", f"{app_id!r} cannot begin a topic name; set RETRY_APP_ID to one that can")
    common, producer, consumer = read_yaml_file(given.get("CONFIGURATION_FILE"))
    return msgspec.structs.replace(
        own,
        bootstrap_servers=given.get("BOOTSTRAP_SERVERS") or given.get("RETRY_BOOTSTRAP_SERVERS", "localhost:9092"),
        app_id=app_id,
        # Two schedulers of one machine cannot share a port, so they do not share a directory either.
        data_dir=own.data_dir if "RETRY_DATA_DIR" in given else Path("retry-data") / f"{app_id}-{server.port}",
        http_addr=str(metrics),
        sweep_records=0 if "RETRY_BATCH_RECORDS" in given else _SWEEP_RECORDS,
        sweep_interval_ms=own.sweep_interval_ms if "RETRY_SWEEP_INTERVAL_MS" in given else _SWEEP_INTERVAL_MS,
        kafka={**own.kafka, **common},
        # Keys go where the Go client's default has put them so far.
        kafka_producer={"partitioner": common.get("partitioner", "consistent_random"), **producer},
        kafka_consumer=consumer,
        session_timeout_ms=_parse_integer(given, "SESSION_TIMEOUT", 6_000, 1_000, 3_600_000) or 6_000,
    )


def _url(given: Mapping[str, str], name: str) -> str:
    text = given.get(name, "")
    if text and not re.fullmatch(r"https?://[^\s/]+\S*", text):
        raise SettingsInvalid(name, f"{text!r} is not a URL: http://host:port/path")
    return text


def _parse_integer(given: Mapping[str, str], name: str, default: int | None, low: int, high: int) -> int | None:
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[+-]?[0-9]{1,12}", text) or not low <= int(text) <= high:
        raise SettingsInvalid(name, f"{text!r} is not a whole number from {low:,} to {high:,}")
    return int(text)


def _read_topic(given: Mapping[str, str], name: str, default: str) -> str:
    text = given.get(name, default)
    if fault := find_topic_fault(text):
        raise SettingsInvalid(name, fault)
    return text


def _topics(given: Mapping[str, str], name: str, default: str) -> tuple[str, ...]:
    """A list by commas, of names and of patterns that begin with `^`."""
    topics = tuple(part.strip() for part in given.get(name, default).split(",") if part.strip())
    for part in topics:
        if part.startswith("^"):
            try:
                re.compile(part)
            except re.error as error:
                raise SettingsInvalid(name, f"{part!r} is no pattern: {error}") from None
        elif fault := find_topic_fault(part):
            raise SettingsInvalid(name, f"{fault}; patterns begin with ^")
    if default and not topics:
        raise SettingsInvalid(name, "names no topic")
    return topics


# How a scheduler logs: lines to standard error, and GELF to Graylog where GRAYLOG_SERVER is set.

_GRAYLOG_NAME = "kafka-message-scheduler"


def build_scheduler_logging(settings: SchedulerSettings) -> dict[str, Any]:
    config = build_logging(settings.worker.log_format, settings.level)
    if settings.graylog is not None:
        config["handlers"]["graylog"] = {
            "class": "pygelf.GelfUdpHandler", "host": settings.graylog.host, "port": settings.graylog.port,
            # As the Go scheduler names itself, so that searches go on finding it.
            "_app": _GRAYLOG_NAME, "_facility": _GRAYLOG_NAME, "include_extra_fields": True,
        }  # fmt: skip
        config["root"]["handlers"].append("graylog")
    return config
