"""What the checks of `retry verify` have found: counts, and examples of each kind with their places."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

KINDS = ("lost", "duplicate", "torn", "early", "phantom", "wrong_topic", "stuck")
UNCHECKED, TABLE = "unchecked", "table"
# What is unchecked of an entry that was due.
READ_AGAIN = "letters taken in more than once, as an operator asked with `retry topics reread`"
HELD = "due, and held: it is sealed under a key that workers did not have, or was changed since"

# A kind, or UNCHECKED or TABLE, and a sentence.
Finding = tuple[str, str]


@dataclass
class Findings:
    """Counts and examples of what is wrong with a deployment, and of what was checked.

    Attributes:
      shown: how many examples of each kind are kept.
      letters: how many were taken in, as far as outcomes are kept.
      waiting: entries in the fold.
      not_taken_in: letters that nobody has taken in yet.
      aborted: records that only a read_uncommitted reader sees.
      counts: by kind.
      examples: sentences by kind.
      unchecked: how often something could not be checked any more, by the reason.
      tables, differing: tables on disk that were compared, and those that differ.
      uncompared: tables that were not compared, with the reason.
    """

    shown: int = 5
    letters: int = 0
    waiting: int = 0
    not_taken_in: int = 0
    aborted: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    unchecked: Counter[str] = field(default_factory=Counter)
    tables: int = 0
    differing: set[str] = field(default_factory=set)
    uncompared: dict[str, str] = field(default_factory=dict)

    def add_finding(self, kind: str, sentence: str) -> None:
        """Count a finding, or what could not be checked."""
        if kind == UNCHECKED:
            self.unchecked[sentence] += 1
            return
        self.counts[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < self.shown:
            examples.append(sentence)

    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.counts
