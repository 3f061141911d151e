"""The YAML file of the Go kafka-message-scheduler: librdkafka properties for both clients, the producer and the consumer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import yaml

from retry.errors import SettingsInvalid
from retry.settings import find_group_protocol_fault

log = logging.getLogger(__name__)

_NAME = "CONFIGURATION_FILE"
_SECTIONS = ("kafka.common.configuration", "kafka.producer.configuration", "kafka.consumer.configuration")
# Of the Go client, not of librdkafka.
_GO = "go."
# Said by variables, which win.
_VARIABLES = frozenset({"bootstrap.servers", "group.id", "session.timeout.ms"})

Properties = dict[str, str]


def read(path: str | None) -> tuple[Properties, Properties, Properties]:
    """Properties for both, for producers, for consumers; none where there is no file.

    Raises:
      SettingsInvalid: the file cannot be read, or has something else in it.
    """
    if path is None:
        return {}, {}, {}
    try:
        sections: Any = yaml.safe_load(Path(path).read_text()) or {}
    except OSError as error:
        raise SettingsInvalid(_NAME, f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        # Not in the parser's words, which quote the file: it may be a wrong one, and hold secrets.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        raise SettingsInvalid(_NAME, f"{path}:{mark.line + 1 if mark else 1}: no YAML; is it the right file?") from None
    if not isinstance(sections, dict):
        raise SettingsInvalid(_NAME, f"{path}: not a mapping of {', '.join(_SECTIONS)}")
    if sections and not any(name in sections for name in _SECTIONS):
        raise SettingsInvalid(_NAME, f"{path}: has none of {', '.join(_SECTIONS)}; is it the right file?")
    if unknown := sorted(str(name) for name in sections if name not in _SECTIONS):
        raise SettingsInvalid(_NAME, f"{path}: no such section: {', '.join(unknown)}; known are {', '.join(_SECTIONS)}")
    common, producer, consumer = (_section(path, name, sections.get(name) or {}) for name in _SECTIONS)
    for name, properties in ((_SECTIONS[0], common), (_SECTIONS[2], consumer)):
        if fault := find_group_protocol_fault(properties):
            raise SettingsInvalid(_NAME, f"{path}: {name}: group.protocol: {fault}")
    return common, producer, consumer


def _section(path: str, section: str, properties: Any) -> Properties:
    if not isinstance(properties, dict):
        raise SettingsInvalid(_NAME, f"{path}: {section} is no mapping of librdkafka properties")
    if left_out := sorted(name for name in map(str, properties) if name.startswith(_GO)):
        log.warning("%s: %s: of the Go client, and without effect: %s", path, section, ", ".join(left_out))
    kept = {str(name): value for name, value in properties.items() if not str(name).startswith(_GO)}
    return {name: _format_scalar(path, name, value) for name, value in kept.items() if name not in _VARIABLES}


def _format_scalar(path: str, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise SettingsInvalid(_NAME, f"{path}: {name}: not a text, number or boolean")
