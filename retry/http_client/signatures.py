"""Signatures of webhooks by the Standard Webhooks specification (https://www.standardwebhooks.com), with keys of each team.

A line of the file of secrets is a key, and before it whose calls it signs: a team, or `@` and a target of notifications. A key
without a name signs the calls of all who have none of their own. Of several each signs, so that keys can be replaced.

    payments whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
    orders whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==

>>> key = read_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
>>> headers = sign_body([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
>>> headers["webhook-signature"]
'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from retry.dead_letters.retry_headers import WEBHOOK_ID
from retry.errors import SettingsInvalid
from retry.reloaded_file import number_lines

SETTING = "RETRY_WEBHOOK_SECRETS"
_SHARED, _PRIVATE, _PUBLIC = "whsec_", "whsk_", "whpk_"
_BYTES_MIN, _BYTES_MAX = 24, 64
# Of a private key: the seed, and behind it, as other implementations write it, the public key.
_SEED_BYTES, _PAIR_BYTES = 32, 64
NAME = re.compile(r"@?[A-Za-z0-9._-]{1,100}")
_NEW_BYTES = 32


class SigningKey(Protocol):
    """A key that signs what a webhook sends."""

    def sign(self, content: bytes) -> str:
        """Sign `id.timestamp.body`: the scheme, a comma, and the signature in base64."""


class SharedKey:
    """A secret that the receiver has, too (`v1`): so whoever can verify with it can also sign."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, content: bytes) -> str:
        return "v1," + base64.b64encode(hmac.digest(self._key, content, hashlib.sha256)).decode()


class PrivateKey:
    """A key that nobody else has (`v1a`, Ed25519): receivers verify with the public key, and can sign nothing."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def sign(self, content: bytes) -> str:
        return "v1a," + base64.b64encode(self._key.sign(content)).decode()


def read_key(text: str) -> SigningKey:
    """Read a key as it is handed out: `whsec_` and 24 to 64 bytes in base64, or `whsk_` and an Ed25519 key.

    Raises:
      SettingsInvalid: it is none; the message does not repeat it.
    """
    prefix = _PRIVATE if text.startswith(_PRIVATE) else _SHARED
    try:
        key = base64.b64decode(text.removeprefix(prefix), validate=True) if text.startswith(prefix) else b""
    except (binascii.Error, ValueError):
        key = b""
    if prefix == _SHARED and _BYTES_MIN <= len(key) <= _BYTES_MAX:
        return SharedKey(key)
    if prefix == _PRIVATE and len(key) in (_SEED_BYTES, _PAIR_BYTES):
        private = Ed25519PrivateKey.from_private_bytes(key[:_SEED_BYTES])
        if key[_SEED_BYTES:] in (b"", private.public_key().public_bytes_raw()):
            return PrivateKey(private)
    what = f"{_SHARED} and {_BYTES_MIN} to {_BYTES_MAX} bytes in base64, nor with {_PRIVATE} and an Ed25519 key"
    raise SettingsInvalid(SETTING, f"a line does not end with {what}; make it with: retry api secret")


class SigningKeys:
    """The keys of a file, by whose calls they sign; raises SettingsInvalid where a line is none."""

    def __init__(self, text: str = "") -> None:
        self._keys: defaultdict[str, list[SigningKey]] = defaultdict(list)
        for n, line in number_lines(text):
            *names, key = line.split()
            if len(names) > 1 or not all(map(NAME.fullmatch, names)):
                raise SettingsInvalid(SETTING, f"line {n} is not a team, or @ and a target of notifications, and a key")
            self._keys["".join(names)].append(read_key(key))

    def find_keys(self, name: str) -> Sequence[SigningKey]:
        """Find the keys that sign calls of a team, or of `@` and a target: its own, or else those that belong to nobody."""
        return self._keys.get(name) or self._keys.get("") or ()


def sign_body(keys: Sequence[SigningKey], webhook_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Sign one attempt with each key, so that a receiver may know the old one or the new one; without keys there is no
    `webhook-signature`."""
    headers = {WEBHOOK_ID: webhook_id, "webhook-timestamp": str(timestamp_s)}
    content = f"{webhook_id}.{timestamp_s}.".encode() + body
    if keys:
        headers["webhook-signature"] = " ".join(key.sign(content) for key in keys)
    return headers


def make_key(*, asymmetric: bool) -> tuple[str, str]:
    """Make a key: what receivers verify with, and what the file has."""
    if not asymmetric:
        shared = _SHARED + base64.b64encode(secrets.token_bytes(_NEW_BYTES)).decode()
        return shared, shared
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return _PUBLIC + base64.b64encode(public).decode(), _PRIVATE + base64.b64encode(private.private_bytes_raw() + public).decode()
