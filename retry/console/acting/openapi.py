"""The API's own description, OpenAPI 3.1: the answer of `/api/openapi.json`."""

from __future__ import annotations

from typing import Any

from retry.console.reading.lists import AUDIT_FIELDS

_TEXT = {"type": "string"}
_TEXT_OR_NOT = {"type": ["string", "null"]}
_COUNT = {"type": "integer"}
_TEXTS = {"type": "array", "items": _TEXT}
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "description": "of an action or a group"}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": "as letters are listed"}
_DURATION = {"type": ["string", "null"], "description": "a duration: 30s, 5m, 1h30m"}
_MOMENT = {"type": ["string", "null"], "description": "a time, ISO 8601, UTC where it says no zone; or a duration from now on"}


def _query(name: str, what: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": what, "schema": schema or {"type": "string"}}


_Q = _query("q", "a filter, as for `retry letters`")
_AFTER = _query("after", "where the page goes on: `after` of the page before")
_LIMIT = _query("limit", "of a page, 1 to 1,000; 100", {"type": "integer", "minimum": 1, "maximum": 1_000})


def _describe_response(what: str, schema: str | None = None, kind: str = "application/json") -> dict[str, Any]:
    content = {kind: {"schema": {"$ref": f"#/components/schemas/{schema}"}}} if schema else None
    return {"description": what, **({"content": content} if content else {})}


def _problem(what: str) -> dict[str, Any]:
    return _describe_response(what, "Problem", "application/problem+json")


_ALWAYS = {
    "400": _problem("a field that is not known, or cannot be read; `column` says where in a filter"),
    "401": _problem("no valid token"),
    "403": _problem("this token may see it, and not do it"),
    "503": _problem("the replica is rebuilt (`progress` says how far), or no broker answers"),
}
_GONE = {"404": _problem("there is none, or it is of another team")}
_STALE = {"409": _problem("the page goes on behind what is no more; begin again")}
_REFUSED = {"409": _problem("it cannot be done like this; detail says what to do")}
_UNSEEN = {"202": _problem("it is done, and what is read here next may still be of before")}


def _get(summary: str, schema: str, *parameters: dict[str, Any], **answers: dict[str, Any]) -> dict[str, Any]:
    found = {"200": _describe_response("as asked", schema), **_ALWAYS, **answers}
    return {"summary": summary, "parameters": list(parameters), "responses": found}


def _post(
    summary: str, body: str, code: str, what: str, schema: str | None, *parameters: dict[str, Any],
    **answers: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    return {
        "summary": summary, "parameters": list(parameters), "requestBody": {"required": False, "content": content},
        "responses": {code: _describe_response(what, schema), **_ALWAYS, **_GONE, **_REFUSED, **answers},
    }  # fmt: skip


def _schema(properties: dict[str, Any], *required: str, closed: bool = False) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, "required": list(required)}
    return found | ({"additionalProperties": False} if closed else {})


def _describe_page(name: str, schema: str) -> dict[str, Any]:
    rows = {"type": "array", "items": {"$ref": f"#/components/schemas/{schema}"}}
    return _schema({name: rows, "after": _TEXT_OR_NOT}, name, "after")


_ORDERED = "it was asked of the workers; as a problem where what is read here next may still be of before"
_ORDERS = {
    f"/api/actions/{{id}}/{what}": {"post": _post(summary, "Order", "202", _ORDERED, None, _ID)}
    for what, summary in (
        ("hold", "Have an action wait"), ("resume", "Let an action that is held go on"),
        ("cancel", "End an action: what is done stays done, the rest stays as it is"),
    )
}  # fmt: skip

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Console", "version": "1",
        "description": "Letters, groups, actions, pauses and audit of the dead-letter retry service.",
    },
    "security": [{"token": []}],
    "paths": {
        "/api/now": {"get": _get("What there is to be seen now", "Now")},
        "/api/viewer": {"get": _get("Who asks, and what they may", "Viewer")},
        "/api/advice": {"get": _get("What analytics advise of policies, most saved first", "Advice")},
        "/api/letters": {"get": _get("Letters that a filter means", "Letters", _Q, _AFTER, _LIMIT, **_STALE)},
        "/api/letters/{name}": {"get": _get(
            "One letter; with its payload for who may see it", "Letter", _NAME,
            _query("reveal", "1: headers and payload, too; the audit says so first"),
            _query("explain", "1: what failed, by which rule it is due when, and what happens next, in sentences"), **_GONE,
        )},
        "/api/groups": {"get": _get(
            "Kinds of failures, most letters first", "Groups", _Q, _AFTER, _LIMIT,
            _query("resolved", "1: those alone that are"), **_STALE,
        )},
        "/api/groups/{id}": {"get": _get("One kind of failures", "Group", _ID, **_GONE)},
        "/api/audit": {"get": _get(
            "Who did what, newest first", "Audit", *(_query(name, f"only with this {name}") for name in AUDIT_FIELDS), _AFTER,
            _LIMIT, **_STALE,
        )},
        "/api/actions": {
            "get": _get("Actions of the last 30 days", "Actions", _AFTER, _LIMIT, **_STALE),
            "post": _post(
                "Preview an action; nothing is done to any letter", "Ask", "201",
                "what would be done; 202 with the same fields where that is still worked out", "Preview",
            ),
        },
        "/api/actions/{id}": {"get": _get("An action, or a preview that was not started", "Action", _ID, **_GONE)},
        "/api/actions/{id}/members": {"get": {
            **_get("Each letter and what became of it, an object a line", "Action", _ID, **_GONE),
            "responses": {"200": _describe_response("lines", "Member", "application/x-ndjson"), **_ALWAYS, **_GONE},
        }},
        "/api/actions/{id}/start": {
            "post": _post("Start what was previewed; twice is once", "Start", "200", "the workers do it", None, _ID, **_UNSEEN),
        },
        **_ORDERS,
        "/api/actions/{id}/undo": {"post": _post(
            "Preview the undo of a discard", "Order", "201", "what would be undone; start it as any preview", "Preview", _ID,
        )},
        "/api/pauses": {
            "get": _get("What is paused", "Pauses"),
            "post": _post("Pause a team, a topic, a target or everything", "Pause", "201", "paused", None, **_UNSEEN),
            "delete": {
                "summary": "End a pause",
                "parameters": [_query("scope", "all, team, topic or target"), _query("name", "of it"), _query("reason", "why")],
                "responses": {"204": _describe_response("it is ended"), **_ALWAYS, **_GONE, **_UNSEEN},
            },
        },
        "/api/openapi.json": {
            "get": {"summary": "This description", "responses": {"200": _describe_response("OpenAPI 3.1"), **_ALWAYS}},
        },
    },
    "components": {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "schemas": {
            "Ask": _schema({
                "kind": {"type": "string", "enum": ["retry", "redirect", "park", "discard", "edit", "patch"]},
                "filter": {"type": "string", "maxLength": 1024, "description": "which letters, as for `retry letters`"},
                "letters": {"type": "array", "items": _TEXT, "maxItems": 10_000, "description": "names; with a filter both hold"},
                "reason": {"type": "string", "maxLength": 1000}, "at": {**_MOMENT, "type": ["string", "integer", "null"]},
                "spread": _DURATION, "postpone": _DURATION, "ramp": {"type": ["boolean", "null"]},
                "keep": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                "settle": _DURATION, "silence": _DURATION, "to": {**_TEXT_OR_NOT, "description": "redirect: the topic"},
                "value": _TEXT_OR_NOT, "value_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
                "set_headers": {"type": "object", "additionalProperties": _TEXT}, "remove_headers": _TEXTS,
                "merge_patch": {"type": ["object", "null"], "description": "patch: of each value, RFC 7396"},
                "now": {"type": "boolean", "description": "edit, patch: retried at once"},
            }, "kind", closed=True),
            "Start": _schema({"expect": {"type": ["integer", "null"], "description": "asked for over 1,000"}}, closed=True),
            "Order": _schema({"reason": _TEXT}, closed=True),
            "Pause": _schema({
                "scope": {"type": "string", "enum": ["all", "team", "topic", "target"]}, "name": _TEXT, "reason": _TEXT,
                "until": _MOMENT, "force": {"type": "boolean", "description": "also a name that the policy file does not know"},
            }, "scope", closed=True),
            "Preview": _schema({
                "id": _TEXT, "state": {"type": "string", "enum": ["working", "ready", "refused", "started"]}, "kind": _TEXT,
                "filter": _TEXT, "expires": _TEXT, "letters": _COUNT, "takes_ms": _COUNT, "count_is_asked": {"type": "boolean"},
                "letters_read": {"type": "integer", "description": "how many letters were looked at, while it is worked out"},
            }, "id", "state", "kind", "filter", "expires"),
            "Action": _schema({
                "action": _TEXT, "kind": _TEXT, "by": _TEXT, "members": _COUNT, "done": _COUNT, "gone": _COUNT,
                "status": {"type": "string", "enum": ["running", "held", "cancelled", "done"]}, "can": _TEXTS,
                "ramp": {"type": ["object", "null"], "description": "its steps: letters sent, failed again and passed"},
                "outcome": {"type": ["object", "null"], "description": "of letters sent: recovered, failed again, not known yet"},
            }),
            "Member": _schema({"letter": _TEXT_OR_NOT, "result": _TEXT}, "letter", "result"),
            "Actions": _describe_page("actions", "Action"),
            "Viewer": _schema({
                "name": _TEXT, "roles": {"type": "object", "additionalProperties": _TEXT, "description": "by team; * is every"},
                "reveal": {**_TEXTS, "description": "teams whose payloads they may see"},
            }, "name", "roles", "reveal"),
            "Advice": _schema({
                "advice": {"type": "array", "items": {"type": "object"}}, "more": _COUNT, "at": _TEXT_OR_NOT, "diff": _TEXTS,
                "fault": {**_TEXT_OR_NOT, "description": "why there is none"},
            }, "advice", "at", "fault"),
            "Letter": _schema({
                "name": _TEXT, "state": _TEXT, "team": _TEXT_OR_NOT, "target": _TEXT,
                "explained": {"type": "object", "additionalProperties": _TEXTS, "description": "sentences by section"},
            }, "name", "state", "target"),
            "Letters": _describe_page("letters", "Letter"),
            "Group": _schema({"id": _TEXT, "waiting": _COUNT, "parked": _COUNT, "teams": _TEXTS}, "id", "waiting", "parked"),
            "Groups": _describe_page("groups", "Group"),
            "AuditRow": _schema({"at": _TEXT, "kind": _TEXT, "by": _TEXT, "letters": _COUNT}, "at", "kind", "by", "letters"),
            "Audit": _describe_page("audit", "AuditRow"),
            "Pauses": _schema({"pauses": {"type": "array", "items": {"type": "object"}}}, "pauses"),
            "Now": _schema({"as_of": _TEXT, "waiting": _COUNT, "parked": _COUNT}, "as_of", "waiting", "parked"),
            "Problem": _schema({"title": _TEXT, "status": _COUNT, "detail": _TEXT}, "title", "status", "detail"),
        },
    },
}  # fmt: skip
