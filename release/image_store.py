"""Where `make images` keeps images: a store of buildah in a folder of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ImagesRefused(Exception):
    """Images cannot be built here, or a build failed."""


def store(to: Path) -> list[str]:
    """Options that have buildah keep images and containers in a folder."""
    return ["--root", str(to / "store"), "--runroot", str(to / "run")]


@contextmanager
def files(to: Path, name: str) -> Iterator[Path]:
    """Yield the folder of the files of an image while the block runs; to be read alone."""
    buildah = ["buildah", *store(to)]
    container = run([*buildah, "from", "--pull-never", name]).strip()
    try:
        yield Path(run([*buildah, "mount", container]).strip()).resolve()
    finally:
        run([*buildah, "rm", container])


def run(command: list[str]) -> str:
    """Run a program and return what it printed.

    Raises:
      ImagesRefused: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImagesRefused(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    return done.stdout
