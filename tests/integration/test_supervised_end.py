"""A worker that was started by a supervisor and ends by itself ends with its own exit code, and is started again as it was."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from retry.process.self_restart import ONCE
from retry.settings import copy_environment
from retry.worker import supervisor

# Long enough for the thread to wait for the supervisor's end.
_ENDS = "from retry.clock import pause; from retry.worker.supervisor import end_with_supervisor; "
_ENDS += "end_with_supervisor(); pause(0.5); raise SystemExit(3)"


def test_a_supervised_process_that_ends_while_its_supervisor_lives_keeps_its_exit_code() -> None:
    process = subprocess.Popen([sys.executable, "-c", _ENDS], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (process.wait(), process.stderr and process.stderr.read()) == (3, b"")


def test_a_worker_that_is_started_again_has_its_options_and_agrees_to_nothing_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = [], asyncio.create_subprocess_exec

    async def ending(*command: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(command[command.index("--supervised") + 2 :])
        return await start(sys.executable, "-c", "raise SystemExit(3)", **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", ending)
    monkeypatch.setattr(supervisor, "_AGAIN_S", 0.0)
    both = supervisor.Supervisor([copy_environment()], ["--timers-only"], [ONCE])
    assert asyncio.run(both.run("127.0.0.1", 0)) == 1
    assert started == [("--timers-only", ONCE), *[("--timers-only",)] * 4]
