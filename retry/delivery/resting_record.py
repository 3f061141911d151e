"""A record that lies where letters rest: which letter it is, where this service put it there.

Others may write to a team's parking topic, so what a record says there of itself is believed only as far as its topic lets it: a
topic in which a team parks has letters of that team and of no other. What lies in the service's own topics, to which nobody else
may write, is believed. A record that is not ours is shown, and can be discarded, and nothing is made of what it says.

A reference says only where the whole letter lies. It is followed where the outcomes tell that this letter was parked so; see
`retry.worker.parked_references`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retry.dead_letters import retry_headers as names
from retry.policies.registry import Registry
from retry.record import RecordLocation, read_headers

# What becomes of a record that this service did not put there.
NOT_OURS = "not_ours"
# Of schedules, definitions of tasks, and timers that were parked: `retry-source` is of letters alone.
_NO_LETTERS = frozenset({names.TASK_SOURCE, names.WEBHOOK_URL, names.SCHEDULE_SOURCE})
_PLACE = re.compile(rb"([A-Za-z0-9._-]{1,249})/([0-9]{1,10})/([0-9]{1,19})")
_PARTITIONS_MAX, _OFFSETS_MAX = 1 << 31, 1 << 63


def letter_source(record: Any, registry: Registry) -> RecordLocation | None:
    """Coordinates of the dead letter that rests in a record; None where this service cannot have put it there."""
    ours = service_headers(record)
    match = _PLACE.fullmatch(ours.get(names.SOURCE) or b"")
    if match is None or not ours.get(names.ID):
        return None
    topic, partition, offset = match[1].decode(), int(match[2]), int(match[3])
    is_place = partition < _PARTITIONS_MAX and offset < _OFFSETS_MAX
    return (topic, partition, offset) if is_place and registry.permits_parking(topic, record.topic()) else None


def service_headers(record: Any) -> Mapping[str, bytes | None]:
    """The headers by which the service tells of its letters; none where they cannot be read."""
    return {name: value for name, value in read_headers(record) or [] if name in names.OURS}


def copyable(record: Any) -> bool:
    """Whether the client can tell its headers."""
    return read_headers(record) is not None


def is_no_letter(record: Any) -> bool:
    """Whether a schedule, a definition of a task, or a timer was parked."""
    return copyable(record) and any(name in _NO_LETTERS for name, _ in record.headers() or ())


def is_reference(record: Any) -> bool:
    """Whether it says only where the whole letter lies: one that was parked whole has headers that came with it, or a value.

    A null that came without headers looks the same, and is read from there, too.
    """
    return record.value() is None and copyable(record) and all(name in names.OURS for name, _ in record.headers() or ())
