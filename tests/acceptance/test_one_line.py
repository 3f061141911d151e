"""What an operator got wrong is told in one line that says what to do, by each command, and never by a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployment import Deployment
from tests.support.process import ROOT, await_that
from tests.unit.kafka.test_child_process import alive, children

pytestmark = pytest.mark.check

LONG_RUNNING = [("worker",), ("api",), ("scheduler",)]
ASKING = [("letters",), ("topics", "check"), ("pauses",), ("verify",)]
UNKNOWN = {"RETRY_KAFKA_FOO_BAR": "1"}
NO_FILE = {"RETRY_KAFKA_SECURITY_PROTOCOL": "SSL", "RETRY_KAFKA_SSL_CA_LOCATION": "/nowhere/ca.pem"}


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port of which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


def run_refused(deployment: Deployment, command: tuple[str, ...], **environ: str) -> str:
    """Run a command that is refused; fails unless it says one line, with exit code 1, of verify 2."""
    # The system chooses: between being found free and being listened on, a port may be taken by another process.
    free = dict.fromkeys(("RETRY_API_ADDR", "SERVER_ADDR", "METRICS_ADDR"), "127.0.0.1:0")
    own = {"BOOTSTRAP_SERVERS": deployment.bootstrap_servers, "LOG_LEVEL": "error"}
    done = deployment.command(*command, **{**free, **own, **environ})
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line and " WARNING " not in line]
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if command == ("verify",) else 1), done.stderr
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_an_unknown_kafka_property_is_told_in_a_line_by_each_command(deployment: Deployment) -> None:
    for command in LONG_RUNNING + ASKING:
        told = run_refused(deployment, command, **UNKNOWN)
        assert told.startswith('RETRY_KAFKA_FOO_BAR: No such configuration property: "foo.bar"')


def test_a_wrong_kafka_property_and_a_missing_ca_file_are_told_in_a_line(deployment: Deployment) -> None:
    told = run_refused(deployment, ("worker",), RETRY_KAFKA_SOCKET_TIMEOUT_MS="soon")
    assert told.startswith("RETRY_KAFKA_SOCKET_TIMEOUT_MS: Invalid value")
    for command in LONG_RUNNING:
        told = run_refused(deployment, command, **NO_FILE)
        assert told.startswith("RETRY_KAFKA_SSL_CA_LOCATION: ")
        assert "is /nowhere/ca.pem a file that this user can read?" in told


def test_an_address_in_use_is_told_in_a_line(deployment: Deployment, taken_port: int) -> None:
    address = f"127.0.0.1:{taken_port}"
    for command, variable in [(("worker",), "RETRY_HTTP_ADDR"), (("api",), "RETRY_API_ADDR"), (("scheduler",), "SERVER_ADDR"),
                              (("scheduler",), "METRICS_ADDR"), (("scheduler", "--mini"), "SERVER_ADDR"),
                              (("worker", "--processes", "2"), "RETRY_HTTP_ADDR")]:  # fmt: skip
        told = run_refused(deployment, command, **{variable: address})
        assert f"cannot listen on {address} (Address already in use)" in told
        assert variable in told


def test_a_data_directory_that_cannot_be_used_is_told_in_a_line(deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.touch()
    for command in LONG_RUNNING:
        assert f"{file / 'data'}" in run_refused(deployment, command, RETRY_DATA_DIR=str(file / "data"))


def test_no_broker_is_told_in_a_line(deployment: Deployment) -> None:
    """Also by commands that ask one thing."""
    for command in (("worker",), ("letters",)):
        done = deployment.command(*command, RETRY_BOOTSTRAP_SERVERS="127.0.0.1:1")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "no broker answered at 127.0.0.1:1" in done.stderr.splitlines()[-1]


def test_kill_9_of_retry_broker_leaves_no_jvm_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "retry", "broker", "--port", "0", "--data-dir", str(tmp_path / "broker")]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=os.environ)
    assert parent.stdout
    assert parent.stdout.readline().startswith(b"broker ready on ")
    started = children(parent.pid)
    assert started
    assert all(map(alive, started))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    await_that("the broker has ended", lambda: not any(map(alive, started)))
