"""The shape of a policy file: which keys stand where, and as a JSON Schema, by which editors complete them.

`policy_file` and `backoff.parse` read the values; `policy_file` says the last word on a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from backoff import JITTERS
from retry.policies.yaml_document import Document, suggest_word


class Role(StrEnum):
    """The rights of a person in a team; each role includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


_Text = Annotated[str, Meta(min_length=1, max_length=500)]
_Group = Annotated[str, Meta(min_length=1, max_length=249)]
Texts = _Text | Annotated[list[_Text], Meta(min_length=1, max_length=100)]
_Names = Annotated[list[_Text], Meta(max_length=10_000)]
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_TIMING = ("backoff", "jitter", "max_attempts", "max_age", "honour_retry_at", "quiet_hours", "align")


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that `backoff.parse.parse_policy` reads, and `ordered`; allowed at every level."""

    backoff: object = UNSET
    jitter: object = UNSET
    max_attempts: object = UNSET
    max_age: object = UNSET
    honour_retry_at: object = UNSET
    quiet_hours: object = UNSET
    align: object = UNSET
    ordered: bool | UnsetType = UNSET

    def timing(self) -> dict[str, object]:
        """Return the keys for `backoff.parse.parse_policy` that are written in this section."""
        return {key: value for key in _TIMING if (value := getattr(self, key)) is not UNSET}


class Defaults(Timing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    aliases: dict[str, object] | UnsetType = UNSET
    group: _Group | UnsetType = UNSET
    null_value: object = UNSET
    old_timestamp: object = UNSET


class Overrides(Timing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing, and where the letter goes."""

    retry_to: _Text | UnsetType = UNSET
    park_to: _Text | UnsetType = UNSET


class RuleSection(Overrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    exception: Texts | UnsetType = UNSET
    cause: Texts | UnsetType = UNSET
    stage: Texts | UnsetType = UNSET
    message: _Text | UnsetType = UNSET
    attempt: object = UNSET
    age: object = UNSET
    headers: dict[str, object] | UnsetType = UNSET
    group: _Group | UnsetType = UNSET
    # A condition; what is to become of letters without a value is for the levels further out.
    null_value: object = UNSET
    park: bool = False


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All topics whose whole name matches a regular expression."""

    pattern: _Text


class Level(Overrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that a team and its topics have in common, beside timing and targets."""

    aliases: dict[str, object] | UnsetType = UNSET
    group: _Group | UnsetType = UNSET
    null_value: object = UNSET
    old_timestamp: object = UNSET


class Topic(Level, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dead_letters: _Text | Pattern
    allowed_targets: _Names | UnsetType = UNSET
    origins: _Names = []
    rules: Annotated[list[RuleSection], Meta(max_length=1_000)] = []


class Team(Level, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topics: Annotated[list[Topic], Meta(min_length=1, max_length=10_000)]
    rate: object = UNSET
    budget: object = UNSET
    masks: object = UNSET


class CircuitBreakerSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failures: Annotated[int, Meta(ge=1, le=1_000_000)]
    within: object
    open_for: object


class TargetLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: object = UNSET
    breaker: CircuitBreakerSection | UnsetType = UNSET


class TasksSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topics: Annotated[list[_Text], Meta(min_length=1, max_length=1_000)]
    allowed_targets: _Names
    park_to: _Text | UnsetType = UNSET
    format: _Text = "auto"
    misfire: _Text = "once"
    late: object = "1m"
    catch_up: Annotated[int, Meta(ge=1, le=10_000)] = 100
    shortest: object = "100ms"
    rate: object = UNSET
    budget: object = UNSET


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. What has names of its own is read one by one, so that a message can tell the name."""

    defaults: Defaults = Defaults()
    targets: dict[str, object] = {}
    tasks: object = UNSET
    teams: dict[str, object] = {}


# msgspec works out the fields of a class when it is read for the first time, and ends the process where several threads do so at
# once: worked out here, by whoever imports this.
for _shape in (Texts, TargetLimits, TasksSection, Team, File):
    msgspec.json.Decoder(_shape)
_SHAPES = (File, Team, Topic, RuleSection, Pattern, TargetLimits, CircuitBreakerSection, TasksSection)


def convert_value(document: Document, value: object, shape: Any, path: str, shapes: Sequence[Any] = _SHAPES) -> Any:
    """Convert the value at a path of the document to a shape, one of the `shapes` of such a file; raises PolicyFileInvalid."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        reason, _, inner = str(error).partition(" - at `$")
        at = path + inner.rstrip("`") if path else inner.rstrip("`").removeprefix(".")
        if named := _UNKNOWN.fullmatch(reason):
            document.reject_path(f"{at}.{named[1]}".removeprefix("."), _describe_unknown(named[1], shapes))
        if named := _MISSING.fullmatch(reason):
            document.reject_path(at, f"{named[1]} is missing")
        document.reject_path(at, reason[:1].lower() + reason[1:].replace("`object", "`mapping").replace("`array", "`list"))


def _describe_unknown(key: str, shapes: Iterable[Any]) -> str:
    return f"no such key here{suggest_word(key, {name for shape in shapes for name in shape.__struct_fields__})}"


_DURATION = {"type": "string", "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$", "minLength": 2}
_CURVES: dict[str, dict[str, Any]] = {
    "constant": {"delay": _DURATION},
    "linear": {"delay": _DURATION, "step": _DURATION},
    "exponential": {"delay": _DURATION, "factor": {"type": "number", "minimum": 1, "maximum": 1_000}},
    "steps": {"delays": {"type": "array", "items": _DURATION, "minItems": 1, "maxItems": 1_000}},
}
# What `backoff.parse` and `policy_file` read of keys whose values have no type above.
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
_NAMED = (File, Team, TargetLimits, TasksSection)


def build_schema() -> dict[str, Any]:
    """Build the JSON Schema (2020-12) of a whole policy file, as the structures above and their values have it."""
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
