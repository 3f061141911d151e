"""When something that recurs comes again: every so often from a start, by a cron expression, or once.

Pure: no clock, no randomness. Times are ms since 1970. A run has a number and a nominal time; it is due at that time and up
to `jitter_ms` later, by a draw from the plan's seed and the number. The nominal time of run n of a period is `start_ms + n ·
every_ms`, whenever the runs before it were made: nothing drifts.

A run that is made more than `late_ms` after it was due was missed, as after downtime or a pause:

| `misfire` | missed runs |
| --- | --- |
| `once` | the one that waits is made now, the others never |
| `skip` | none of them is made |
| `all` | the one that waits and the latest of the others, `catch_up_max` together |
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

from backoff.cron import Cron
from backoff.time_zone import END_MS

ONCE, SKIP, ALL = "once", "skip", "all"
MISFIRES = (ONCE, SKIP, ALL)
# So late a run may be without anything being wrong; a plan whose `late_ms` is less would miss runs for ever.
LATE_MS_MIN = 1_000
_HOUR_MS = 3_600_000
# When the run of a plan that is paused is due: at the end of the year 9999, which no clock reaches.
PAUSED_MS = END_MS - 1

Run = tuple[int, int]


class RecurrencePlan(Protocol):
    """How something recurs, and which run of it waits.

    Attributes:
      every_ms: the period, 0 where there is none.
      cron, zone: expression and name of the time zone; "" where there is none. With neither period nor cron there is one run.
      start_ms: where counting begins; with cron, what no run is before.
      end_ms: what no run is after; None where it never ends.
      jitter_ms: by how much a run may be later, at most.
      seed: tells apart the jitter of things that recur alike.
      late_ms, misfire, catch_up_max: as in the module's docstring; the last is at least 1.
      run: number of the run that waits; with cron, how many were planned before it.
    """

    # Read only, so that frozen classes have them, too.
    @property
    def every_ms(self) -> int: ...
    @property
    def cron(self) -> str: ...
    @property
    def zone(self) -> str: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def end_ms(self) -> int | None: ...
    @property
    def jitter_ms(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def late_ms(self) -> int: ...
    @property
    def misfire(self) -> str: ...
    @property
    def catch_up_max(self) -> int: ...
    @property
    def run(self) -> int: ...


def find_first_run(plan: RecurrencePlan, from_ms: int) -> Run | None:
    """Find the first run of a plan that is due not before `from_ms` and has no smaller number than the plan's.

    Return its due time and number, or None where there is no such run.

    The run of a plan that has but one is that one, however long ago. Raises PolicyInvalid: no such expression, or no such zone
    here.
    """
    if plan.cron:
        return _plan_run(plan, _match(plan, max(from_ms, plan.start_ms)), plan.run)
    run = max(plan.run, -(-(from_ms - plan.start_ms) // plan.every_ms)) if plan.every_ms else plan.run
    return _plan_run(plan, plan.start_ms + run * plan.every_ms, run)


def find_next_run(plan: RecurrencePlan, due_ms: int, now_ms: int) -> Run | None:
    """Find the run after the one that waits, always due later than that.

    Return its due time and number, or None where the waiting run is the last.

    The waiting run was due at `due_ms`, and is made, or passed over, at `now_ms`; the next may be due already. Matches of a cron
    expression beyond which jitter, or whoever put it off, moved the waiting run are not made. Raises as `find_first_run`.
    """
    missed = now_ms - due_ms > plan.late_ms
    kept = plan.catch_up_max - 1 if plan.misfire == ALL else 0
    until_ms = now_ms if plan.end_ms is None else min(now_ms, plan.end_ms)
    if plan.cron:
        after_ms = due_ms - _jitter_ms(plan, plan.run) + 1
        at_ms = _caught_up(plan, after_ms, until_ms, kept) if missed else _match(plan, after_ms)
        return _plan_run(plan, at_ms, plan.run + 1, due_ms)
    if not plan.every_ms:
        return None
    run = plan.run + 1
    if missed:
        run = max(run, (until_ms - plan.start_ms) // plan.every_ms + 1 - kept)
    return _plan_run(plan, plan.start_ms + run * plan.every_ms, run, due_ms)


def is_passed_over(plan: RecurrencePlan, due_ms: int, now_ms: int) -> bool:
    """Whether the waiting run is not to be made any more, though the following one may be."""
    return plan.misfire == SKIP and now_ms - due_ms > plan.late_ms


def _plan_run(plan: RecurrencePlan, at_ms: int | None, run: int, before_ms: int | None = None) -> Run | None:
    if at_ms is None or (plan.end_ms is not None and at_ms > plan.end_ms):
        return None
    due_ms = at_ms + _jitter_ms(plan, run)
    return due_ms if before_ms is None else max(due_ms, before_ms + 1), run


def _jitter_ms(plan: RecurrencePlan, run: int) -> int:
    if not plan.jitter_ms:
        return 0
    draw = int.from_bytes(hashlib.blake2b(b"%d/%d" % (plan.seed, run), digest_size=4).digest(), "big")
    return (plan.jitter_ms + 1) * draw >> 32


def _match(plan: RecurrencePlan, from_ms: int) -> int | None:
    """The first match from a moment on; None at the end of the year 9999."""
    return _cron(plan.cron, plan.zone).next_at_or_after(max(0, from_ms)) if from_ms < END_MS else None


def _caught_up(plan: RecurrencePlan, from_ms: int, until_ms: int, kept: int) -> int | None:
    """The first match from a moment on that has no more than `kept - 1` after it until another moment."""
    span_ms = _HOUR_MS
    while kept:
        begin_ms = max(from_ms, until_ms - span_ms)
        latest = deque(_matches(plan, begin_ms, until_ms), kept)
        if len(latest) == kept or begin_ms == from_ms:
            return latest[0] if latest else _match(plan, until_ms + 1)
        span_ms *= 2
    return _match(plan, until_ms + 1)


def _matches(plan: RecurrencePlan, from_ms: int, to_ms: int) -> Iterator[int]:
    at_ms = _match(plan, from_ms)
    while at_ms is not None and at_ms <= to_ms:
        yield at_ms
        at_ms = _match(plan, at_ms + 1)


@lru_cache(1_000)
def _cron(written: str, zone: str) -> Cron:
    return Cron.parse(written, zone)
