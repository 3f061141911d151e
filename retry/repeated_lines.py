"""Keeps lines out of the log that only repeat what it has said already."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable

from retry.clock import monotonic_s

# How long a line is left out after each time that it was said; the last of these goes on for as long as it repeats.
_PAUSES_S = (60.0, 600.0)
# What has not come for so long is news again.
_FORGOTTEN_S = 120.0
_KEPT_MAX = 1_000


class _Line:
    """When a line was last said and last came, and how many were left out since."""

    def __init__(self, now_s: float) -> None:
        self.came_s, self.says_at_s, self.said, self.left_out = now_s, now_s, 0, 0


class RepeatedLineFilter(logging.Filter):
    """Lets a line through at once, and while it repeats after a minute and then every ten; `left_out` counts those between.

    Args:
      find_key: what lines have in common that say the same; None for a line that always passes.
    """

    def __init__(self, find_key: Callable[[logging.LogRecord], Hashable | None]) -> None:
        super().__init__()
        self._find_key, self._lines, self._lock = find_key, dict[Hashable, _Line](), threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        # A line that one such filter has judged passes the others.
        if hasattr(record, "left_out") or (key := self._find_key(record)) is None:
            return True
        with self._lock:
            left_out = self._judge(key, monotonic_s())
        if left_out is None:
            return False
        vars(record)["left_out"] = left_out
        return True

    def _judge(self, key: Hashable, now_s: float) -> int | None:
        """How many lines were left out before this one, which passes; None where it is left out as well."""
        if len(self._lines) >= _KEPT_MAX:
            self._lines = {known: line for known, line in self._lines.items() if now_s - line.came_s < _FORGOTTEN_S}
        line = self._lines.get(key)
        if line is None or now_s - line.came_s >= _FORGOTTEN_S:
            line = self._lines[key] = _Line(now_s)
        line.came_s = now_s
        if now_s < line.says_at_s:
            line.left_out += 1
            return None
        line.says_at_s = now_s + _PAUSES_S[min(line.said, len(_PAUSES_S) - 1)]
        line.said, left_out, line.left_out = line.said + 1, line.left_out, 0
        return left_out
