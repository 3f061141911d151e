"""A broker for each page that is run: pages name topics as readers would."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from retry.kafka.local_broker import LocalBroker
from tests.fixtures.capture.running import Root, classpath, compile_java
from tests.support.attached import Attached, Topics
from tests.support.tools import missing

Attach = Callable[[str, Topics], Attached]


@pytest.fixture
def attach(tmp_path: Path) -> Iterator[Attach]:
    """Attaches a framework as a page says: `attach("attach-connect.md", Topics(…))`."""
    made: list[Attached] = []
    with LocalBroker(tmp_path / "broker") as broker:

        def make(page: str, topics: Topics) -> Attached:
            made.append(Attached(broker, tmp_path / "work", page, topics))
            return made[-1]

        yield make
        for attached in made:
            attached.deployment.close()


def build_class_path(source: Path, name: str, roots: Sequence[Root], folder: Path) -> str:
    """A class path of a Java file, compiled into a folder, and of what Maven has that it needs; see `classpath`."""
    if shutil.which("javac") is None:
        missing("no javac; install a JDK, 17 or later")
    return compile_java(str(source), classpath(name, roots), folder)
