"""Programs besides Python and Java: what `make tools` installs. Tests that use one are of the second size.

A test that lacks one is skipped, and fails where CI is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.chart import ROOT

_FOLDER, NODE_MODULES = ROOT / "build" / "tools", ROOT / "build" / "node" / "node_modules"
SCHEMA_MODULES = ROOT / "build" / "grafana" / "node_modules"
_BROWSER = ROOT / "build" / "browser"
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def tool(name: str) -> str:
    """Path of helm, kubeconform or promtool; the one of `make tools`, else the one on the PATH."""
    path = _first([name], f"{_FOLDER}{os.pathsep}{os.environ.get('PATH', '')}")
    return path or missing(f"no {name}; `make tools` installs it where Go is")


def release_tool(name: str) -> str:
    """Path of a program that makes or checks releases."""
    return _first([name], str(ROOT / "build" / "release" / "bin")) or missing(f"no {name}; `make tools` installs it")


def object_store() -> str:
    """Path of moto's server, a stand-in for S3."""
    return _first(["moto_server"], str(ROOT / "build" / "moto" / "bin")) or missing("no moto; `make check-release` installs it")


def run(name: str, *arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A tool of the chart run to its end."""
    return subprocess.run(
        [tool(name), *map(str, arguments)], cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )


def node() -> str:
    """Path of Node.js, where KafkaJS is in `NODE_MODULES`."""
    path = _first(["node"]) if NODE_MODULES.exists() else None
    return path or missing("no KafkaJS; `make tools` installs it where npm is")


def typescript() -> tuple[str, Path]:
    """The command that runs TypeScript's compiler, and the packages that `make tools` put beside it: Grafana's schema."""
    path = _first(["node"])
    if path is None or not (SCHEMA_MODULES / "typescript").exists():
        missing("no schema of Grafana; `make tools` installs it where npm is")
    return path, SCHEMA_MODULES


def chromium() -> str:
    """Path of Chromium: what `CHROMIUM` names, the system's, or the one of `make tools`."""
    named = os.environ.get("CHROMIUM")
    path = named or _first(_CHROMIUM) or _first(["headless.sh"], str(_BROWSER) if (_BROWSER / "chromium").exists() else "")
    return path or missing("no Chromium; `make tools` installs it where npm is")


def axe() -> Path:
    """The script of axe-core, which finds in a page what keeps people out."""
    script = _BROWSER / "node_modules" / "axe-core" / "axe.min.js"
    return script if script.exists() else missing("no axe-core; `make tools` installs it where npm is")


def _first(names: Sequence[str], path: str | None = None) -> str | None:
    return next((there for name in names if (there := shutil.which(name, path=path))), None)


def missing(what: str) -> NoReturn:
    """Skip the test that lacks something, and fail it where CI is set."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)
