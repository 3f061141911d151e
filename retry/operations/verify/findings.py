"""What was found: counts, and some of each kind with their places."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

KINDS = ("lost", "duplicate", "torn", "early", "phantom", "wrong_topic", "stuck")
UNJUDGED, TABLE = "unjudged", "table"

# A kind, or UNJUDGED or TABLE, and a sentence.
Verdict = tuple[str, str]


@dataclass
class Findings:
    """What was found.

    Attributes:
      shown: how many of each kind are kept in words.
      letters: that were taken in, as far as outcomes are kept.
      waiting: entries in the fold.
      untaken: letters that nobody has taken in yet.
      undone: records that only a read_uncommitted reader sees.
      counts: by kind.
      said: some of each kind.
      unjudged: what cannot be decided any more, by the reason.
      tables, differing: tables on disk that were compared, and those that differ.
      uncompared: tables that were not, with the reason.
    """

    shown: int = 5
    letters: int = 0
    waiting: int = 0
    untaken: int = 0
    undone: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    said: dict[str, list[str]] = field(default_factory=dict)
    unjudged: Counter[str] = field(default_factory=Counter)
    tables: int = 0
    differing: set[str] = field(default_factory=set)
    uncompared: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, says: str) -> None:
        """Count a finding."""
        if kind == UNJUDGED:
            self.unjudged[says] += 1
            return
        self.counts[kind] += 1
        some = self.said.setdefault(kind, [])
        if len(some) < self.shown:
            some.append(says)

    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.counts
