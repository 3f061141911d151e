"""Payloads as people read them: shapes without what they say, JSON, text and hex; of what is large, a part."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from retry.console.web.payload_views import WHOLE_BYTES_MAX, list_value_parts, list_views
from retry.scheduling.tasks.framed_values import DecodedValue

_PLAIN = st.none() | st.booleans() | st.integers() | st.text(min_size=1)
_JSON = st.recursive(_PLAIN, lambda of: st.lists(of) | st.dictionaries(st.just("name"), of))


@given(st.text(alphabet="XYZ", min_size=4), _JSON)
def test_a_shape_never_has_what_a_text_says(secret: str, rest: object) -> None:
    lines = list_value_parts(json.dumps({"a": secret, "b": [secret], "c": rest}).encode())
    assert not any(secret in line.says or secret in line.path for line in lines)


def test_shapes_of_what_is_no_json_are_a_kind_and_a_length() -> None:
    assert [line.says for line in list_value_parts(b"secret words")] == ["text of 12 bytes"]
    assert [line.says for line in list_value_parts(b"\x00\xff\x01")] == ["bytes of 3 bytes"]
    assert [line.says for line in list_value_parts(b"")] == ["text of 0 bytes"]
    assert list_value_parts(None)[0].says == "null: the record has no value"
    assert [line.says for line in list_value_parts(b"null")] == ["null"]
    assert [line.says for line in list_value_parts(b'"' + b"a" * (2 << 20) + b'"')] == ["text of 2,097,154 bytes"]
    assert [line.path for line in list_value_parts(b"\0\0\0\0\1x", b'{"id": 1}')] == ["$", "$.id"]


def test_elements_of_a_list_are_told_once_and_many_parts_are_cut() -> None:
    assert [line.path for line in list_value_parts(b'[{"a": 1}, {"a": "x", "b": true}]')] == ["$", "$[]", "$[].a", "$[].b"]
    many = list_value_parts(json.dumps({f"n{n}": n for n in range(1_000)}).encode())
    assert (len(many), many[-1].says) == (201, "801 more parts")
    deep = b"[" * 500 + b"]" * 500
    assert len(list_value_parts(deep)) <= 14


def test_a_value_is_read_as_json_text_and_hex() -> None:
    found = {view.name: view for view in list_views(b'{"big": 12345678901234567890123, "to": "\xe2\x80\xae"}')}
    assert list(found) == ["JSON", "Text", "Hex"]
    assert "12345678901234567890123" in found["JSON"].text
    assert "\\u202e" in found["JSON"].text
    assert "\u202e" not in "".join(view.text for view in found.values())
    assert found["Hex"].text.startswith("00000000  7b 22 62 69 67")


def test_a_framed_value_is_read_by_its_schema_first() -> None:
    assert [view.name for view in list_views(b"\0\0\0\0\1\2a", DecodedValue("Avro", 1, b'{"id": "a"}'))] == [
        "Avro",
        "Text",
        "Hex",
    ]


def test_broken_text_is_made_visible() -> None:
    (text, _) = list_views(b"a\xff\x1b[2J\nb")
    assert text.text == "a\\xff\\x1b[2J\nb"


def test_of_a_value_over_a_megabyte_a_part_is_shown() -> None:
    found = {view.name: view for view in list_views(b"[" + b"1," * (1 << 20) + b"1]")}
    assert list(found) == ["Text", "Hex"]
    assert (found["Text"].cut_at, found["Hex"].cut_at) == (64 << 10, 16 << 10)
    assert len(found["Text"].text) <= WHOLE_BYTES_MAX
    assert [view.cut_at for view in list_views(b"short")] == [None, None]
    assert list_views(None) == []
