"""Decoders of one's own, which packages bring along: run in a process of its own, for so long and with so much at most.

A package names a function under the entry point group `retry.decoders`. It runs only for topics that `RETRY_CONSOLE_DECODERS`
gives its name for, and gets the topic of the dead letter and the value: `decode(topic: str, value: bytes) -> str | bytes`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from typing import NamedTuple

from retry.errors import SettingsInvalid
from retry.process.limited_program import run_program

GROUP = "retry.decoders"
VALUE_BYTES_MAX, TEXT_BYTES_MAX = 1 << 20, 1 << 20


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
        done = run_program("retry.console.reading.run_decoder", (name, topic), value)
        return DecodedText(name, done.data[:TEXT_BYTES_MAX].decode("utf-8", "backslashreplace"), done.fault)
