"""Changes a letter by rule: headers set or removed, and a JSON merge patch of its value (RFC 7396).

Pure: what a preview shows is what a worker does. What a merge patch does not name stays as it was written, byte for byte, so
that no number is rounded on the way.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Raw

from retry.dead_letters import retry_headers as names
from retry.delay_queue.action_records import Patch
from retry.delay_queue.envelopes import Entry

_NULL, _OBJECT = b"null", b"{"
# So deep that it is no JSON that anybody can read, or no JSON at all.
_FAULTS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def patch_entry(entry: Entry, patch: Patch) -> Entry | str:
    """The letter, changed; or why it cannot be: its value is no JSON (`not_json`), or it would stay as it is (`unchanged`)."""
    changes = ((name, None if text is None else text.encode()) for name, text in patch.headers.items())
    headers = names.set_in(entry.headers, *changes)
    value = entry.value
    if patch.value:
        try:
            value = merge_json(entry.value or b"", patch.value.encode())
        except _FAULTS:
            return "not_json"
    changed = msgspec.structs.replace(entry, headers=headers, value=value)
    return "unchanged" if changed == entry else changed


def fault(patch: Patch) -> str | None:
    """Return what is wrong with a patch, whatever letter it is for; None where nothing is."""
    if own := sorted(names.OURS & patch.headers.keys()):
        return f"the header {own[0]} is this service's own and cannot be changed"
    if patch.value:
        try:
            merge_json(_NULL, patch.value.encode())
        except _FAULTS as error:
            return f"the merge patch is no JSON: {error}"
    return None if patch.value or patch.headers else "the patch changes nothing: give headers or a merge patch"


def merge_json(value: bytes, patch: bytes) -> bytes:
    """The result of a JSON merge patch, all three as JSON.

    >>> merge_json(b'{"a": 1.10, "b": {"c": 2, "d": 3}}', b'{"a": null, "b": {"c": 4}, "e": [5]}')
    b'{"b":{"c":4,"d":3},"e":[5]}'

    Raises:
      MsgspecError, RecursionError, UnicodeDecodeError: one of the two is no JSON, or too deep.
    """
    return bytes(_merge_values(msgspec.json.decode(value, type=Raw), msgspec.json.decode(patch, type=Raw)))


def _merge_values(value: Raw, patch: Raw) -> Raw:
    if not _is_object(patch):
        return patch
    result = _decode_members(value) if _is_object(value) else {}
    for name, change in _decode_members(patch).items():
        if bytes(change).strip() == _NULL:
            result.pop(name, None)
        else:
            result[name] = _merge_values(result.get(name, Raw(_NULL)), change)
    return Raw(msgspec.json.encode(result))


def _is_object(json: Raw) -> bool:
    return bytes(json).lstrip().startswith(_OBJECT)


def _decode_members(json: Raw) -> dict[str, Raw]:
    return msgspec.json.decode(json, type=dict[str, Raw])


# What is left of a letter that is erased, since a person asked for it: that there was one, and where it failed.
#
# That goes to the topic of discarded letters at once, so that whoever counts letters finds where each ended. Of a letter that
# rests, the record where it does is marked as returned, so that nobody returns it: it can be removed by nobody but Kafka.

# They tell which letter it was and how often it was sent, and nothing that came with it. Without a policy it counts as no retry.
_KEPT = frozenset({names.ID, names.ATTEMPT, names.SOURCE, names.DUE_MS, names.FIRST_FAILED_MS, names.ACTION})


class WithdrawnPlace(NamedTuple):
    """The place of a record that is no letter of its own, as a former version, or is not ours: nobody returns it any more."""

    key: bytes


def redact_entry(entry: Entry, discarded: str) -> Entry:
    """Make the entry that replaces one that is erased: without its record key, its value, and headers that came with it."""
    headers = [header for header in entry.headers if header[0] in _KEPT]
    marked = names.set_in(headers, (names.ACTION_BEFORE, names.ERASED))
    return msgspec.structs.replace(entry, destination=discarded, key=None, value=None, headers=marked)
