"""The description has of each body of a request what the API reads: the same fields and types, and the same ones demanded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from retry.console.acting import openapi
from retry.console.acting.act_pages import ActBody
from retry.console.acting.api import OrderBody, PauseBody, StartBody


def types_of(schema: dict[str, Any]) -> set[str]:
    told = schema.get("type", [each["type"] for each in schema.get("anyOf", [])])
    return {told} if isinstance(told, str) else set(told)


@pytest.mark.parametrize(("name", "read"), [("Ask", ActBody), ("Start", StartBody), ("Order", OrderBody), ("Pause", PauseBody)])
def test_a_body_is_described_as_it_is_read(name: str, read: type[msgspec.Struct]) -> None:
    told = openapi.DOCUMENT["components"]["schemas"][name]
    _, components = msgspec.json.schema_components([read])
    parsed = components[read.__name__]
    assert set(told["properties"]) == set(parsed["properties"])
    assert told["required"] == parsed["required"]
    assert told["additionalProperties"] is parsed["additionalProperties"] is False
    for field, schema in parsed["properties"].items():
        assert types_of(told["properties"][field]) == types_of(schema), field
