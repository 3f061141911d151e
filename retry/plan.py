"""When an entry comes again: what of a recurrence stands in the envelope."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How something recurs, and which run of it waits."""

    run: int
    start_ms: int
    every_ms: int = 0
    cron: str = ""
    zone: str = "UTC"
    end_ms: int | None = None
    jitter_ms: int = 0
    seed: int = 0
    late_ms: int = 60_000
    misfire: str = "once"
    catch_up_max: int = 1
