"""`python -m retry.console.reading.run_decoder NAME TOPIC`: one decoder, for the value that comes in; see `decoders`."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points

from retry.console.reading.decoders import GROUP, TEXT_BYTES_MAX
from retry.process.limited_program import limit_resources


def main(name: str, topic: str) -> None:
    limit_resources()
    result = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    found = next(iter(entry_points(group=GROUP, name=name)))
    text = found.load()(topic, sys.stdin.buffer.read())
    made = text if isinstance(text, bytes) else str(text).encode("utf-8", "backslashreplace")
    with os.fdopen(result, "wb") as out:
        out.write(made[:TEXT_BYTES_MAX])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
