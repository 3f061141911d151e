"""The three forms in which keys and definitions come; the first byte says which.

| first byte | form |
| --- | --- |
| 0x00 | Confluent: four bytes for the number of a schema in the registry, then Avro, or JSON where the schema is JSON's |
| `{`, blanks before it | JSON |
| any other | Avro by the schemas of this package; it begins with the length of a customer's id |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from retry.errors import TaskInvalid
from retry.scheduling.tasks import avro

AUTO, AVRO, CONFLUENT, JSON = "auto", "avro", "confluent", "json"
FORMATS = (AUTO, AVRO, CONFLUENT, JSON)
_MAGIC, _ID_END = b"\0", 5
_SCHEMAS_MAX = 1_000


# AVRO, JSON or PROTOBUF; and the text of a schema, after those of the schemas that it refers to.
KindAndTexts = tuple[str, tuple[str, ...]]


class Reader:
    """Decodes keys and definitions to plain values; for one thread.

    Args:
      schema: asks the registry for the schema of a number; raises SchemaUnavailable.
    """

    def __init__(self, schema: Callable[[int], KindAndTexts]) -> None:
        self._schema = schema
        # Of schemas that never change; None stands for JSON.
        self._parsed: dict[int, Any] = {}

    def decode_key(self, payload: bytes, form: str = AUTO) -> dict[str, Any]:
        """The mapping of a key; see `definition`."""
        return self._mapping(payload, form, avro.KEY)

    def definition(self, payload: bytes, form: str = AUTO) -> dict[str, Any]:
        """The mapping of a definition.

        Args:
          form: the only one that is allowed; AUTO for all.

        Raises:
          TaskInvalid: it is of another form, or of none.
          SchemaUnavailable: of the registry, where that has to be asked.
        """
        return self._mapping(payload, form, avro.DEFINITION)

    def _mapping(self, payload: bytes, form: str, own: tuple[str, ...]) -> dict[str, Any]:
        actual = form_of(payload)
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
            return avro.decode(payload, avro.package_schema(own))
        if len(payload) < _ID_END:
            raise TaskInvalid("bad_task", f"{len(payload)} bytes are too few for the number of a schema")
        schema = self._fetch_schema(int.from_bytes(payload[1:_ID_END], "big"))
        return _parse_json(payload[_ID_END:]) if schema is None else avro.decode(payload[_ID_END:], schema)

    def _fetch_schema(self, number: int) -> Any:
        if number not in self._parsed:
            kind, texts = self._schema(number)
            if kind not in ("AVRO", "JSON"):
                raise TaskInvalid("no_schema", f"schema {number} is {kind}; Avro and JSON are read")
            if len(self._parsed) >= _SCHEMAS_MAX:
                self._parsed.clear()
            self._parsed[number] = None if kind == "JSON" else avro.parse_schemas(texts)
        return self._parsed[number]


def form_of(payload: bytes) -> str:
    """Which form it has, as the module's docstring says."""
    if payload[:1] == _MAGIC:
        return CONFLUENT
    return JSON if payload.lstrip(b" \t\r\n")[:1] == b"{" else AVRO


def _parse_json(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise TaskInvalid("bad_task", f"not JSON: {error}") from error
