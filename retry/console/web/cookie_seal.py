"""Seals what consoles keep in browsers, so that each console with the same key can open it, and nobody else can read or make it.

The key is a line of a file that all of these consoles read, of 32 characters at least. Of several lines the first seals, and all
open: a new key is put first, and the old one is removed when the sign-ins that it sealed have ended.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from retry.errors import SettingsInvalid
from retry.reloaded_file import ReloadedFile, number_lines

_SETTING = "RETRY_CONSOLE_SESSION_KEY"
_KEY_CHARS_MIN, _MAKES = 32, "openssl rand -hex 32 makes one"
# Browsers keep no cookie that is larger.
_COOKIE_BYTES_MAX = 4_000
_HEADER = {"alg": "dir", "enc": "A256GCM"}
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(dict[str, Any]).decode


class CookieSeal:
    """Seals and opens contents of cookies; raises SettingsInvalid where the file cannot be used.

    Args:
      path: of the file of keys; None has a key of this process alone, with which nothing outlives it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.is_shared = path is not None
        self._file = None if path is None else ReloadedFile(_SETTING, path, partial(_parse_keys, path))
        self._own = [_make_key(secrets.token_urlsafe(_KEY_CHARS_MIN))]

    def seal_content(self, purpose: str, content: Mapping[str, Any]) -> str:
        """Return the text of a cookie, which only `open_content` with the same purpose reads."""
        return jwe.encrypt_compact({**_HEADER, "typ": purpose}, _encode(content), self._keys()[0])

    def open_content(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Return what was sealed for a purpose; None where no console with one of these keys has sealed it."""
        if not text.isascii() or len(text) > _COOKIE_BYTES_MAX:
            return None
        for key in self._keys():
            try:
                opened = jwe.decrypt_compact(text, key, algorithms=list(_HEADER.values()))
                return _decode(opened.plaintext or b"") if opened.headers().get("typ") == purpose else None
            except (JoseError, ValueError):
                continue
        return None

    def _keys(self) -> list[OctKey]:
        return self._own if self._file is None else self._file.current()


def _parse_keys(path: Path, text: str) -> list[OctKey]:
    lines = list(number_lines(text))
    for n, line in lines:
        if len(line) < _KEY_CHARS_MIN:
            raise SettingsInvalid(_SETTING, f"{path}:{n}: a key has {_KEY_CHARS_MIN} characters at least; {_MAKES}")
    if not lines:
        raise SettingsInvalid(_SETTING, f"{path} has no key; {_MAKES}")
    return [_make_key(line) for _, line in lines]


def _make_key(text: str) -> OctKey:
    return OctKey.import_key(hashlib.sha256(text.encode()).digest())
