"""A letter whose value is framed for a schema registry is edited as JSON, and stays what its schema says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from retry.delay_queue.envelopes import Entry
from retry.errors import ActionRefused, SchemaUnavailable
from retry.operations.act.preview import diff_letters
from retry.operations.act.request import Edit
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.framed_values import FramedValues
from tests.support.protobuf_schemas import build_file, build_message, serialize
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
    return confluent(7, formats.encode_avro_json(VALUE, formats.parse_avro_schemas([SCHEMA])))


def edit_value(registry: RegistryServer, value: bytes, given: bytes) -> bytes | None:
    return Edit(given, framing=FramedValues({"url": registry.url})).apply_to(entry(value)).value


def test_json_is_encoded_by_the_schema_of_the_letter(registry: RegistryServer) -> None:
    new = edit_value(registry, former(registry), payment(id="other", note=None)) or b""
    assert new[:5] == b"\0\0\0\0\7"
    assert formats.decode_avro_json(new[5:], formats.parse_avro_schemas([SCHEMA])) == VALUE | {"id": "other", "note": None}


def test_what_a_schema_has_a_default_for_may_be_left_out(registry: RegistryServer) -> None:
    given = {name: value for name, value in VALUE.items() if name not in ("note", "raw")}
    new = edit_value(registry, former(registry), json.dumps(given).encode()) or b""
    assert formats.decode_avro_json(new[5:], formats.parse_avro_schemas([SCHEMA])) == VALUE | {"note": None, "raw": ""}


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
        edit_value(registry, former(registry), payment(**changes))


def test_a_field_without_a_default_must_be_there(registry: RegistryServer) -> None:
    with pytest.raises(ActionRefused, match="no value and no default"):
        edit_value(registry, former(registry), b'{"id": "p"}')


def test_json_by_a_schema_of_json_is_framed_and_what_has_no_json_is_refused(registry: RegistryServer) -> None:
    assert edit_value(registry, confluent(8, b"{}"), b'{"a": 1}') == confluent(8, b'{"a": 1}')
    with pytest.raises(ActionRefused, match="schema 9 does not take this value: not a Protobuf schema"):
        edit_value(registry, confluent(9, b"\0x"), b"{}")


def test_a_value_with_its_frame_is_taken_as_it_is_and_no_other(registry: RegistryServer) -> None:
    assert edit_value(registry, former(registry), confluent(7, b"anything")) == confluent(7, b"anything")
    with pytest.raises(ActionRefused, match="framed for schema 7"):
        edit_value(registry, former(registry), confluent(8, b"anything"))
    assert registry.asked == []


def test_without_a_registry_nothing_is_edited_by_its_schema(registry: RegistryServer) -> None:
    with pytest.raises(SchemaUnavailable, match="RETRY_REGISTRY_URL"):
        Edit(payment(), framing=FramedValues({})).apply_to(entry(former(registry)))
    with pytest.raises(SchemaUnavailable, match="no schema 3"):
        edit_value(registry, confluent(3, b"x"), payment())


def test_the_preview_tells_both_in_json(registry: RegistryServer) -> None:
    framing = FramedValues({"url": registry.url})
    before = entry(former(registry))
    after = Edit(payment(id="other"), framing=framing).apply_to(before)
    lines = diff_letters(before, after, framing.decode_json)
    assert [line for line in lines if line[:2] in ("- ", "+ ")] == ['-  "id": "p",', '+  "id": "other",']


@pytest.mark.parametrize("value", [b"", b"text", b"\0\0\0\0\7", confluent(7, b"\x02"), confluent(3, b"x"), confluent(9, b"x")])
def test_what_cannot_be_told_in_json_is_shown_as_it_is(registry: RegistryServer, value: bytes) -> None:
    assert FramedValues({"url": registry.url}).decode_json(value) is None


MONEY = build_file("shop/money.proto", {"Money": {"units": "int64", "currency": "string"}})
ORDER = build_file(
    "order.proto", {"Other": {"id": "string"}, "Order": {"id": "string", "raw": "bytes", "price": ".shop.Money"}},
    ("shop/money.proto",),
)  # fmt: skip
PRICE = {"units": 1 << 60, "currency": "EUR"}
# The second message of its file, then without the indexes of its place what a producer wrote.
PROTOBUF = confluent(11, b"\x02\x02" + build_message([MONEY, ORDER], "Order", id="a", raw=b"\xff", price=PRICE))


@pytest.fixture
def protobuf(registry: RegistryServer) -> RegistryServer:
    registry.add(10, "message Money …", "money", "PROTOBUF", serialized=serialize(MONEY))
    references = (("shop/money.proto", "money", 1),)
    registry.add(11, "message Order …", "order", "PROTOBUF", references, serialized=serialize(ORDER))
    registry.add(
        12, '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}', kind="JSON"
    )
    registry.add(13, '{"$ref": "http://example.com/other.json"}', kind="JSON")
    return registry


def test_protobuf_is_read_and_written_as_json(protobuf: RegistryServer) -> None:
    framing = FramedValues({"url": protobuf.url})
    decoded = framing.decode(PROTOBUF)
    assert decoded is not None
    assert (decoded.name, decoded.schema) == ("Protobuf", 11)
    assert json.loads(decoded.json) == {"id": "a", "raw": "/w==", "price": {"units": str(1 << 60), "currency": "EUR"}}
    assert framing.encode_json(PROTOBUF, decoded.json) == PROTOBUF
    new = framing.encode_json(PROTOBUF, decoded.json.replace(b"EUR", b"CHF"))
    assert new == PROTOBUF.replace(b"EUR", b"CHF")
    for wrong in (b'{"ids": "a"}', b'{"price": 5}', b"[]", b'{"id": 5}'):
        with pytest.raises(ActionRefused, match="schema 11 does not take this value"):
            framing.encode_json(PROTOBUF, wrong)


def test_what_the_schema_of_protobuf_does_not_name_is_not_lost(protobuf: RegistryServer) -> None:
    more = PROTOBUF + b"\xa2\x06\x01x"
    with pytest.raises(ActionRefused, match="these would be lost"):
        FramedValues({"url": protobuf.url}).encode_json(more, b'{"id": "b"}')


@pytest.mark.parametrize("payload", [
    b"", b"\x02", b"\x02\x7e", b"\x02\x01", b"\xff\xff\xff\xff\xff\x01", b"\x00\xff\xff", b"\x80", b"\x02\x02\x0a\xff",
    b"\x00" + b"\x0a\x00" * 9 + b"\xff",
])  # fmt: skip
def test_bytes_that_mean_nothing_are_not_read(protobuf: RegistryServer, payload: bytes) -> None:
    assert FramedValues({"url": protobuf.url}).decode(confluent(11, payload)) is None


def test_where_the_registry_gives_no_descriptor_protobuf_is_not_read(registry: RegistryServer) -> None:
    assert FramedValues({"url": registry.url}).decode(confluent(9, b"\x00")) is None


def test_json_is_checked_by_its_schema(protobuf: RegistryServer) -> None:
    framing = FramedValues({"url": protobuf.url})
    assert framing.encode_json(confluent(12, b"{}"), b'{"n": 5}') == confluent(12, b'{"n": 5}')
    with pytest.raises(ActionRefused, match=r"does not take this value: \$.n: 'x' is not of type 'integer'"):
        framing.encode_json(confluent(12, b"{}"), b'{"n": "x"}')
    # Nobody is asked for what a schema refers to elsewhere.
    with pytest.raises(ActionRefused, match="not a JSON Schema that can be used"):
        framing.encode_json(confluent(13, b"{}"), b"{}")


def test_a_pattern_that_takes_for_ever_ends_in_a_sentence(protobuf: RegistryServer) -> None:
    protobuf.add(14, '{"properties": {"n": {"pattern": "^(a+)+$"}}}', kind="JSON")
    framing, began_s = FramedValues({"url": protobuf.url}), time.monotonic()
    with pytest.raises(ActionRefused, match=r"could not be checked, it took .*; give the whole value, its frame included"):
        framing.encode_json(confluent(14, b"{}"), b'{"n": "%sb"}' % (b"a" * 60))
    assert time.monotonic() - began_s < 60
    assert framing.encode_json(confluent(14, b"{}"), b'{"n": "aa"}') == confluent(14, b'{"n": "aa"}')
