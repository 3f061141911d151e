"""Values that are framed for a schema registry, as an operator sees and writes them: JSON, by the schema that the frame names.

Avro has a JSON of its own, as `kafka-avro-console-producer` takes it: a value of a union is told with its type, as
`{"string": "x"}`, unless it is null, and bytes are a text of as many characters. Protobuf has one, too; see `protobuf_values`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from retry.errors import ActionRefused, SchemaUnavailable, TaskInvalid
from retry.kafka.schema_registry import Schemas, Written
from retry.process.limited_program import run_program
from retry.scheduling.tasks import formats

_FRAME_BYTES = 5
_AVRO, _JSON, _PROTOBUF = "AVRO", "JSON", "PROTOBUF"
# As people call what a schema is of.
NAMES = {_AVRO: "Avro", _JSON: "JSON by its schema", _PROTOBUF: "Protobuf"}


class DecodedValue(NamedTuple):
    """A framed value as JSON: what its schema is of, as people call it, the number of the schema, and the JSON."""

    name: str
    schema: int
    json: bytes


class FramedValues:
    """Encodes and decodes, see `SchemaFrames`; `config` are properties of the registry's client. For any thread."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._schemas, self._asking = Schemas(config), threading.Lock()

    def encode_json(self, former: bytes, value: bytes) -> bytes:
        """Encode JSON with the frame of the former value, by its schema; raises ActionRefused, SchemaUnavailable."""
        number, frame = _decode_schema_id(former), former[:_FRAME_BYTES]
        kind, texts = self._find_schema(number)
        try:
            if kind == _JSON:
                _demand_valid(value, texts)
                return frame + value
            if kind == _PROTOBUF:
                from retry.scheduling.tasks.protobuf_values import ProtobufFile

                return frame + ProtobufFile(texts).encode(former[_FRAME_BYTES:], value.decode())
            if kind == _AVRO:
                return frame + _encode_avro(number, texts, value)
        except TaskInvalid as error:
            hint = '; a value of a union is written with its type, as {"string": "x"}' if kind == _AVRO else ""
            raise ActionRefused(f"schema {number} does not take this value: {error.args[-1]}{hint}") from error
        raise ActionRefused(f"schema {number} is {kind}, which has no JSON here: give the whole value, its frame included")

    def decode_json(self, value: bytes) -> bytes | None:
        """Decode a framed value to JSON; None of any other, and where its schema is not known."""
        decoded = self.decode(value)
        return None if decoded is None else decoded.json

    def decode(self, value: bytes) -> DecodedValue | None:
        """Decode a framed value, whatever its schema is of; None of any other, and where its schema is not known."""
        if len(value) <= _FRAME_BYTES or value[0]:
            return None
        number, payload = _decode_schema_id(value), value[_FRAME_BYTES:]
        try:
            kind, texts = self._find_schema(number)
            text = _decode_payload(kind, texts, payload)
        except (SchemaUnavailable, TaskInvalid):
            return None
        return None if text is None else DecodedValue(NAMES[kind], number, text)

    def _find_schema(self, number: int) -> Written:
        with self._asking:
            return self._schemas(number)


def _decode_payload(kind: str, texts: tuple[str, ...], payload: bytes) -> bytes | None:
    if kind == _JSON:
        return payload
    if kind == _PROTOBUF:
        # Of no use to whoever has none, and slow to load.
        from retry.scheduling.tasks.protobuf_values import ProtobufFile

        return ProtobufFile(texts).decode(payload).encode()
    return orjson.dumps(formats.decode_avro_json(payload, formats.parse_avro_schemas(texts))) if kind == _AVRO else None


def _encode_avro(number: int, texts: tuple[str, ...], value: bytes) -> bytes:
    given, schema = json.loads(value), formats.parse_avro_schemas(texts)
    datum = formats.encode_avro_json(given, schema)
    if strange := _strange(given, formats.decode_avro_json(datum, schema)):
        raise ActionRefused(f"schema {number} has no field {', '.join(strange)}; nothing was done")
    return datum


def _demand_valid(value: bytes, texts: tuple[str, ...]) -> None:
    """Raise TaskInvalid where JSON is not valid by a JSON Schema, or it takes too long to tell."""
    asked = orjson.dumps({"texts": texts, "value": value.decode("utf-8", "replace")})
    answer = run_program("retry.scheduling.tasks.check_json", (), asked)
    if answer.fault:
        raise TaskInvalid("no_schema", f"it could not be checked, {answer.fault}; give the whole value, its frame included")
    if fault := orjson.loads(answer.data):
        raise TaskInvalid(*fault)


def _decode_schema_id(value: bytes) -> int:
    return int.from_bytes(value[1:_FRAME_BYTES], "big")


def _strange(given: Any, made: Any, path: str = "") -> list[str]:
    """List paths of fields that were given and that nothing was made of."""
    if isinstance(given, list) and isinstance(made, list):
        pairs = zip(given, made, strict=False)
        return [name for n, (one, other) in enumerate(pairs) for name in _strange(one, other, f"{path}[{n}]")]
    if not isinstance(given, dict) or not isinstance(made, dict):
        return []
    found: list[str] = []
    for name, value in given.items():
        found += _strange(value, made[name], f"{path}.{name}") if name in made else [f"{path}.{name}".lstrip(".")]
    return found
