"""What a batch of letters comes to, column by column: what is to be written, and what is to be counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from typing import Any

from retry.intake import attempts
from retry.telemetry.recovery_ratio import Retry

Rows = list[dict[str, Any]]

# A record of lineages stays well below what every broker takes.
_LINEAGES_A_RECORD = 20_000


class Settled:
    """What to write and count for one batch of letters.

    Attributes:
      entries: changelog rows by shard, of those shards that have any.
      outcomes: one row a letter.
      traces: what is to be remembered of each letter, until they are packed.
      lineages: rows for the topic of lineages, once they are.
      decided: letters by (team, decision).
      families: letters by who wrote them.
      failures: letters by (team, exception or None, number of the retry that failed; 0 where it failed first).
      back: letters that had been retried, by that retry.
      parked: letters that are given up, by (team, policy, reason).
      came_back: letters that had been retried, by the topic that they had been sent to.
    """

    __slots__ = ("back", "came_back", "decided", "entries", "failures", "families", "lineages", "outcomes", "parked", "traces")

    def __init__(self) -> None:
        self.entries: defaultdict[int, Rows] = defaultdict(list)
        self.outcomes: Rows = []
        self.traces: list[attempts.Row] = []
        self.lineages: Rows = []
        self.decided: Counter[tuple[str, str]] = Counter()
        self.families: Counter[str] = Counter()
        self.failures: Counter[tuple[str, str | None, int]] = Counter()
        self.back: Counter[Retry] = Counter()
        self.parked: Counter[tuple[str, str, str]] = Counter()
        self.came_back: Counter[str] = Counter()

    def pack(self) -> None:
        """Put all that is to be remembered into few records."""
        traces = iter(self.traces)
        while part := list(islice(traces, _LINEAGES_A_RECORD)):
            self.lineages.append({"key": None, "value": attempts.pack(part)})
        self.traces.clear()
