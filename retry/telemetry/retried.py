"""Which of the entries that were delivered are retries of letters, to be counted by team, policy and attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from retry.delay_queue.entry import Entry
from retry.dead_letters.retry_headers import POLICY
from retry.telemetry.recovery_ratio import MINUTE_MS, Retry, attempt_label


def retried(sent: Sequence[Entry], due_at_ms: Sequence[int]) -> Counter[Retry]:
    """How many retries of each kind are among these, by the minute in which they were due."""
    first, last = (end(due_at_ms, default=0) // MINUTE_MS for end in (min, max))
    if first == last:
        return _counted(sent, first)
    of_minute: dict[int, list[Entry]] = {}
    for entry, due in zip(sent, due_at_ms, strict=True):
        of_minute.setdefault(due // MINUTE_MS, []).append(entry)
    found: Counter[Retry] = Counter()
    for minute, entries in of_minute.items():
        found.update(_counted(entries, minute))
    return found


def is_retry(entry: Entry) -> bool:
    """Whether it is the retry of a letter, whose last headers are ours, in the order of `retry.intake.build_entry`.

    No header of others is called as ours are, but for what has a name: that came in by a door. What was too large for all
    of ours is passed over.
    """
    headers = entry.headers
    return type(entry) is Entry and len(headers) > 5 and headers[-2][0] == POLICY


def _counted(sent: Iterable[Entry], minute: int) -> Counter[Retry]:
    # Half a microsecond each, which a call of `is_retry` would double.
    written = Counter([
        (entry.team, headers[-2][1], headers[-5][1])
        for entry in sent
        if type(entry) is Entry and len(headers := entry.headers) > 5 and headers[-2][0] == POLICY
    ])  # fmt: skip
    found: Counter[Retry] = Counter()
    for (team, policy, attempt), count in written.items():
        if policy and attempt and attempt.isdigit():
            found[Retry(team, policy.decode(), attempt_label(int(attempt)), minute)] += count
    return found
