"""What was typed into the form of an action, or sent to the API → what is asked for. No I/O."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import orjson
from starlette.datastructures import FormData

from backoff import PolicyInvalid, duration_ms
from retry.console.acting.actions import Ask
from retry.operations.act.options import KINDS, ActOptions, OptionsInvalid
from retry.operations.moments import moment_ms

# A page has at most so many letters to be chosen.
NAMES_MAX = 10_000
_REASON_MAX = 1_000
_TOO_DEEP = "merge_patch: objects lie in each other too deep"
# Of the form, beside the names of letters.
FIELDS = (
    "q", "state", "kind", "to", "at", "spread", "postpone", "ramp", "keep", "settle", "silence", "set_headers", "removed",
    "merge_patch", "has_value", "value", "reason",
)  # fmt: skip
_DURATIONS = ("spread", "postpone", "settle", "silence")
# What the form says besides the filter.
_STATES = {"waiting": "state:waiting", "parked": "state:parked", "both": "(state:waiting or state:parked)"}
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_Read = TypeVar("_Read")


class ActBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The JSON with which the API is asked for a preview; see `retry.console.acting.openapi` for what each field means."""

    kind: str
    filter: str = ""
    letters: list[str] = []
    reason: str = ""
    at: str | int | None = None
    spread: str | None = None
    postpone: str | None = None
    ramp: bool | None = None
    keep: float | None = None
    settle: str | None = None
    silence: str | None = None
    to: str | None = None
    value: str | None = None
    value_base64: str | None = None
    set_headers: dict[str, str] = {}
    remove_headers: list[str] = []
    merge_patch: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(ActBody).decode


def of_body(body: bytes) -> Ask:
    """Parse the JSON body of a request to the API for a preview.

    Raises:
      OptionsInvalid: the body cannot be read; the message names the field.
    """
    try:
        given = _decode(body)
    except msgspec.MsgspecError as error:
        raise OptionsInvalid(str(error)) from None
    except RecursionError:
        raise OptionsInvalid(_TOO_DEEP) from None
    if given.value is not None and given.value_base64 is not None:
        raise OptionsInvalid("give value or value_base64, not both")
    value = None if given.value is None else given.value.encode()
    if given.value_base64 is not None:
        try:
            value = base64.b64decode(given.value_base64, validate=True)
        except (binascii.Error, ValueError):
            raise OptionsInvalid("value_base64: it is no base64") from None
    times = {name: _read(name, getattr(given, name), duration_ms) for name in _DURATIONS}
    at_ms = given.at if isinstance(given.at, int) else _read("at", given.at, moment_ms)
    try:
        patch = None if given.merge_patch is None else orjson.dumps(given.merge_patch).decode()
    except orjson.JSONEncodeError:
        raise OptionsInvalid(_TOO_DEEP) from None
    found = ActOptions(
        at=at_ms, ramp=given.ramp, keep=given.keep, to=given.to, value=value, set_headers=given.set_headers,
        removed=given.remove_headers, merge_patch=patch, **times,
    )  # fmt: skip
    return _build_ask(given.kind, given.filter, given.letters, found, given.reason)


def of_form(form: FormData) -> Ask:
    """Parse the posted form of an action; a field in which nothing is written counts as not given.

    Raises:
      OptionsInvalid: a field cannot be read; the message names it.
    """
    text = {name: str(value).strip() for name, value in form.multi_items()}
    times = {name: _read(name, text.get(name) or None, duration_ms) for name in _DURATIONS}
    # An empty value is one, too: a box says that there is to be a new one.
    value = str(form.get("value", "")).encode() if text.get("has_value") else None
    found = ActOptions(
        at=_read("at", text.get("at") or None, moment_ms), ramp={"yes": True, "no": False}.get(text.get("ramp", "")),
        keep=_read("keep", text.get("keep") or None, _part), to=text.get("to") or None, value=value,
        set_headers=_parse_headers(text.get("set_headers", "")), removed=_split_lines(text.get("removed", "")),
        merge_patch=text.get("merge_patch") or None, **times,
    )  # fmt: skip
    names = [str(each) for each in form.getlist("name")]
    words = " ".join(filter(None, (_parenthesize(text.get("q", "")), _STATES.get(text.get("state", ""), ""))))
    return _build_ask(text.get("kind", ""), words, names, found, text.get("reason", ""))


def list_typed_fields(form: FormData | Mapping[str, str]) -> dict[str, str]:
    """The fields as they were typed, to be shown again."""
    items = form.multi_items() if isinstance(form, FormData) else form.items()
    return {name: str(value) for name, value in items if name not in ("csrf", "name", "select", "selected")}


def _build_ask(kind: str, words: str, names: Iterable[str], found: ActOptions, reason: str) -> Ask:
    if kind not in KINDS:
        raise OptionsInvalid(f"kind: it is one of {', '.join(KINDS)}")
    chosen = tuple(dict.fromkeys(names))
    if len(chosen) > NAMES_MAX:
        raise OptionsInvalid(f"{len(chosen):,} letters are chosen, and {NAMES_MAX:,} can be; use a filter")
    if len(reason) > _REASON_MAX:
        raise OptionsInvalid(f"reason: it has more than {_REASON_MAX:,} characters")
    if found.keep is not None and not 0 < found.keep < 1:
        raise OptionsInvalid("keep: it is a part of letters, between 0 and 1")
    return Ask(kind, words, chosen, found, reason)


def _read(name: str, given: str | None, read: Callable[[str], _Read]) -> _Read | None:
    if given is None:
        return None
    try:
        return read(given)
    except PolicyInvalid as invalid:
        raise OptionsInvalid(f"{name}: {invalid.reason}") from None
    except ValueError as invalid:
        raise OptionsInvalid(f"{name}: {invalid}") from None


def _part(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r:.40} is no number like 0.9") from None


def _parenthesize(words: str) -> str:
    """A filter that can stand beside another one."""
    return f"({words})" if _OR.search(words) else words


def _parse_headers(text: str) -> dict[str, str]:
    found = {}
    for line in _split_lines(text):
        name, mark, value = line.partition(":")
        if not mark or not name.strip():
            raise OptionsInvalid(f"set_headers: {line!r:.60} is not `name: value`")
        found[name.strip()] = value.strip()
    return found


def _split_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
