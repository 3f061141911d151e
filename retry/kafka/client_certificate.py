"""The certificate by which brokers know this process: the newest pair of files that belongs together.

librdkafka reads both files for each client that is made, and clients are made as long as a process runs: for a shard that is
taken over, or after a commit in doubt. Files are replaced one after the other, and between the two they are of no use. So a pair
that could be used is kept in memory, for clients that are made in such a moment.
"""

from __future__ import annotations

import hashlib
import logging
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException

log = logging.getLogger(__name__)

CERTIFICATE, KEY = "ssl.certificate.location", "ssl.key.location"
# What a client says of a configuration that it cannot use.
REFUSALS = (KafkaException, TypeError, ValueError, AttributeError)
# Only Linux has files that are in memory alone.
_IN_MEMORY = hasattr(os, "memfd_create")

Config = dict[str, Any]
_Client = TypeVar("_Client")
_Files = tuple[str, str]


class _Pair:
    """A certificate and its key, as files in memory; they are gone with the last who holds this."""

    def __init__(self, contents: tuple[bytes, bytes]) -> None:
        self.digest = _digest(contents)
        self._fds = [self._written(content) for content in contents]

    def _written(self, content: bytes) -> int:
        fd = os.memfd_create("client certificate")
        weakref.finalize(self, os.close, fd)
        while content:
            content = content[os.write(fd, content) :]
        return fd

    def made(self, make: Callable[[Config], _Client], config: Config) -> _Client:
        """A client that shows it."""
        certificate, key = (f"/proc/self/fd/{fd}" for fd in self._fds)
        return make({**config, CERTIFICATE: certificate, KEY: key})


_USABLE: dict[_Files, _Pair] = {}
_TOLD: dict[_Files, str] = {}


def made(make: Callable[[Config], _Client], config: Config) -> _Client:
    """A client with the certificate that the files hold now, or the one before where these cannot be used; for any thread.

    Raises:
      KafkaException, TypeError, ValueError, AttributeError: the configuration cannot be used, and none could before.
    """
    files = str(config.get(CERTIFICATE, "")), str(config.get(KEY, ""))
    if not all(files) or not _IN_MEMORY:
        return make(config)
    before = _USABLE.get(files)
    try:
        contents = Path(files[0]).read_bytes(), Path(files[1]).read_bytes()
        if before is not None and before.digest == _digest(contents):
            return before.made(make, config)
        pair = _Pair(contents)
        client = pair.made(make, config)
    except (OSError, *REFUSALS) as error:
        if before is None:
            # The client says better than we could what is wrong with a file.
            return make(config)
        client = before.made(make, config)
        _tell(files, str(error.args[0].str() if isinstance(error, KafkaException) else error))
        return client
    _USABLE[files] = pair
    if before is not None:
        log.info("clients show the certificate that is in %s now from here on; those that run, the one before", files[0])
    return client


def _tell(files: _Files, why: str) -> None:
    # Once: a shard that is taken over asks for clients again and again.
    if _TOLD.get(files) != why:
        _TOLD[files] = why
        log.warning("%s and %s cannot be used: %s; the certificate that was read before stays in use", *files, why.strip())


def _digest(contents: tuple[bytes, bytes]) -> bytes:
    return b"".join(hashlib.sha256(content).digest() for content in contents)
