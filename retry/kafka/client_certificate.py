"""The files by which brokers and this process know each other, as they were when they could be used last.

librdkafka reads them for each client that is made, and clients are made as long as a process runs: for a shard that is taken
over, or after a commit in doubt. Files are replaced one after the other, and between the two they are of no use; or they are
whole, and brokers refuse them. So what the first client was made from is kept in memory for those that follow, until others
were tried.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException

AUTHORITY, CERTIFICATE, KEY, KEYSTORE = FILES = (
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location",
)  # fmt: skip
# What a client says of a configuration that it cannot use.
REFUSALS = (KafkaException, TypeError, ValueError, AttributeError)
# Only Linux has files that are in memory alone.
_IN_MEMORY = hasattr(os, "memfd_create")

Config = dict[str, Any]
_Client = TypeVar("_Client")
_Named = tuple[tuple[str, str], ...]


class _Held:
    """Files as they were read, in memory; they are gone with the last who holds this."""

    def __init__(self, files: _Named) -> None:
        self._fds = {name: self._write_content(Path(file).read_bytes()) for name, file in files}

    def _write_content(self, content: bytes) -> int:
        fd = os.memfd_create("client certificate")
        weakref.finalize(self, os.close, fd)
        while content:
            content = content[os.write(fd, content) :]
        return fd

    def make_client(self, make: Callable[[Config], _Client], config: Config) -> _Client:
        """A client that reads these."""
        return make({**config, **{name: f"/proc/self/fd/{fd}" for name, fd in self._fds.items()}})


_IN_USE: dict[_Named, _Held] = {}


def make_client(make: Callable[[Config], _Client], config: Config) -> _Client:
    """A client by the files that are in use, which are those that the first one could be made from; for any thread.

    Raises:
      KafkaException, TypeError, ValueError, AttributeError: the configuration cannot be used.
    """
    files = _list_files(config)
    if held := _IN_USE.get(files):
        return held.make_client(make, config)
    client, held = _make_from_files(files, make, config)
    if held:
        _IN_USE.setdefault(files, held)
    return client


def try_client(make: Callable[[Config], _Client], config: Config, see: Callable[[_Client], object]) -> _Client:
    """A client by what the files hold now. Where `see` raises nothing of it, they are in use from then on.

    Raises:
      as `make_client`, and whatever `see` raises.
    """
    files = _list_files(config)
    client, held = _make_from_files(files, make, config)
    see(client)
    if held:
        _IN_USE[files] = held
    return client


def _make_from_files(files: _Named, make: Callable[[Config], _Client], config: Config) -> tuple[_Client, _Held | None]:
    if files and _IN_MEMORY:
        with suppress(OSError, *REFUSALS):
            held = _Held(files)
            return held.make_client(make, config), held
    # It says better than we could what is wrong with a file.
    return make(config), None


def _list_files(config: Mapping[str, Any]) -> _Named:
    """The files that a configuration names; without a folder of authorities, which is not replaced as a whole."""
    named = {name: str(config[name]) for name in FILES if config.get(name)}
    authority = named.get(AUTHORITY, "")
    if authority == "probe" or Path(authority).is_dir():
        named.pop(AUTHORITY, None)
    return tuple(named.items())
