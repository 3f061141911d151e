"""What consumer groups have committed, as JSON records of the outcomes topic with the key `position`. Version 1:

| field | meaning |
| --- | --- |
| `v`, `kind` | 1, `position` |
| `group`, `topic`, `partition` | who reads what |
| `offset` | where the group goes on: it has passed everything before |
| `at_ms` | when that was seen |
| `passed_ms` | of all of the topic: what was sent there until then, the group has passed; null where nothing new is known of it |

A sample is a fact that was read from Kafka, so one that is written twice does no harm. Only what has changed is written.
"""

from __future__ import annotations

import msgspec

from retry.format_versions import Number, Offset, Partition, make_json_decoder

KEY = b"position"


class Position(msgspec.Struct, frozen=True, gc=False):
    """One sample; the fields are the table above."""

    group: str
    topic: str
    partition: Partition
    offset: Offset
    at_ms: Number
    kind: str = "position"
    v: int = 1
    passed_ms: Number | None = None


to_json = msgspec.json.Encoder().encode
read = make_json_decoder(Position, "sample of a committed offset")
