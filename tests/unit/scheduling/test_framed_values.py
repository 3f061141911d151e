"""A letter whose value is framed for a schema registry is edited as JSON, and stays what its schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from retry.delay_queue.envelopes import Entry
from retry.errors import ActionRefused, SchemaUnavailable
from retry.operations.act.preview import differences
from retry.operations.act.request import Edit
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.framed_values import FramedValues
from tests.support.registry import RegistryServer, confluent

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "raw", "type": "bytes", "default": ""},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ]}}},
]  # fmt: skip
SCHEMA = json.dumps({"type": "record", "name": "Payment", "fields": FIELDS})
VALUE = {"id": "p", "note": {"string": "ü"}, "at": 1_700_000_000_123, "raw": "\xff", "lines": [{"cents": "\x01\x02"}]}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    server.add(7, SCHEMA)
    server.add(8, '{"type": "object"}', kind="JSON")
    server.add(9, 'syntax = "proto3";', kind="PROTOBUF")
    yield server
    server.close()


def entry(value: bytes) -> Entry:
    return Entry("orders.retry", b"k", value, [], None, "orders")


def payment(**changes: Any) -> bytes:
    return json.dumps(VALUE | changes, indent=1).encode()


def former(registry: RegistryServer) -> bytes:
    """A letter as its producer wrote it."""
    return confluent(7, formats.avro_from_json(VALUE, formats.parse_avro_schemas([SCHEMA])))


def edited(registry: RegistryServer, value: bytes, given: bytes) -> bytes | None:
    return Edit(given, framing=FramedValues({"url": registry.url})).apply_to(entry(value)).value


def test_json_is_encoded_by_the_schema_of_the_letter(registry: RegistryServer) -> None:
    new = edited(registry, former(registry), payment(id="other", note=None)) or b""
    assert new[:5] == b"\0\0\0\0\7"
    assert formats.avro_to_json(new[5:], formats.parse_avro_schemas([SCHEMA])) == VALUE | {"id": "other", "note": None}


def test_what_a_schema_has_a_default_for_may_be_left_out(registry: RegistryServer) -> None:
    given = {name: value for name, value in VALUE.items() if name not in ("note", "raw")}
    new = edited(registry, former(registry), json.dumps(given).encode()) or b""
    assert formats.avro_to_json(new[5:], formats.parse_avro_schemas([SCHEMA])) == VALUE | {"note": None, "raw": ""}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ids": "x"}, "schema 7 has no field ids"),
        ({"lines": [{"cents": "\x01", "euros": 1}]}, r"schema 7 has no field lines\[0\].euros"),
        ({"id": 5}, "schema 7 does not take this value: .*string on field id"),
        ({"note": "untold"}, "is written with its type"),
        ({"at": "noon"}, "schema 7 does not take this value"),
    ],
)
def test_fields_that_are_wrong_are_named(registry: RegistryServer, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ActionRefused, match=told):
        edited(registry, former(registry), payment(**changes))


def test_a_field_without_a_default_must_be_there(registry: RegistryServer) -> None:
    with pytest.raises(ActionRefused, match="no value and no default"):
        edited(registry, former(registry), b'{"id": "p"}')


def test_json_by_a_schema_of_json_is_framed_and_what_has_no_json_is_refused(registry: RegistryServer) -> None:
    assert edited(registry, confluent(8, b"{}"), b'{"a": 1}') == confluent(8, b'{"a": 1}')
    with pytest.raises(ActionRefused, match="schema 9 is PROTOBUF"):
        edited(registry, confluent(9, b"\0x"), b"{}")


def test_a_value_with_its_frame_is_taken_as_it_is_and_no_other(registry: RegistryServer) -> None:
    assert edited(registry, former(registry), confluent(7, b"anything")) == confluent(7, b"anything")
    with pytest.raises(ActionRefused, match="framed for schema 7"):
        edited(registry, former(registry), confluent(8, b"anything"))
    assert registry.asked == []


def test_without_a_registry_nothing_is_edited_by_its_schema(registry: RegistryServer) -> None:
    with pytest.raises(SchemaUnavailable, match="RETRY_REGISTRY_URL"):
        Edit(payment(), framing=FramedValues({})).apply_to(entry(former(registry)))
    with pytest.raises(SchemaUnavailable, match="no schema 3"):
        edited(registry, confluent(3, b"x"), payment())


def test_the_preview_tells_both_in_json(registry: RegistryServer) -> None:
    framing = FramedValues({"url": registry.url})
    before = entry(former(registry))
    after = Edit(payment(id="other"), framing=framing).apply_to(before)
    lines = differences(before, after, framing.decode_json)
    assert [line for line in lines if line[:2] in ("- ", "+ ")] == ['-  "id": "p",', '+  "id": "other",']


@pytest.mark.parametrize("value", [b"", b"text", b"\0\0\0\0\7", confluent(7, b"\x02"), confluent(3, b"x"), confluent(9, b"x")])
def test_what_cannot_be_told_in_json_is_shown_as_it_is(registry: RegistryServer, value: bytes) -> None:
    assert FramedValues({"url": registry.url}).decode_json(value) is None
