"""Which of the entries that were delivered are retries of letters, to be counted by team, policy and attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from retry.entry import Entry
from retry.sources.headers import ATTEMPT, POLICY
from retry.telemetry.window import MINUTE_MS, Retry, attempt_label


def retried(sent: Sequence[Entry], due_at_ms: Sequence[int]) -> Counter[Retry]:
    """How many retries of each kind are among these; called for every batch of the sweep, so most of it is one count."""
    written: Counter[tuple[str, bytes | None, bytes | None, int]] = Counter()
    for entry, due in zip(sent, due_at_ms, strict=True):
        # Ours are the last headers, in the order of `retry.pack`. What has a name came in by a door, with headers of others.
        headers = entry.headers
        if type(entry) is Entry and len(headers) > 5 and headers[-2][0] == POLICY and headers[-5][0] == ATTEMPT:
            written[entry.team, headers[-2][1], headers[-5][1], due // MINUTE_MS] += 1
    found: Counter[Retry] = Counter()
    for (team, policy, attempt, minute), count in written.items():
        if policy and attempt and attempt.isdigit():
            found[Retry(team, policy.decode(), attempt_label(int(attempt)), minute)] += count
    return found
