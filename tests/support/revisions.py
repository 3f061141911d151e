"""Other revisions of this repository, taken out of its history to run their code."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.support.process import ROOT


def extract_revision(revision: str, folder: Path) -> Path:
    """The files of a revision, in a folder of their own.

    Raises:
      CalledProcessError: there is no such revision here.
    """
    made = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True, timeout=60)
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder
