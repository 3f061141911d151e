"""A line of the log for each letter that was delivered, with its ids as fields; written at DEBUG alone, since they are many."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

from retry.dead_letters.retry_headers import ATTEMPT, ID, SOURCE
from retry.delay_queue.envelopes import Entry
from retry.telemetry.call_records import Called
from retry.telemetry.spans import make_span_ids

log = logging.getLogger(__name__)

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def log_sent(sent: Sequence[Entry]) -> None:
    """Log entries that were delivered."""
    if log.isEnabledFor(logging.DEBUG):
        for entry in sent:
            fields = list_fields(entry)
            log.debug("sent %s to %s", fields.get("letter", "an entry"), entry.destination, extra=fields)


def log_called(calls: Iterable[Called]) -> None:
    """Log calls of timers that have ended."""
    if log.isEnabledFor(logging.DEBUG):
        for called in calls:
            fields = {"team": called.team, "target": called.host, "timer": called.id, "attempt": called.attempt}
            log.debug("called %s: %s", called.host, called.decision, extra=fields)


def list_fields(entry: Entry) -> Mapping[str, str | int]:
    """List the log fields of an entry: its team, its target and, of a letter, the source and the ids of its trace."""
    said = dict(entry.headers)
    fields: dict[str, str | int] = {"team": entry.team, "target": entry.destination}
    if source := said.get(SOURCE):
        fields["letter"] = source.decode("utf-8", "replace")
    if theirs := _TRACEPARENT.fullmatch(said.get("traceparent") or b""):
        fields["letter_trace_id"] = theirs[1].decode()
    lineage, attempt = said.get(ID), said.get(ATTEMPT) or b""
    if lineage and attempt.isdigit():
        trace_id, span_id = make_span_ids(lineage, int(attempt))
        fields |= {
            "retry_id": lineage.decode("ascii", "replace"), "attempt": int(attempt), "trace_id": f"{trace_id:032x}",
            "span_id": f"{span_id:016x}",
        }  # fmt: skip
    return fields
