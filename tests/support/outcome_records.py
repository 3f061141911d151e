"""Records of the outcomes topic that tell of one letter each, for tests that write letters one by one, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retry.telemetry.outcomes import LetterFields, SharedFields


def tell_of(letter: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one letter, a JSON object; the letter has the fields of `Outcome`, whatever they say."""
    _, partition, offset = letter["source"].rsplit("/", 2)
    fields = {**letter, "partition": int(partition), "offset": int(offset)}
    alike = {name: fields[name] for name in SharedFields._fields} | {name: [fields[name]] for name in LetterFields._fields}
    return {**{name: letter[name] for name in ("v", "taken_ms", "action", "action_kind")}, "letters": [alike]}
