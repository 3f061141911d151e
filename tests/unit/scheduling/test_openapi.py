"""The description is whole, says the fields that are read, and its page needs nothing from elsewhere (2-1)."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import jsonschema
import msgspec
import pytest

from retry.scheduling.timers import openapi
from retry.scheduling.timers.callers import Problem
from retry.scheduling.timers.timer_request import TimerBody, read

ABSENT = object()


def test_2_1_the_description_has_every_field_that_is_read() -> None:
    told = openapi.DOCUMENT["components"]["schemas"]["TimerBody"]["properties"]
    assert list(told) == [field.name for field in msgspec.structs.fields(TimerBody)]


def test_2_1_every_reference_leads_somewhere() -> None:
    found = set(re.findall(r"#/components/schemas/(\w+)", msgspec.json.encode(openapi.DOCUMENT).decode()))
    assert found <= openapi.DOCUMENT["components"]["schemas"].keys()
    assert found


def test_2_1_the_page_needs_nothing_from_elsewhere() -> None:
    page = openapi.render_docs()
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) == {"/openapi.json", "/docs.js"}
    assert "<script>" not in page
    assert all(path in page for path in openapi.DOCUMENT["paths"])


def is_read(wish: dict[str, Any]) -> bool:
    try:
        read(msgspec.json.encode(wish), None, 1_700_000_000_000)
    except Problem:
        return False
    return True


@pytest.mark.parametrize("at", [ABSENT, None, 1_700_000_000_001, "2026-01-31T12:00:00Z"])
@pytest.mark.parametrize("after", [ABSENT, None, "5m", "soon", ""])
def test_the_description_says_which_fields_exclude_each_other(at: object, after: object) -> None:
    schema = jsonschema.Draft202012Validator(openapi.DOCUMENT["components"]["schemas"]["TimerBody"])
    for body, body_base64 in product((ABSENT, None, "text", {"order": 17}), (ABSENT, None, "aGk=")):
        fields = {"at": at, "after": after, "body": body, "body_base64": body_base64}
        wish = {"url": "https://example.com/", **{name: value for name, value in fields.items() if value is not ABSENT}}
        assert schema.is_valid(wish) is is_read(wish), wish


def test_the_description_asks_for_a_token_only_where_one_is_asked_for() -> None:
    assert openapi.document(asks_for_token=True)["security"] == [{"token": []}]
    assert openapi.document(asks_for_token=False)["security"] == []


def test_every_operation_says_that_it_may_be_refused_and_a_list_that_a_parameter_may_be_wrong() -> None:
    answers = [set(of["responses"]) for methods in openapi.DOCUMENT["paths"].values() for of in methods.values()]
    assert all({"401", "429"} <= each for each in answers)
    assert all("422" in of["responses"] for of in openapi.DOCUMENT["paths"]["/timers"].values())
