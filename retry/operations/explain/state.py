"""Where a letter is, and what sentences about it are made from."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from retry.intake.build_entry import BuiltEntry
from retry.intake.decide import DecidedLetter
from retry.operations.explain.evidence import LetterEvidence
from retry.operations.explain.search import DecisionRecord
from retry.policies.registry import Registry

Forecast = tuple[DecidedLetter, BuiltEntry]


class LetterState(Enum):
    """The state of a letter; names in lower case are those of `retry explain --json`."""

    UNREAD = "its topic is in no policy file"
    UNSEEN = "not taken in yet"
    WAITING = "waiting for its time"
    BEHIND = "waiting behind an earlier letter of its key"
    OVERDUE = "waiting, though it is due"
    RETRIED = "sent to be retried"
    PARKED = "parked"
    DISCARDED = "discarded by an operator"
    LEFT = "gone from the service, and its outcome is not found"


class Seen(NamedTuple):
    """The facts about one letter that sentences are made from.

    Attributes:
      decision: what was decided, or would be decided now.
      present: the letter as the present policy file decides on it; None where there is no file, or nothing to decide about.
      registry: of the policy file, where there is one.
    """

    evidence: LetterEvidence
    state: LetterState
    decision: DecisionRecord | None
    present: DecidedLetter | None
    registry: Registry | None
    now_ms: int

    @property
    def foreseen(self) -> bool:
        """Whether nothing is decided yet."""
        return self.state in (LetterState.UNREAD, LetterState.UNSEEN)
