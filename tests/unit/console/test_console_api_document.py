"""The API's description has every route of it and no other, and its answers are as it says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import jsonschema
import pytest

from retry.console.acting import api, openapi
from retry.console.web.rights import Role, Viewer
from tests.support.acting_console import ActingConsole
from tests.support.console import group, letter

ADA = Viewer("ada", {"*": Role.ADMIN}, frozenset({"*"}))


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.replica.rows, made.replica.kinds = [letter(1), letter(2)], [group()]
    yield made
    made.close()


def test_every_route_is_described_and_nothing_else(console: ActingConsole) -> None:
    routes = {
        (re.sub(r":\w+", "", route.path), method.lower())
        for route in api.build_routes(console.console) for method in (route.methods or set()) - {"HEAD"}
    }  # fmt: skip
    described = {(path, method) for path, methods in openapi.DOCUMENT["paths"].items() for method in methods}
    assert routes == described


def test_each_reference_of_the_description_leads_somewhere() -> None:
    schemas = openapi.DOCUMENT["components"]["schemas"]
    for name in re.findall(r"#/components/schemas/(\w+)", str(openapi.DOCUMENT)):
        assert name in schemas
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


PATHS = openapi.DOCUMENT["paths"]


@pytest.mark.parametrize("path", [path for path, methods in PATHS.items() if "get" in methods and "{" not in path])
def test_answers_are_as_described(console: ActingConsole, path: str) -> None:
    answer = console.ask(ADA, "GET", path)
    assert answer.status_code == 200, answer.text
    content = PATHS[path]["get"]["responses"]["200"].get("content", {})
    if schema := content.get("application/json", {}).get("schema"):
        whole = {**schema, "components": openapi.DOCUMENT["components"]}
        jsonschema.Draft202012Validator(whole).validate(answer.json())
    if path != "/api/openapi.json":
        unknown = console.ask(ADA, "GET", f"{path}?nothing=1")
        assert (unknown.status_code, unknown.headers["content-type"]) == (400, "application/problem+json")


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "²"])
def test_a_page_has_1_to_1000_rows(console: ActingConsole, limit: str) -> None:
    for path in ("letters", "groups", "audit", "actions"):
        assert console.ask(ADA, "GET", f"/api/{path}?limit={limit}").status_code == 400


def test_the_column_of_a_filter_that_is_none_is_told(console: ActingConsole) -> None:
    answer = console.ask(ADA, "GET", "/api/letters?q=team:a%20stat:x")
    assert (answer.status_code, answer.json()["column"]) == (400, 8)
    assert console.ask(Viewer("vic", {"payments": Role.VIEWER}), "GET", "/api/letters?q=value.$.a=1").status_code == 403
