"""What a batch of letters comes to, column by column."""

from __future__ import annotations

from collections import Counter
from typing import Any

from retry import lineages

Rows = list[dict[str, Any]]


class Columns:
    """What is to be written and counted.

    Attributes:
      entries: changelog rows by shard.
      outcomes: one row a letter.
      lineages: what is to be remembered, one row a letter.
      decided: letters by (team, decision).
      families: letters by who wrote them.
      came_back: letters that had been retried, by the topic that they had been sent to.
    """

    __slots__ = ("came_back", "decided", "entries", "families", "lineages", "outcomes")

    def __init__(self, shards: int) -> None:
        self.entries: list[Rows] = [[] for _ in range(shards)]
        self.outcomes: Rows = []
        self.lineages: list[lineages.Row] = []
        self.decided: Counter[tuple[str, str]] = Counter()
        self.families: Counter[str] = Counter()
        self.came_back: Counter[str] = Counter()
