"""Dashboards are what Grafana's published schema says, by its own compiler: `@grafana/schema`, at the version of package.json.

No real Grafana is started: neither PyPI, npm nor Debian has its server ready to run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.promql import DASHBOARDS
from tests.support.tools import typescript

pytestmark = pytest.mark.check

_OPTIONS = {"strict": True, "noEmit": True, "module": "nodenext", "target": "es2022", "skipLibCheck": True, "types": []}
SCHEMA = Path(__file__).parent / "grafana" / "schema.ts"


def compile_dashboards(folder: Path, dashboards: dict[str, Any]) -> str:
    """Compile the dashboards and return what is wrong; empty where each is of the schema."""
    node, modules = typescript()
    (folder / "node_modules").symlink_to(modules)
    (folder / "package.json").write_text("{}")
    shutil.copy(SCHEMA, folder)
    written = [f"export const {name}: Dashboard = {json.dumps(each, indent=1)};" for name, each in dashboards.items()]
    (folder / "check.ts").write_text("\n".join(['import type { Dashboard } from "./schema.js";', *written]))
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": _OPTIONS, "files": ["check.ts"]}))
    done = subprocess.run(
        [node, str(modules / "typescript" / "bin" / "tsc"), "-p", "."],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 2), done.stderr
    return done.stdout


def test_every_dashboard_is_of_the_schema(tmp_path: Path) -> None:
    assert compile_dashboards(tmp_path, DASHBOARDS) == ""


def test_what_is_misspelt_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    plain = json.loads(json.dumps(DASHBOARDS["teams"]))
    misspelt, other = json.loads(json.dumps(plain)), json.loads(json.dumps(plain))
    stat = next(n for n, panel in enumerate(plain["panels"]) if panel["type"] == "stat")
    misspelt["panels"][stat]["options"]["graphmode"] = "none"
    other["panels"][stat]["options"]["graphMode"] = "loud"
    late = {**plain, "refreshes": "30s"}
    found = compile_dashboards(tmp_path, {"plain": plain, "misspelt": misspelt, "other": other, "late": late})
    assert "graphmode" in found
    assert '"loud"' in found
    assert "refreshes" in found
    assert found.count("check.ts(") == 3
