"""The file of signing secrets, read again when it changes, so that secrets rotate without a restart."""

from __future__ import annotations

import logging
from pathlib import Path

from retry import clock
from retry.errors import SettingsInvalid
from retry.delivery.webhooks.standard_webhooks import secrets_of

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 5.0


class Secrets:
    """The keys that calls are signed with, the newest first; none where there is no file.

    Raises:
      SettingsInvalid: the file cannot be read, or a line is no secret. Later a file like that is not used, and the log says so.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._told = path, ""
        self._keys = self._read() if path else []
        self._look_at_s = clock.monotonic_s() + _LOOK_EVERY_S

    def current(self) -> list[bytes]:
        """Those of now."""
        if self._path is not None and clock.monotonic_s() >= self._look_at_s:
            self._look_at_s = clock.monotonic_s() + _LOOK_EVERY_S
            try:
                self._keys, self._told = self._read(), ""
            except SettingsInvalid as error:
                if str(error) != self._told:
                    self._told = str(error)
                    log.warning("%s; signed as before", error)
        return self._keys

    def _read(self) -> list[bytes]:
        try:
            return secrets_of((self._path or Path()).read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsInvalid("RETRY_WEBHOOK_SECRETS", f"{self._path} cannot be read: {error}") from error
