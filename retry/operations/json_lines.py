"""Records as JSON lines, of which whole topics can be handed on: a text → records that read like those of a broker.

An object a line; all but `topic` may be left out, other keys are not looked at:

| key | value | where it is missing |
| --- | --- | --- |
| `topic` | the dead-letter topic | a mistake |
| `partition`, `offset` | whole numbers | 0 |
| `timestamp` | milliseconds since 1970 | the record has none |
| `key`, `value` | base64, or null | null |
| `headers` | list of [name, base64 or null], in order | none |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, BinaryIO

import msgspec

from retry.record import CREATE_TIME, Record

# The largest record that a broker can be made to take is well below this, in base64 too.
LINE_BYTES_MAX = 64 << 20
NO_TIMESTAMP = 0, -1

# Is told of a line that is no record: its number, from 1, and what is wrong with it.
Bad = Callable[[int, str], None]


class JsonLine(msgspec.Struct, gc=False):
    """One line. Binary fields are base64, which msgspec reads by itself."""

    topic: Annotated[str, msgspec.Meta(min_length=1)]
    partition: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0
    offset: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    timestamp: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []


_decode = msgspec.json.Decoder(JsonLine).decode


def parse_records(file: BinaryIO, bad: Bad, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[Record]:
    """Read the records of a file, one line in memory at a time; empty lines are skipped."""
    number = 0
    while text := file.readline(line_bytes_max):
        number += 1
        if len(text) == line_bytes_max and not text.endswith(b"\n"):
            _skip(file)
            bad(number, f"longer than {line_bytes_max:,} bytes")
        elif text.strip():
            try:
                line = _decode(text)
                line.topic.encode()
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                bad(number, str(error))
            else:
                place = line.topic, line.partition, line.offset
                timestamp = NO_TIMESTAMP if line.timestamp is None else (CREATE_TIME, line.timestamp)
                yield Record(place, line.key, line.value, line.headers, timestamp)


def _skip(file: BinaryIO) -> None:
    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass
