"""What a worker says of itself, for consoles: JSON records of the compacted topic `<app>-notes`, with the key `worker/<name>`.

| field | meaning |
| --- | --- |
| `v` | 1 |
| `host`, `began_ms` | where it runs, and since when |
| `at_ms`, `every_ms` | when that was said, and how soon it is said again, at the latest |
| `shards` | list: partitions of the changelog that it sweeps |
| `breakers` | list: circuit breakers that are not closed: `target`, `state` (`open` or `half-open`), `why`, `since_ms` |
| `ended` | whether it has ended, as it was told to |
| `refused` | list: letters that single topics refuse for what they are: `letter`, `target`, `why`, `since_ms` |

The name is the one that the worker's data directory keeps. Who says nothing for long and has not ended was killed, or is cut off.
"""

from __future__ import annotations

import msgspec

from retry.format_versions import Number, Partition, make_json_decoder

KEY = "worker/"


class BreakerRecord(msgspec.Struct, frozen=True):
    target: str
    state: str
    why: str
    since_ms: Number


class RefusedRecord(msgspec.Struct, frozen=True):
    letter: str
    target: str
    why: str
    since_ms: int


class WorkerRecord(msgspec.Struct, frozen=True):
    """One worker; the fields are the table above."""

    host: str
    began_ms: Number
    at_ms: Number
    every_ms: Number
    shards: list[Partition]
    breakers: list[BreakerRecord] = []
    ended: bool = False
    refused: list[RefusedRecord] = []
    v: int = 1


to_json = msgspec.json.Encoder().encode
read = make_json_decoder(WorkerRecord, "record of a worker")
