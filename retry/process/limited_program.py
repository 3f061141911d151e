"""Programs of this package that run what nobody vouches for: in a process of their own, for so long, with so much memory at most.

They get no variables but those that Python needs: passwords and addresses of brokers are none of their business.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from retry import settings as environment

# The second by a clock, which also goes on while a machine with much to do gives others their turn.
_CPU_S, _WITHIN_S = 5, 10.0
_MEMORY_BYTES, _ERROR_CHARS_MAX = 1 << 30, 300


class ProgramOutput(NamedTuple):
    """The bytes that a program wrote, or in `fault` why they are of no use, as the end of a sentence."""

    data: bytes
    fault: str = ""


def run_program(module: str, arguments: tuple[str, ...], given: bytes) -> ProgramOutput:
    """Run a module of this package with these bytes as its input, until it ends, or has taken 5 s of a core or 10 s in all."""
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", module, *arguments], input=given, capture_output=True, timeout=_WITHIN_S,
            env=_without_secrets(environment.copy_environment()), check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ProgramOutput(b"", f"it took longer than {_WITHIN_S:g} s")
    if done.returncode == -signal.SIGXCPU:
        return ProgramOutput(b"", f"it took more than {_CPU_S} s of a core")
    if done.returncode:
        last = done.stderr.decode("utf-8", "backslashreplace").strip().rpartition("\n")[2]
        return ProgramOutput(b"", last[:_ERROR_CHARS_MAX] or f"its process ended with {done.returncode}")
    return ProgramOutput(done.stdout)


def limit_resources() -> None:
    """Limit this process to the processor time that `run_program` gives, and to 1 GiB."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    needed = lambda name: name in ("PATH", "HOME", "LANG") or name.startswith(("LC_", "PYTHON"))  # noqa: E731
    return {name: text for name, text in variables.items() if needed(name)}
