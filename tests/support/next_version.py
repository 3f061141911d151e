"""A next version of this service, made up: what runs beside this one in an upgrade, before there is one."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.process import ROOT

# Of each format that may be read before it is written it reads one version more; its tables have another format.
_NEXT = """

def _read_next(of: Format) -> Format:
    return of._replace(reads=of.reads | {max(of.reads) + 1})


ENVELOPE, SEALED_ENVELOPE = _read_next(ENVELOPE), _read_next(SEALED_ENVELOPE)
BLOCK, ENVELOPE_BLOCK = _read_next(BLOCK), _read_next(ENVELOPE_BLOCK)
CONTROL, ACTION, LINEAGE = _read_next(CONTROL), _read_next(ACTION), _read_next(LINEAGE)
READ_POSITION, OUTCOME = _read_next(READ_POSITION), _read_next(OUTCOME)
TABLE = TABLE._replace(writes=TABLE.writes + 1, reads=frozenset({TABLE.writes + 1}))
_ANNOUNCED = (KEY, ENVELOPE, BLOCK, CONTROL, ACTION)
FORMATS = (KEY, ENVELOPE, BLOCK, CONTROL, ACTION, TABLE, LINEAGE, READ_POSITION, OUTCOME)
"""


def make_next_version(folder: Path) -> Path:
    """Write the tree of the next version into a folder: this one's code, with other versions of formats."""
    for package in ("retry", "backoff"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    formats = folder / "retry" / "format_versions.py"
    formats.write_text(formats.read_text(encoding="utf-8") + _NEXT, encoding="utf-8")
    return folder
