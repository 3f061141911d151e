"""Where a letter is, and what sentences about it are made from."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from retry.operations.explain.evidence import Known
from retry.operations.explain.search import Decided
from retry.intake.decide import Case
from retry.intake.build_entry import Packed
from retry.policies.registry import Registry

Forecast = tuple[Case, Packed]


class State(Enum):
    """Where a letter is; names in lower case are those of `retry explain --json`."""

    UNREAD = "its topic is in no policy file"
    UNSEEN = "not taken in yet"
    WAITING = "waiting for its time"
    BEHIND = "waiting behind an earlier letter of its key"
    OVERDUE = "waiting, though it is due"
    RETRIED = "sent to be retried"
    PARKED = "parked"
    LEFT = "gone from the service, and its outcome is not found"


class Seen(NamedTuple):
    """What sentences are made from.

    Attributes:
      decided: what was decided, or would be.
      present: the same letter under the present policy file; None where there is none, or nothing to decide about.
      registry: of the policy file, where there is one.
    """

    known: Known
    state: State
    decided: Decided | None
    present: Case | None
    registry: Registry | None
    now_ms: int

    @property
    def foreseen(self) -> bool:
        """Whether nothing is decided yet."""
        return self.state in (State.UNREAD, State.UNSEEN)
