"""How many letters the next batch may have, so that a transaction is bounded by bytes and not only by their number."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

# Nothing is known of the first batch.
_AT_FIRST = 1_000
# Headers of all of Spring's letters take 1.5 us a letter to add up, a fortieth of the time of an ingest.
_LOOKED_AT = 64


class BatchSize:
    """The number of letters for the next batch: as many as would fit, were all like those of the batch before.

    Args:
      records_max, bytes_max: most letters and bytes of a batch; a single letter may be larger.

    Attributes:
      records: the most letters of the next batch.
    """

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self._records_max, self._bytes_max = records_max, bytes_max
        self.records, self._bytes_each = min(records_max, _AT_FIRST), 0

    def learn(self, messages: Sequence[Any]) -> None:
        """Expect the next letters to be of the average size of these."""
        values = sum(map(len, messages)) // len(messages)
        looked_at = messages[:: len(messages) // _LOOKED_AT + 1]
        others = sum(map(_without_value, looked_at)) // len(looked_at)
        self._bytes_each = values + others + 1
        self.limit_bytes(self._bytes_max)

    def limit_bytes(self, bytes_max: int) -> None:
        """Have so many bytes at most from the next batch on."""
        self._bytes_max = bytes_max
        if self._bytes_each:
            self.records = max(1, min(self._records_max, bytes_max // self._bytes_each))

    def estimate_bytes(self, records: int) -> int:
        """How many bytes so many letters have, about, if they are like those of the batch before."""
        return records * self._bytes_each


def _without_value(message: Any) -> int:
    """Bytes of the key and the headers of a letter; of the key alone where the client cannot read them."""
    size = len(message.key() or b"")
    with suppress(SystemError):
        size += sum(len(name) + len(value or b"") for name, value in message.headers() or ())
    return size
