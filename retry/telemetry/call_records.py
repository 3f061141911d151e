"""What became of each call of a timer, as one JSON record of the topic `<app>-calls`, keyed by the timer's id. Version 1:

| field | meaning |
| --- | --- |
| `v` | 1 |
| `id`, `team`, `host` | which timer, whose, and where it called |
| `mark` | what was asked for, as a fingerprint |
| `attempt`, `at_ms`, `took_ms` | number of the attempt, from 1; when it ended, and how long it took |
| `due_ms` | when this attempt was due |
| `decision` | `delivered`, `retry`, or `parked` |
| `status`, `error` | of the answer; null where there was none, or nothing wrong |
| `reason` | why it is parked: `max_attempts`, `max_age` or `gone`; or null |
| `next_ms` | when it is called again; or null |
| `body` | the first 1,024 bytes of the answer |
"""

from __future__ import annotations

import msgspec

from retry.format_versions import Number, make_json_decoder

BODY_BYTES = 1_024


class Called(msgspec.Struct, frozen=True, gc=False):
    """One call that has ended; the fields are the table above."""

    id: str
    team: str
    host: str
    mark: str
    attempt: Number
    at_ms: Number
    took_ms: Number
    due_ms: Number
    decision: str
    status: Number | None
    error: str | None
    reason: str | None
    next_ms: Number | None
    body: str
    v: int = 1


to_json = msgspec.json.Encoder().encode
read = make_json_decoder(Called, "call")
