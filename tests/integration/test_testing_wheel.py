"""The wheel for tests of users: the page that shows it works with it, where `retry` and `backoff` are other packages."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from release import testing_wheel
from tests.support.chart import ROOT

PAGE = ROOT / "docs" / "how-to" / "test-your-consumers.md"
OTHERS = """
import backoff, retry

def test_the_others_are_as_they_are():
    assert (backoff.expo, retry.retry) == (1, 2)
"""


def test_what_the_page_shows_runs_beside_other_packages_of_these_names(tmp_path: Path) -> None:
    testing_wheel.write_project(ROOT, tmp_path / "wheel")
    for name, text in (("backoff", "expo = 1\n"), ("retry", "retry = 2\n")):
        (tmp_path / "others").mkdir(exist_ok=True)
        (tmp_path / "others" / f"{name}.py").write_text(text)
    (shown,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "test_orders.py").write_text(testing_wheel.rename_imports(shown))
    (tmp_path / "test_others.py").write_text(OTHERS)
    imports = "".join(f"import {each}\n" for each in testing_wheel.IMPORTED)
    (tmp_path / "test_imports.py").write_text(testing_wheel.rename_imports(imports) + "def test(): pass\n")
    path = os.pathsep.join(map(str, (tmp_path / "wheel", tmp_path / "others", ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, "5 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_what_the_wheel_needs_is_what_its_modules_import() -> None:
    modules = testing_wheel.find_modules(ROOT, testing_wheel.IMPORTED)
    assert {"retry.testing.kafka.log", "backoff.parse"} <= modules.keys()
    assert not [name for name in modules if name.startswith(("retry.cli", "retry.worker", "retry.console", "retry.analytics"))]
    names = {name for file in modules.values() for name in testing_wheel.list_imports(ast.parse(file.read_text()))}
    imported = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"backoff", "retry"}
    named = {"confluent-kafka": "confluent_kafka", "google-re2": "re2", "pyyaml": "yaml"}
    # uvicorn reads HTTP with httptools, and zoneinfo finds in tzdata what the machine has not.
    assert {named.get(each, each) for each in testing_wheel.NEEDED} - {"httptools", "tzdata"} == imported
