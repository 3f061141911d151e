"""How many retries came back, over a sliding hour: each counts in the minute in which it was due, once its settle time is over.

Both sides know that minute, whoever sent the retry and whoever takes its letter in again. So what went and what came back are
counted of the same retries, however late either was.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from retry.dead_letters.retry_headers import RetryLabels, read_labels
from retry.delay_queue.envelopes import Entry

MINUTE_MS = 60_000
SETTLE_MINUTES, WINDOW_MINUTES = 10, 60
# Teams, policies and attempts together; what comes after these is not counted here.
_KEYS_MAX = 5_000
_LAST = 10


def count_retries(sent: Sequence[Entry], labels: Sequence[RetryLabels | None], due_at_ms: Sequence[int]) -> Counter[Retry]:
    """Count the retries of each kind among these, by the minute in which they were due; `labels` is None of all others."""
    kinds = zip([entry.team for entry in sent], labels, [due // MINUTE_MS for due in due_at_ms], strict=True)
    retries: Counter[Retry] = Counter()
    for (team, of_retry, minute), count in Counter(kinds).items():
        if of_retry and of_retry[1].isdigit():
            retries[Retry(team, of_retry[0].decode(), attempt_label(int(of_retry[1])), minute)] += count
    return retries


def is_retry(entry: Entry) -> bool:
    """Whether it is the retry of a letter. What has a name came in by another entry source."""
    return type(entry) is Entry and read_labels(entry.headers) is not None


class Retry(NamedTuple):
    """Which retries: labels, and the minute since 1970 in which they were due."""

    team: str
    policy: str
    attempt: str
    minute: int


Key = tuple[str, str, str]


def attempt_label(attempt: int) -> str:
    """Write the number of a retry as a label.

    >>> attempt_label(9), attempt_label(10), attempt_label(4711)
    ('9', '10+', '10+')
    """
    return str(attempt) if attempt < _LAST else f"{_LAST}+"


class Window:
    """Told of from several threads; memory is bounded by keys and minutes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[Key, dict[int, list[int]]] = {}

    def count_sent(self, retries: Mapping[Retry, int], now_ms: int) -> None:
        self._count_retries(retries, 0, now_ms)

    def count_returned(self, retries: Mapping[Retry, int], now_ms: int) -> None:
        """Count letters that were taken in again, by the retry that failed."""
        self._count_retries(retries, 1, now_ms)

    def count_settled(self, now_ms: int) -> dict[Key, tuple[int, int]]:
        """Count by team, policy and attempt the retries whose settle time is over, and those of them that failed again."""
        last = now_ms // MINUTE_MS - SETTLE_MINUTES
        with self._lock:
            self._expire_minutes(now_ms)
            counts = {key: [n for minute, n in of.items() if minute < last] for key, of in self._minutes.items()}
        return {key: (sum(n[0] for n in each), sum(n[1] for n in each)) for key, each in counts.items() if each}

    def _count_retries(self, retries: Mapping[Retry, int], side: int, now_ms: int) -> None:
        now = now_ms // MINUTE_MS
        with self._lock:
            for (team, policy, attempt, minute), count in retries.items():
                # A header may say anything, and what was held for longer is of no minute that is asked for.
                if not now - SETTLE_MINUTES - WINDOW_MINUTES <= minute <= now:
                    continue
                key = team, policy, attempt
                if key not in self._minutes:
                    if len(self._minutes) >= _KEYS_MAX:
                        self._expire_minutes(now_ms)
                    if len(self._minutes) >= _KEYS_MAX:
                        continue
                self._minutes.setdefault(key, {}).setdefault(minute, [0, 0])[side] += count

    def _expire_minutes(self, now_ms: int) -> None:
        first = now_ms // MINUTE_MS - SETTLE_MINUTES - WINDOW_MINUTES
        for key, of in list(self._minutes.items()):
            for minute in [minute for minute in of if minute < first]:
                del of[minute]
            if not of:
                del self._minutes[key]


def sum_by_label(retries: Mapping[Retry, int]) -> Iterable[tuple[Key, int]]:
    """Add up the counts of all minutes, by team, policy and attempt."""
    found: Counter[Key] = Counter()
    for (team, policy, attempt, _), count in retries.items():
        found[team, policy, attempt] += count
    return found.items()
