"""Other revisions of this repository, taken out of its history: to run their code, and to keep what it writes."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.process import ROOT

# The revision whose worker runs beside the present one: the commit before, or what this variable names.
VARIABLE = "PREVIOUS_REVISION"


def previous(folder: Path) -> Path:
    """The tree of the revision before this one, or of what `PREVIOUS_REVISION` names; skips where there is no history."""
    revision = os.environ.get(VARIABLE)
    if revision is None:
        # In a checkout with changes these are what is new, and the last commit is what was before.
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "retry", "backoff")
        revision = "HEAD" if changed.stdout.strip() else "HEAD~1"
    try:
        return extracted(revision, folder)
    except subprocess.CalledProcessError as error:
        if VARIABLE in os.environ:
            raise
        pytest.skip(f"no {revision} in this checkout's history: {error.stderr.decode(errors='replace').strip()}")


def extracted(revision: str, folder: Path) -> Path:
    """The files of a revision, in a folder of their own.

    Raises:
      CalledProcessError: there is no such revision here.
    """
    made = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True, timeout=60)
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False, timeout=60)
