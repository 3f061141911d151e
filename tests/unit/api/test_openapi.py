"""The description is whole, says the fields that are read, and its page needs nothing from elsewhere (2-1)."""

from __future__ import annotations

import re

import msgspec

from retry.scheduling.timers import openapi
from retry.scheduling.timers.timer_request import Asked


def test_2_1_the_description_has_every_field_that_is_read() -> None:
    told = openapi.DOCUMENT["components"]["schemas"]["Wanted"]["properties"]
    assert list(told) == [field.name for field in msgspec.structs.fields(Asked)]


def test_2_1_every_reference_leads_somewhere() -> None:
    found = set(re.findall(r"#/components/schemas/(\w+)", msgspec.json.encode(openapi.DOCUMENT).decode()))
    assert found <= openapi.DOCUMENT["components"]["schemas"].keys()
    assert found


def test_2_1_the_page_needs_nothing_from_elsewhere() -> None:
    page = openapi.page()
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) == {"/openapi.json", "/docs.js"}
    assert "<script>" not in page
    assert all(path in page for path in openapi.DOCUMENT["paths"])
