"""Where a shard is between opening and closing, and what health calls one that is not ready."""

from __future__ import annotations

from enum import Enum

from retry.telemetry.health import Reason


class Phase(Enum):
    """A shard is opened as restoring or as a standby, and ends as closed."""

    STANDBY = "standby"
    RESTORING = "restoring"
    READY = "ready"
    # A newer version has written here: the entries stay in the changelog for it.
    READ_ONLY = "read-only"
    HALTED = "halted"
    BROKEN = "broken"
    CLOSED = "closed"


REASONS = {Phase.RESTORING: Reason.RESTORING, Phase.READ_ONLY: Reason.READ_ONLY, Phase.HALTED: Reason.HALTED}
