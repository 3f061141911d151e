"""Other revisions of this repository, taken out of its history: to run their code, and to keep what it writes."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

from tests.support.process import ROOT
from tests.support.tools import missing

# The revision whose worker runs beside the present one: the commit before, or what this variable names.
VARIABLE = "PREVIOUS_REVISION"


def previous() -> str:
    """The revision before this one, or what `PREVIOUS_REVISION` names."""
    # In a checkout with changes these are what is new, and the last commit is what was before.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "retry", "backoff")
    return os.environ.get(VARIABLE) or ("HEAD" if changed.stdout.strip() else "HEAD~1")


def of_history(revision: str, folder: Path) -> Path:
    """The tree of a revision. Without its history, as in a shallow clone, the test is skipped, and fails where CI is set."""
    try:
        return extracted(revision, folder)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        missing(f"no {revision} in this checkout's history (`git fetch --unshallow` brings it): {said}")


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
