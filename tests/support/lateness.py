"""How late retries were, by the brokers' clock."""

from __future__ import annotations

from collections import defaultdict

from tests.support.reading import Record


def find_due_ms(record: Record) -> int:
    """Find when a retry was to be sent."""
    return int(record.header("retry-due-ms"))


def list_lateness_ms(retries: list[Record], from_ms: int, until_ms: int) -> dict[str, list[int]]:
    """List, by team, the time from the due time to the broker's time of each retry that was due in a period."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in retries:
        if from_ms <= find_due_ms(record) < until_ms:
            found[record.topic.split(".")[1]].append(record.timestamp_ms - find_due_ms(record))
    return found


def find_percentiles_ms(late_ms: list[int]) -> tuple[int, int]:
    """Find how late half of them, and 99 of 100, were at most."""
    ordered = sorted(late_ms)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
