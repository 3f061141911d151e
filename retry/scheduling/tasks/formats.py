"""The three forms in which keys and definitions come; the first byte says which.

| first byte | form |
| --- | --- |
| 0x00 | Confluent: four bytes for the number of a schema in the registry, then Avro, or JSON where the schema is JSON's |
| `{`, blanks before it | JSON |
| any other | Avro by the schemas of this package; it begins with the length of a customer's id |
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import fastavro
import orjson

from retry.errors import TaskInvalid
from retry.policies.policy_file import FORMATS

# Avro, by the schemas of this package or by those that a registry keeps.

# The files of a schema: each may name those before it, the last is the one that is meant.
KEY_SCHEMA = ("task-definition-key.avsc",)
DEFINITION_SCHEMA = ("frequency-timeunit.avsc", "task-config.avsc", "task-frequency.avsc", "task-definition.avsc")


def schema_text(file: str) -> str:
    return (resources.files(__package__) / "schemas" / file).read_text("utf-8")


@cache
def package_schema(files: tuple[str, ...]) -> Any:
    return parse_avro_schemas([schema_text(file) for file in files])


def parse_avro_schemas(texts: Sequence[str]) -> Any:
    """Parse schemas in JSON, each of which may name those before it, and return the last one; raises TaskInvalid."""
    named: dict[str, Any] = {}
    try:
        schemas = [fastavro.parse_schema(json.loads(text), named) for text in texts]
    except Exception as error:  # the library's own kinds, those of json, and whatever a strange schema runs into
        raise TaskInvalid("no_schema", f"not an Avro schema: {error!r:.200}") from error
    return schemas[-1]


def decode_avro(payload: bytes, schema: Any) -> Any:
    """Decode one Avro datum without a header; raises TaskInvalid where the bytes are none of this schema, or go on after it."""
    reader = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(reader, schema, None)
    except Exception as error:  # bytes that mean nothing make it raise nearly anything
        raise TaskInvalid("bad_task", f"not Avro of its schema: {error!r:.200}") from error
    if left := len(payload) - reader.tell():
        raise TaskInvalid("bad_task", f"not Avro of its schema: {left} bytes follow")
    return value


def encode_avro_json(value: Any, schema: Any) -> bytes:
    """Encode a value in Avro's own JSON as one datum, without fields that the schema does not know; raises TaskInvalid."""
    try:
        # The library reads a value a line.
        (datum,) = fastavro.json_reader(io.StringIO(json.dumps(value)), schema)
        return encode_avro(datum, schema)
    except Exception as error:  # values of another shape make it raise nearly anything
        raise TaskInvalid("bad_value", f"{error!r:.200}") from error


def decode_avro_json(payload: bytes, schema: Any) -> Any:
    """Decode one Avro datum to Avro's own JSON; raises as `decode_avro`."""
    text = io.StringIO()
    fastavro.json_writer(text, schema, [decode_avro(payload, schema)])
    return json.loads(text.getvalue())


def encode_avro(value: Any, schema: Any) -> bytes:
    writer = io.BytesIO()
    fastavro.schemaless_writer(writer, schema, value)
    return writer.getvalue()


AUTO, AVRO, CONFLUENT, JSON = FORMATS
_MAGIC, _ID_END = b"\0", 5
_SCHEMAS_MAX = 1_000


# AVRO, JSON or PROTOBUF; and the text of a schema, after those of the schemas that it refers to.
KindAndTexts = tuple[str, tuple[str, ...]]


class Reader:
    """Decodes keys and definitions to plain values, for one thread; `schema` asks the registry, and raises SchemaUnavailable."""

    def __init__(self, schema: Callable[[int], KindAndTexts]) -> None:
        self._schema = schema
        # Of schemas that never change; None stands for JSON.
        self._parsed: dict[int, Any] = {}

    def decode_key(self, payload: bytes, form: str = AUTO) -> dict[str, Any]:
        return self._mapping(payload, form, KEY_SCHEMA)

    def definition(self, payload: bytes, form: str = AUTO) -> dict[str, Any]:
        """Decode the mapping of a definition of this `form`, or any with AUTO; raises TaskInvalid, SchemaUnavailable."""
        return self._mapping(payload, form, DEFINITION_SCHEMA)

    def encode_definition(self, former: bytes, value: dict[str, Any]) -> bytes:
        """Encode a definition in the form and by the schema of a former one; raises TaskInvalid, SchemaUnavailable."""
        form = find_form(former)
        schema = package_schema(DEFINITION_SCHEMA) if form == AVRO else None
        if form == CONFLUENT:
            schema = self._fetch_schema(int.from_bytes(former[1:_ID_END], "big"))
        frame = former[:_ID_END] if form == CONFLUENT else b""
        try:
            return frame + (orjson.dumps(value) if schema is None else encode_avro(value, schema))
        except Exception as error:  # values that a schema does not take make it raise nearly anything
            raise TaskInvalid("bad_task", f"its schema does not take it: {error!r:.200}") from error

    def _mapping(self, payload: bytes, form: str, own: tuple[str, ...]) -> dict[str, Any]:
        actual = find_form(payload)
        if form not in (AUTO, actual):
            raise TaskInvalid("bad_task", f"it is {actual}, not {form} as the policy file says")
        value = self._decode_payload(payload, actual, own)
        if not isinstance(value, dict):
            raise TaskInvalid("bad_task", f"{type(value).__name__} is no mapping")
        return value

    def _decode_payload(self, payload: bytes, form: str, own: tuple[str, ...]) -> Any:
        if form == JSON:
            return _parse_json(payload)
        if form == AVRO:
            return decode_avro(payload, package_schema(own))
        if len(payload) < _ID_END:
            raise TaskInvalid("bad_task", f"{len(payload)} bytes are too few for the number of a schema")
        schema = self._fetch_schema(int.from_bytes(payload[1:_ID_END], "big"))
        return _parse_json(payload[_ID_END:]) if schema is None else decode_avro(payload[_ID_END:], schema)

    def _fetch_schema(self, number: int) -> Any:
        if number not in self._parsed:
            kind, texts = self._schema(number)
            if kind not in ("AVRO", "JSON"):
                raise TaskInvalid("no_schema", f"schema {number} is {kind}; Avro and JSON are read")
            if len(self._parsed) >= _SCHEMAS_MAX:
                self._parsed.clear()
            self._parsed[number] = None if kind == "JSON" else parse_avro_schemas(texts)
        return self._parsed[number]


def find_form(payload: bytes) -> str:
    """Tell the form by the first byte, as the module's docstring says."""
    if payload[:1] == _MAGIC:
        return CONFLUENT
    return JSON if payload.lstrip(b" \t\r\n")[:1] == b"{" else AVRO


def _parse_json(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise TaskInvalid("bad_task", f"not JSON: {error}") from error
