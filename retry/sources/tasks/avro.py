"""Avro, by the schemas of this package or by those that a registry keeps."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import fastavro

from retry.errors import TaskInvalid

NAMESPACE = "org.cbenaveen.task.scheduling"
# Each may name those before it.
FILES = ("frequency-timeunit.avsc", "task-config.avsc", "task-frequency.avsc", "task-definition.avsc", "task-definition-key.avsc")
KEY, DEFINITION = f"{NAMESPACE}.TaskDefinitionKey", f"{NAMESPACE}.TaskDefinition"


def written(file: str) -> str:
    """The text of a schema of this package."""
    return (resources.files(__package__) / "schemas" / file).read_text("utf-8")


@cache
def own(name: str) -> Any:
    """A schema of this package by its full name, ready to read and write."""
    return parsed([written(file) for file in FILES], name)


def parsed(texts: Sequence[str], name: str | None = None) -> Any:
    """A schema, ready to read and write.

    Args:
      texts: JSON, each of which may name those before it.
      name: of the one that is meant; None for the last.

    Raises:
      TaskInvalid: one is no Avro schema.
    """
    known: dict[str, Any] = {}
    try:
        for text in texts:
            last = fastavro.parse_schema(json.loads(text), known, expand=False)
    except Exception as error:  # the library's own kinds, those of json, and whatever a strange schema runs into
        raise TaskInvalid("no_schema", f"not an Avro schema: {error!r:.200}") from error
    return last if name is None else known[name]


def decode(payload: bytes, schema: Any) -> Any:
    """The value in one Avro datum without a header.

    Raises:
      TaskInvalid: the bytes are none of this schema, or go on after it.
    """
    reading = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(reading, schema, None)
    except Exception as error:  # bytes that mean nothing make it raise nearly anything
        raise TaskInvalid("bad_task", f"not Avro of its schema: {error!r:.200}") from error
    if left := len(payload) - reading.tell():
        raise TaskInvalid("bad_task", f"not Avro of its schema: {left} bytes follow")
    return value


def encode(value: Any, schema: Any) -> bytes:
    """One Avro datum without a header."""
    writing = io.BytesIO()
    fastavro.schemaless_writer(writing, schema, value)
    return writing.getvalue()
