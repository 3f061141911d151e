"""helm, kubeconform and promtool as `make tools` installs them; tests without them skip, and fail where CI is set."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "retry"
_FOLDER = ROOT / "build" / "tools"


def tool(name: str) -> str:
    """Path of a tool; the one of `make tools`, else the one on the PATH."""
    found = shutil.which(name, path=f"{_FOLDER}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        missing = f"no {name}; `make tools` installs it where Go is"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def run(name: str, *arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A tool run to its end."""
    return subprocess.run(
        [tool(name), *map(str, arguments)], cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=120, check=False
    )
