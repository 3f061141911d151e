"""A file that is read again when it changes: tokens, secrets, certificates."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from retry import clock
from retry.errors import SettingsInvalid

log = logging.getLogger(__name__)

_Parsed = TypeVar("_Parsed")
_READ_EVERY_S = 5.0


class Reloaded(Generic[_Parsed]):
    """Content of files that is read again while the process runs, so that a change needs no restart.

    `read` raises SettingsInvalid where they cannot be used, and so does the first reading; later such files change nothing, and
    are logged once.
    """

    def __init__(self, read: Callable[[], _Parsed]) -> None:
        self._read, self._held, self._last_error = read, read(), ""
        self._reading = clock.Interval(_READ_EVERY_S)

    def current(self) -> _Parsed:
        """Return the newest content that could be used; the file is read again first where that is due."""
        if self._reading.is_due():
            try:
                self._held, self._last_error = self._read(), ""
            except SettingsInvalid as error:
                if str(error) != self._last_error:
                    self._last_error = str(error)
                    log.warning("%s; what was read before stays in use", error)
        return self._held

    def trouble(self) -> str:
        """Return why the present content of the file is not in use; empty where it is in use."""
        self.current()
        return self._last_error


class ReloadedFile(Reloaded[_Parsed]):
    """A file that a setting names; `parse` raises SettingsInvalid where its text cannot be used."""

    def __init__(self, setting: str, path: Path, parse: Callable[[str], _Parsed]) -> None:
        self._setting, self._path, self._parse = setting, path, parse
        super().__init__(self._read_file)

    def _read_file(self) -> _Parsed:
        try:
            return self._parse(self._path.read_text())
        except OSError as error:
            raise SettingsInvalid(self._setting, f"{self._path} cannot be read: {error}") from error
        except UnicodeDecodeError:
            raise SettingsInvalid(self._setting, f"{self._path} is not UTF-8 text; is it the right file?") from None


def number_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text with their numbers from 1; leave out empty lines and those that begin with #.

    >>> list(number_lines("# made by ann\\n\\n  first \\nsecond"))
    [(3, 'first'), (4, 'second')]
    """
    for n, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and not line.startswith("#"):
            yield n, line


def hash_files(files: Iterable[Path]) -> bytes:
    """Hash files, and those in folders, to tell whether any has changed; one that cannot be read counts as empty."""
    return hashlib.sha256(b"".join(map(_hash_file, files))).digest()


def _hash_file(file: Path) -> bytes:
    try:
        held = sorted(file.iterdir()) if file.is_dir() else [file]
        contents = [each.read_bytes() for each in held if each.is_file()]
    except OSError:
        contents = []
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).digest()
