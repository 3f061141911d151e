"""Encryption for tests: files of keys that change, and codecs of them."""

from __future__ import annotations

import base64
import hashlib

from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.sealing import key_file
from retry.sealing.key_file import Keys
from retry.sealing.key_ring import KeyRing


def line(key_id: str, number: int) -> str:
    """A line of a file of keys: of each number another key."""
    return f"{key_id} {base64.b64encode(hashlib.sha256(b'%d' % number).digest()).decode()}"


# Two keys that differ, and one that has the id of the first and other bytes.
OLD, NEW, OTHER_OLD = line("old", 1), line("new", 2), line("old", 3)


class KeyFile:
    """A file of keys, and whoever has it: all that it holds counts at once."""

    def __init__(self, *lines: str) -> None:
        self.write(*lines)
        self.ring = KeyRing(lambda: self.keys, look_every_s=0.0)
        self.codec = EnvelopeCodec(self.ring)

    def write(self, *lines: str) -> None:
        """Put other lines into it."""
        self.keys: Keys = key_file.parse("\n".join(lines))
