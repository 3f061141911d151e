"""Entries to envelopes and back, sealed where there are keys for that.

What is sealed is the whole envelope of version 1, bound to the letter, or the name, that its key has: copied under the key of
another it does not open. The envelope of version 2 around it repeats in clear what is asked about entries that wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelopes import Entry, EntryFields, Named, SealedEnvelope, Unopened
from retry.errors import EntryForeign, SealUnopened
from retry.reloaded_file import ReloadedFile
from retry.sealing.key_file import DIGEST_BYTES, SETTING, parse
from retry.settings import Settings

if TYPE_CHECKING:
    from retry.sealing.key_ring import KeyRing


def open_key_ring(settings: Settings) -> KeyRing | None:
    """Open the keys in the file that settings name; None where they name no file. Raises SettingsInvalid.

    The keys are read again when the file changes.
    """
    if settings.encryption_keys is None:
        return None
    # It brings cryptography along, a sixth of a second of a process's start.
    from retry.sealing.key_ring import KeyRing

    return KeyRing(ReloadedFile(SETTING, settings.encryption_keys, parse).current)


_Entry = TypeVar("_Entry", Entry, Named)


class EnvelopeCodec:
    """Writes and reads envelopes; for any thread. Without a ring it writes in clear, and reads nothing that is sealed."""

    def __init__(self, ring: KeyRing | None = None) -> None:
        self._ring = ring

    @property
    def generation(self) -> int:
        """Another number whenever other entries may be read than before."""
        return 0 if self._ring is None else self._ring.generation

    @property
    def is_plain(self) -> bool:
        """Whether whatever it writes is in clear, now and later."""
        return self._ring is None

    def encode(self, key: bytes, entry: Entry) -> bytes:
        envelope = envelopes.encode(entry)
        if self._ring is None or (sealed := self._ring.seal(envelope, entry_keys.extract_identity(key))) is None:
            return envelope
        return envelopes.encode(SealedEnvelope(entry.destination, entry.team, entry.timestamp_ms, entry.failed_at_ms, *sealed))

    def encode_all(self, keys: Sequence[bytes], fields: Sequence[EntryFields]) -> list[bytes]:
        """Encode many entries, given as tuples, into their envelopes."""
        if self._ring is None:
            return list(map(envelopes.encode, fields))
        return [self.encode(key, Entry(*of_entry[1:])) for key, of_entry in zip(keys, fields, strict=True)]

    def decode(self, key: bytes, envelope: bytes) -> Entry:
        """Decode the entry in an envelope; return a `Named` where the key is that of a named entry.

        Raises:
          SealUnopened: it cannot be opened here; nothing may be sent, and nothing dropped.
          EntryNewer: an envelope of a newer version.
          EntryForeign: no envelope, which nobody can ever open. Nothing may be sent on a guess.
        """
        if key[0] == NAMED:
            return self.decode_named(key, envelope)
        found = envelopes.decode_routing(envelope)
        if isinstance(found, SealedEnvelope):
            return _check_agreement(found, envelopes.decode(self._content(key, found)))
        return found

    def decode_all(self, rows: Sequence[tuple[bytes, bytes]]) -> list[Entry]:
        """Decode many keys and envelopes, of which nearly all are plain and take no call of their own; raises as `decode`."""
        if NAMED not in {key[0] for key, _ in rows}:
            found = envelopes.decode_all_routings([envelope for _, envelope in rows])
            if SealedEnvelope not in {*map(type, found)}:
                return cast(list[Entry], found)
        return [self.decode(*row) for row in rows]

    def decode_named(self, key: bytes, envelope: bytes) -> Named:
        """Decode the named entry in an envelope; raises as `decode`."""
        found = envelopes.decode_named_routing(envelope)
        if isinstance(found, SealedEnvelope):
            return _check_agreement(found, envelopes.decode_named(self._content(key, found)))
        return found

    def decode_to_show(self, key: bytes, envelope: bytes) -> Entry:
        """Decode an entry only to show it: an `Unopened` where it cannot be opened here; raises EntryNewer as `decode`."""
        try:
            return self.decode(key, envelope)
        except EntryForeign as error:
            return Unopened("", None, None, [], None, "", why=str(error), is_foreign=True)
        except SealUnopened as error:
            of = envelopes.decode_routing(envelope)
            return Unopened(of.destination, None, None, [], of.timestamp_ms, of.team, of.failed_at_ms, why=str(error))

    def digests(self, content: bytes) -> list[str]:
        """Compute fingerprints of content by each key of the file, the sealing key first, and one without a key.

        Who sees the one without a key may guess the content.
        """
        plain = hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
        keyed = [] if self._ring is None else self._ring.digests(content)
        return [plain, *keyed] if self._ring is None or self._ring.keys.newest is None else [*keyed, plain]

    def _content(self, key: bytes, sealed: SealedEnvelope) -> bytes:
        if self._ring is None:
            raise SealUnopened(sealed.key_id, f"it is sealed under key {sealed.key_id}, and {SETTING} is not set")
        return self._ring.open(sealed.key_id, sealed.wrapped, sealed.nonce, sealed.content, entry_keys.extract_identity(key))


def _check_agreement(sealed: SealedEnvelope, entry: _Entry) -> _Entry:
    said = sealed.destination, sealed.team, sealed.timestamp_ms, sealed.failed_at_ms
    if said != (entry.destination, entry.team, entry.timestamp_ms, entry.failed_at_ms):
        raise SealUnopened(sealed.key_id, f"it was sealed under key {sealed.key_id}, and what it says in clear is changed")
    return entry


# Of whoever has no keys: writes in clear, reads what is in clear.
PLAIN = EnvelopeCodec()


def make_codec(settings: Settings) -> EnvelopeCodec:
    """Make the codec of envelopes, with the keys that settings name, if they name any; raises as `open_key_ring`."""
    ring = open_key_ring(settings)
    return PLAIN if ring is None else EnvelopeCodec(ring)
