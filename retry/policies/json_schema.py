"""The JSON Schema of policy files, by which editors complete keys; `policy_file` says the last word on a file."""

from __future__ import annotations

from typing import Any

import msgspec

from backoff import JITTERS
from retry.policies import schema

_DURATION = {"type": "string", "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$", "minLength": 2}
_CURVES: dict[str, dict[str, Any]] = {
    "constant": {"delay": _DURATION},
    "linear": {"delay": _DURATION, "step": _DURATION},
    "exponential": {"delay": _DURATION, "factor": {"type": "number", "minimum": 1, "maximum": 1_000}},
    "steps": {"delays": {"type": "array", "items": _DURATION, "minItems": 1, "maxItems": 1_000}},
}
# What `backoff.parse` and `policy_file` read of keys whose values have no type in `schema`.
_VALUES: dict[str, dict[str, Any]] = {
    "backoff": {
        "oneOf": [
            {
                "type": "object", "required": ["kind", *keys], "additionalProperties": False,
                "properties": {"kind": {"const": kind}, **keys, "max_delay": _DURATION},
            }
            for kind, keys in _CURVES.items()
        ]
    },
    "jitter": {"enum": [*JITTERS]},
    "max_attempts": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
    "max_age": _DURATION,
    "honour_retry_at": {"type": "boolean"},
    "old_timestamp": {"enum": ["now", "park"]},
    "within": _DURATION, "open_for": _DURATION, "late": _DURATION, "shortest": _DURATION,
}  # fmt: skip
_UNTYPED = {"description": "What it may be says docs/reference/policy-file.md."}
_NAMED = (schema.File, schema.Team, schema.TargetLimits, schema.TasksSection)


def build_schema() -> dict[str, Any]:
    """Build the JSON Schema (2020-12) of a whole policy file, as the structures of `schema` and their values have it."""
    (file, team, target, tasks), parts = msgspec.json.schema_components(
        _NAMED, schema_hook=lambda _: _UNTYPED, ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        properties = part.get("properties", {})
        properties.update({name: _VALUES[name] for name, of in properties.items() if name in _VALUES and of == _UNTYPED})
    # In a file that is read, these are of names that its writer chose; `File` leaves them to be read one by one.
    properties = parts["File"]["properties"]
    properties["teams"] = {"type": "object", "additionalProperties": team}
    properties["targets"] = {"type": "object", "additionalProperties": target}
    properties["tasks"] = tasks
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Policy file of dead-letter-retry"}
    return {**head, **file, "$defs": parts}
