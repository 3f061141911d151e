"""The file of keys that wrap data keys: one a line, an id and 32 bytes in base64, the newest first.

    # made with: retry keys new 2026-11
    2026-11 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
    2026-05 vu8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=

The first key seals, all of them open. Where the first line is `plain`, nothing is sealed any more, and what was is still opened.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from retry.errors import SettingsInvalid
from retry.reloaded_file import ReloadedFile, number_lines

SETTING = "RETRY_ENCRYPTION_KEYS"
KEY_BYTES, DIGEST_BYTES = 32, 16
_PLAIN = "plain"
_ID = re.compile(r"[A-Za-z0-9._-]{1,40}", re.ASCII)


class Keys(NamedTuple):
    """The keys of a key file, 32 bytes each, by id, and which of them seals: None where nothing is to be sealed."""

    newest: str | None
    by_id: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"Keys(newest={self.newest!r}, by_id={dict.fromkeys(self.by_id, '***')})"


def parse(text: str) -> Keys:
    """Parse the keys of a file, past blank lines and comments; raises SettingsInvalid, which repeats nothing that is no key."""
    lines = [line for _, line in number_lines(text)]
    seals = not lines or lines[0] != _PLAIN
    by_id: dict[str, bytes] = {}
    for number, line in enumerate(lines if seals else lines[1:], 1):
        key_id, _, key = line.partition(" ")
        if not _ID.fullmatch(key_id) or key_id == _PLAIN:
            fault = f"key {number} does not begin with an id of 1 to 40 letters, digits, . _ - and a space"
            raise SettingsInvalid(SETTING, fault)
        if key_id in by_id:
            raise SettingsInvalid(SETTING, f"there are two keys {key_id}; give a new key a new id")
        by_id[key_id] = _decode_key_bytes(number, key.strip())
    if not by_id:
        raise SettingsInvalid(SETTING, "the file has no key; make a line with: retry keys new ID")
    return Keys(next(iter(by_id)) if seals else None, by_id)


def read(path: Path) -> Keys:
    """Read the keys of a file; raises SettingsInvalid where it cannot be used."""
    return ReloadedFile(SETTING, path, parse).current()


def make_key_line(key_id: str) -> str:
    """Make a line with a new key; raises SettingsInvalid where `key_id` can be no id."""
    line = f"{key_id} {base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"
    parse(line)
    return line


def _decode_key_bytes(number: int, text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        # Not by its id: in a file that holds no keys, a password may stand there.
        raise SettingsInvalid(SETTING, f"key {number} is not {KEY_BYTES} bytes in base64; make a line with: retry keys new ID")
    return key
