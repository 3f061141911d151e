"""Where a shard is between opening and closing, and whether its sweep gets on."""

from __future__ import annotations

import logging
from enum import Enum
from itertools import count

from retry.kafka.interface import Partition
from retry.telemetry.health import HealthProbe, Reason


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


# What health calls a shard that is not ready.
REASONS = {Phase.RESTORING: Reason.RESTORING, Phase.READ_ONLY: Reason.READ_ONLY, Phase.HALTED: Reason.HALTED}


log = logging.getLogger(__name__)
# From 1, so that a shard that was swept first of all comes behind those that never were.
_sweeps = count(1)


class SweepProgress:
    """The results of one shard's sweeps. Read without a lock: a watchdog must never wait for whoever hangs.

    Attributes:
      overlooked: whether the last sweep found nothing to send though something is due and nothing blocks it.
      failing: what the last sweep failed with, if it is simply tried again.
      last_sweep: numbers the sweeps of all shards; 0 before the first of this one.
    """

    def __init__(self, changelog: Partition) -> None:
        self._changelog = changelog
        self._tries = self._good_sweeps = self.last_sweep = 0
        self.restart()

    def restart(self) -> None:
        """Forget what sweeps failed with: the shard has begun anew."""
        self.overlooked, self.failing, self._failures = False, "", 0

    def note_try(self) -> None:
        """A sweep has ended, however it ended."""
        self._tries += 1
        self.last_sweep = next(_sweeps)

    def note_rest(self) -> None:
        """A turn in which nothing may be swept, for a reason that is not the shard's: nothing is overlooked."""
        self._tries += 1
        self.overlooked = False

    def note_move(self) -> None:
        self._good_sweeps += 1

    def swept(self, *, overlooked: bool) -> None:
        self.overlooked, self.failing, self._failures = overlooked, "", 0
        self._good_sweeps += not overlooked

    def note_failure(self, why: str) -> None:
        """Note why a sweep failed; the next sweep tries again, and failures are logged once until a sweep succeeds."""
        if not self.failing:
            log.warning("shard %d: %s; again at every sweep until it succeeds", self._changelog[1], why)
        self.failing, self._failures = why, self._failures + 1

    def keeps_failing(self) -> bool:
        """Whether sweeps of it were undone again and again, so that the next one had better not be that of other shards too."""
        return self._failures > 1

    def probes(self, *, ready: bool, next_offset: int) -> list[HealthProbe]:
        """List what must go on in a shard that is restored or swept, for the watchdog."""
        shard = self._changelog[1]
        name = f"shard {shard}"
        return [
            # Behind a transaction that somebody left open there is nothing to read, for a new process either.
            HealthProbe(
                f"{name}: folding", next_offset, place=self._changelog, offset=next_offset, shard=shard, thread="changelog"
            ),
            HealthProbe(f"{name}: sweeping", self._tries, ready, shard=shard, thread="sweeps"),
            HealthProbe(f"{name}: delivering", self._good_sweeps, self.overlooked, trouble=self.failing, shard=shard),
        ]
