"""The shape of a policy file: which keys stand where. Their values are read by `file` and by `backoff.parse`."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from retry.policies.document import Document

_Text = Annotated[str, Meta(min_length=1, max_length=500)]
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_TIMING = ("backoff", "jitter", "max_attempts", "max_age", "honour_retry_at", "quiet_hours", "align")
_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that `backoff.parse.policy` reads; allowed at every level."""

    backoff: object = UNSET
    jitter: object = UNSET
    max_attempts: object = UNSET
    max_age: object = UNSET
    honour_retry_at: object = UNSET
    quiet_hours: object = UNSET
    align: object = UNSET

    def timing(self) -> dict[str, object]:
        """Those of the keys that are written here."""
        return {key: value for key in _TIMING if (value := getattr(self, key)) is not UNSET}


class Overrides(Timing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing, and where the letter goes."""

    retry_to: _Text | UnsetType = UNSET
    park_to: _Text | UnsetType = UNSET


class Rule(Overrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is different for exceptions that a glob matches."""

    exception: _Text
    park: bool = False


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All topics whose whole name matches a regular expression."""

    pattern: _Text


class Topic(Overrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One dead-letter topic, or a pattern of them."""

    dead_letters: _Text | Pattern
    allowed_targets: list[_Text] | UnsetType = UNSET
    rules: Annotated[list[Rule], Meta(max_length=1_000)] = []


class Team(Overrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who owns the topics."""

    topics: Annotated[list[Topic], Meta(min_length=1, max_length=10_000)]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. Teams are read one by one, so that a message can name the team."""

    defaults: Timing = Timing()
    teams: dict[str, object] = {}


def shaped(document: Document, value: object, shape: type[_Shape], path: str) -> _Shape:
    """The value at a path of the document, as the shape.

    Raises:
      PolicyFileInvalid: a key is unknown, missing, or of the wrong type.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        reason, _, inner = str(error).partition(" - at `$")
        at = path + inner.rstrip("`") if path else inner.rstrip("`").removeprefix(".")
        if found := _UNKNOWN.fullmatch(reason):
            document.refuse(f"{at}.{found[1]}".removeprefix("."), _unknown(found[1]))
        if found := _MISSING.fullmatch(reason):
            document.refuse(at, f"{found[1]} is missing")
        document.refuse(at, reason[:1].lower() + reason[1:].replace("`object", "`mapping").replace("`array", "`list"))


def _unknown(key: str) -> str:
    known = {name for shape in (File, Team, Topic, Rule, Pattern) for name in shape.__struct_fields__}
    close = difflib.get_close_matches(key, known, 1)
    return f"no such key here; did you mean {close[0]}?" if close and close[0] != key else "no such key here"
