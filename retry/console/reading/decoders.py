"""Decoders of one's own, which packages bring along: run in a process of its own, for so long and with so much at most.

A package names a function under the entry point group `retry.decoders`. It runs only for topics that `RETRY_CONSOLE_DECODERS`
gives its name for, and gets the topic of the dead letter and the value: `decode(topic: str, value: bytes) -> str | bytes`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from typing import NamedTuple

from retry import settings as environment
from retry.errors import SettingsInvalid

GROUP = "retry.decoders"
VALUE_BYTES_MAX, TEXT_BYTES_MAX, _WITHIN_S = 1 << 20, 1 << 20, 5.0
_ERROR_CHARS_MAX = 300


class DecodedText(NamedTuple):
    """A decoder's name and the text that it made of a value; or in `fault` why it made none."""

    name: str
    text: str
    fault: str = ""


class Decoders:
    """Decoders that settings name for topics; raises SettingsInvalid where no installed package has one of such a name."""

    def __init__(self, configured: str) -> None:
        self._by_topic: list[tuple[str, str]] = []
        for each in filter(None, (part.strip() for part in configured.split(","))):
            topics, _, name = each.partition("=")
            if not entry_points(group=GROUP, name=name):
                raise SettingsInvalid("RETRY_CONSOLE_DECODERS", f"no package that is installed has a decoder {name!r}")
            self._by_topic.append((topics, name))

    def decode(self, topic: str, value: bytes) -> DecodedText | None:
        """Decode a value of a dead-letter topic by the first decoder whose topics have it; None where there is none."""
        name = next((name for topics, name in self._by_topic if fnmatchcase(topic, topics)), None)
        if name is None:
            return None
        if len(value) > VALUE_BYTES_MAX:
            return DecodedText(name, "", f"it is larger than {VALUE_BYTES_MAX:,} bytes")
        command = [sys.executable, "-m", "retry.console.reading.run_decoder", name, topic]
        try:
            done = subprocess.run(  # noqa: S603
                command, input=value, capture_output=True, timeout=_WITHIN_S, env=_without_secrets(environment.of_process()),
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return DecodedText(name, "", f"it took longer than {_WITHIN_S:g} s")
        if done.returncode:
            last = done.stderr.decode("utf-8", "backslashreplace").strip().rpartition("\n")[2]
            return DecodedText(name, "", last[:_ERROR_CHARS_MAX] or f"its process ended with {done.returncode}")
        return DecodedText(name, done.stdout[:TEXT_BYTES_MAX].decode("utf-8", "backslashreplace"))


def _without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that Python itself needs: passwords and addresses of brokers are none of a decoder's business."""
    needed = lambda name: name in ("PATH", "HOME", "LANG") or name.startswith(("LC_", "PYTHON"))  # noqa: E731
    return {name: text for name, text in variables.items() if needed(name)}
