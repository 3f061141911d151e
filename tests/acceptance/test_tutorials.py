"""A reader types what a tutorial says, block by block, into one shell; each prints what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from retry.kafka.local_broker import free_port
from tests.support.pages import ROOT, blocks, printed_as_shown
from tests.support.process import await_that
from tests.support.sizes import only_in_faults

pytestmark = pytest.mark.check
TUTORIALS = ROOT / "docs" / "tutorial"
# Broker, worker, API and receiver, as the pages name them.
PORTS = ("9092", "8080", "8081", "8090")
_END = "end of the block:"
# Of a starved machine; a quiet one needs half a minute for a page.
_BLOCK_S, _SHOWN_S = 300.0, 240.0


class Shell:
    """One bash that reads blocks of commands; what they start in the background ends with it."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._folder, self._log = folder, (folder / "stderr").open("wb")
        self._bash = subprocess.Popen(
            ["bash"], cwd=folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._write("failed=0; trap 'failed=1' ERR")

    def run(self, commands: str) -> tuple[str, bool]:
        """Run the commands of a block; return what they print on standard output, and whether every one ended well."""
        (script := self._folder / "block.sh").write_text(commands)
        # A block that hangs ends the shell, and with it this reading.
        with _Guard(self._bash.pid):
            self._write(f"failed=0; source {script} </dev/null; echo; echo '{_END}' $failed")
            assert self._bash.stdout is not None
            printed = []
            for line in self._bash.stdout:
                if line.startswith(_END):
                    return "".join(printed), line.split()[-1] == "0"
                printed.append(line)
        raise AssertionError(f"the shell ended in {commands!r}: {self.log()}")

    def log(self) -> str:
        """Return what was printed on standard error, and by what runs in the background."""
        files = [self._folder / "stderr", *self._folder.glob("*/*.log")]
        return "\n".join(file.read_text(errors="replace")[-2_000:] for file in files)

    def _write(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}\n")
        self._bash.stdin.flush()

    def close(self) -> None:
        """End the shell and all that it started."""
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        self._log.close()


class _Guard:
    def __init__(self, group: int) -> None:
        self._timer = threading.Timer(_BLOCK_S, os.killpg, (group, signal.SIGKILL))

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


@pytest.mark.parametrize("page", ["first-retry.md", *only_in_faults("first-timer.md")])
def test_a_tutorial_prints_what_its_page_shows(page: str, tmp_path: Path) -> None:
    ports = {port: str(free_port()) for port in PORTS}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = Shell(tmp_path, os.environ | {"PATH": path, "RETRY_HTTP_ADDR": f"127.0.0.1:{ports['8080']}"})
    try:
        _type(shell, page, ports, tmp_path / page.removesuffix(".md"))
        assert not (tmp_path / page.removesuffix(".md")).exists()
    finally:
        shell.close()


def _type(shell: Shell, page: str, ports: dict[str, str], folder: Path) -> None:
    steps = [block._replace(text=_with(ports, block.text)) for block in blocks(TUTORIALS / page)]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.file_name:
            (folder / step.file_name).write_text(step.text)
        elif step.language == "sh" and after and after.language == "text":
            _until_it_prints(shell, step.text, after.text)
        elif step.language == "sh":
            printed, ended_well = shell.run(step.text)
            assert ended_well, f"{step.text}\n{printed}\n{shell.log()}"


def _until_it_prints(shell: Shell, commands: str, shown: str) -> None:
    printed: list[str] = []

    def as_shown() -> bool:
        text, ended_well = shell.run(commands)
        printed.append(text)
        return ended_well and printed_as_shown(text, shown)

    try:
        await_that(f"{commands.strip()!r} prints what the page shows", as_shown, _SHOWN_S)
    except AssertionError as late:
        raise AssertionError(f"{late}; it printed:\n{printed[-1]}\nshown is:\n{shown}\nlogs:\n{shell.log()}") from None


def _with(ports: dict[str, str], text: str) -> str:
    # All at once: a free port may have the digits of another that is to be replaced.
    return re.sub("|".join(ports), lambda found: ports[found[0]], text)
