"""The console of a deployment to which nothing has come yet, run from the wheel alone: it says so, and how to begin."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from retry.kafka.local_broker import LocalBroker
from tests.support.browser import EACH_LOOK, Look, Watched
from tests.support.deployment import ROOT, Deployment
from tests.support.incident import console

pytestmark = pytest.mark.check

SAID = {
    "/": "Nothing waits.", "/failures": "Nothing fails.", "/letters": "Nothing waits.", "/actions": "Nothing was asked for",
    "/pauses": "Nothing is paused.", "/policies": "The policy file that this console has read last",
    "/schedules": "No schedule waits.", "/tasks": "No task waits for its next run.", "/timers": "No timer waits.",
    "/audit": "Nothing was done yet.", "/workers": "No worker was heard of within a week.",
}  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that users install from the wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as file:
        file.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def url(broker: LocalBroker, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The console of a deployment without letters, without the tree that the wheel was built from."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("empty"), {"orders": 1}).prepare()
    yield f"http://127.0.0.1:{console(deployment, wheel).port()}"
    deployment.close()


@pytest.mark.parametrize("look", EACH_LOOK)
def test_the_empty_console_says_so_and_keeps_nobody_out(browser: Browser, url: str, look: Look) -> None:
    watched = Watched(browser, url, *look)
    page = watched.page
    page.goto("/")
    paths = [link.get_attribute("href") or "" for link in page.locator("nav a").all()]
    assert set(paths) == set(SAID)
    for path in paths:
        page.goto(path)
        expect(page.locator("main")).to_contain_text(SAID[path])
        assert (path, watched.violations(), watched.refused(), watched.troubles) == (path, [], [], [])
    watched.close()
