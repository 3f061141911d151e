"""TLS of webhooks: whom they trust, and the client certificates by which receivers know whose calls they are (mTLS)."""

from __future__ import annotations

import os
import ssl
from functools import partial
from pathlib import Path
from typing import NamedTuple

from retry.errors import SettingsInvalid
from retry.reloaded_file import Reloaded

SETTING = "RETRY_WEBHOOK_CERTIFICATES"


class _Shown(NamedTuple):
    """The certificate that calls of a team show; `seen` says of which files it was made."""

    context: ssl.SSLContext
    seen: tuple[int, ...]


class ClientCertificates:
    """TLS contexts of webhooks, by team; belongs to one event loop.

    Args:
      folder: of `TEAM.crt` and `TEAM.key`, in PEM, the key without a passphrase. Who has none shows none. Files that change are
        used for new connections; those that cannot be used change nothing.
      authorities: file of the certificates that receivers are trusted by; else those of the machine.

    Raises SettingsInvalid where files of the folder cannot be used.
    """

    def __init__(self, folder: Path | None = None, authorities: Path | None = None) -> None:
        self._authorities = authorities
        self._plain, self._shown = ssl.create_default_context(cafile=authorities), dict[str, _Shown]()
        self._reloaded = None if folder is None else Reloaded(partial(self._read_folder, folder))

    def find_context(self, team: str) -> ssl.SSLContext:
        """Find how the next connection of a team is made."""
        shown = None if self._reloaded is None else self._reloaded.current().get(team)
        return shown.context if shown else self._plain

    def _read_folder(self, folder: Path) -> dict[str, _Shown]:
        try:
            teams = sorted(each.stem for each in folder.iterdir() if each.suffix == ".crt")
        except OSError as error:
            raise SettingsInvalid(SETTING, f"{folder} cannot be read: {error.strerror}") from None
        self._shown = {team: self._load(folder, team) for team in teams}
        return self._shown

    def _load(self, folder: Path, team: str) -> _Shown:
        certificate, key = (folder / f"{team}{suffix}" for suffix in (".crt", ".key"))
        try:
            seen = tuple(number for path in (certificate, key) for number in _stamp(path.stat()))
            if (before := self._shown.get(team)) and before.seen == seen:
                return before
            context = ssl.create_default_context(cafile=self._authorities)
            context.load_cert_chain(certificate, key, password=_refuse_passphrase)
        except (OSError, ValueError) as error:
            fault = f"{certificate} and {key} cannot be used: {error}; both are PEM, the key fits and has no passphrase"
            raise SettingsInvalid(SETTING, fault) from None
        return _Shown(context, seen)


def _stamp(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_mtime_ns, about.st_size, about.st_ino


def _refuse_passphrase() -> str:
    # Else OpenSSL would ask for it at the terminal.
    raise ValueError("the key has a passphrase")
