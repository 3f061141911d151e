"""Values that are framed for a schema registry, as an operator sees and writes them: JSON, by the schema that the frame names.

Avro has a JSON of its own, as `kafka-avro-console-producer` takes it: a value of a union is told with its type, as
`{"string": "x"}`, unless it is null, and bytes are a text of as many characters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from retry.errors import ActionRefused, SchemaUnavailable, TaskInvalid
from retry.kafka.schema_registry import Schemas
from retry.scheduling.tasks import formats

_FRAME_BYTES = 5


class FramedValues:
    """Encodes and decodes, see `retry.operations.act.request.SchemaFrames`; `config` are properties of the registry's client."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._schemas = Schemas(config)

    def encode_json(self, former: bytes, value: bytes) -> bytes:
        """Encode JSON with the frame of the former value, by its schema.

        Raises:
          ActionRefused: the schema does not take it, or is of a kind that has no JSON.
          SchemaUnavailable: there is no registry, or it does not answer.
        """
        number, frame = _decode_schema_id(former), former[:_FRAME_BYTES]
        kind, texts = self._schemas(number)
        if kind == "JSON":
            return frame + value
        if kind != "AVRO":
            raise ActionRefused(f"schema {number} is {kind}, which has no JSON here: give the whole value, its frame included")
        given = json.loads(value)
        try:
            schema = formats.parse_avro_schemas(texts)
            datum = formats.avro_from_json(given, schema)
        except TaskInvalid as error:
            union = '; a value of a union is written with its type, as {"string": "x"}'
            raise ActionRefused(f"schema {number} does not take this value: {error.args[-1]}{union}") from error
        if strange := _strange(given, formats.avro_to_json(datum, schema)):
            raise ActionRefused(f"schema {number} has no field {', '.join(strange)}; nothing was done")
        return frame + datum

    def decode_json(self, value: bytes) -> bytes | None:
        """Decode a framed value to JSON; None of any other, and where its schema is not known."""
        if len(value) <= _FRAME_BYTES or value[0]:
            return None
        try:
            kind, texts = self._schemas(_decode_schema_id(value))
            if kind == "JSON":
                return value[_FRAME_BYTES:]
            if kind != "AVRO":
                return None
            return orjson.dumps(formats.avro_to_json(value[_FRAME_BYTES:], formats.parse_avro_schemas(texts)))
        except (SchemaUnavailable, TaskInvalid):
            return None


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
