"""What `retry-id` is of letters that say nothing of the record that failed."""

from __future__ import annotations

from retry.intake import attempts


def silent_id(team: str, topic: str, key: bytes | None, value: bytes | None) -> bytes:
    """The id of a letter that is known by its dead-letter topic, its key and its value alone."""
    return attempts.format_retry_id(attempts.make_fingerprint(topic, attempts.hash_payload(key, value)), team)
