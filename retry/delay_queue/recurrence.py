"""When a recurring entry is due again: its plan, as the envelope has it. The rules are those of `backoff.recurrence`."""

from __future__ import annotations

import msgspec

from backoff import PolicyInvalid, recurrence
from backoff.recurrence import ONCE, Run, passed_over
from retry.errors import EntryUnreadable

__all__ = ["DUE_MS", "RUN", "Recurrence", "find_next_run", "headers_of_run", "passed_over"]

# Headers of what recurs: which run a record is, and when that was due.
RUN, DUE_MS = "task-run", "task-due-ms"


class Recurrence(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A recurrence plan, as `backoff.recurrence.RecurrencePlan` has it, field by field."""

    run: int
    start_ms: int
    every_ms: int = 0
    cron: str = ""
    zone: str = "UTC"
    end_ms: int | None = None
    jitter_ms: int = 0
    seed: int = 0
    late_ms: int = 60_000
    misfire: str = ONCE
    catch_up_max: int = 1


def headers_of_run(headers: list[tuple[str, bytes | None]], due_ms: int, run: int) -> list[tuple[str, bytes | None]]:
    """Return the headers with `task-run` and `task-due-ms` of this run, in the place of those of an earlier run."""
    own: list[tuple[str, bytes | None]] = [(RUN, b"%d" % run), (DUE_MS, b"%d" % due_ms)]
    return [header for header in headers if header[0] not in (RUN, DUE_MS)] + own


def find_next_run(plan: Recurrence, due_ms: int, now_ms: int) -> Run | None:
    """Due time and number of the run after the one that waits; raises EntryUnreadable where the time zone is not known here."""
    try:
        return recurrence.find_next_run(plan, due_ms, now_ms)
    except PolicyInvalid as invalid:
        raise EntryUnreadable(f"{invalid}; install time zones, or the package tzdata, as other workers have them") from None
