"""Where to listen, or where to send logs: `host:port`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from retry.errors import SettingsInvalid

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(?::(?P<port>[0-9]{1,5}))?")


class Address(msgspec.Struct, frozen=True):
    """Host and port. `:8000` means every interface, since that is what whoever writes it means; only where nothing is written
    is it loopback alone."""

    host: str
    port: int

    @classmethod
    def of(cls, given: Mapping[str, str], name: str, port: int) -> Address:
        """The address that a variable names, or loopback at `port`.

        Raises:
          SettingsInvalid: it is no address.
        """
        if name not in given:
            return cls("127.0.0.1", port)
        text = given[name]
        found = _ADDRESS.fullmatch(text)
        if not found or int(found["port"] or port) > 65_535 or text == ":":
            raise SettingsInvalid(name, f"{text!r} is not host:port, like 127.0.0.1:{port} or :{port}")
        return cls(found["host"].strip("[]") or "0.0.0.0", int(found["port"] or port))  # noqa: S104 - what `:8000` says

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
