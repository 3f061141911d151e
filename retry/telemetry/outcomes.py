"""What became of each letter, as one JSON record of the outcomes topic. Schema version 2:

| field | meaning |
| --- | --- |
| `v` | 2 |
| `id` | lineage: the same for all attempts of one original record |
| `source` | `topic/partition/offset` of the letter |
| `team`, `topic`, `policy` | whose letter, from which dead-letter topic, decided by which policy |
| `attempt` | number of the retry that the decision is about; 1 is the first |
| `exception` | class as the framework names it, or null |
| `first_failed_ms`, `failed_ms` | when the original record failed first, and this time |
| `taken_ms` | when the service took the letter in |
| `decision` | `retry` or `park` |
| `reason` | why it was parked, or null |
| `due_ms` | when the retry is due; null where there is none |
| `target` | topic that the retry, or the parked letter, goes to |
| `cause` | class of the root cause, or null |
| `fingerprint` | 16 hexadecimal digits that failures of one kind share, see `retry.telemetry.fingerprint`; or null |
| `group` | consumer group that failed: as the letter names it, or else the policy file; or null |
| `delay_ms` | from this failure to the due time; null where there is none |

Version 1 has all but the last four. When a retry was sent is not here: the record on the target topic says it.

Records with the key `position` tell what consumer groups have committed, see `retry.telemetry.offset_records`; letters have no
`kind`.
"""

from __future__ import annotations

from typing import TypedDict

import orjson

from retry import format_versions

VERSION = format_versions.OUTCOME.writes


class Outcome(TypedDict):
    """One letter taken in and what was decided; the fields are the table above."""

    v: int
    id: str
    source: str
    team: str
    topic: str
    policy: str
    attempt: int
    exception: str | None
    first_failed_ms: int
    failed_ms: int
    taken_ms: int
    decision: str
    reason: str | None
    due_ms: int | None
    target: str
    cause: str | None
    fingerprint: str | None
    group: str | None
    delay_ms: int | None


def to_json(outcome: Outcome) -> bytes:
    """The record's value."""
    # orjson leaves its bytes in the buffer that it wrote them to, 4 KB for 300: a batch holds thousands of copies.
    return bytes(memoryview(orjson.dumps(outcome)))


class OutcomeTemplate:
    """The outcomes of first retries that are alike: written once, and filled in for each letter."""

    def __init__(self, *, team: str, topic: str, policy: str, target: str, group: str | None) -> None:
        cut = "\0"
        times = ("first_failed_ms", "failed_ms", "taken_ms", "due_ms", "delay_ms")
        differs = dict.fromkeys(("id", "source"), cut) | dict.fromkeys(times, cut * 2)
        alike = {"v": VERSION, "team": team, "topic": topic, "policy": policy, "attempt": 1, "exception": None}
        alike |= {"decision": "retry", "reason": None, "target": target, "cause": None, "fingerprint": None, "group": group}
        outcome = orjson.dumps({name: (differs | alike)[name] for name in Outcome.__annotations__})
        # A number stands without quotation marks.
        self._parts = outcome.replace(rb'"\u0000\u0000"', rb"\u0000").split(rb"\u0000")

    def fill(self, id_: bytes, source: bytes, failed_ms: bytes, taken_ms: bytes, due_ms: bytes, delay_ms: bytes) -> bytes:
        """The record's value for one letter, as `to_json` writes it."""
        a, b, c, d, e, f, g, h = self._parts
        return b"".join((a, id_, b, source, c, failed_ms, d, failed_ms, e, taken_ms, f, due_ms, g, delay_ms, h))
