"""Changes a letter by rule: headers set or removed, and a JSON merge patch of its value (RFC 7396).

Pure: what a preview shows is what a worker does.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from retry.dead_letters import retry_headers as names
from retry.delay_queue.action_records import Patch
from retry.delay_queue.envelopes import Entry


def patched(entry: Entry, patch: Patch) -> Entry | str:
    """The letter, changed; or why it cannot be: its value is no JSON (`not_json`), or it would stay as it is (`unchanged`)."""
    changes = ((name, None if text is None else text.encode()) for name, text in patch.headers.items())
    headers = names.set_in(entry.headers, *changes)
    value = entry.value
    if patch.value:
        try:
            value = orjson.dumps(merged(orjson.loads(entry.value or b""), orjson.loads(patch.value)))
        except orjson.JSONDecodeError:
            return "not_json"
    changed = msgspec.structs.replace(entry, headers=headers, value=value)
    return "unchanged" if changed == entry else changed


def fault(patch: Patch) -> str | None:
    """What is wrong with a patch, whatever letter it is for; None where nothing is."""
    if own := sorted(names.OURS & patch.headers.keys()):
        return f"the header {own[0]} is this service's own and cannot be changed"
    if patch.value:
        try:
            orjson.loads(patch.value)
        except orjson.JSONDecodeError as error:
            return f"the merge patch is no JSON: {error}"
    return None if patch.value or patch.headers else "the patch changes nothing: give headers or a merge patch"


def merged(value: Any, patch: Any) -> Any:
    """The result of a JSON merge patch.

    >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}, "e": [5]})
    {'b': {'c': 4, 'd': 3}, 'e': [5]}
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), change)
    return result
