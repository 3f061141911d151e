"""How much may go to a topic at once. Brokers hold a topic's `max.message.bytes` against the batch in which records arrive.

So a batch can be refused of which each record alone would be taken. How large it may be is found out by halving.
"""

from __future__ import annotations

from collections.abc import Iterable

from retry.delay_queue.envelopes import Entry


class BatchSizeLimits:
    """A limit for each topic on the bytes of records that go together; a topic has none until it refuses a batch.

    Args:
      compressed: whether records are sent compressed, so that a larger one may be taken where a smaller one was refused.
    """

    def __init__(self, *, compressed: bool = False) -> None:
        self.compressed = compressed
        self._bytes_max: dict[str, int] = {}
        self._queued: dict[str, int] = {}

    def has_limits(self) -> bool:
        """Whether any topic has a limit; a transaction begins, and nothing is queued."""
        self._queued.clear()
        return bool(self._bytes_max)

    def full(self, e: Entry) -> bool:
        """Whether what is queued must arrive before this entry joins it, which it then does."""
        limit = self._bytes_max.get(e.destination)
        if limit is None:
            return False
        size, queued = _bytes(e), self._queued.get(e.destination, 0)
        full = queued > 0 and queued + size > limit
        self._queued[e.destination] = size if full else queued + size
        return full

    def alone(self, e: Entry) -> bool:
        """Whether this entry is so large that it never has company: if it is refused, it was too large."""
        return _bytes(e) >= self._bytes_max.get(e.destination, 1 << 62)

    def note_refused(self, together: Iterable[Entry]) -> None:
        """Topics refused these, some of them together: half as much from now on."""
        sizes: dict[str, int] = {}
        for e in together:
            sizes[e.destination] = sizes.get(e.destination, 0) + _bytes(e)
        for topic, size in sizes.items():
            self._bytes_max[topic] = max(1, min(size, self._bytes_max.get(topic, size)) // 2)


def _bytes(e: Entry) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in e.headers)
    return len(e.key or b"") + len(e.value or b"") + headers + 1
