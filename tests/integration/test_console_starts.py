"""`retry console` as a real process that does not start where strangers could come in, and says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT

pytestmark = pytest.mark.check


def run_refused(folder: Path, **environ: str) -> str:
    """Run a console that is refused; return what it says before it ends."""
    given = {"RETRY_DATA_DIR": str(folder / "data"), "RETRY_BOOTSTRAP_SERVERS": "127.0.0.1:1", **environ}
    command = [sys.executable, "-m", "retry", "console"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(("environ", "said"), [
    ({"RETRY_CONSOLE_ADDR": "0.0.0.0:0"}, "RETRY_CONSOLE_TOKENS: not set, and 0.0.0.0 is not loopback"),
    ({"RETRY_CONSOLE_TOKENS": "/nowhere/tokens"}, "RETRY_CONSOLE_TOKENS: /nowhere/tokens cannot be read"),
    ({"RETRY_CONSOLE_OIDC_ISSUER": "https://id.example.com"}, "RETRY_CONSOLE_OIDC_CLIENT_ID: not set"),
    ({"RETRY_CONSOLE_URL": "https://retry.example.com"}, "RETRY_CONSOLE_TOKENS: not set, and others come in at https://retry"),
])  # fmt: skip
def test_it_does_not_start(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    assert run_refused(tmp_path, **environ).startswith(said)


def test_with_tokens_it_takes_tls_too(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada {'a' * 64} *:admin\n")
    said = run_refused(tmp_path, RETRY_CONSOLE_ADDR="0.0.0.0:0", RETRY_CONSOLE_TOKENS=str(tokens))
    assert said.startswith("RETRY_CONSOLE_TLS_CERT: not set, and 0.0.0.0 is not loopback; set it and RETRY_CONSOLE_TLS_KEY, or")
