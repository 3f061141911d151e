"""`python -m retry.console.reading.run_decoder NAME TOPIC`: one decoder, for the value that comes in; see `decoders`."""

from __future__ import annotations

import os
import resource
import sys
from importlib.metadata import entry_points

from retry.console.reading.decoders import GROUP, TEXT_BYTES_MAX

_CPU_S, _MEMORY_BYTES = 5, 1 << 30


def main(name: str, topic: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    result = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    found = next(iter(entry_points(group=GROUP, name=name)))
    text = found.load()(topic, sys.stdin.buffer.read())
    made = text if isinstance(text, bytes) else str(text).encode("utf-8", "backslashreplace")
    with os.fdopen(result, "wb") as out:
        out.write(made[:TEXT_BYTES_MAX])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
