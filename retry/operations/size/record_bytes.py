"""How large the records are that the service writes of a letter: some are made by its own code, and measured. Uncompressed."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from retry.dead_letters.retry_headers import of_retry
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.intake.attempts import to_header
from retry.telemetry import outcomes

# Names as teams have them, and the headers of a framework.
_TOPIC, _TEAM, _POLICY, _TARGET = "payments.orders.DLT", "payments", "payments/payments.orders.DLT", "payments.orders.retry"
_CAUSE, _GROUP = "java.net.SocketTimeoutException", "order-service"
_NOW_MS, _LETTERS = 1_795_284_700_000, 500
# What a record batch adds to a record, at most, where few share one.
_RECORD = 70


class RecordBytes(NamedTuple):
    """Bytes for each letter.

    Attributes:
      entry: on the changelog, key included.
      null: that deletes it there.
      retry: on the retry topic.
      outcome: on the outcomes topic, of which one record tells of many letters.
    """

    entry: int
    null: int
    retry: int
    outcome: int


def of_letter(letter_bytes: int) -> RecordBytes:
    """The records of a letter whose key, value and headers together have so many bytes."""
    at, source = b"%d" % _NOW_MS, f"{_TOPIC}/0/123456789".encode()
    ours = of_retry(to_header(_NOW_MS, _TEAM), b"1", source, at, _POLICY.encode(), at)
    entry = Entry(_TARGET, None, bytes(letter_bytes), ours, _NOW_MS, _TEAM, _NOW_MS)
    lane = entry_keys.lane(_TEAM, _TOPIC, _TARGET)
    key = entry_keys.build_key(_NOW_MS, entry_keys.key_stem(_TOPIC, 0), 123_456_789, lane)
    headers = sum(len(name) + len(value or b"") + 2 for name, value in ours)
    return RecordBytes(
        entry=len(key) + len(envelopes.encode(entry)) + _RECORD,
        null=len(key) + _RECORD,
        retry=letter_bytes + headers + _RECORD,
        outcome=_outcome_bytes(),
    )


def _outcome_bytes() -> int:
    shared = outcomes.SharedFields(
        _TEAM, _TOPIC, 0, policy=_POLICY, attempt=1, exception=_CAUSE, decision="retry", reason=None, target=_TARGET,
        cause=_CAUSE, fingerprint="0123456789abcdef", group=_GROUP,
    )  # fmt: skip
    rows: outcomes.LetterRows = [(to_header(n, _TEAM), 123_456_789 + n, _NOW_MS, _NOW_MS, _NOW_MS + n) for n in range(_LETTERS)]
    return sum(len(value) for value in outcomes.encode_outcomes(defaultdict(list, {shared: rows}), _NOW_MS)) // _LETTERS + 1
