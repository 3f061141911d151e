"""What `retry completion` prints completes commands in a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.check

# As bash does when somebody presses the tab key.
TYPED = """
eval "$(retry completion bash)"
COMP_WORDS=(retry top) COMP_CWORD=1
_retry_completion retry
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_a_command() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", TYPED], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "topics\n"), done.stderr
