"""Which packages of Debian its security team does not mend, or not for every use, by the lists of debian-security-support.

These are lists of source packages, written by hand; what is known against a version is not in them. `make images` takes them from
Debian's archive, whose key vouches for them, at the time of the build.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from release.image_components import SOURCE

PACKAGE, FOLDER = "debian-security-support", "support"
_PLACE, _LISTS = f"usr/share/{PACKAGE}", "security-support-*"
_ENDED, _LIMITED = "security-support-ended.deb{}", "security-support-limited"


def keep(unpacked: Path, to: Path) -> None:
    """Copy the lists of the package, whose files lie below `unpacked`, in the place of those before."""
    shutil.rmtree(to / FOLDER, ignore_errors=True)
    (to / FOLDER).mkdir()
    for file in (unpacked / _PLACE).glob(_LISTS):
        shutil.copy(file, to / FOLDER)


def read_kept_lists(to: Path, version: str) -> tuple[str, str]:
    """The lists that were kept: of packages whose support ends before a version of Debian does, and of limited ones."""
    return (to / FOLDER / _ENDED.format(version)).read_text(), (to / FOLDER / _LIMITED).read_text()


def list_unsupported(listed: Iterable[Mapping[str, Any]], ended: str, limited: str) -> list[str]:
    """A line for each source package of a list of components whose support ends early or is limited."""
    sources = {each["value"] for component in listed for each in component.get("properties", ()) if each["name"] == SOURCE}
    found = [f"{source}: support ends {when}: {why}" for (source, _, when, why) in _iterate_rows(sources, ended, 4)]
    return found + [f"{source}: support is limited: {why}" for source, why in _iterate_rows(sources, limited, 2)]


def _iterate_rows(sources: set[str], lines: str, columns: int) -> Iterator[list[str]]:
    """Rows of a list that are about one of the sources; the first column is an expression, the last may be missing."""
    for line in lines.splitlines():
        if line.strip() and not line.startswith("#"):
            expression, *rest = [*line.split(maxsplit=columns - 1), ""][:columns]
            yield from ([source, *rest] for source in sorted(sources) if re.fullmatch(expression, source))
