"""The key ring that settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retry.reloaded_file import ReloadedFile
from retry.sealing.key_file import SETTING, parse
from retry.settings import Settings

if TYPE_CHECKING:
    from retry.sealing.key_ring import KeyRing


def key_ring(settings: Settings) -> KeyRing | None:
    """The keys of the file that the settings name, read again when it changes; None where they name none.

    Raises:
      SettingsInvalid: the file cannot be used.
    """
    if settings.encryption_keys is None:
        return None
    # It brings cryptography along, a sixth of a second of a process's start.
    from retry.sealing.key_ring import KeyRing

    return KeyRing(ReloadedFile(SETTING, settings.encryption_keys, parse).current)
