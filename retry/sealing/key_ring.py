"""Seals and opens bytes: AES-256-GCM under data keys, each of one process and of one day at most, wrapped by a key of the file.

A data key is drawn at random and never leaves this process but wrapped (AES key wrap, RFC 3394), beside all that it seals. Its
nonces are counted: none comes twice under a key, which is all that GCM asks of them. Nothing random is drawn for each message.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple
from weakref import WeakSet

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from retry import clock
from retry.errors import SealUnopened
from retry.sealing.key_file import DIGEST_BYTES, KEY_BYTES, SETTING, Keys

# So little is lost with one that leaks from a process; as GCM has it, far fewer than could be sealed.
_MESSAGES_MAX, _LIVES_S = 1 << 32, 86_400.0
_NONCE_BYTES = 12
_LOOK_EVERY_S = 1.0
_DIGESTS = b"digests of letters"
# Of so many processes and days the data keys are kept unwrapped.
_OPENED_MAX = 10_000


# What is kept of a message: the id of the key in the file, the data key that this one wraps, the nonce, and what is sealed.
Sealed = tuple[str, bytes, bytes, bytes]


class _DataKey(NamedTuple):
    key_id: str
    wrapped: bytes
    cipher: AESGCM
    nonces: Iterator[int]
    ends_at_s: float


class KeyRing:
    """The keys of a file, asked of `keys` every `look_every_s` seconds at most; for any thread."""

    def __init__(self, keys: Callable[[], Keys], look_every_s: float = _LOOK_EVERY_S) -> None:
        self._read, self._lock, self._look_every_s = keys, threading.Lock(), look_every_s
        self._keys, self._generation, self._look_at_s = keys(), 0, 0.0
        self._current: _DataKey | None = None
        self._opened: dict[tuple[str, bytes], AESGCM] = {}
        _RINGS.add(self)

    @property
    def keys(self) -> Keys:
        self._reload_keys(clock.monotonic_s())
        return self._keys

    @property
    def generation(self) -> int:
        """Grows whenever the keys are others than before."""
        self._reload_keys(clock.monotonic_s())
        return self._generation

    def seal(self, content: bytes, bound: bytes) -> Sealed | None:
        """Seal bytes, which open only together with the same `bound`; return None where the key file asks for no sealing.

        What is in `bound` is not sealed itself.
        """
        now_s = clock.monotonic_s()
        if now_s >= self._look_at_s:
            self._reload_keys(now_s)
        key = self._current
        if key is None or now_s >= key.ends_at_s:
            key = self._make_data_key(key, now_s)
            if key is None:
                return None
        number = next(key.nonces)
        if number >= _MESSAGES_MAX:
            self._make_data_key(key, now_s)
            return self.seal(content, bound)
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        return key.key_id, key.wrapped, nonce, key.cipher.encrypt(nonce, content, bound)

    def open(self, key_id: str, wrapped: bytes, nonce: bytes, content: bytes, bound: bytes) -> bytes:
        """Return the bytes that were sealed; raises SealUnopened where the file lacks the key, or something else was sealed.

        A key that was taken out of the file opens until somebody asks for `keys` or `generation`.
        """
        try:
            cipher = self._opened.get((key_id, wrapped)) or self._unwrap_key(key_id, wrapped)
            return cipher.decrypt(nonce, content, bound)
        except (InvalidTag, ValueError) as error:
            why = f"it was sealed under key {key_id}, and is changed, or belongs to something else"
            raise SealUnopened(key_id, why) from error

    def digests(self, content: bytes) -> list[str]:
        """Compute a fingerprint of content by each key of the key file, in its order: key id, a colon, hexadecimal digits."""
        return [f"{key_id}:{_hash_content(key, content)}" for key_id, key in self.keys.by_id.items()]

    def _reload_keys(self, now_s: float) -> None:
        if now_s < self._look_at_s:
            return
        keys = self._read()
        with self._lock:
            self._look_at_s = now_s + self._look_every_s
            if keys != self._keys:
                self._keys, self._generation = keys, self._generation + 1
                self._clear_cache()

    def _unwrap_key(self, key_id: str, wrapped: bytes) -> AESGCM:
        # Only where one is missing: what was opened a moment ago may be opened once more.
        keys = self.keys
        if (key := keys.by_id.get(key_id)) is None:
            raise SealUnopened(key_id, f"it is sealed under key {key_id}, which is not in the file of {SETTING}")
        try:
            cipher = AESGCM(aes_key_unwrap(key, wrapped))
        except InvalidUnwrap as error:
            why = f"it is sealed under another key {key_id} than that in the file of {SETTING}, or is changed"
            raise SealUnopened(key_id, why) from error
        with self._lock:
            if keys is self._keys:
                while len(self._opened) >= _OPENED_MAX:
                    del self._opened[next(iter(self._opened))]
                self._opened[key_id, wrapped] = cipher
        return cipher

    def _make_data_key(self, former: _DataKey | None, now_s: float) -> _DataKey | None:
        """The data key that follows a former one, where no other thread has made one meanwhile."""
        with self._lock:
            newest = self._keys.newest
            if newest is None:
                return None
            if self._current is None or self._current is former:
                data_key, ends_at_s = secrets.token_bytes(KEY_BYTES), now_s + _LIVES_S
                wrapped = aes_key_wrap(self._keys.by_id[newest], data_key)
                self._current = _DataKey(newest, wrapped, AESGCM(data_key), itertools.count(), ends_at_s)
            return self._current

    def _clear_cache(self) -> None:
        self._current, self._opened = None, {}


def _hash_content(key: bytes, content: bytes) -> str:
    # Of a key that is made from it, for this alone.
    own = hmac.digest(key, _DIGESTS, hashlib.sha256)
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES, key=own).hexdigest()


def _forget_all() -> None:
    for ring in _RINGS:
        ring._clear_cache()


# A copy of this process would count the same nonces under the same data key.
_RINGS: WeakSet[KeyRing] = WeakSet()
os.register_at_fork(after_in_child=_forget_all)

