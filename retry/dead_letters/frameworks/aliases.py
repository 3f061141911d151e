"""Header names of a team's own for the fields of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retry.dead_letters.failure import FIELDS
from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.dialect import Read
from retry.dead_letters.frameworks.libraries import AD_HOC, OWN

Aliases = Mapping[str, tuple[str, ...]]

ALIASABLE = frozenset(FIELDS)
_READERS: dict[str, Read] = dict.fromkeys(ALIASABLE, header_values.decode_name) | {
    "origin_partition": header_values.digits_int32,
    "origin_offset": header_values.digits,
    "origin_timestamp_ms": header_values.digits,
    "attempts": header_values.digits_int32,
    "message": header_values.message,
}


def overrule(fields: dict[str, Any], headers: Mapping[str, bytes | None], aliases: Aliases) -> None:
    """Put what aliases say in place of what the framework's headers said.

    A letter that only aliases know, or only they and we, becomes `ad-hoc`.

    Args:
      headers: the letter's headers, the last of each name.
      aliases: keys are of `ALIASABLE`; of several names the first that says something.
    """
    for field, names in aliases.items():
        value = _read_first(headers, names, _READERS[field])
        if value is not None:
            fields[field] = max(1, value) if field == "attempts" and isinstance(value, int) else value
            if fields.get("family", OWN.family) == OWN.family:
                fields["family"] = AD_HOC.family


def _read_first(headers: Mapping[str, bytes | None], names: tuple[str, ...], read: Read) -> str | int | None:
    for name in names:
        raw = headers.get(name)
        if raw and (value := read(raw)) is not None:
            return value
    return None
