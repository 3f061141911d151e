"""A process that begins anew is the same one to whoever started it, and is what it was: its command, its files, its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT

# Its first run asks to begin anew, and does what it is told meanwhile; the second tells what it has.
PROGRAM = """
import asyncio, atexit, os, sys
from pathlib import Path
from retry.process.self_restart import THIS_PROCESS

marker, given = Path(sys.argv[1]), int(sys.argv[2])

async def serve():
    told = THIS_PROCESS.watch_end_signals()
    THIS_PROCESS.request_restart()
    await told.wait()
    {meanwhile}

with THIS_PROCESS.restart_at_end():
    again, fds = marker.exists(), sorted(map(int, os.listdir("/proc/self/fd")))
    with marker.open("a") as file:
        print(os.getpid(), sys.argv[3:], os.read(given, 1), fds[:-1], file=file)
    if not again:
        left_open = os.pipe()
        [os.set_inheritable(fd, True) for fd in left_open]
        atexit.register(lambda: marker.with_name("closed").touch())
        asyncio.run(serve())
{at_last}
"""


def run(folder: Path, meanwhile: str = "pass", at_last: str = "") -> tuple[int, int, list[str]]:
    """Exit code, process id, and what each run has told."""
    ours, theirs = os.pipe()
    os.write(theirs, b"abcdef")
    program, marker = folder / "program.py", folder / "told"
    program.write_text(PROGRAM.format(meanwhile=meanwhile, at_last=at_last))
    command = [sys.executable, str(program), str(marker), str(ours), "--adopt-empty-changelog", "--mode=x y"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=folder, env=environ, pass_fds=[ours], stdin=subprocess.DEVNULL) as process:
        code = process.wait(120)
    os.close(ours)
    os.close(theirs)
    return code, process.pid, marker.read_text().splitlines()


def test_it_begins_anew_under_its_id_with_its_command_and_files_and_no_more(tmp_path: Path) -> None:
    code, pid, (first, second) = run(tmp_path)
    assert code == 0
    # What was agreed to once is not said again. Files that it opened itself are closed.
    fds = first[first.index(" [", first.index("b'")) :]
    assert first == f"{pid} ['--adopt-empty-changelog', '--mode=x y'] b'a'{fds}"
    assert second == f"{pid} ['--mode=x y'] b'b'{fds}"
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_who_is_told_to_end_meanwhile_ends(tmp_path: Path, number: str) -> None:
    told = f"os.kill(os.getpid(), __import__('signal').{number}); await asyncio.sleep(0)"
    code, _, runs = run(tmp_path, f"{told}; [await asyncio.sleep(0) for _ in range(100)]")
    assert (code, len(runs)) == (0, 1)


def test_an_end_that_is_a_failure_stays_one(tmp_path: Path) -> None:
    code, _, runs = run(tmp_path, "sys.exit(3)")
    assert (code, len(runs)) == (3, 1)
    (tmp_path / "told").unlink()
    code, _, runs = run(tmp_path, "raise ValueError")
    assert (code, len(runs)) == (1, 1)


def test_without_brokers_it_begins_anew_without_what_an_orderly_end_waits_for(tmp_path: Path) -> None:
    code, _, runs = run(tmp_path, "THIS_PROCESS.end_at_once()")
    assert (code, len(runs)) == (0, 2)
    assert not (tmp_path / "closed").exists()


def test_who_is_told_to_end_by_somebody_else_first_is_not_begun_anew(tmp_path: Path) -> None:
    code, _, runs = run(tmp_path, "THIS_PROCESS.note_end_asked(); THIS_PROCESS.request_restart()")
    assert (code, len(runs)) == (0, 1)
