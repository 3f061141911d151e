"""The API's own description, OpenAPI 3.1, and the page at `/docs` that is made of it: one answer, nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

from retry.scheduling.timers.callers import ProblemJson
from retry.scheduling.timers.timer_request import TimerBody
from retry.scheduling.timers.timers import Page

Answers = dict[str, tuple[str, str | None]]

# What is read and what is answered: the structures themselves say what their fields are.
_, _SCHEMAS = msgspec.json.schema_components([TimerBody, Page, ProblemJson], ref_template="#/components/schemas/{name}")


def _describe_response(what: str, schema: str | None) -> dict[str, Any]:
    if schema is None:
        return {"description": what}
    kind = "application/problem+json" if schema == "ProblemJson" else "application/json"
    return {"description": what, "content": {kind: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _describe_operation(summary: str, parameters: list[dict[str, Any]], answers: Answers, **more: Any) -> dict[str, Any]:
    """Describe what a method of a path does; `answers` has by status what that means, and the schema of the body."""
    responses = {status: _describe_response(*each) for status, each in (answers | _REFUSED).items()}
    return {"summary": summary, "parameters": parameters, **more, "responses": responses}


def _query(name: str, what: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": what, "schema": schema or {"type": "string"}}


def _require_field(name: str, *kinds: str) -> dict[str, Any]:
    """Demand a field that is not null, and is of one of these kinds where any are given."""
    return {"required": [name], "properties": {name: {"type": list(kinds)} if kinds else {"not": {"type": "null"}}}}


_EXCLUSIVE = {
    "oneOf": [_require_field("at", "string", "integer"), _require_field("after", "string")],
    "not": {"allOf": [_require_field("body"), _require_field("body_base64")]},
}
_REFUSED: Answers = {
    "400": ("this is no HTTP, or asked under a foreign name for loopback", "ProblemJson"),
    "401": ("no valid token", "ProblemJson"),
    "429": ("the team asks too often, or has too many timers; Retry-After says when to ask again", "ProblemJson"),
    "503": ("not known whether it was done", "ProblemJson"),
}
_MOMENT = {"type": "string", "pattern": "^([0-9]{1,15}|[0-9]{4}-?[0-9W].*)$"}
_ID = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "HTTP timers", "version": "1", "description": "Calls a URL at a time, and again until it succeeds."},
    "security": [{"token": []}],
    "paths": {
        "/timers": {
            "post": _describe_operation("Make a timer", [
                {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                 "description": "the same request with the same key makes one timer"},
            ], {
                "201": ("made; where it is stands in Location", "Timer"),
                "200": ("made before, by the same request", "Timer"),
                "409": ("the idempotency key belongs to another request", "ProblemJson"),
                "413": ("the request is larger than 512 KiB", "ProblemJson"),
                "415": ("it is not JSON", "ProblemJson"),
                "422": ("it cannot be; detail says what to change", "ProblemJson"),
            }, requestBody={"required": True, "content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/TimerBody"},
                "example": {"url": "https://example.com/hooks/reminder", "after": "5m", "body": {"order": 17}},
            }}}),
            "get": _describe_operation("List timers that wait, in due order", [
                _query("from", "due at this time or later, as `at`", _MOMENT), _query("to", "due before", _MOMENT),
                _query("limit", "of a page, 1 to 500; 100", {"type": "integer", "minimum": 1, "maximum": 500}),
                _query("cursor", "what the page before gave"),
            ], {
                "200": ("timers, and cursor where there are more", "Page"),
                "422": ("a parameter cannot be; detail says what to change", "ProblemJson"),
            }),
        },
        "/timers/{id}": {
            "get": _describe_operation(
                "Look at a timer", _ID, {"200": ("it waits, or what became of it", "Timer"), "404": ("none", "ProblemJson")}
            ),
            "delete": _describe_operation(
                "End a timer that waits", _ID, {"204": ("it is not called any more", None), "404": ("none waits", "ProblemJson")}
            ),
        },
    },
    "components": {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "schemas": _SCHEMAS | {"TimerBody": _SCHEMAS["TimerBody"] | _EXCLUSIVE},
    },
}  # fmt: skip

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code,pre,textarea,input{font:14px ui-monospace,monospace}pre,textarea{background:#f4f4f4;padding:.6rem;overflow:auto}"
    "textarea,input{width:100%;box-sizing:border-box}table{border-collapse:collapse}"
    "td{border-top:1px solid #ddd;padding:.2rem .6rem;vertical-align:top}"
    "h2{margin-top:2.5rem;border-bottom:2px solid #ddd}b.m{text-transform:uppercase;color:#06c}"
)
SCRIPT = """\
document.getElementById("go").addEventListener("click", async () => {
  const output = document.getElementById("answer"), token = document.getElementById("token").value;
  const headers = {"Content-Type": "application/json", ...(token ? {Authorization: "Bearer " + token} : {})};
  try {
    const answer = await fetch("/timers", {method: "POST", headers, body: document.getElementById("request").value});
    output.textContent = answer.status + " " + await answer.text();
  } catch (error) { output.textContent = String(error); }
});
"""


def document(*, asks_for_token: bool) -> dict[str, Any]:
    """Answer `/openapi.json`; no token is demanded where the API has none, on loopback."""
    return DOCUMENT if asks_for_token else {**DOCUMENT, "security": []}


def render_docs() -> str:
    operations = [(path, method, of) for path, methods in DOCUMENT["paths"].items() for method, of in methods.items()]
    sections = "".join(_operation(path, method, of) for path, method, of in operations)
    kinds = DOCUMENT["components"]["schemas"]
    schemas = "".join(f"<h2>{escape(n)}</h2>{_render_rows(s['properties'])}" for n, s in kinds.items())
    info = DOCUMENT["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])}</h1><p>{escape(info['description'])} "
        '<a href="/openapi.json">openapi.json</a></p>'
        f"{sections}{schemas}<h2>Try it</h2>"
        '<p><input id="token" placeholder="token, where one is needed" autocomplete="off"></p>'
        '<p><textarea id="request" rows="6">{\n  "url": "https://example.com/",\n  "after": "1m"\n}</textarea></p>'
        '<p><button id="go">POST /timers</button></p><pre id="answer"></pre><script src="/docs.js"></script></html>'
    )


def _operation(path: str, method: str, of: dict[str, Any]) -> str:
    parameters = {each["name"]: each for each in of.get("parameters", [])}
    answers = {status: {"description": each["description"]} for status, each in of["responses"].items()}
    return (
        f'<h2><b class="m">{escape(method)}</b> <code>{escape(path)}</code></h2><p>{escape(of["summary"])}</p>'
        f"{_render_rows(parameters)}<p>Answers</p>{_render_rows(answers)}"
    )


def _render_rows(described: dict[str, Any]) -> str:
    rows = "".join(f"<tr><td><code>{escape(n)}</code><td>{escape(each.get('description', ''))}" for n, each in described.items())
    return f"<table>{rows}</table>"
