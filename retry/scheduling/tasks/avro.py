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

# The files of a schema: each may name those before it, the last is the one that is meant.
KEY = ("task-definition-key.avsc",)
DEFINITION = ("frequency-timeunit.avsc", "task-config.avsc", "task-frequency.avsc", "task-definition.avsc")


def schema_text(file: str) -> str:
    """The text of a schema of this package."""
    return (resources.files(__package__) / "schemas" / file).read_text("utf-8")


@cache
def package_schema(files: tuple[str, ...]) -> Any:
    """A schema of this package, KEY or DEFINITION, ready to read and write."""
    return parse_schemas([schema_text(file) for file in files])


def parse_schemas(texts: Sequence[str]) -> Any:
    """Parse schemas in JSON, each of which may name those before it; the last one, ready to read and write.

    Raises:
      TaskInvalid: one is no Avro schema.
    """
    named: dict[str, Any] = {}
    try:
        schemas = [fastavro.parse_schema(json.loads(text), named) for text in texts]
    except Exception as error:  # the library's own kinds, those of json, and whatever a strange schema runs into
        raise TaskInvalid("no_schema", f"not an Avro schema: {error!r:.200}") from error
    return schemas[-1]


def decode(payload: bytes, schema: Any) -> Any:
    """The value in one Avro datum without a header.

    Raises:
      TaskInvalid: the bytes are none of this schema, or go on after it.
    """
    reader = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(reader, schema, None)
    except Exception as error:  # bytes that mean nothing make it raise nearly anything
        raise TaskInvalid("bad_task", f"not Avro of its schema: {error!r:.200}") from error
    if left := len(payload) - reader.tell():
        raise TaskInvalid("bad_task", f"not Avro of its schema: {left} bytes follow")
    return value


def from_json(value: Any, schema: Any) -> bytes:
    """One Avro datum of a value in Avro's own JSON; fields that the schema does not know are passed over.

    Raises:
      TaskInvalid: the schema does not take it.
    """
    try:
        # The library reads a value a line.
        (datum,) = fastavro.json_reader(io.StringIO(json.dumps(value)), schema)
        return encode(datum, schema)
    except Exception as error:  # values of another shape make it raise nearly anything
        raise TaskInvalid("bad_value", f"{error!r:.200}") from error


def to_json(payload: bytes, schema: Any) -> Any:
    """The value in one Avro datum as in Avro's own JSON.

    Raises:
      TaskInvalid: the bytes are none of this schema, or go on after it.
    """
    text = io.StringIO()
    fastavro.json_writer(text, schema, [decode(payload, schema)])
    return json.loads(text.getvalue())


def encode(value: Any, schema: Any) -> bytes:
    """One Avro datum without a header."""
    writer = io.BytesIO()
    fastavro.schemaless_writer(writer, schema, value)
    return writer.getvalue()
